"""Where a pipeline is cut: layers of each stage, as text and as the best that there is.

# L layers, p stages
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
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


def cut_sizes(text: str, n_layers: int, n_stages: int) -> tuple[int, ...]:
    """Layers of each stage; ``auto`` as even, before it is known. Raises InvalidConfig."""
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
    """The cut whose slowest stage is least slow, exactly, by dynamic programming in O(L^2 p).

    ``cost(a, b)`` of a stage with layers a to b - 1, what belongs to its ends included: it must
    not fall as a stage grows. ``fits(s, a, b)``: whether stage s may hold them; it must not come
    true as a stage grows. ``least`` [p]: layers of each stage at least. Of equally slow cuts that
    with the least sum of squares, so that no stage is longer than it has to be. None where
    nothing fits.
    """
    slowest = _search(cost, n_layers, least, fits, None)
    if slowest is None:
        return None
    return _search(cost, n_layers, least, fits, max(map(cost, *_spans(slowest))))


def _spans(sizes: Sequence[int]) -> tuple[list[int], list[int]]:
    """First layers of the stages, and the first layers behind them."""
    ends = list(accumulate(sizes))
    return [0, *ends[:-1]], ends


def _search(
    cost: Callable[[int, int], float],
    n_layers: int,
    least: Sequence[int],
    fits: Callable[[int, int, int], bool] | None,
    limit: float | None,
) -> tuple[int, ...] | None:
    """The cut with the least maximum; of those within a ``limit`` that with the least squares."""
    # best[b]: of all ways to cut the first b layers into the stages so far, the least.
    infinite = float("inf")
    best = [0.0, *[infinite] * n_layers]
    starts: list[list[int]] = []
    for s, mine in enumerate(least):
        after, start = [infinite] * (n_layers + 1), [-1] * (n_layers + 1)
        before, last = sum(least[:s]), n_layers - sum(least[s + 1 :])
        first = last if s == len(least) - 1 else before + mine
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
        best = after
        starts.append(start)
    if best[n_layers] == infinite:
        return None
    ends = [n_layers]
    for start in reversed(starts):
        ends.append(start[ends[-1]])
    return tuple(b - a for b, a in pairwise(ends))[::-1]
