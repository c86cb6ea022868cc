"""Synthetic operators compute what their kernels say: counted by torch, not by this code."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest
from strategies import workload
from torch.utils.flop_counter import FlopCounterMode

from simcore.calibrate.job.kernel_runs import (
    Maker,
    conv_geometry,
    function_in,
    functions_of,
    made,
    shape_of,
)
from simcore.step.kernels import KernelTable, kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.workload import ops
from simcore.workload.graph import Block, Op

FP32 = PRECISIONS["fp32"]
MAKE = Maker("cpu", FP32)
BATCH = 2


def table(*of: Op) -> KernelTable:
    return kernel_table(workload([Block(name="b", ops=of)]), FP32)


def counted(kernel: np.void) -> tuple[float, float]:
    """FLOP of the kernel, and of the call that stands for it as torch counts them, scaled."""
    shape = shape_of(kernel, BATCH)
    run, scale = made(shape, MAKE)
    with FlopCounterMode(display=False) as counter:
        run()
    return shape.flop, counter.get_total_flops() * scale


#: (height and width, channels in and out, taps, stride, groups)
CONVS = [(32, 3, 64, 7, 2, 1), (16, 64, 64, 3, 1, 1), (16, 64, 256, 1, 1, 1),
         (16, 256, 512, 1, 2, 1), (16, 128, 128, 3, 2, 1), (32, 3, 96, 16, 16, 1),
         (32, 3, 32, 3, 1, 1), (16, 96, 96, 3, 1, 96), (16, 64, 64, 5, 2, 64),
         (32, 4, 32, 3, 1, 1)]  # fmt: skip


def conv(size: int, cin: int, cout: int, taps: int, stride: int, groups: int) -> Op:
    out = size // stride
    return ops.conv("c", (size, size), (out, out), cin, cout, taps, stride=stride, groups=groups)


@pytest.mark.parametrize("of", CONVS)
def test_geometry_of_a_convolution_is_found_again(of: tuple[int, ...]) -> None:
    size, cin, cout, taps, stride, groups = of
    for kernel in table(conv(*of)).kernels:
        s = shape_of(kernel, BATCH)
        found = conv_geometry(s, (s.n_bytes - s.weight_bytes) / 4, s.weight_bytes / 4)
        assert (found.images, found.out) == (BATCH, (size // stride,) * 2)
        assert (found.taps, found.stride, found.groups) == ((taps, taps), stride, groups)
        assert (found.cin, found.cout) == (cin // groups, cout // groups)


def products() -> Iterator[Op]:
    yield ops.linear("l", 6, 32, 48)
    yield ops.bmm("b", 4, 8, 16, 24)
    yield from (conv(*of) for of in CONVS[:5])


@pytest.mark.parametrize("op", list(products()), ids=lambda op: op.name)
def test_products_and_convolutions_have_the_flop_of_their_kernels(op: Op) -> None:
    for kernel in table(op).kernels:
        wanted, found = counted(kernel)
        assert found == pytest.approx(wanted)


@pytest.mark.parametrize("kind", ["norm", "batch_norm", "softmax", "reduction", "gather", "copy",
                                  "elementwise"])  # fmt: skip
def test_every_kind_that_moves_data_runs_forward_and_backward(kind: str) -> None:
    of = {
        "norm": ops.layer_norm("n", 16, 64),
        "batch_norm": ops.batch_norm("n", 8 * 64, 8, channels_first=True),
        "softmax": ops.softmax("s", 4096, row=64),
        "reduction": ops.reduction("r", 4096),
        "gather": ops.embedding("e", 16, 64, 1000),
        "copy": ops.copy("c", 4096),
        "elementwise": ops.activation("gelu", 4096),
    }
    ran = 0
    for kernel in table(of[kind]).kernels:
        if kernel["launches"]:
            run, scale = made(shape_of(kernel, BATCH), MAKE)
            run()
            assert 0.5 < scale < 2.0
            ran += 1
    assert ran >= 2


def test_the_name_of_an_op_says_its_function() -> None:
    assert function_in("layers.0.gelu") == "gelu"
    assert function_in("mlp.dropout") == "dropout"
    assert function_in("attention.residual") == ""
    assert functions_of(["gelu", "residual", "gelu"]) == ["gelu", "", "gelu"]
    assert functions_of([]) == [""]
