"""Every valid point of a space as flat arrays, with time, cost and energy of a whole run on it.

# C candidates; all arrays [C]
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import field, replace
from typing import Any

import numpy as np

from simcore.answer.request import make_request
from simcore.answer.sweep import Outcome
from simcore.base.arrays import Array, NDArray, keep_freed_memory
from simcore.base.record import dataclass
from simcore.base.units import GIGA, HOUR
from simcore.hardware.profile import load_profile
from simcore.planning.evaluator import Evaluator
from simcore.planning.goal import Goal
from simcore.planning.goodput import effective_frac
from simcore.planning.parallel import shared_parts
from simcore.planning.points import NO_MEMORY, Batch, FormWords
from simcore.planning.ranking import merged
from simcore.planning.run import power_w, tdp_w
from simcore.planning.space import Space
from simcore.planning.tally import Wanted
from simcore.planning.workers import workers_of
from simcore.request.resolved import Request

Progress = Callable[[int, int], None]
#: Memory that the sensitivity analysis adds to each GPU.
MORE_MEMORY_BYTES = 16 * GIGA


@dataclass(frozen=True)
class Candidates:
    """The valid points of a space, as arrays.

    form            index into ``forms``
    cluster         index into the space's clusters
    faster_s        step time [s] with a network between nodes of twice the bandwidth
    balanced_s, least_bytes   lower bounds over all splits of the pipeline, of the step time and of
                    memory, as in ``answer.sweep.Outcome``
    stages          layers per stage, of candidates whose pipeline was split again
                    (``planning.stage_search``)
    chunks          chunks per pipeline rank, of candidates with interleaved chunks
                    (``planning.chunks``)

    Times are NaN where a candidate would not fit even with ``MORE_MEMORY_BYTES`` more per device.
    """

    space: Space
    forms: tuple[FormWords, ...]
    invalid: dict[str, int]
    form: NDArray[np.intp]
    cluster: NDArray[np.intp]
    micro_batch: Array
    grad_accum: Array
    global_batch: Array
    step_s: Array
    faster_s: Array
    balanced_s: Array
    least_bytes: Array
    memory_bytes: Array
    needed_bytes: Array
    capacity_bytes: Array
    busy_frac: Array
    n_gpus: Array
    n_nodes: Array
    tdp_w: Array
    usd_per_h: Array
    effective_frac: Array
    stages: Mapping[int, str] = field(default_factory=dict)
    chunks: Mapping[int, int] = field(default_factory=dict)

    def form_of(self, i: int) -> FormWords:
        """The form of candidate ``i``, with its layers per stage and its chunks."""
        form, own = self.forms[int(self.form[i])], dict[str, Any]()
        if i in self.stages:
            own["stages"] = self.stages[i]
        if i in self.chunks:
            own["vpp"] = self.chunks[i]
        if not own:
            return form
        options = tuple(sorted({**dict(form.options), **own}.items()))
        return replace(form, layout=replace(form.layout, **own), options=options)

    def with_outcome(self, i: int, out: Outcome) -> Candidates:
        """The candidates with the values of candidate ``i`` replaced by ``out``."""
        changes = {
            "step_s": out.step_time_s, "faster_s": out.faster_s, "busy_frac": out.busy_frac,
            "memory_bytes": out.memory_bytes, "needed_bytes": out.needed_bytes,
        }  # fmt: skip
        columns = {name: getattr(self, name).copy() for name in changes}
        for name, value in changes.items():
            assert value is not None
            columns[name][i] = value[0]
        return replace(self, **columns)

    def __len__(self) -> int:
        return len(self.step_s)

    def with_faster(self) -> Candidates:
        """The candidates with twice the bandwidth between nodes."""
        # Devices compute for as many seconds as before, in a shorter step.
        busy = np.minimum(1.0, self.busy_frac * self.step_s / self.faster_s)
        return replace(self, step_s=self.faster_s, busy_frac=busy)


def request_of(c: Candidates, i: int, form: FormWords | None = None, **own: Any) -> Request:
    """The job of candidate ``i``; ``form``: instead of its form; ``own``: options that differ."""
    words = {k: v for k, v in (form or c.form_of(i)).options if k != "calibration"}
    return make_request(
        c.space.models[0], c.space.clusters[int(c.cluster[i])],
        profile=load_profile(dict(c.space.fixed).get("calibration")),
        micro_batch=int(c.micro_batch[i]), grad_accum=int(c.grad_accum[i]), **{**words, **own},
    )  # fmt: skip


@dataclass(frozen=True)
class Runs:
    """Steps, time, cost and energy of the whole run on each candidate, arrays [C].

    ``work_s``: time without failures; ``time_s``: with them; ``cost_usd`` is NaN where no price is
    known.
    """

    n_steps: Array
    work_s: Array
    time_s: Array
    cost_usd: Array
    energy_j: Array

    def of(self, objective: str, c: Candidates) -> Array:
        """The values of an objective [C]."""
        return {
            "cost": self.cost_usd,
            "time": self.time_s,
            "energy": self.energy_j,
            "gpus": c.n_gpus,
            "step": c.step_s,
        }[objective]


def runs_of(c: Candidates, goal: Goal, samples: float | None) -> Runs:
    """Steps, time, cost and energy of the run on every candidate."""
    if goal.steps is not None:
        n_steps = np.full(len(c), float(goal.steps))
    else:
        assert samples is not None
        n_steps = np.ceil(samples / c.global_batch)
    work = n_steps * c.step_s
    time = work / c.effective_frac
    return Runs(
        n_steps=n_steps,
        work_s=work,
        time_s=time,
        cost_usd=time / HOUR * c.usd_per_h,
        energy_j=time * power_w(c.tdp_w, c.busy_frac * c.effective_frac),
    )


def candidates(
    space: Space, goal: Goal, progress: Progress | None = None, jobs: int = 1
) -> Candidates:
    """The valid points of a space, evaluated; invalid points are counted by reason in ``invalid``.

    ``progress``: called with the number of finished and of all points; ``jobs``: processes that
    share the work.
    """
    keep_freed_memory()
    evaluator = Evaluator(space, twice="inter", lacking=MORE_MEMORY_BYTES)
    found: list[Batch] = []
    invalid: list[dict[str, int]] = []
    done = 0
    for batch in _evaluated(evaluator, jobs):
        done += batch.n_points
        # Points that do not fit stay candidates: memory is one of the plan's constraints.
        invalid.append({k: n for k, n in batch.invalid.items() if k != NO_MEMORY})
        if len(batch):
            found.append(batch)
        if progress is not None:
            progress(done, len(space))

    def joined(name: str) -> Array:
        parts = [np.broadcast_to(getattr(b, name), len(b)) for b in found]
        return np.concatenate(parts) if parts else np.array([])

    def each(values: Sequence[float]) -> Array:
        counts = [len(b) for b in found]
        return np.repeat(np.array(values, dtype=np.float64), counts)

    forms: dict[FormWords, int] = {}
    for b in found:
        assert b.form is not None
        forms.setdefault(b.form, len(forms))
    cluster = joined("cluster").astype(np.intp)

    def by_cluster(values: Sequence[float | None]) -> Array:
        table = np.array([np.nan if v is None else v for v in values], dtype=np.float64)
        return table[cluster]

    n_gpus = by_cluster([c.n_gpus for c in space.clusters])
    n_nodes = by_cluster([c.n_nodes for c in space.clusters])
    model_ranks = each([b.form.layout.model_ranks for b in found if b.form])
    saved = each([b.form.checkpoint_bytes for b in found if b.form])
    return Candidates(
        space=space,
        forms=tuple(forms),
        invalid=merged(invalid),
        form=each([forms[b.form] for b in found if b.form]).astype(np.intp),
        cluster=cluster,
        micro_batch=joined("micro_batch"),
        grad_accum=joined("grad_accum"),
        global_batch=joined("micro_batch") * joined("grad_accum") * (n_gpus // model_ranks),
        step_s=joined("step_time_s"),
        faster_s=joined("faster_s"),
        balanced_s=joined("balanced_s"),
        least_bytes=joined("least_bytes"),
        memory_bytes=joined("memory_bytes"),
        needed_bytes=joined("needed_bytes"),
        capacity_bytes=joined("capacity_bytes"),
        busy_frac=joined("busy_frac"),
        n_gpus=n_gpus,
        n_nodes=n_nodes,
        tdp_w=by_cluster([tdp_w(c) for c in space.clusters]),
        usd_per_h=by_cluster([goal.prices.cluster_usd_per_h(c) for c in space.clusters]),
        effective_frac=effective_frac(goal.reliability, n_gpus, n_nodes, saved),
    )


def _evaluated(evaluator: Evaluator, jobs: int) -> Iterator[Batch]:
    """The batches of all pieces of the space, in order."""
    workers = workers_of(jobs, None)
    if workers is None:
        yield from evaluator.batches(0, len(evaluator))
        return
    for part in shared_parts(evaluator, workers, Wanted(points=True), [(0, len(evaluator))]):
        assert isinstance(part, Batch)
        yield part
