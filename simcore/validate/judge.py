"""Predict every row of measured tables and compare it with the measurement."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Callable, Hashable, Mapping, Sequence
from itertools import chain, permutations

from simcore.answer.predict import evaluation_pass_s, evaluation_s_per_sample, predict
from simcore.answer.request import make_request
from simcore.answer.result import Prediction
from simcore.base.arrays import Array
from simcore.base.errors import SimcoreError
from simcore.base.figures import Z80, Interval
from simcore.base.record import dataclass, replace
from simcore.hardware.profile import Profile, load_profile
from simcore.memory.job import stage_allocated_bytes
from simcore.memory.over_time import peak_reserved_bytes
from simcore.memory.result import MemoryResult, bounds_80
from simcore.request.resolved import Request
from simcore.strategy.options import Options
from simcore.timing.points import Points
from simcore.validate.case import Case
from simcore.validate.metrics import QUANTITIES, Quantity, Score, Scored, score, scores_by
from simcore.validate.processes import in_order
from simcore.validate.ranking import Order, order_of
from simcore.validate.table import Table

ProfileFor = Callable[[Case], Profile]


@dataclass(frozen=True)
class Judged:
    """One row with its prediction; ``time``: of a step, or of the run if that was measured.

    Of the prediction it has what rows are compared by: whole predictions of large tables would
    cost as much to hand from one process to another as an eighth of their computation.
    """

    case: Case
    memory: MemoryResult
    global_batch: int
    time: Interval
    scored: tuple[Scored, ...]


@dataclass(frozen=True)
class Verdict:
    """All rows of some tables, predicted and scored."""

    mode: str
    n_rows: int
    judged: tuple[Judged, ...]
    skipped: tuple[tuple[str, str], ...]

    @property
    def scored(self) -> tuple[Scored, ...]:
        """Every comparison of every row."""
        return tuple(s for j in self.judged for s in j.scored)

    def score(self, quantity: Quantity, *, flagged: bool = True) -> Score:
        """Summary of one quantity, with or without flagged rows."""
        return score([s for s in self.scored if s.quantity == quantity and (flagged or not s.flag)])

    def memory_scores(self) -> dict[str, Score]:
        """Summary of peak memory for each thing that rows' peaks count, such as ``allocated``."""
        peaks = [s for s in self.scored if s.quantity == "peak_memory"]
        kinds = dict.fromkeys(s.counts for s in peaks)
        return {kind: score([s for s in peaks if s.counts == kind]) for kind in sorted(kinds)}

    def order(self) -> Order:
        """Whether step times of one model on one cluster are predicted in the measured order."""
        return order_of((j.case, s) for j in self.judged for s in j.scored)

    def fits(self) -> dict[str, float | int | None]:
        """Whether jobs that ran are predicted to fit, and jobs that ran out of memory not to.

        Precision: share of the rows predicted to fit that ran; recall: share of the rows that ran
        that are predicted to fit.
        """
        outcomes = [
            (ran, j.memory.fits) for j in self.judged if (ran := has_run(j.case)) is not None
        ]
        of_ran = [fit for ran, fit in outcomes if ran]
        of_failed = [fit for ran, fit in outcomes if not ran]
        return {
            "ran": len(of_ran),
            "out_of_memory": len(of_failed),
            "fits_precision_frac": _mean([ran for ran, fit in outcomes if fit]),
            "fits_recall_frac": _mean(of_ran),
            "out_of_memory_found_frac": _mean([not fit for fit in of_failed]),
        }

    def groups(self, column: str) -> dict[str, dict[str, Score]]:
        """Scores of every quantity by the values of a column of the tables."""
        return scores_by((j.case.cell(column), s) for j in self.judged for s in j.scored)

    def to_dict(self, by: Sequence[str] = ()) -> dict[str, object]:
        """The JSON contract of ``simcore validate --json``."""
        return {
            "mode": self.mode,
            "rows": self.n_rows,
            "simulated": len(self.judged),
            "skipped": dict(Counter(reason for _, reason in self.skipped)),
            **{q: self.score(q).to_dict() for q in QUANTITIES},
            "peak_memory_by_count": {k: s.to_dict() for k, s in self.memory_scores().items()},
            "fits": self.fits(),
            "rank_correlation": self.order().to_dict(),
            "without_flagged": {q: self.score(q, flagged=False).to_dict() for q in QUANTITIES},
            "groups": {
                column: {
                    value: {q: s.to_dict() for q, s in scores.items()}
                    for value, scores in self.groups(column).items()
                }
                for column in by
            },
            "per_row": [s.to_dict() for s in self.scored],
        }


