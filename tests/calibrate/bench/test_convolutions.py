"""Passes of convolutions against autograd, in both layouts; what a GPU is asked to time."""

from __future__ import annotations

from typing import cast

import pytest

torch = pytest.importorskip("torch")

from simcore.calibrate.bench.case import Device, World  # noqa: E402
from simcore.calibrate.bench.convolutions import Conv, conv_cases, convolution  # noqa: E402
from tests.bench_fakes import FakeClock, FakeDevice  # noqa: E402

CPU = cast(Device, FakeDevice(FakeClock()))
GPU = cast(
    Device, FakeDevice(FakeClock(), kind="cuda", dtypes=("fp32", "tf32", "bf16"))
)  # fmt: skip


@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
@pytest.mark.parametrize(
    "shape",
    [Conv(2, 3, 8, 7, 12, 2), Conv(2, 8, 4, 1, 6, 1), Conv(2, 6, 6, 3, 8, 2, 6)],
    ids=["stem", "pointwise", "depthwise"],
)
def test_the_gradients_are_those_of_autograd(shape: Conv, layout: str) -> None:
    for index, way in enumerate(("dgrad", "wgrad")):
        torch.manual_seed(0)
        both = convolution("fp32", shape, "bwd", layout, CPU)()
        torch.manual_seed(0)
        one = convolution("fp32", shape, way, layout, CPU)()
        assert [g is not None for g in one] == [way == "dgrad", way == "wgrad", False]
        torch.testing.assert_close(one[index], both[index])


@pytest.mark.parametrize("layout", ["nchw", "channels_last"])
def test_tensors_have_the_layout(layout: str) -> None:
    y = convolution("fp32", Conv(2, 8, 8, 3, 6, 1), "fwd", layout, CPU)()
    last = y.is_contiguous(memory_format=torch.channels_last)
    assert last is (layout == "channels_last")


def test_flop_of_a_depthwise_convolution_are_those_of_torch() -> None:
    from torch.utils.flop_counter import FlopCounterMode

    for shape in (Conv(2, 6, 6, 3, 8, 2, 6), Conv(2, 3, 8, 7, 12, 2)):
        with FlopCounterMode(display=False) as counted:
            convolution("fp32", shape, "fwd", "nchw", CPU)()
        assert shape.flop == counted.get_total_flops()


def test_a_gpu_times_each_pass_in_both_layouts_and_dtypes() -> None:
    cases = list(conv_cases(GPU, World()))
    kinds = {(c.columns["dtype"], c.columns["layout"], c.columns["pass"]) for c in cases}
    assert len(kinds) == 3 * 2 * 3
    sizes = {(c.columns["kernel_size"], c.columns["stride"]) for c in cases}
    assert {(7, 2), (3, 1), (3, 2), (1, 1), (1, 2)} <= sizes
    assert any(c.columns["groups"] != 1 for c in cases)
    assert len({c.key for c in cases}) == len(cases)


def test_a_host_keeps_channels_first_and_both_gradients_in_one() -> None:
    cases = list(conv_cases(CPU, World()))
    assert {c.columns["pass"] for c in cases} == {"fwd", "bwd"}
    assert not any("layout" in c.columns for c in cases)
    assert len({c.key for c in cases}) == len(cases)
    assert sum(c.cold for c in cases) == sum(not c.cold for c in cases)  # a step meets both
