"""What it costs a host to issue a kernel, by its processor's generation."""

from __future__ import annotations

import pytest

from simcore.hardware.host import issue_over_torch
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
