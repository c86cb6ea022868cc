"""Optimizers and precisions by the names that people and libraries give them."""

from __future__ import annotations

import pytest

from simcore.base.errors import UnknownName
from simcore.strategy.optimizers import OPTIMIZERS, optimizer_named
from simcore.strategy.precision import PRECISIONS, precision_named


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("AdamW", "adamw"), ("adamw8bit", "adamw-8bit"), ("AdamW_8bit", "adamw-8bit"),
        ("adamw_torch", "adamw"), ("SGD", "sgd"),
    ],
)  # fmt: skip
def test_optimizers(text: str, name: str) -> None:
    assert optimizer_named(text) is OPTIMIZERS[name]


@pytest.mark.parametrize(
    ("text", "name"),
    [("BF16", "bf16"), ("bfloat16", "bf16"), ("amp_fp16", "amp-fp16"), ("float32", "fp32")],
)
def test_precisions(text: str, name: str) -> None:
    assert precision_named(text) is PRECISIONS[name]


def test_every_name_means_itself() -> None:
    assert all(optimizer_named(n) is OPTIMIZERS[n] for n in OPTIMIZERS)
    assert all(precision_named(n) is PRECISIONS[n] for n in PRECISIONS)


def test_unknown_ones_are_told_what_is_near() -> None:
    with pytest.raises(UnknownName, match="did you mean 'adam'"):
        optimizer_named("adamv")
    with pytest.raises(UnknownName, match="unknown precision 'int8'"):
        precision_named("int8")
