"""Where a pipeline is cut: layers of each stage, as text and as the best that there is.

# L layers, p stages
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import accumulate, groupby, pairwise

from simcore.base.errors import InvalidConfig
from simcore.workload.sharding import even_cut

#: Layers dealt out evenly (``even_cut``), and as ``balanced_cut`` finds best.
EVEN, AUTO = "even", "auto"
#: Bounded, so that no text makes more stages than any model has layers.
_ENTRY = re.compile(r"^(?:(\d{1,4})\s*[x×*]\s*)?(\d{1,6}|rest)$")
_EXAMPLE = "write layers of each stage: 19,21,21,19, or 7,14x8,7, or 7,rest,7"


def normalised(text: str) -> str:
    """``19, 21, 21,19`` as ``19,2x21,19``; ``even`` as nothing. Raises InvalidConfig."""
    text = text.strip().lower()
    if text in ("", EVEN):
        return ""
    return text if text == AUTO else _written(_entries(text))


def modules_cut(n_layers: int, n_stages: int, before: int, after: int) -> tuple[int, ...]:
    """Layers of each stage where modules are dealt out evenly, the first stages one more.

    ``before``, ``after``: modules that stand before the first layer and after the last, each
    counted as one. Raises InvalidConfig where a stage would have no layer.
    """
    base, longer = divmod(before + n_layers + after, n_stages)
    ends = list(accumulate(base + (s < longer) for s in range(n_stages)))
    at = [min(max(end - before, 0), n_layers) for end in (0, *ends)]
    sizes = tuple(b - a for a, b in pairwise(at))
    if 0 in sizes:
        raise InvalidConfig(
            [
                f"{n_layers} layers and {before + after} more modules dealt out over {n_stages} "
                f"stages leave stage {sizes.index(0)} without a layer; take fewer stages, or name "
                f"the layers of each (stages)"
            ]
        )
    return sizes


def filled_cut(n_layers: int, n_stages: int) -> tuple[int, ...]:
    """Layers of each stage where one after the other is given as many as the fullest must have.

    Raises InvalidConfig where a stage would have no layer.
    """
    most = -(-n_layers // n_stages)
    sizes = tuple(min(most, n_layers - most * s) for s in range(n_stages))
    if sizes[-1] < 1:
        raise InvalidConfig(
            [
                f"{n_layers} layers filled into {n_stages} stages of {most} leave the last without "
                f"a layer; take fewer stages, or name the layers of each (stages)"
            ]
        )
    return sizes


def written(sizes: Sequence[int]) -> str:
    """Layers of each stage as short text."""
    return _written([(1, str(n)) for n in sizes])


def _written(entries: Sequence[tuple[int, str]]) -> str:
    runs = [(each, sum(n for n, _ in run)) for each, run in groupby(entries, key=lambda e: e[1])]
    return ",".join(each if count == 1 else f"{count}x{each}" for each, count in runs)


def _entries(text: str) -> list[tuple[int, str]]:
    found, problems = [], []
    for part in text.split(","):
        match = _ENTRY.match(part.strip())
        if match is None or match[1] == "0" or (match[2] == "rest" and match[1]):
            problems.append(f"stages {text!r}: {part.strip()!r} is no count of layers; {_EXAMPLE}")
        else:
            found.append((int(match[1] or 1), match[2]))
    if sum(each == "rest" for _, each in found) > 1:
        problems.append(f"stages {text!r}: 'rest' stands for all stages that are not named, once")
    if problems:
        raise InvalidConfig(problems)
    return found


def parsed(text: str) -> tuple[int, ...]:
    """Layers of each stage of a text that names them all. Raises InvalidConfig."""
    return tuple(int(each) for count, each in _entries(text) for _ in range(count))


def stages_told(text: str) -> int | None:
    """How many stages a text names; None where it leaves that open."""
    if text in ("", AUTO) or "rest" in text:
        return None
    return sum(count for count, _ in _entries(text))


def cut_problems(text: str, n_layers: int, n_stages: int, chunks: int = 1) -> list[str]:
    """Every rule that a cut breaks on so many layers, stages and chunks a stage."""
    return [] if text in ("", AUTO) else _sizes(text, n_layers, n_stages, chunks)[1]


def cut_sizes(
    text: str,
    n_layers: int,
    n_stages: int,
    ends: tuple[int, int] | None = None,
    *,
    fills: bool = False,
) -> tuple[int, ...]:
    """Layers of each stage; ``auto`` as even, before it is known. Raises InvalidConfig.

    ``ends``: modules that a program's own cut counts beside the layers (``modules_cut``);
    ``fills``: it fills one stage after the other (``filled_cut``).
    """
    if text == "" and fills:
        return filled_cut(n_layers, n_stages)
    if text == "" and ends is not None and n_stages > 1:
        return modules_cut(n_layers, n_stages, *ends)
    if text in ("", AUTO):
        return even_cut(n_layers, n_stages)
    sizes, problems = _sizes(text, n_layers, n_stages, 1)
    if problems:
        raise InvalidConfig(problems)
    return sizes


def _sizes(
    text: str, n_layers: int, n_stages: int, chunks: int
) -> tuple[tuple[int, ...], list[str]]:
    entries = _entries(text)
    named = sum(count for count, each in entries if each != "rest")
    told = sum(count * int(each) for count, each in entries if each != "rest")
    open_stages, left = n_stages - named, n_layers - told
    if not any(each == "rest" for _, each in entries):
        problems = []
        if open_stages:
            problems.append(f"stages {text} are {named}, not pp={n_stages}")
        if left:
            problems.append(f"stages {text} have {told} layers, not the model's {n_layers}")
    elif open_stages < 1:
        problems = [f"stages {text} leave no stage of pp={n_stages} for the rest"]
    elif left % open_stages or left < open_stages:
        near = max(1, round(left / open_stages)) * open_stages
        problems = [
            f"stages {text} leave {left} layers to {open_stages} stages, which does not divide: "
            f"{near} would"
        ]
    else:
        problems = []
    sizes: list[int] = []
    for count, each in entries:
        if each == "rest":
            sizes += [left // max(open_stages, 1)] * max(open_stages, 0)
        else:
            sizes += [int(each)] * count
    for s, (size, least) in enumerate(zip(sizes, least_layers(len(sizes), chunks), strict=True)):
        if size < least and not problems:
            what = f"its {chunks} chunks" if chunks > 1 else "one layer"
            problems.append(f"stage {s} of stages {text} has {size} layers, less than {what}")
    return tuple(sizes), problems


def least_layers(n_stages: int, chunks: int) -> tuple[int, ...]:
    """Layers that each stage has at least: one a chunk, and at the ends one less, since a chunk
    may hold the embedding or the head in place of a layer; but never none.
    """
    ends = (0, n_stages - 1)
    return tuple(max(1, chunks - (s in ends and chunks > 1)) for s in range(n_stages))


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
