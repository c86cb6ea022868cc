"""Products of devices with systolic arrays, and grouped products whose tiles cross the groups."""

from __future__ import annotations

import numpy as np
import pytest

from simcore import api
from simcore.physics.fill import own_sides
from simcore.timing.compute import _edge_samples
from simcore.workload.graph import Kernel
from simcore.workload.ops.moe import grouped_linear


def _sides(kernel: Kernel) -> np.ndarray:
    sides = (kernel.m, kernel.n, kernel.k, kernel.groups)
    return np.array([[(s.fixed, s.per_sample) for s in sides]])


def test_a_tile_across_an_edge_is_computed_for_both_experts() -> None:
    """Megablox visits a tile once for each group in it: 8 groups have 7 inner edges.

    8 groups of 1,024 rows in tiles of 512: 16 tiles, 7 of them a second time.
    """
    op = grouped_linear("experts", 8 * 1024.0, 256, 128, 8, joint=True, edge_rows=512)
    for kernel in (*op.fwd, *op.bwd):
        assert _edge_samples(_sides(kernel)) == pytest.approx(7 / 16)


@pytest.mark.parametrize("rows", [96, 256, 320, 1000, 4096])
def test_the_last_tile_of_each_expert_is_half_empty_on_average(rows: int) -> None:
    """Rows drawn at random for 64 experts, in whole tiles of 128, against the samples that count.

    The gradients of weights add products of rows, which fill no tile of the output.
    """
    drawn = np.random.default_rng(0).multinomial(64 * rows, [1 / 64] * 64, size=400)
    tiled = (np.ceil(drawn / 128) * 128).sum(axis=1).mean() / (64 * rows)
    op = grouped_linear("experts", 64.0 * rows, 256, 128, 64, joint=True)
    for kernel, more in zip((*op.fwd, *op.bwd), (64 / rows, 64 / rows, 0.0), strict=True):
        sides = _sides(kernel)
        assert _edge_samples(sides) == pytest.approx(more)
        assert own_sides(sides)[0, :, 0].tolist() == [s.fixed * (s.per_sample == 0) for s in (
            kernel.m, kernel.n, kernel.k, kernel.groups)]  # fmt: skip
    if rows > 128:
        assert 1 + 64 / rows == pytest.approx(tiled, rel=0.06)
    one = grouped_linear("experts", 1000.0, 256, 128, 1, joint=True)
    assert _edge_samples(_sides(one.fwd[0])) == 0.0


def test_products_without_groups_have_no_edges() -> None:
    plain = np.array([[(512.0, 1024.0), (64.0, 0.0), (64.0, 0.0), (1.0, 0.0)]])
    aligned = np.array([[(0.0, 1024.0), (64.0, 0.0), (64.0, 0.0), (8.0, 0.0)]])
    assert _edge_samples(plain) == 0.0
    assert _edge_samples(aligned) == 0.0


def _forward_s(**settings: int) -> float:
    words = " ".join(f"{k}={v}" for k, v in {"layers": 4, **settings}.items())
    found = api.predict(
        "arch:transformer", "1xTPU-v6e", strategy="ddp", precision="bf16", micro_batch=1,
        software="maxtext@tpu", settings=words,
    )  # fmt: skip
    return float(found.time_s["forward"])


def test_heads_of_128_attend_at_half_rate_on_an_array_of_256() -> None:
    """The same FLOP in heads of 256 and of 128, with so many keys that attention decides."""
    shape = {"hidden": 2048, "seq_len": 65536, "ffn": 2048, "vocab": 1024}
    wide = _forward_s(heads=8, head_dim=256, **shape)
    narrow = _forward_s(heads=16, head_dim=128, **shape)
    assert 1.7 < narrow / wide < 2.05
