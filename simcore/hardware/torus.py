"""Shapes of slices of a torus: how many chips lie on each axis, and which links they use."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=4096)
def slice_shape(chips: int, axes: int) -> tuple[int, ...]:
    """Chips on each axis of a slice, rising: the shape whose longest axis is shortest.

    Shapes that Google offers are of this kind: 2x4, 4x8, 16x16 of v6e; 2x2x4, 4x4x8 of v5p and
    TPU7x (docs.cloud.google.com/tpu/docs/v6e, /tpu7x).

    >>> slice_shape(128, 3), slice_shape(32, 2)
    ((4, 4, 8), (4, 8))
    """
    if axes == 1:
        return (chips,)
    sides = (n for n in range(1, round(chips ** (1.0 / axes)) + 1) if chips % n == 0)
    shapes = (tuple(sorted((n, *slice_shape(chips // n, axes - 1)))) for n in sides)
    return min(shapes, key=lambda shape: (shape[-1], sum(shape)))


def is_ring(chips: int, ring_multiple: int) -> bool:
    """Whether an axis of so many chips is closed to a ring; otherwise it is a line."""
    return chips > 2 and chips % ring_multiple == 0


@lru_cache(maxsize=4096)
def links_in_use(chips: int, axes: int, ring_multiple: int) -> int:
    """Links of a chip over which it receives at the same time: two on a ring, one on a line.

    The end of a line has one neighbour, and every chip must receive what the end does.
    """
    lengths = (n for n in slice_shape(chips, axes) if n > 1)
    return sum(2 if is_ring(n, ring_multiple) else 1 for n in lengths)


@lru_cache(maxsize=4096)
def longest_way(chips: int, axes: int, ring_multiple: int) -> int:
    """Hops between the two chips of a slice that are furthest apart."""
    shape = slice_shape(chips, axes)
    return sum(n // 2 if is_ring(n, ring_multiple) else n - 1 for n in shape)


@lru_cache(maxsize=4096)
def exchange_load(chips: int, axes: int, ring_multiple: int) -> float:
    """Traffic of the busiest link in an all-to-all, in vectors of one chip.

    On a ring of s chips a vector travels s/4 links of one direction on average, and a chip has two
    links; on a line the middle link carries that of s/2 chips for s/2 others, s/4 vectors.
    """
    shape = slice_shape(chips, axes)
    return max(n / 8.0 if is_ring(n, ring_multiple) else n / 4.0 for n in shape)
