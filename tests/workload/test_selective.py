"""Mamba-1's mixer: storages and traffic of the scan by hand, its parts on tensor ranks."""

from __future__ import annotations

import pytest

from simcore.base.errors import InvalidConfig
from simcore.workload import ops
from simcore.workload.graph import Op, Workload
from simcore.workload.models import MODELS
from simcore.workload.sharding import tensor_overrides, tensor_sums

L, D, N, R = 4096, 8192, 16, 256
MINI = MODELS["jamba-1.5-mini"]


def mixer(workload: Workload) -> dict[str, Op]:
    return next(
        {op.name: op for op in b.ops} for b in workload.blocks
        if any(op.name == "mixer.scan" for op in b.ops)
    )  # fmt: skip


def test_the_scan_keeps_what_its_autograd_function_saves() -> None:
    """SelectiveScanFn: u, delta, z, out of 16 bit, B and C, and of each 2,048 tokens fp32 states
    in pairs (x[:, :, -1, 1::2] is the last state)."""
    op = mixer(MINI.build(seq_len=L))["mixer.scan"]
    assert op.saved.low == 4 * L * D + 2 * L * N
    assert op.saved.raw_bytes == 4 * 2 * 2 * D * N
    assert sum(k.flop for k in (*op.fwd, *op.bwd)) == 0  # no matrix product


def test_a_layer_keeps_eight_widths_beside_its_norm() -> None:
    """x and gate together, x convolved, and as the scan's rows; steps, gate, results with it and
    without: what autograd pins of JambaMambaMixer but for steps' narrow input, B and C."""
    found = mixer(MINI.build(seq_len=L))
    names = ("mixer.conv", "mixer.gate", "x_proj", "mixer.rows", "mixer.scan", "out_proj")
    kept = sum(found[n].saved.low + found[n].saved.matmul for n in names)
    assert kept == 8 * L * D + 2 * L * N


def test_parameters_by_hand() -> None:
    """in, conv, x, steps with bias, A, D, three norms, out (Gu & Dao 2023; Lieber et al. 2024)."""
    one = {"layers": 1, "mixer_pattern": "s", "expert_pattern": "n", "seq_len": 128}
    d = 4096
    layer = d * 2 * D + 5 * D + D * (R + 2 * N) + R * D + D + D * N + D + R + 2 * N + D * d + d
    assert MINI.build(**one).blocks[1].params
    assert sum(p.numel for p in MINI.build(**one).blocks[1].params) == layer


@pytest.mark.parametrize("tp", [2, 8])
def test_tensor_ranks_divide_channels(tp: int) -> None:
    own = tensor_overrides(MINI, tp, 1)
    names = ("in_proj", "x_proj", "dt_proj", "out_proj")
    whole, part = (mixer(MINI.build(seq_len=512, **x)) for x in ({}, own))
    for name in names:
        assert tp * part[name].fwd[0].flop == whole[name].fwd[0].flop
    assert tp * part["mixer.scan"].fwd[0].low == pytest.approx(
        whole["mixer.scan"].fwd[0].low + (tp - 1) * 2 * 512 * N
    )


def test_ranks_sum_up_steps_b_and_c_too() -> None:
    """Seven of eight layers exchange 288 numbers a token beside the usual 2 x 4,096."""
    config = MINI.settings({})
    assert tensor_sums("transformer", config) == 2 + 7 / 8 * (R + 2 * N) / 4096


def test_widths_must_be_said() -> None:
    with pytest.raises(InvalidConfig, match="ssm_inner and ssm_rank"):
        MINI.build(ssm_rank=0)


def test_chunks_begin_anew_after_2048_tokens() -> None:
    def states(seq: int) -> float:
        shape = ops.SelectiveShape(seq=seq, inner=8, state=4, rank=2, conv=4, normed=True)
        return ops.selective_scan("scan", shape).saved.raw_bytes

    assert states(2048) == states(1) == states(2049) / 2
