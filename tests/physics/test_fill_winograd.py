"""Convolutions as products or by Winograd's algorithm, by hand."""

from __future__ import annotations

import math

import numpy as np
import pytest

from simcore.physics.fill import conv_fill, conv_geometry, matmul_fill

SMS = 80.0


def fill(side: int, images: int, inner: int, outer: int, flop_per_byte: float = 0.0) -> float:
    return float(conv_fill(float(side**2), images, inner, outer, SMS, 0.0, 0.0, flop_per_byte))


def test_large_layers_make_a_quarter_of_the_multiplications() -> None:
    """36 for 144 where images are whole tiles of 4x4 and nothing waits for memory."""
    full = float(matmul_fill(64 * 49, 1024, 1024, 36.0, SMS))
    assert fill(28, 64, 1024, 1024) == pytest.approx(4 * full)
    assert full > 0.9


def test_what_a_tile_overhangs_is_computed_too() -> None:
    """Images of 7x7 take four tiles, 8x8 outputs."""
    assert fill(7, 256, 1024, 1024) / fill(8, 256, 1024, 1024) == pytest.approx(49 / 64)


def test_operands_pass_through_memory_twice() -> None:
    """256 images of 8x8, 128 channels each way: 1,024 tiles; 20 FLOP a byte, as on V100."""
    tiles, channels, per_byte = 1024, 128, 20.0
    products = 2 * 36 * tiles * channels**2 / float(matmul_fill(tiles, channels, channels, 36, SMS))
    moved = 4 * 36 * (2 * tiles * channels + channels**2) * per_byte
    expected = 2 * 9 * 64 * 256 * channels**2 / (math.hypot(products, moved) + moved)
    assert fill(8, 256, channels, channels, per_byte) == pytest.approx(expected)
    assert 1 < expected < 4


def test_few_channels_stay_with_the_implicit_product() -> None:
    """An image's three: transforms would move more than they save."""
    direct = float(matmul_fill(32 * 224.0**2, 64, 27, 1.0, SMS))
    assert fill(224, 32, 3, 64, 20.0) == pytest.approx(direct)


@pytest.mark.parametrize("seed", range(5))
def test_the_quicker_of_both_counts(seed: int) -> None:
    rng = np.random.default_rng(seed)
    side, images, inner, outer = np.round(2 ** rng.uniform([2, 0, 2, 2], [7, 6, 11, 11]))
    found = fill(int(side), int(images), int(inner), int(outer), 20.0)
    assert found >= float(matmul_fill(side**2 * images, outer, 9 * inner, 1.0, SMS))
    assert found <= 4


def test_a_weight_gradient_is_the_same_convolution() -> None:
    """Forward [pixels, 9 a] @ [9 a, b], the weight's gradient [9 a, pixels] @ [pixels, b]."""
    pixels, inner, outer = (np.array([v]) for v in (6272.0, 64.0, 256.0))
    forward = conv_geometry(pixels, outer, 9 * inner, np.array([False]))
    gradient = conv_geometry(9 * inner, outer, pixels, np.array([True]))
    assert forward == gradient == (pixels, inner, outer)


def test_one_pixel_takes_a_whole_tile_and_one_group_computes_all_channels() -> None:
    """The implicit product of 1 x 64 pixels, 9 x 16 deep, is the quicker of both."""
    tile = 2 * 36 * 64 * 1024**2 / float(matmul_fill(64, 1024, 1024, 36.0, SMS))
    assert fill(1, 64, 1024, 1024) == pytest.approx(
        max(2 * 9 * 64 * 1024**2 / tile, float(matmul_fill(64, 1024, 9 * 1024, 1.0, SMS)))
    )
    assert fill(1, 1, 512, 512) == float(matmul_fill(1, 512, 9 * 512, 1.0, SMS))
    direct = [float(matmul_fill(32 * 49, 64, 27, groups, SMS)) for groups in (1.0, 2.0)]
    assert fill(7, 32, 3, 64, 20.0) == direct[0] < direct[1]
    assert conv_fill(0.0, 64, 512, 512, SMS, 0.0, 0.0, 0.0) >= 0.0
