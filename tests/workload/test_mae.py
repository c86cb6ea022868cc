"""Masked autoencoders against closed forms by hand (models_mae.py) and published sizes."""

from __future__ import annotations

import pytest

from simcore.workload.models import MODELS

#: Layers, width and patch of the encoder, and parameters with the positions of 197 or 257 tokens
#: (facebook/vit-mae-base has 111,907,840).
SIZES = {
    "mae-vit-b-16": (12, 768, 16), "mae-vit-l-16": (24, 1024, 16), "mae-vit-h-14": (32, 1280, 14),
}  # fmt: skip
DECODER, DEPTH = 512, 8


def _block(width: int) -> int:
    """Parameters of a block: 12 h^2 of products, 9 h of their biases, 4 h of two norms."""
    return 12 * width**2 + 13 * width


@pytest.mark.parametrize("name", SIZES)
def test_parameters_are_those_of_the_closed_form(name: str) -> None:
    layers, width, patch = SIZES[name]
    pixels = 3 * patch**2
    encoder = pixels * width + 2 * width + layers * _block(width) + 2 * width
    decoder = (width + 2) * DECODER + DEPTH * _block(DECODER) + 2 * DECODER
    built = MODELS[name].build()
    counted = sum(p.numel for i in built.order for p in built.blocks[i].params)
    assert counted == encoder + decoder + (DECODER + 1) * pixels
    if name == "mae-vit-b-16":
        assert counted + 197 * (width + DECODER) == 111_907_840


def test_the_encoder_works_on_the_patches_that_are_kept() -> None:
    """Products of a block are 24 h^2 a token, scores 4 h a pair of tokens."""
    width, layers = 768, 12

    def encoder(tokens: int) -> float:
        return layers * (24.0 * width**2 * tokens + 4.0 * width * tokens**2)

    quarter, half = (MODELS["mae-vit-b-16"].build(kept=k).forward_flop for k in (0.25, 0.5))
    joined = 2.0 * width * DECODER * (98 - 49)  # the decoder's first product sees them too
    assert half - quarter == pytest.approx(encoder(99) - encoder(50) + joined, rel=0.01)
