"""A batch divided unevenly over GPUs of several types, so that all finish together.

# G kinds of rank; kind g has n_g ranks with a micro-batch of b_g samples each. The sum of n_g b_g
# is that of equal micro-batches.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import reduce
from math import gcd, log
from operator import or_

import numpy as np

from simcore.answer.predict import alone_s
from simcore.base.errors import InvalidConfig
from simcore.memory.job import memory_at
from simcore.request.resolved import Request, as_written, rank_counts, rank_groups
from simcore.strategy.options import AUTO
from simcore.timing.steps import central_step_s

#: Divisions whose slowest kind, alone, is within this of the best are compared by the whole step;
_NEAR_FRAC = 0.05
#: at most this many of them.
_MOST = 32
#: Packets in an equal micro-batch, and at most in any; bits of the set of sums that can be reached.
_PACKETS, _MOST_PACKETS, _BITS = 512, 2048, 200_000
#: Distance, in samples, up to which whole micro-batches are searched around a fractional one.
_AROUND = 15


def with_shares(request: Request, text: str) -> Request:
    """The same job with its batch divided as ``text`` says (``check_shares`` has its grammar).

    Raises InvalidConfig with every violation.
    """
    kinds = rank_groups(request.cluster)
    problems = []
    if len(kinds) == 1:
        problems.append(f"shares {text} need GPUs of several kinds, not {request.cluster} alone")
    if request.placed is not None:
        problems.append(f"shares {text} are for data parallelism, not with {request.placed.layout}")
    if text != AUTO and len(kinds) > 1 and text.count(":") + 1 != len(kinds):
        names = ", ".join(kinds[i].gpu.name for i in as_written(request.cluster))
        problems.append(f"shares {text} are not one for each kind of GPU here: {names}")
    if problems:
        raise InvalidConfig(problems)
    if text != AUTO:
        return replace(request, shares=_as_stated(request, text))
    best = best_deal(request)
    if best is None:
        note = "no division of the batch among the GPU types fits: equal shares are shown"
        return replace(request, assumptions=(*request.assumptions, note))
    gain = central_step_s(request) / central_step_s(replace(request, shares=best)) - 1.0
    note = f"shares {ratio_of(best, request)}: {gain:+.1%} steps/s over equal shares"
    return replace(request, shares=best, assumptions=(*request.assumptions, note))


def ratio_of(deal: Sequence[int], request: Request) -> str:
    """The micro-batches of each kind in lowest terms, in the order in which the user wrote them."""
    unit = reduce(gcd, deal)
    return ":".join(str(deal[i] // unit) for i in as_written(request.cluster))


def _as_stated(request: Request, text: str) -> tuple[int, ...]:
    order, stated = as_written(request.cluster), [int(part) for part in text.split(":")]
    parts = [stated[order.index(i)] // reduce(gcd, stated) for i in range(len(stated))]
    counts = rank_counts(request.cluster)
    n_ranks, unit = sum(counts), sum(n * b for n, b in zip(counts, parts, strict=True))
    if n_ranks * request.micro_batch % unit:
        step = unit // gcd(unit, n_ranks)
        near = max(1, round(request.micro_batch / step)) * step
        raise InvalidConfig(
            [f"shares {text} of {n_ranks} GPUs x micro-batch {request.micro_batch} are no whole "
             f"samples: try {_nearest(request, parts)}micro-batch {near}"]
        )  # fmt: skip
    times = n_ranks * request.micro_batch // unit
    return tuple(b * times for b in parts)


def _nearest(request: Request, stated: Sequence[int]) -> str:
    """The division into whole samples that is closest to ``stated``, as text; "" if none is."""
    counts = rank_counts(request.cluster)
    total = sum(counts) * request.micro_batch
    if total > _BITS:
        return ""
    unit = total / sum(n * b for n, b in zip(counts, stated, strict=True))
    around = [
        range(max(1, round(b * unit) - _AROUND), min(total // n, round(b * unit) + _AROUND) + 1)
        for n, b in zip(counts, stated, strict=True)
    ]

    def distance(deal: Sequence[int]) -> float:
        logs = [log(b / t) for b, t in zip(deal, stated, strict=True)]
        return max(logs) - min(logs)

    best = min(_deals(around, counts, total), key=distance, default=None)
    return f"{ratio_of(best, request)}, or " if best is not None else ""


def best_deal(request: Request) -> tuple[int, ...] | None:
    """Micro-batch of each kind of rank for which the step is shortest and everything fits.

    The time of the slowest kind alone is minimised exactly; the few divisions that come close to it
    are then compared by the step of the whole job. Large batches are divided in packets, with as
    few samples each as keep the search small. None where no division fits.
    """
    kinds, counts = rank_groups(request.cluster), rank_counts(request.cluster)
    equal = request.micro_batch
    common = reduce(gcd, counts)
    counts = tuple(n // common for n in counts)
    packets = max(1, min(_PACKETS, _BITS // sum(counts)))
    unit = max(1, -(-(equal - 1) // packets))
    base = equal - unit * ((equal - 1) // unit)  # samples that are not in whole packets
    total = sum(counts) * ((equal - 1) // unit)
    rooms = [kind.gpu.usable_memory_bytes for kind in kinds]
    if memory_at(request, np.array([float(base)])).needed[0] > min(rooms):
        return None
    # Memory is equal on each kind for equal batches: computed once. Times only if a division fits.
    dealt = np.arange(min(total // min(counts), _MOST_PACKETS) + 1)
    batches = (base + unit * dealt).astype(np.float64)
    needed = memory_at(request, batches).needed
    allowed = [dealt[: total // n + 1][needed[: total // n + 1] <= room]
               for n, room in zip(counts, rooms, strict=True)]  # fmt: skip
    if not _reach([a.tolist() for a in allowed], counts, total)[0] >> total & 1:
        return None
    seconds = [
        dict(zip(a.tolist(), alone_s(request, kind, batches[a]).tolist(), strict=True))
        for kind, a in zip(kinds, allowed, strict=True)
    ]
    limit = least_limit(seconds, counts, total)
    if limit is None:
        return None
    near = _within(seconds, limit * (1.0 + _NEAR_FRAC))
    found = sorted(
        _deals(near, counts, total),
        key=lambda deal: max(times[b] for times, b in zip(seconds, deal, strict=True)),
    )[:_MOST]
    deals = [tuple(base + unit * b for b in deal) for deal in found]
    if all((equal - 1) // unit in times for times in seconds):
        deals.append((equal,) * len(counts))
    return min(deals, key=lambda deal: central_step_s(replace(request, shares=deal)))


def least_limit(
    seconds: Sequence[dict[int, float]], counts: Sequence[int], total: int
) -> float | None:
    """The least time in which some division of ``total`` samples completes; None if there is none.

    ``seconds``: for each kind, its time by the number of samples that it may take.
    """
    limits = sorted({t for times in seconds for t in times.values()})
    low, high = 0, len(limits)
    while low < high:
        middle = (low + high) // 2
        if _reach(_within(seconds, limits[middle]), counts, total)[0] >> total & 1:
            high = middle
        else:
            low = middle + 1
    return limits[low] if low < len(limits) else None


def _within(seconds: Sequence[dict[int, float]], limit: float) -> list[list[int]]:
    """For each kind, the batches that take no longer than ``limit``."""
    return [[b for b, t in times.items() if t <= limit] for times in seconds]


def _reach(allowed: Sequence[Sequence[int]], counts: Sequence[int], total: int) -> list[int]:
    """For every kind, the totals that it and later kinds can make up, as the bits of a number."""
    mask = (1 << (total + 1)) - 1
    found = [1]
    for batches, n in zip(reversed(allowed), reversed(counts), strict=True):
        found.append(reduce(or_, (found[-1] << (n * b) for b in batches), 0) & mask)
    return found[::-1]


def _deals(
    allowed: Sequence[Sequence[int]], counts: Sequence[int], total: int
) -> Iterator[tuple[int, ...]]:
    """Divisions that make up the total, at most a few thousand of them."""
    reach = _reach(allowed, counts, total)

    def deal(kind: int, left: int) -> Iterator[tuple[int, ...]]:
        if kind == len(counts):
            yield ()
            return
        for b in allowed[kind]:
            rest = left - counts[kind] * b
            if rest >= 0 and reach[kind + 1] >> rest & 1:
                yield from ((b, *more) for more in deal(kind + 1, rest))

    for number, found in enumerate(deal(0, total)):
        if number == _MOST * _MOST:
            return
        yield found
