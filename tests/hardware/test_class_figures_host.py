"""What it costs a host to issue a kernel, by its processor's generation."""

from __future__ import annotations

import pytest

from simcore.hardware.class_figures import host_work_by_kind, issue_over_torch
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import NODES


def over_torch(node: str) -> float:
    return issue_over_torch(load_profile().runtime, "torch", NODES[node].cpu.model)


@pytest.mark.parametrize(
    ("node", "gains"),
    [
        ("dgx-1", (1.10, 1.18, 1.19)),  # Broadwell: Skylake-SP, Sunny Cove and Golden Cove follow
        ("dgx-2", (1.18, 1.19)),  # Skylake
        ("dgx-2h", (1.18, 1.19)),
        ("p4d-aws", (1.18, 1.19)),  # Cascade Lake
        ("gaudi2-8oam", (1.19,)),  # Ice Lake
        ("dgx-h100", ()),  # Sapphire Rapids
        ("dgx-a100", (1.19, 1.13)),  # Zen 2: Zen 3 and Zen 4 follow
    ],
)
def test_generations_gain_what_their_makers_say(node: str, gains: tuple[float, ...]) -> None:
    expected = 1.0
    for gain in gains:
        expected *= gain
    assert over_torch(node) == pytest.approx(expected, abs=0.01)


def test_no_x86_of_the_records_before_2022_passes_for_a_newer_one() -> None:
    older = ("E5-", "Gold 6148", "Gold 6248", "Platinum 81", "Platinum 82", "Platinum 83")
    found = [n for n in NODES.names() if any(w in NODES[n].cpu.model for w in older)]
    assert found
    assert all(over_torch(n) > 1.1 for n in found)


#: Microseconds (forward, backward) of operators without CUDA, printed by benchmarks.host_costs with
#: torch 2.13.0 on 2026-11-26, and the number of kernels that share backward.
MEASURED = {
    "gemm": (5.72, 14.33 - 1.69, 2),  # nn.Linear; the sum over rows is the bias's gradient
    "bmm": (3.14, 6.14, 2),
    "conv": (5.10, 6.37, 2),
    "attention": (13.63, 25.05, 1),
    "norm": (4.55, 6.97, 1),
    "batch_norm": (10.47, 7.43, 1),
    "softmax": (1.36, 2.08, 1),
    "reduction": (1.62, 1.69, 1),
    "copy": (2.40, 3.02, 1),
    "recurrent": (0.0, 0.0, 1),  # cuDNN launches them without dispatch or autograd between
    "auxiliary": (0.0, 0.0, 1),  # nor are there any between those of one operator
    # the mean of add, multiply and silu, and half of an empty module
    "elementwise": ((1.21 + 1.26 + 1.94) / 3 + 0.56 / 2, (1.31 + 1.92 + 2.37) / 3, 1),
}
ISSUE_US = 5.72 / 1.28


def test_host_work_is_what_was_measured_of_each_kind() -> None:
    table = host_work_by_kind()
    assert set(table) == set(MEASURED)
    for kind, (forward_us, backward_us, kernels) in MEASURED.items():
        forward, backward = table[kind]
        assert forward.issues == pytest.approx(forward_us / ISSUE_US, abs=0.03), kind
        assert backward.issues == pytest.approx(backward_us / kernels / ISSUE_US, abs=0.06), kind


def test_libraries_take_what_one_machine_showed() -> None:
    """Of one host: z + z 10.5 us, z.relu_() 9.2, z @ z 20.8 (micro.json of 2026-11-26, H200).

    The launch is what is left of relu_ without PyTorch's 0.7 us, which Python's speed there makes
    1.2 times as long; a product takes about another launch.
    """
    launch_us = 9.2 - 1.2 * 0.7
    assert pytest.approx(1.2 * 1.28 + launch_us, rel=0.1) == 10.5
    products = (20.8 - 1.2 * 1.13) / launch_us
    assert host_work_by_kind()["gemm"][1].launches == pytest.approx(products, abs=0.4)
    norm_with_counter = host_work_by_kind()["batch_norm"][0]
    assert norm_with_counter.launches == 2.0