def _mean(values: Sequence[bool]) -> float | None:
    return sum(values) / len(values) if values else None


def has_run(case: Case) -> bool | None:
    """Whether the row's job ran (False: out of memory); None where the row does not say."""
    if (ran := case.measured.get("ran")) is not None:
        return bool(ran)
    return True if measured_time_s(case) is not None else None


def request_of(case: Case, profile: Profile) -> Request:
    """The request of a row. Raises SimcoreError where it cannot be built."""
    options: Options = {**case.options, "profile": profile}
    return make_request(case.model, case.gpus, **options)


def run_time_s(case: Case, request: Request, step_s: float, work: float = 1.0) -> float:
    """Seconds of a whole run: its steps, and the evaluation that every rank does in full."""
    evaluation = evaluation_pass_s(request, case.eval_samples * work) if case.eval_samples else 0.0
    return _steps_of_run(case, request) * work * step_s + evaluation


def run_times_s(case: Case, request: Request, points: Points, step_s: Array, work: Array) -> Array:
    """``run_time_s`` for every point; all arrays [C]."""
    found: Array = _steps_of_run(case, request) * work * step_s
    if case.eval_samples:
        found = found + case.eval_samples * work * evaluation_s_per_sample(request, points)
    return found


def _steps_of_run(case: Case, request: Request) -> float:
    assert case.train_samples is not None
    per_step = request.micro_batch * request.grad_accum * request.cluster.n_gpus
    return case.train_samples / per_step


def time_of(case: Case, request: Request, prediction: Prediction, work: float = 1.0) -> Interval:
    """The predicted time of what the row measured (step or run), with its interval."""
    step = prediction.step_time_s
    if "run_time_s" not in case.measured:
        return step
    total = run_time_s(case, request, step.value, work)
    return Interval(
        total, total * step.low / step.value, total * step.high / step.value, step.origin
    )


def judge(
    tables: Sequence[Table],
    *,
    mode: str = "blind",
    profile_for: ProfileFor | None = None,
    work_for: Callable[[Case], float | None] | None = None,
    jobs: int = 1,
) -> Verdict:
    """Predict all rows. ``profile_for``: the profile that each row may be predicted with.

    ``work_for``: the amount of work of rows whose source does not give it; without it only their
    ratios are scored, not their times. A row that fails is skipped with its reason, and the others
    are still predicted. ``jobs``: processes among which the rows of large tables are divided.
    """
    rows = [
        _Row(
            case,
            profile_for(case) if profile_for else None,
            work_for(case) if work_for else None,
        )
        for table in tables
        for case in table.cases
    ]
    judged: list[Judged] = []
    skipped = [(s.id, s.reason) for t in tables for s in t.skipped]
    of_job: dict[Hashable, list[_Row]] = defaultdict(list)
    for row in rows:
        of_job[row.case.model, *row.case.job, id(row.profile)].append(row)
    repeats = list(of_job.values())
    answers = in_order(_predicted, repeats, jobs, lambda alike: alike[0].case.model_name)
    of_row = dict(zip(map(id, chain(*repeats)), chain(*answers), strict=True))
    for row in rows:
        if isinstance(found := of_row[id(row)], str):
            skipped.append((row.case.id, found))
        else:
            judged.append(Judged(row.case, *found))
    with_ratios = _add_speedups(judged)
    return Verdict(mode, sum(t.n_rows for t in tables), tuple(with_ratios), tuple(skipped))


@dataclass(frozen=True)
class _Row:
    """A row to predict; ``profile`` None for the blind one; ``work``: see ``work_for``."""

    case: Case
    profile: Profile | None
    work: float | None


#: The fields of ``Judged`` other than the case, or the reason why there are none.
_Answer = tuple[MemoryResult, int, Interval, tuple[Scored, ...]] | str


