"""The result of a prediction: plain values with units in their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from typing import TYPE_CHECKING, Any

from simcore.base.figures import Interval
from simcore.base.lookup import Later
from simcore.base.names import Changed
from simcore.base.record import dataclass
from simcore.memory.result import MemoryResult
from simcore.step.graph import Timeline

if TYPE_CHECKING:  # the schedules are needed only for a drawn pipeline
    from simcore.answer.pipeline_timeline import PipelineLine

SCHEMA_VERSION = "1.0"


@dataclass(frozen=True, kw_only=True)
class Explanation:
    """Where one term comes from: the formula, its inputs, its source."""

    term: str
    value: str
    formula: str
    inputs: tuple[tuple[str, str], ...]
    source: str


@dataclass(frozen=True, kw_only=True)
class WhatIf:
    """The step time with twice as much of one resource, or with another division of the batch."""

    resource: str
    step_time_s: float
    gain_frac: float


@dataclass(frozen=True, kw_only=True)
class Faster:
    """A change of the job's options that fits in memory: samples/s with it, and the gain."""

    change: str
    samples_per_s: float
    gain_frac: float


@dataclass(frozen=True, kw_only=True)
class MeasuredRow:
    """A measurement of the same set-up, to compare with the prediction."""

    source: str
    quantity: str
    measured: float
    predicted: float
    note: str = ""

    @property
    def error_frac(self) -> float:
        """(predicted - measured) / measured."""
        return self.predicted / self.measured - 1.0


