"""The division of layers into stages with the least slowest stage: an exact dynamic programme.

# L layers, p stages
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from itertools import accumulate, pairwise

from simcore.base.record import dataclass

#: Sums of the same squares in another order differ by less than this share.
_EQUAL = 1e-12


def balanced_cut(
    cost: Callable[[int, int], float],
    n_layers: int,
    least: Sequence[int],
    fits: Callable[[int, int, int], bool] | None = None,
) -> tuple[int, ...] | None:
    """The division with the least slowest stage: layers of each stage; None where nothing fits.

    ``cost(a, b)``: time of a stage with layers a to b - 1, including what belongs to its ends; it
    must not fall as a stage grows. ``fits(s, a, b)``: whether stage s may hold these layers; it
    must not become true as a stage grows. ``least`` [p]: smallest number of layers of each stage.
    Among equally slow divisions the one with the least sum of squared times is chosen, so that no
    stage is longer than needed; among permutations of one the one whose first stages are shortest:
    they hold most micro-batches, and their update is what a step ends with.

    The least limit of the slowest stage is found first, with stages that each take all that they
    may. Few ends remain possible for each stage within that limit; dynamic programming compares
    them.
    """
    limit = _least_limit(cost, n_layers, least, fits)
    if limit is None:
        return None
    ends = _ends(cost, n_layers, least, _Reach.of(cost, n_layers, least, fits, limit), limit)
    found = _search(cost, least, fits, ends, limit)
    if found is not None:
        return found
    # Where minimum sizes force stages beyond the limit, no division meets it.
    ends = [(sum(least[: s + 1]), n_layers - sum(least[s + 1 :])) for s in range(len(least))]
    ends[-1] = (n_layers, n_layers)
    slowest = _search(cost, least, fits, ends, None)
    if slowest is None:
        return None
    return _search(cost, least, fits, ends, max(map(cost, *_spans(slowest))))


def holds_all(n_layers: int, least: Sequence[int], fits: Callable[[int, int, int], bool]) -> bool:
    """Whether stages that each take all they can hold cover all layers; if not, nothing fits."""
    return _Reach.of(lambda _a, _b: 0.0, n_layers, least, fits, 0.0).ends[-1] == n_layers


def _spans(sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    """First layer of each stage, and first layer after each."""
    ends = list(accumulate(sizes))
    return [0, *ends[:-1]], ends


@dataclass(frozen=True)
class _Reach:
    """How far stages get if each takes all that it may; no division within the limit gets further.

    ``ends`` [p]: first layer after each stage; ``used``: time of the slowest; ``more``: the least
    limit with which one of them would get further.
    """

    ends: tuple[int, ...]
    used: float
    more: float

    @classmethod
    def of(
        cls,
        cost: Callable[[int, int], float],
        n_layers: int,
        least: Sequence[int],
        fits: Callable[[int, int, int], bool] | None,
        limit: float,
    ) -> _Reach:
        """A stage that reaches further with at most as many layers never limits the next one."""
        ends: list[int] = []
        used, more, a, size = 0.0, float("inf"), 0, n_layers // len(least)
        left = sum(least)
        for s, mine in enumerate(least):
            left -= mine

            def within(b: int, a: int = a) -> bool:
                return cost(a, b) <= limit

            b = _furthest(within, a, n_layers - left, a + size)
            if b < n_layers - left:
                more = min(more, cost(a, b + 1))
            if fits is not None:
                b = _furthest(partial(fits, s, a), a, b, a + size)
            if b > a:
                used, size = max(used, cost(a, b)), b - a
            ends.append(b)
            a = b
        return cls(tuple(ends), used, more)


def _furthest(may: Callable[[int], bool], low: int, high: int, guess: int) -> int:
    """The last number for which ``may`` holds, from ``low`` (where it does) to ``high``.

    The search starts at ``guess``.
    """
    step = 1
    at = min(max(guess, low + 1), high)
    while low < high:
        if may(at):
            low, at = at, min(at + step, high)
        else:
            high, at = at - 1, max(at - step, low + 1)
        step *= 2
        if not low < at <= high:
            at = (low + high + 1) // 2
    return low


def _least_limit(
    cost: Callable[[int, int], float],
    n_layers: int,
    least: Sequence[int],
    fits: Callable[[int, int, int], bool] | None,
) -> float | None:
    """The least limit within which greedy stages reach the last layer; no division is faster."""
    widest = _Reach.of(cost, n_layers, least, fits, float("inf"))
    if widest.ends[-1] < n_layers:
        return None
    low, high = 0.0, widest.used
    trial = cost(0, n_layers) / len(least)
    while low < high:
        found = _Reach.of(cost, n_layers, least, fits, trial if low <= trial < high else low)
        if found.ends[-1] == n_layers:
            high = found.used
        else:
            low = found.more
        trial = (low * high) ** 0.5
    return high


def _ends(
    cost: Callable[[int, int], float],
    n_layers: int,
    least: Sequence[int],
    reach: _Reach,
    limit: float,
) -> list[tuple[int, int]]:
    """For each stage, its first and last possible end such that later stages reach the end."""
    found = [(n_layers, n_layers)]
    for s in range(len(least) - 1, 0, -1):
        behind = found[-1][0]
        first = sum(least[:s])
        size = n_layers // len(least)

        def within(n: int, b: int = behind) -> bool:
            return cost(b - n, b) <= limit

        back = _furthest(within, 0, behind - first, size)
        found.append((behind - back, min(reach.ends[s - 1], n_layers - sum(least[s:]))))
    return found[::-1]


def _search(
    cost: Callable[[int, int], float],
    least: Sequence[int],
    fits: Callable[[int, int, int], bool] | None,
    ends: Sequence[tuple[int, int]],
    limit: float | None,
) -> tuple[int, ...] | None:
    """The division with the least maximum; with a ``limit``, the one with the least squares in it.

    Stages end within ``ends``, the last one after all layers.
    """
    # best[b]: the least value over all divisions of the first b layers into the stages so far.
    infinite = float("inf")
    n_layers = ends[-1][1]
    best = [0.0, *[infinite] * n_layers]
    starts: list[list[int]] = []
    before = 0
    for s, (mine, (first, last)) in enumerate(zip(least, ends, strict=True)):
        after, start = [infinite] * (n_layers + 1), [-1] * (n_layers + 1)
        for b in range(first, last + 1):
            # From the shortest stage on: if it is too slow or too large, longer ones are too.
            for a in range(b - mine, before - 1, -1):
                alone = cost(a, b)
                if alone > (after[b] if limit is None else limit):
                    break
                total = max(best[a], alone) if limit is None else best[a] + alone * alone
                if limit is None and total >= after[b]:
                    continue
                # Of equal sums the one with the longest last stage, which comes last, is kept.
                if total > after[b] * (1.0 + _EQUAL):
                    continue
                if fits is not None and not fits(s, a, b):
                    break
                after[b], start[b] = total, a
        best, before = after, first
        starts.append(start)
    if best[n_layers] == infinite:
        return None
    found = [n_layers]
    for start in reversed(starts):
        found.append(start[found[-1]])
    return tuple(b - a for b, a in pairwise(found))[::-1]
