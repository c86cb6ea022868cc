"""Kernels as text: what is read back is what was written, and a mistake is named."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.step.kernel_text import kernel_text, kernel_texts, read_kernels
from simcore.step.kernels import COLUMNS, KernelTable, kernel_table
from simcore.strategy.precision import PRECISIONS
from simcore.workload.resolve import resolve_model


def table(model: str, precision: str) -> KernelTable:
    return kernel_table(resolve_model(model).build(), PRECISIONS[precision], recompute=True)


@pytest.mark.parametrize(
    ("model", "precision"), [("gpt2", "amp-bf16"), ("resnet50", "fp32"), ("mixtral-8x7b", "fp8")]
)
def test_text_is_read_back(model: str, precision: str) -> None:
    of = table(model, precision)
    read = read_kernels(kernel_texts(of))
    for name in set(COLUMNS.names or ()) - {"count"}:
        assert np.allclose(read[name], of[name], rtol=1e-8, atol=0.0), name
    assert tuple(map(kernel_text, read)) == kernel_texts(of)


def test_a_line_can_be_read_by_people() -> None:
    texts = kernel_texts(table("gpt2", "amp-bf16"))
    up = next(t for t in texts if "n=3072" in t and t.startswith("forward gemm "))
    # 2 x 1024 tokens x 768 x 3072 FLOP; the weight is read once, in 16 bit
    assert "flop=4.83183821e09" in up and "n_bytes=4718592+7864320" in up
    assert up.endswith("m=0+1024 n=3072 k=768")


@pytest.mark.parametrize("wrong", ["forward gemm flops=1", "forward gemmm", "sideways gemm", "x",
                                   "forward gemm flop=much"])  # fmt: skip
def test_what_is_no_kernel_is_named(wrong: str) -> None:
    with pytest.raises(ValueError, match="is no kernel"):
        read_kernels(["forward copy launches=1", wrong])


def test_what_a_kernel_does_not_have_is_not_written() -> None:
    words = [word for text in kernel_texts(table("gpt2", "amp-bf16")) for word in text.split()]
    assert not [w for w in words if w.startswith("count=") or w.endswith("=0")]


def test_a_kernel_that_is_read_runs_once() -> None:
    """A text says what a kernel is, not how often a step runs it."""
    found = read_kernels(["forward gemm flop=8", "backward copy"])
    assert found["count"].tolist() == [1.0, 1.0] and found["flop"].tolist() == [8.0, 0.0]
    assert found["backward"].tolist() == [False, True]
    assert found["sides"][..., 0].tolist() == [[1.0] * 4] * 2
