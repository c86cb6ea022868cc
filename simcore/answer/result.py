"""The result of a prediction: plain values with units in their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simcore.base.interval import Interval
from simcore.memory.result import MemoryResult
from simcore.timing.timeline import Timeline

if TYPE_CHECKING:  # the schedules are needed only for a drawn pipeline
    from simcore.timing.pipeline import PipelineLine

SCHEMA_VERSION = "1.0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Where one term comes from: the formula, its inputs, its source."""

    term: str
    value: str
    formula: str
    inputs: tuple[tuple[str, str], ...]
    source: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WhatIf:
    """The step time with twice as much of one resource, or with another division of the batch."""

    resource: str
    step_time_s: float
    gain_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Faster:
    """A change of the job's options that fits in memory: samples/s with it, and the gain."""

    change: str
    samples_per_s: float
    gain_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
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


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClass:
    """One kind of rank in the cluster; ``micro_batch``: samples a rank and micro-step."""

    gpu: str
    n_gpus: int
    compute_s: float
    micro_batch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """Neighbouring pipeline stages with equal parts: ``count`` of them, from stage ``first`` on.

    ``memory_bytes``: of the first of them, which has most micro-batches in flight.
    """

    first: int
    count: int
    layers: int
    micro_step_s: float
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The prediction of one job: does it fit, how fast is it, and what limits it.

    ``options``: every option of the job by name, with the value used.
    """

    model: str
    model_full_name: str
    n_params: int
    sample_unit: str
    cluster: str
    n_gpus: int
    n_nodes: int
    strategy: str
    precision: str
    optimizer: str
    recompute: str
    offload: str
    layout: str
    data_ranks: int
    micro_batch: int
    grad_accum: int
    global_batch: int
    step_time_s: Interval
    samples_per_s: float
    iter_per_s: float
    speedup_vs_1gpu: float
    single_gpu: str
    scaling_efficiency_frac: float
    mfu_frac: float
    time_s: dict[str, float]
    memory: MemoryResult
    bound_by: str
    what_if: tuple[WhatIf, ...]
    rank_classes: tuple[RankClass, ...]
    uneven_split_gain_frac: float
    defaults: tuple[str, ...]
    assumptions: tuple[str, ...]
    n_frozen_params: int = 0  # of adapters' base
    tokens_per_sample: float = 0.0
    shard_ranks: int = 0  # over how many ranks ZeRO shards, with replicas between; 0: all
    unwrapped: bool = False  # one process on one GPU: no DistributedDataParallel, no buckets
    stages: tuple[StageRun, ...] = ()
    measured: tuple[MeasuredRow, ...] = ()
    run_time_s: float | None = None
    run_steps: float | None = None
    fixes: tuple[str, ...] = ()
    instead: tuple[str, ...] = ()  # other kinds of training that fit
    why_none: str = ""  # why no number of these GPUs suffices, whatever else is changed
    uneven: tuple[WhatIf, ...] = ()
    faster: tuple[Faster, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    timeline: Timeline | None = field(default=None, repr=False, compare=False)
    pipeline: PipelineLine | None = field(default=None, repr=False, compare=False)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens of the whole job per second; None where samples are not text."""
        if not self.sample_unit.startswith("sequence") or not self.tokens_per_sample:
            return None
        return self.samples_per_s * self.tokens_per_sample

    @property
    def fits(self) -> bool:
        """Whether the job fits on the fullest GPU."""
        return self.memory.fits
