"""Exact values of a function that is convex in the micro-step count, from few evaluations.

The step time is a max-plus expression of durations, each affine in the number of micro-steps: a
maximum of affine functions, hence convex. Where a convex function equals its chord at the middle of
an interval up to an error e, it equals the chord in the whole interval up to 2e, since the gap to
the chord is concave and zero at both ends. Other intervals are halved until that holds or no whole
number is left inside.

# R rows, P points, K channels
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from simcore.base.arrays import Array, NDArray

#: Relative rounding error of sums of a few hundred floats.
_EQUAL_FRAC = 1e-12


def at_counts(
    f: Callable[[NDArray[np.intp], Array], Array], row: NDArray[np.intp], count: Array
) -> Array:
    """``f(row, count)`` [K, P] for every point, from few calls of ``f``.

    ``f`` takes arrays of rows and counts and returns its channels [K, n]. It is convex in the count
    from 2 on; a count of 1 is computed apart, since a single micro-step sums up no gradients.
    ``row`` [P] holds 0 to R - 1; ``count`` [P].
    """
    rows = np.arange(int(row.max()) + 1)
    single = count < 2
    alone = rows[np.bincount(row[single], minlength=len(rows)) > 0]
    left = np.full(len(rows), 2.0)
    right = np.full(len(rows), 2.0)
    np.maximum.at(right, row, count)
    middle = np.floor((left + right) / 2.0)
    # One call for everything that is needed in any case; equal rows are adjacent.
    needed = np.concatenate([rows, rows, rows, alone])
    counts = np.concatenate([left, middle, right, np.ones(len(alone))])
    order = np.argsort(needed, kind="stable")
    found = f(needed[order], counts[order])
    back = np.empty_like(order)
    back[order] = np.arange(len(order))
    n = len(rows)
    f_left, f_middle, f_right = (found[:, back[i * n : (i + 1) * n]] for i in range(3))
    out = np.empty((len(found), len(row)))
    if len(alone):
        place = np.zeros(n, dtype=np.intp)
        place[alone] = back[3 * n :]
        out[:, single] = found[:, place[row[single]]]
    # A task is one interval of one row; ``task`` gives each point's interval.
    points = np.flatnonzero(~single)
    task, owner = row[points], rows
    while len(points):
        slope = (f_right - f_left) / np.where(right > left, right - left, 1.0)
        chord = f_left + slope * (middle - left)
        near = np.abs(f_middle - chord) <= _EQUAL_FRAC * np.abs(f_middle)
        straight = near.all(axis=0) | (right - left < 2.0)
        done = straight[task]
        t, p = task[done], points[done]
        beyond = count[p] - left[t]
        for values, at_left, each in zip(out, f_left, slope, strict=True):
            values[p] = at_left[t] + each[t] * beyond
        points, task = points[~done], task[~done]
        if not len(points):
            break
        # Every remaining interval is halved.
        kept = np.flatnonzero(~straight)
        place = np.zeros(len(left), dtype=np.intp)
        place[kept] = np.arange(len(kept))
        task = place[task] + len(kept) * (count[points] > middle[task])
        owner = np.concatenate([owner[kept], owner[kept]])
        left, right, f_left, f_right = (
            np.concatenate([left[kept], middle[kept]]),
            np.concatenate([middle[kept], right[kept]]),
            np.concatenate([f_left[:, kept], f_middle[:, kept]], axis=1),
            np.concatenate([f_middle[:, kept], f_right[:, kept]], axis=1),
        )
        middle = np.floor((left + right) / 2.0)
        f_middle = np.array(f_left)
        wide = right - left >= 2.0
        if wide.any():
            f_middle[:, wide] = f(owner[wide], middle[wide])
    return out
