"""Zamba2: parameters and work of shared blocks by hand, and what is refused."""

from __future__ import annotations

import pytest

from simcore.base.errors import InvalidConfig
from simcore.workload.graph import Workload
from simcore.workload.models import MODELS

SMALL, LARGE = MODELS["zamba2-1.2b"], MODELS["zamba2-2.7b"]
H, F, R, SEQ = 2560, 10240, 128, 256


def products(workload: Workload, block: str) -> float:
    """FLOP of a block's products of the shared part, forward."""
    ops = next(b for b in workload.blocks if b.name == block).ops
    mixer = ("in_proj", "mixer.", "out_proj")
    return sum(
        k.flop for op in ops if not op.name.startswith(mixer) for k in op.fwd if k.kind == "gemm"
    )


def test_parameters_of_the_smaller_are_those_of_its_weights() -> None:
    """model.safetensors of Zyphra/Zamba2-1.2B holds 1,215,064,704 numbers."""
    assert SMALL.build().trainable_numel == 1_215_064_704


def test_parameters_of_a_depth_by_hand() -> None:
    """Two blocks are whole; further depths have a low-rank product and one behind the block."""
    blocks = {b.name: b for b in LARGE.build().blocks}
    mamba = blocks["layer"].numel
    own = R * (H + 2 * F) + H * H
    assert blocks["layer shared again"].numel == mamba + own
    # q, k and v of twice the width, o to the width, two norms, gate and up, down
    shared = 3 * (2 * H) ** 2 + 2 * H * H + 3 * H + 3 * H * F
    assert blocks["layer shared"].numel == mamba + own + shared
    assert LARGE.build().order.count(2) == 2


def test_work_of_a_shared_block_is_that_of_each_depth() -> None:
    workload = LARGE.build(seq_len=SEQ)
    linear = 3 * (2 * H) ** 2 + 2 * H * H + 3 * H * F + R * (H + 2 * F) + H * H
    assert products(workload, "layer shared") == 2 * SEQ * linear
    assert products(workload, "layer shared again") == 2 * SEQ * linear


def test_adapters_of_attention_are_three_more() -> None:
    plain, adapted = (LARGE.build(seq_len=SEQ, adapted_attention=x) for x in (False, True))
    more = 3 * 2 * R * 2 * H
    assert products(adapted, "layer shared") - products(plain, "layer shared") == 2 * SEQ * more
    assert adapted.trainable_numel - plain.trainable_numel == 9 * more


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({"shared_pattern": "ms"}, "54 letters s and m"),
        ({"heads": 3}, "heads 3"),
        ({"ssm_groups": 3}, "multiple of ssm_groups 3"),
        ({"shared_blocks": 0}, "shared_blocks 0"),
    ],
)
def test_settings_of_no_sense_are_named(settings: dict[str, str | int], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        LARGE.build(**settings)
