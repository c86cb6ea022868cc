"""The cut of a pipeline whose slowest stage is least slow: an exact dynamic programme.

# L layers, p stages
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, pairwise


def balanced_cut(
    cost: Callable[[int, int], float],
    n_layers: int,
    least: Sequence[int],
    fits: Callable[[int, int, int], bool] | None = None,
) -> tuple[int, ...] | None:
    """The cut whose slowest stage is least slow, exactly.

    ``cost(a, b)`` of a stage with layers a to b - 1, what belongs to its ends included: it must
    not fall as a stage grows. ``fits(s, a, b)``: whether stage s may hold them; it must not come
    true as a stage grows. ``least`` [p]: layers of each stage at least. Of equally slow cuts that
    with the least sum of squares, so that no stage is longer than it has to be. None where
    nothing fits.

    The limit of the slowest stage is found first, by stages that each take all they may; within it
    few ends are left to each stage, and dynamic programming weighs those.
    """
    limit = _least_limit(cost, n_layers, least, fits)
    if limit is None:
        return None
    ends = _ends(cost, n_layers, least, _Reach.of(cost, n_layers, least, fits, limit), limit)
    found = _search(cost, least, fits, ends, limit)
    if found is not None:
        return found
    # Where stages must have more layers than they may take, the limit is a bound that none meets.
    ends = [(sum(least[: s + 1]), n_layers - sum(least[s + 1 :])) for s in range(len(least))]
    ends[-1] = (n_layers, n_layers)
    slowest = _search(cost, least, fits, ends, None)
    if slowest is None:
        return None
    return _search(cost, least, fits, ends, max(map(cost, *_spans(slowest))))


def holds_all(n_layers: int, least: Sequence[int], fits: Callable[[int, int, int], bool]) -> bool:
    """Whether stages that each take all they hold take all layers: if not, no cut fits."""
    return _Reach.of(lambda _a, _b: 0.0, n_layers, least, fits, 0.0).ends[-1] == n_layers


def _spans(sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    """First layers of the stages, and the first layers behind them."""
    ends = list(accumulate(sizes))
    return [0, *ends[:-1]], ends


@dataclass(frozen=True, slots=True)
class _Reach:
    """How far stages get that each take all they may: no cut within the limit gets further.

    ``ends`` [p]: the layer behind each; ``used``: what the slowest takes; ``more``: the least
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
        """A stage that reaches further with the same layers or fewer never stops the next one."""
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
    """The last number up to ``high`` that may be, after ``low``, which may; near a guess."""
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
    """The least limit within which greedy stages reach the last layer; no cut is faster."""
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
    """From which to which layer each stage can end within a limit: the next ones reach the last."""
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
    """The cut with the least maximum; of those within a ``limit`` that with the least squares.

    Stages end within ``ends``, the last one behind all layers.
    """
    # best[b]: of all ways to cut the first b layers into the stages so far, the least.
    infinite = float("inf")
    n_layers = ends[-1][1]
    best = [0.0, *[infinite] * n_layers]
    starts: list[list[int]] = []
    before = 0
    for s, (mine, (first, last)) in enumerate(zip(least, ends, strict=True)):
        after, start = [infinite] * (n_layers + 1), [-1] * (n_layers + 1)
        for b in range(first, last + 1):
            # From the shortest stage on: once it is too slow or too large, longer ones are too.
            for a in range(b - mine, before - 1, -1):
                alone = cost(a, b)
                if alone > (after[b] if limit is None else limit):
                    break
                total = max(best[a], alone) if limit is None else best[a] + alone * alone
                if total >= after[b]:
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
