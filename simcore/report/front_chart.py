"""A Pareto front drawn with characters: what is gained over what it takes, both on log scales."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

#: Lines of a chart, and columns beside its axis.
HEIGHT, WIDTH = 7, 56
#: A front with fewer points is no curve.
_LEAST = 3


def front_chart(
    points: Sequence[tuple[float, float]], x_text: Callable[[float], str],
    y_text: Callable[[float], str], *, marked: int | None = None,
) -> list[str]:  # fmt: skip
    """The lines of a chart of (x, y) pairs above zero; empty for fewer than three.

    ``x_text``, ``y_text``: a value of an axis with its unit. ``marked``: index of the point that is
    drawn as ``#``; the others are ``*``.
    """
    if len(points) < _LEAST or any(not 0 < v < math.inf for point in points for v in point):
        return []
    xs, ys = zip(*points, strict=True)
    cells = [[" "] * WIDTH for _ in range(HEIGHT)]
    places = [(_place(y, ys, HEIGHT), _place(x, xs, WIDTH)) for x, y in points]
    for i, (row, column) in enumerate(places):
        if i != marked:
            cells[HEIGHT - 1 - row][column] = "*"
    if marked is not None:
        row, column = places[marked]
        cells[HEIGHT - 1 - row][column] = "#"
    labels = [y_text(max(ys)), *[""] * (HEIGHT - 2), y_text(min(ys))]
    edge = max(map(len, labels))
    lines = [
        f"{label:>{edge}} |{''.join(row)}".rstrip()
        for label, row in zip(labels, cells, strict=True)
    ]
    low, high = x_text(min(xs)), x_text(max(xs))
    lines.append(f"{'':>{edge}} +{'-' * WIDTH}")
    return [*lines, f"{'':>{edge}}  {low}{high:>{WIDTH - len(low)}}"]


def _place(value: float, values: Sequence[float], cells: int) -> int:
    """The cell of a value on a log scale over the range of ``values``."""
    low, high = math.log(min(values)), math.log(max(values))
    return 0 if high == low else round((math.log(value) - low) / (high - low) * (cells - 1))
