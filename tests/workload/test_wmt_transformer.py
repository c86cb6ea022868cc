"""Transformers of Vaswani et al. against closed forms by hand."""

from __future__ import annotations

import pytest

from simcore.workload.models import MODELS

WORDS = 32768


@pytest.mark.parametrize(
    ("name", "width", "inner"),
    [("transformer-wmt-base", 512, 2048), ("transformer-wmt-big", 1024, 4096)],
)
def test_parameters_are_a_table_and_twelve_layers(name: str, width: int, inner: int) -> None:
    attention = 4 * width**2 + 4 * width
    mlp, norm = 2 * width * inner + inner + width, 2 * width
    encoder = attention + mlp + 2 * norm
    decoder = 2 * attention + mlp + 3 * norm
    built = MODELS[name].build()
    counted = sum(p.numel for i in built.order for p in built.blocks[i].params)
    assert counted == WORDS * width + 6 * (encoder + decoder)
    # Table 3 of the paper: 65 and 213 million, with 37,000 words
    published = {"transformer-wmt-base": 65e6, "transformer-wmt-big": 213e6}[name]
    assert counted + (37000 - WORDS) * width == pytest.approx(published, rel=0.03)


def test_trained_positions_have_a_table_for_each_side_and_a_norm() -> None:
    def counted(**settings: object) -> int:
        built = MODELS["transformer-wmt-base"].build(**settings)
        return sum(p.numel for i in built.order for p in built.blocks[i].params)

    assert counted(fixed_positions=False) - counted() == 2 * (1026 * 512 + 2 * 512)
