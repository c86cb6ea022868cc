"""Casts to blocks with scales of their own, against kernels that were timed."""

import pytest

from simcore.answer.request import make_request
from simcore.strategy.precision import PRECISIONS
from simcore.timing.rates import ClassRates, class_rates

SIDE = 8192


def rates_of(gpu: str, precision: str) -> ClassRates:
    asked = make_request("gpt2", gpu, precision=precision, software="megatron")
    return class_rates(asked.cluster.groups[0], asked.strategy.precision, asked.profile)


def rate(gpu: str, precision: str, kind: str = "cast") -> float:
    return float(rates_of(gpu, precision).kernels.of(kind)["bytes_per_s"])


@pytest.mark.parametrize(("read", "measured_us"), [(2, 52.34), (2, 51.16), (4, 76.95)])
def test_transformer_engine_on_b200(read: int, measured_us: float) -> None:
    """From bf16, fp16 and fp32 to MXFP8, rows and columns (ROCm/TransformerEngine pull 598)."""
    one = 1 + 1 / 32  # an element and its share of a scale
    assert PRECISIONS.get("mxfp8").cast_traffic_bytes() == 2 + 2 * one
    n_bytes = SIDE**2 * (read + 2 * one)
    start = rates_of("1xB200", "mxfp8").kernels.start_s
    assert start + n_bytes / rate("1xB200", "mxfp8") == pytest.approx(measured_us / 1e6, rel=0.04)


def test_others_move_as_plain_streams_do() -> None:
    for gpu, precision in (("1xB200", "fp8"), ("1xH100", "fp8"), ("1xRTX PRO 6000", "mxfp8")):
        assert rate(gpu, precision) >= rate(gpu, precision, "elementwise")
    assert not PRECISIONS.get("fp8-rowwise").micro_scaled