@dataclass(frozen=True, kw_only=True)
class Advice:
    """What would help a job.

    fixes     changes that make it fit, each with its samples per second: ``recompute full (8.1/s)``
    instead   changes that make another kind of training (adapters) fit
    why_none  where no change helps on these GPUs or on more of them, the term of memory that is
              too large
    uneven    a division of the batch between unequal GPUs that makes it faster
    faster    changes that make a job that fits faster
    """

    fixes: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()
    why_none: str = ""
    uneven: tuple[WhatIf, ...] = ()
    faster: tuple[Faster, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Single:
    """A job beside the same work on one GPU, of the fastest of its types (``gpu``).

    ``speedup``: samples/s over those of that GPU; ``efficiency_frac``: over those of all the job's
    GPUs, each alone.
    """

    gpu: str
    speedup: float
    efficiency_frac: float


@dataclass(frozen=True, kw_only=True)
class RankClass:
    """One kind of rank in the cluster; ``micro_batch``: samples a rank and micro-step."""

    gpu: str
    n_gpus: int
    compute_s: float
    micro_batch: int = 1


@dataclass(frozen=True, kw_only=True)
class StageRun:
    """Neighbouring pipeline stages with equal parts: ``count`` of them, from stage ``first`` on.

    ``memory_bytes``: of the first of them, which has most micro-batches in flight.
    """

    first: int
    count: int
    layers: int
    micro_step_s: float
    memory_bytes: float


@dataclass(frozen=True, kw_only=True)
class PredictedJob:
    """The job of a prediction, with every name and number as it was resolved.

    ``n_frozen_params``: of the frozen base that adapters are trained on. ``shard_ranks``: number of
    ranks over which ZeRO shards, with replicas beyond; 0: over all. ``unwrapped``: one process on
    one GPU, without DistributedDataParallel and its buckets. ``defaults``: options that the user
    did not set, as text.
    """

    model: str
    model_full_name: str
    n_params: int
    n_frozen_params: int = 0
    sample_unit: str
    tokens_per_sample: float = 0.0
    cluster: str
    n_gpus: int
    n_nodes: int
    strategy: str
    shard_ranks: int = 0
    unwrapped: bool = False
    precision: str
    optimizer: str
    recompute: str
    offload: str
    layout: str
    data_ranks: int
    micro_batch: int
    grad_accum: int
    global_batch: int
    defaults: tuple[str, ...]
    assumptions: tuple[str, ...]
    later_options: Later[Mapping[str, Any]] | None = field(default=None, repr=False, compare=False)

    @property
    def options(self) -> Mapping[str, Any]:
        """Every option of the job by name, with the value used."""
        return {} if self.later_options is None else self.later_options.value


@dataclass(frozen=True, kw_only=True)
class Cost:
    """What a job costs while it runs.

    unit              what is counted: token where samples are text, else the sample
    usd_per_h         dollars an hour of all GPUs; None where a price is unknown
    usd_per_million, kwh_per_million   dollars and energy for a million units; None where unknown
    sources           where the prices are from
    """

    unit: str
    usd_per_h: float | None
    usd_per_million: float | None
    kwh_per_million: float | None
    sources: tuple[str, ...]


@dataclass(frozen=True, kw_only=True)
class Run:
    """A whole run of a job, without failures; intervals are those of the step time.

    tokens         None where samples are not text
    cost_usd, energy_kwh    central values; None where a price or the rated power is unknown
    deadline_s     time until the deadline; ``deadline_prob``: probability of ending before it
    """

    steps: float
    tokens: float | None
    time_s: Interval
    cost_usd: float | None
    energy_kwh: float | None
    deadline_s: float | None = None
    deadline_prob: float | None = None


@dataclass(frozen=True, kw_only=True)
class Prediction(PredictedJob):
    """The prediction of one job: does it fit, how fast is it, and what limits it.

    ``advice`` takes as long as several predictions, the rate of a single GPU as one, and
    ``measured`` reads a list of measured steps: they are computed when they are first asked for.
    """

    step_time_s: Interval
    samples_per_s: float
    iter_per_s: float
    mfu_frac: float
    time_s: dict[str, float]
    memory: MemoryResult
    bound_by: str
    what_if: tuple[WhatIf, ...]
    rank_classes: tuple[RankClass, ...]
    uneven_split_gain_frac: float
    stages: tuple[StageRun, ...] = ()
    run_time_s: float | None = None
    run_steps: float | None = None
    run: Run | None = None
    cost: Cost | None = None
    scaled_frac: float | None = None
    later_single: Later[Single] = field(repr=False, compare=False)
    later_advice: Later[Advice] | None = field(default=None, repr=False, compare=False)
    later_measured: Later[tuple[MeasuredRow, ...]] | None = field(
        default=None, repr=False, compare=False
    )
    timeline: Timeline | None = field(default=None, repr=False, compare=False)
    pipeline: PipelineLine | None = field(default=None, repr=False, compare=False)

    @property
    def speedup_vs_1gpu(self) -> float:
        """Samples per second over those of one GPU of the fastest type."""
        return self.later_single.value.speedup

    @property
    def single_gpu(self) -> str:
        """The GPU type of the speed-up's reference: the job's fastest."""
        return self.later_single.value.gpu

    @property
    def scaling_efficiency_frac(self) -> float:
        """Samples per second over those of all GPUs of the job, each alone.

        For what is sharded, the share of the step in which ranks do not wait for each other.
        """
        own = self.scaled_frac
        return self.later_single.value.efficiency_frac if own is None else own

    @property
    def advice(self) -> Advice:
        """What would help the job; empty where nobody has asked what would."""
        return Advice() if self.later_advice is None else self.later_advice.value

    @property
    def measured(self) -> tuple[MeasuredRow, ...]:
        """Measured steps of the same job that ship with simcore."""
        return () if self.later_measured is None else self.later_measured.value

    @property
    def fixes(self) -> tuple[str, ...]:
        """Changes that make the job fit, the fastest first."""
        return self.advice.fixes

    @property
    def instead(self) -> tuple[str, ...]:
        """Changes to other kinds of training that fit."""
        return self.advice.instead

    @property
    def why_none(self) -> str:
        """Why no number of these GPUs suffices, whatever else is changed."""
        return self.advice.why_none

    @property
    def uneven(self) -> tuple[WhatIf, ...]:
        """The gain from giving faster GPUs a larger part of the batch."""
        return self.advice.uneven

    @property
    def faster(self) -> tuple[Faster, ...]:
        """Changes with which a job that fits is faster, the best first."""
        return self.advice.faster

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens of the whole job per second; None where samples are not text."""
        if not self.sample_unit.startswith("sequence") or not self.tokens_per_sample:
            return None
        return self.samples_per_s * self.tokens_per_sample

    @property
    def is_sharded(self) -> bool:
        """Whether a rank holds or updates only its share of the model."""
        return bool(self.layout) or self.strategy.startswith("zero")

    @property
    def speedup(self) -> float:
        """Speed-up over one GPU; for a sharded job over one GPU with the work of one rank."""
        if self.is_sharded:
            return self.n_gpus * self.scaling_efficiency_frac
        return self.speedup_vs_1gpu

    @property
    def work_per_s(self) -> float:
        """Tokens of the whole job per second where samples are text, else samples."""
        return self.samples_per_s if self.tokens_per_s is None else self.tokens_per_s

    @property
    def warnings(self) -> tuple[str, ...]:
        """The assumptions that change what was given, or that a program would refuse."""
        return tuple(text for text in self.assumptions if isinstance(text, Changed))

    @property
    def fits(self) -> bool:
        """Whether the job fits on the fullest GPU."""
        return self.memory.fits