def _predicted(repeats: Sequence[_Row]) -> list[_Answer]:
    """The answer for each of some rows of one job, which is predicted once."""
    answers: list[_Answer] = []
    predicted: tuple[Request, Prediction] | None = None
    for row in repeats:
        try:
            if predicted is None:
                request = request_of(row.case, row.profile or load_profile())
                predicted = request, predict(request)
            answers.append(_compared(row, *predicted))
        except SimcoreError as err:
            answers.append(str(err))
        except Exception as err:  # an error in one row must not lose the others
            answers.append(f"internal error: {type(err).__name__}: {err}")
    return answers


def _compared(row: _Row, request: Request, prediction: Prediction) -> _Answer:
    """A row beside the prediction of its job."""
    case, work, peak = row.case, row.work, prediction.memory
    figures = memory_figures(case, request, peak)
    time = time_of(case, request, prediction, 1.0 if work is None else work)
    known = case.work_known or work is not None
    scored = _direct_scores(case, prediction, peak, figures, time, known)
    # A replay that the row did not ask for would carry the whole job to another process.
    return replace(peak, segments=None), prediction.global_batch, time, scored


def memory_figures(case: Case, request: Request, memory: MemoryResult) -> dict[str, float]:
    """The predicted figure for each kind of measured peak in the row."""
    figures: dict[str, Callable[[], float]] = {
        "peak_memory_bytes": lambda: memory.device_bytes,
        "peak_allocated_bytes": lambda: memory.allocated_bytes,
        "peak_rank0_allocated_bytes": lambda: stage_allocated_bytes(request, 0),
        "peak_last_rank_allocated_bytes": lambda: stage_allocated_bytes(request, -1),
        "peak_reserved_bytes": lambda: memory.segments_bytes,
        "peak_shown_bytes": lambda: shown_bytes(request, memory),
    }
    return {key: figure() for key, figure in figures.items() if key in case.measured}


#: What the peaks of ``Case.measured`` count.
_COUNTS = {
    "peak_memory_bytes": "device",
    "peak_allocated_bytes": "allocated",
    "peak_rank0_allocated_bytes": "allocated on rank 0",
    "peak_last_rank_allocated_bytes": "allocated on the last rank",
    "peak_reserved_bytes": "reserved",
    "peak_shown_bytes": "shown",
}


def shown_bytes(request: Request, memory: MemoryResult) -> float:
    """Bytes that nvidia-smi shows for a job: the allocator's segments and memory outside of it.

    The segments come from a replay where the step's allocations are known, else from the closed
    form.
    """
    if request.placed is not None:
        return memory.shown_bytes
    outside = memory.device_bytes - memory.reserved_bytes
    return peak_reserved_bytes(request) + outside


def _direct_scores(
    case: Case, prediction: Prediction, memory: MemoryResult, figures: dict[str, float],
    time: Interval, work_known: bool,
) -> tuple[Scored, ...]:  # fmt: skip
    """Comparisons of a row on its own: its time, memory, and the source's own speed-up."""
    found = []
    measured = measured_time_s(case)
    if measured is not None and work_known:
        found.append(_scored(case, "step_time", measured, time.value, time.low, time.high))
    tensors, holes = Z80 * memory.tensors_sd_bytes, Z80 * memory.holes_sd_bytes
    whole = memory.high_bytes - memory.device_bytes  # includes communicators and context
    half_widths = {
        "peak_memory_bytes": whole,
        "peak_reserved_bytes": math.hypot(tensors, holes),
        "peak_shown_bytes": math.hypot(whole, holes),
    }
    for key, value in figures.items():
        half = half_widths.get(key, tensors)
        low, high = bounds_80(value, half, memory.shorter_bytes)
        one = _scored(case, "peak_memory", case.measured[key], value, low, high)
        found.append(replace(one, counts=_COUNTS[key]))
    if (faster := case.measured.get("speedup")) is not None and case.reference == "":
        ratio, factor = prediction.speedup_vs_1gpu, time.high / time.value
        found.append(_scored_within(case, "speedup", faster, ratio, factor))
    resident = sum(memory.terms.get(t, 0.0) for t in RESIDENT)
    factor = memory.high_bytes / memory.device_bytes
    for name, less in (
        ("memory_resident_bytes", 0.0),
        ("memory_resident_but_half_weights_bytes", memory.terms.get("parameters", 0.0) / 2),
    ):
        if (known := case.measured.get(name)) is not None:
            found.append(_scored_within(case, "resident_memory", known, resident - less, factor))
    return tuple(found)


