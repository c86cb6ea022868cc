"""Batched fp32 products: padded to the one tile of their library, held against timed ones."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.base.units import MILLI
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.estimates import only_batched_fp32_tile
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS
from simcore.step.kernels import BATCHED, KINDS, kernel_table
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import Strategy
from simcore.timing.compute import class_phases
from simcore.timing.points import Points
from simcore.timing.rates import ClassRates, class_rates
from simcore.workload import ops
from simcore.workload.graph import Block, Workload

#: NeuSight's labels of BERT-large on 512 tokens, batch by heads: forward of attention times values
#: (torch.matmul, with the copy of the values that it makes), milliseconds.
TIMED = {"A100-PCIE-80GB": (8, 0.533), "P100-PCIE-16GB": (16, 2.303), "V100-PCIE-32GB": (16, 0.945)}


def rates_on(gpu: str, precision: str = "fp32-ieee") -> ClassRates:
    group = parse_cluster(f"1x1x{gpu}").groups[0]
    return class_rates(group, PRECISIONS[precision], load_profile())


def forward_s(gpu: str, batch: int) -> float:
    """Attention times values of 16 heads of 64 and the copy of the values."""
    context = ops.bmm("context", 16, 512, 64, 512)
    block = Block(name="b", ops=(context, ops.copy("values", 512.0 * 1024.0)), params=())
    whole = Workload(name="w", sample_unit="s", blocks=(block,), order=(0,), input_bytes=0.0)
    precision = PRECISIONS["fp32-ieee"]
    strategy = Strategy(precision=precision, optimizer=OPTIMIZERS["sgd"])
    points = Points.of({"micro_batch": float(batch)}, 1)
    rates = (rates_on(gpu),)
    return float(class_phases(strategy, kernel_table(whole, precision), rates, points)[0][0, 0])


@pytest.mark.parametrize("gpu", TIMED)
def test_heads_of_64_take_what_was_timed(gpu: str) -> None:
    batch, timed_ms = TIMED[gpu]
    assert forward_s(gpu, batch) == pytest.approx(timed_ms * MILLI, rel=0.15)


def test_only_fp32_products_of_activations_have_the_one_tile() -> None:
    found = rates_on("A100-PCIE-80GB").kernels.kinds["tile"]
    batched = KINDS.index(BATCHED)
    assert found[batched].tolist() == [128.0, 128.0]
    assert np.delete(found, batched, axis=0).max() == 1.0
    for on_matrix_units in ("tf32", "bf16"):
        assert (rates_on("A100-PCIE-80GB", on_matrix_units).kernels.kinds["tile"] == 1.0).all()
    assert (rates_on("V100-PCIE-32GB").kernels.kinds["tile"] == 1.0).all()


def test_tiles_by_family() -> None:
    assert only_batched_fp32_tile(GPUS["P4"]) == (64.0, 128.0)
    assert only_batched_fp32_tile(GPUS["RTX3090"]) == (128.0, 128.0)
    assert only_batched_fp32_tile(GPUS["L4"]) == (128.0, 128.0)
    for chooses in ("T4", "H100-SXM-80GB", "MI210"):
        assert only_batched_fp32_tile(GPUS[chooses]) is None
