"""Memory of the stages of several jobs in one call: what the fullest rank of each holds and needs.

# P configurations of all stages, one stage after another; C of one
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import accumulate, chain
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import Array, NDArray, distinct_columns
from simcore.base.record import replace
from simcore.memory.job import (
    JobStage,
    in_flight,
    is_tight,
    memory_over,
    rank_job,
    ranks_of,
)
from simcore.memory.parts import beside_tensors
from simcore.memory.terms import Peak, RankJob, peak_of
from simcore.workload.graph import Workload

#: Most configurations that are evaluated together, unless one stage has more.
_TOGETHER = 4096


class StagesOver(NamedTuple):
    """Stages of jobs with one layout, and the configurations of each stage; arrays [C].

    The jobs differ in recompute alone.
    """

    of_stages: Sequence[JobStage]
    micro_batch: Array
    grad_accum: Array
    n_gpus: Array
    n_nodes: Array


def fullest_over(asked: Sequence[StagesOver]) -> list[tuple[Array, Array]]:
    """``Memory.device`` and ``Memory.needed`` of ``memory_over``, each [stages, C].

    Layouts of what is ``asked`` differ in their pipelines alone.
    """
    found: list[list[tuple[Array, Array]]] = [[] for _ in asked]
    for some in _divided(asked):
        for (n, _), both in zip(some, _held([one for _, one in some]), strict=True):
            found[n].append(both)
    joined = (zip(*of, strict=True) for of in found)
    return [(np.concatenate(device), np.concatenate(needed)) for device, needed in joined]


def _held(some: Sequence[StagesOver]) -> Iterator[tuple[Array, Array]]:
    """``fullest_over`` of what is evaluated in one call."""
    ranks = [_Waiting.of(one) for one in some]
    peak = peak_of(_joined([waiting.job for waiting in ranks])).peak
    begins = accumulate((len(waiting.job.micro_batch) for waiting in ranks), initial=0)
    at = np.concatenate([w.place + begin for w, begin in zip(ranks, begins, strict=False)])
    held = np.concatenate([waiting.in_flight for waiting in ranks])
    own = Peak(*(column[at] for column in peak))
    device = own.device(held)
    needed = device + own.beyond(held)
    ends = [*accumulate(len(waiting.place) for waiting in ranks)][:-1]
    for one, *both in zip(some, np.split(device, ends), np.split(needed, ends), strict=True):
        of_stages = [n_bytes.reshape(len(one.of_stages), -1) for n_bytes in both]
        for (request, _), *row in zip(one.of_stages, *of_stages, strict=True):
            if request.placed is None and is_tight(request, *row).any():
                replayed = memory_over(request, *one[1:])[0]
                row[0][:], row[1][:] = replayed.device, replayed.needed
        yield of_stages[0], of_stages[1]


def _divided(asked: Sequence[StagesOver]) -> Iterator[list[tuple[int, StagesOver]]]:
    """What is asked in groups of at most ``_TOGETHER`` configurations, each with its number."""
    group: list[tuple[int, StagesOver]] = []
    size = 0
    for n, one in enumerate(asked):
        each = len(one.micro_batch)
        at_once = max(1, _TOGETHER // each)
        for start in range(0, len(one.of_stages), at_once):
            part = one._replace(of_stages=one.of_stages[start : start + at_once])
            size += len(part.of_stages) * each
            if group and size > _TOGETHER:
                yield group
                group, size = [], len(part.of_stages) * each
            group.append((n, part))
    yield group


class _Waiting(NamedTuple):
    """Ranks of stages, and the micro-batches that they hold in flight.

    ``job``: of configurations that differ in more than how many are in flight. ``place`` [P]: which
    of these each configuration is; ``in_flight`` [P].
    """

    job: RankJob
    place: NDArray[np.intp]
    in_flight: Array

    @classmethod
    def of(cls, asked: StagesOver) -> _Waiting:
        """Those of all configurations of the stages."""
        request, n_stages = asked.of_stages[0][0], len(asked.of_stages)
        _, batch, accum, n_gpus, n_nodes = asked
        first, of = distinct_columns((batch, accum > 1, n_gpus, n_nodes))
        over = [column[first] for column in (batch, accum, n_gpus, n_nodes)]
        beside = beside_tensors(request, *over[2:]).repeated(n_stages)
        ranks = ranks_of(asked.of_stages, len(first))
        tiled = (np.tile(column, n_stages) for column in over)
        place = (np.arange(n_stages)[:, None] * len(first) + of).ravel()
        held = in_flight(request, ranks.take(place), np.tile(accum, n_stages))
        return cls(rank_job(request, ranks, *tiled, beside=beside), place, held)


#: Columns of ``RankJob`` along its axis.
_COLUMNS = ("micro_batch", "grad_accum", "n_ranks", "n_nodes", "communicators_bytes",
            "cublas_bytes", "stuck_frac")  # fmt: skip


def _joined(jobs: Sequence[RankJob]) -> RankJob:
    """Jobs whose parts of a model differ, one after another along the axis."""
    if len(jobs) == 1:
        return jobs[0]
    whose: tuple[Workload, ...] = ()
    part = []
    for job in jobs:
        assert isinstance(job.whose, tuple) and job.part is not None
        part.append(job.part + len(whose))
        whose += job.whose
    return replace(
        jobs[0],
        whose=whose,
        recomputed=tuple(chain.from_iterable(job.recomputed for job in jobs)),
        part=np.concatenate(part),
        **{name: np.concatenate([getattr(job, name) for job in jobs]) for name in _COLUMNS},
    )
