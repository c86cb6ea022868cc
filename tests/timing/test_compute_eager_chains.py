"""Chains of eager kernels beside what Liger-Kernel publishes of them.

BSD-2-Clause, benchmark/data/a100_all_benchmark_data.csv and h100_all_benchmark_data.csv of
2025-01-25, medians in ms: A100 80GB PCIe, H100 NVL; all_benchmark_data.csv of 2024-09-03: A100 SXM
80GB, which has 5 % more bandwidth and as many lanes.
"""

from __future__ import annotations

import numpy as np
import pytest

from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.step.kernels import kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.timing.compute import phase_seconds
from simcore.timing.rates import class_rates
from simcore.workload import ops
from simcore.workload.archs.lm_attention import rope
from simcore.workload.graph import Block, Op, Workload

#: 2,048 rows of ``dim`` in bf16: forward. Its weight is fp32, so that the last product converts
#: in either case; backward has three conversions more than a model's and is not compared.
RMS_NORM = {
    "A100-PCIE-80GB": {4096: 0.2826, 8192: 0.5233, 16384: 0.9923, 32768: 1.9333},
    "A100-SXM-80GB": {4096: 0.2799, 8192: 0.5190, 16384: 0.9856, 32768: 1.9191},
    "H100-NVL": {4096: 0.1795, 8192: 0.3261, 16384: 0.6095, 32768: 1.2193},
}
#: 32 and 8 heads of 256 in bf16, by tokens: forward, backward.
ROPE = {
    "A100-PCIE-80GB": {2048: (0.5192, 0.6257), 8192: (1.9927, 2.3736), 16384: (3.9639, 4.6582)},
    "H100-NVL": {2048: (0.3436, 0.4265), 8192: (1.3217, 1.5468), 16384: (2.5666, 3.1129)},
}
#: 16,384 rows of fp32 logits, by vocabulary: forward; both passes, with a sum into old gradients.
LOSS = {
    "A100-PCIE-80GB": {32768: (5.3929, 15.7763), 65536: (10.5718, 31.1992)},
    "H100-NVL": {32768: (2.4888, 7.7325), 65536: (5.3954, 15.6490)},
}


def passes_ms(op: Op, gpu: str, precision: str) -> tuple[float, float]:
    """Device time of forward and backward [ms] of one sample."""
    workload = Workload(
        name="one", sample_unit="sample", blocks=(Block(name="b", ops=(op,)),), order=(0,)
    )
    chosen = PRECISIONS[precision]
    rates = class_rates(parse_cluster(f"1x1x{gpu}").groups[0], chosen, load_profile())
    one = np.ones(1)
    seconds = phase_seconds(kernel_table(workload, chosen), rates.kernels, one, one, one)
    return 1e3 * float(seconds[0, 0]), 1e3 * float(seconds[1, 0])


@pytest.mark.parametrize("gpu", RMS_NORM)
def test_eager_rms_norm_takes_what_is_published(gpu: str) -> None:
    for dim, measured in RMS_NORM[gpu].items():
        forward, _ = passes_ms(ops.rms_norm_eager("norm", 2048.0, dim), gpu, "bf16")
        assert forward == pytest.approx(measured, rel=0.12)


@pytest.mark.parametrize("gpu", ROPE)
def test_eager_rotary_positions_take_what_is_published(gpu: str) -> None:
    for tokens, measured in ROPE[gpu].items():
        found = passes_ms(rope("rope", tokens * 40 * 256.0), gpu, "bf16")
        assert found == pytest.approx(measured, rel=0.1)


@pytest.mark.parametrize("gpu", LOSS)
def test_an_eager_loss_takes_what_is_published(gpu: str) -> None:
    for vocab, (forward, both) in LOSS[gpu].items():
        logits = 16384.0 * vocab
        found = passes_ms(ops.cross_entropy("loss", 16384.0, vocab), gpu, "fp32-ieee")
        summed = passes_ms(ops.accumulate("grad", logits, high=True), gpu, "fp32-ieee")[1]
        assert found[0] == pytest.approx(forward, rel=0.15)
        assert sum(found) + summed == pytest.approx(both, rel=0.12)


def test_short_rows_are_read_once() -> None:
    """A block holds 12,288 fp32 numbers: one more, and each pass reads the row anew."""
    held, streamed = (ops.cross_entropy("loss", 1.0, n) for n in (12288, 12289))
    assert sum(k.high for k in held.fwd) == 2 * 12288
    assert sum(k.high for k in streamed.fwd) == 4 * 12289


def test_what_is_addressed_one_by_one_costs_by_the_element() -> None:
    """51 operations on 64 lanes of 108 SMs at 1.41 GHz, whatever the width; fp32 moves longer."""
    elems = 1e9
    by_element_ms = elems * 51 / (64 * 108 * 1.41e9) * 1e3
    gpu = "A100-PCIE-80GB"
    narrow, _ = passes_ms(ops.copy("turn", elems), gpu, "bf16")
    wide, _ = passes_ms(ops.copy("turn", elems), gpu, "fp32")
    plain, _ = passes_ms(ops.scale("scale", elems), gpu, "bf16")
    assert narrow == pytest.approx(by_element_ms, rel=1e-2)
    assert wide == pytest.approx(max(by_element_ms, 8 * elems / (0.8 * 1.935e12) * 1e3), rel=1e-2)
    assert plain < narrow


def test_casts_cost_nothing_where_all_is_fp32() -> None:
    cast = Op(name="cast", fwd=(ops.cast(1e9),))
    assert passes_ms(cast, "A100-PCIE-80GB", "fp32-ieee")[0] == 0.0
    assert passes_ms(cast, "A100-PCIE-80GB", "bf16")[0] > 1.0