#: Terms of memory that a job holds throughout.
RESIDENT = ("parameters", "optimizer_state", "ema", "frozen_models")


def _scored(
    case: Case, quantity: Quantity, measured: float, predicted: float, low: float, high: float
) -> Scored:
    return Scored(
        id=case.id, quantity=quantity, predicted=predicted, low=low, high=high,
        measured=measured, flag=case.flag,
    )  # fmt: skip


def _scored_within(
    case: Case, quantity: Quantity, measured: float, predicted: float, factor: float
) -> Scored:
    """A comparison whose interval is a factor either way."""
    return _scored(case, quantity, measured, predicted, predicted / factor, predicted * factor)


def measured_time_s(case: Case) -> float | None:
    """Seconds of the measured step or run; None where neither was measured."""
    return case.measured.get("step_time_s") or case.measured.get("run_time_s")


def _reference_of(
    row: Judged, alike: Sequence[Judged], by_id: Mapping[str, Judged]
) -> Judged | None:
    """The one-GPU row that a speed-up is relative to: same model and GPU type, else same model.

    ``alike``: the rows of the same table and model.
    """
    if row.case.reference is not None:
        return by_id.get(row.case.reference)
    single = [
        o for o in alike
        if o.case.gpus.startswith("1x1x") and "+" not in o.case.gpus and _is_timed(o)
    ]  # fmt: skip
    if any(o is row for o in single) or not single:
        return None
    card = row.case.gpus.split("x")[-1]
    return next((o for o in single if o.case.gpus.split("x")[-1] == card), single[0])


def _is_timed(row: Judged) -> bool:
    return measured_time_s(row.case) is not None


def _add_speedups(judged: Sequence[Judged]) -> list[Judged]:
    by_id = {j.case.id: j for j in reversed(judged)}  # the first, where tables share an id
    alike: dict[tuple[str, str], list[Judged]] = defaultdict(list)
    for j in judged:
        alike[j.case.table, j.case.model_name].append(j)
    out = []
    for j in judged:
        base = _reference_of(j, alike[j.case.table, j.case.model_name], by_id)
        measured = measured_time_s(j.case)
        base_measured = measured_time_s(base.case) if base is not None else None
        if base is None or measured is None or base_measured is None:
            out.append(j)
            continue
        runs = "run_time_s" in j.case.measured
        share = 1.0 if runs else j.global_batch / base.global_batch
        entry = _scored_within(
            j.case, "speedup", share * base_measured / measured,
            share * base.time.value / j.time.value, j.time.high / j.time.value,
        )  # fmt: skip
        out.append(replace(j, scored=(*j.scored, entry)))
    return out


def contradictions(cases: Sequence[Case]) -> dict[str, str]:
    """Rows that contradict another row physically, by id, with the explanation.

    A larger batch on the same cluster cannot process fewer samples a second, beyond 5 % of noise.
    """
    alike: dict[Hashable, list[Case]] = defaultdict(list)
    for case in cases:
        if "step_time_s" in case.measured:
            alike[_but_batch(case)].append(case)
    found: dict[str, str] = {}
    for a, b in (pair for group in alike.values() for pair in permutations(group, 2)):
        batch_a, batch_b = _batch(a), _batch(b)
        rate_a = batch_a / a.measured["step_time_s"]
        rate_b = batch_b / b.measured["step_time_s"]
        if batch_a > batch_b and rate_a < rate_b * 0.95:
            found[a.id] = (
                f"{rate_a:.3g} samples/s a GPU at batch {batch_a:.0f}, below {rate_b:.3g} at "
                f"batch {batch_b:.0f} on the same cluster ({b.id})"
            )
    return found


def _but_batch(case: Case) -> Hashable:
    """Key that is equal for runs that differ only in their batch."""
    options = frozenset((k, str(v)) for k, v in case.options.items() if k != "micro_batch")
    columns = case.columns.get("host", ""), case.columns.get("framework", "")
    return case.table, case.model_name, case.gpus, columns, options


def _batch(case: Case) -> float:
    value = case.options.get("micro_batch")
    return float(value) if isinstance(value, int) else 1.0
