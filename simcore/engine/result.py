"""What a prediction says: plain values with units in their names."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from simcore.base.interval import Interval
from simcore.engine.timeline import Timeline

if TYPE_CHECKING:  # a drawn pipeline alone needs its schedules
    from simcore.engine.pipeline import PipelineLine

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
    """What twice as much of one resource would give."""

    resource: str
    step_time_s: float
    gain_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Faster:
    """A change of the job's own words that fits, and what it brings: samples a second then."""

    change: str
    samples_per_s: float
    gain_frac: float


@dataclass(frozen=True, slots=True, kw_only=True)
class MeasuredRow:
    """A measurement of the same set-up, beside the prediction."""

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
class MemoryResult:
    """Memory of the fullest GPU at its peak; terms add up to ``device_bytes``.

    ``cached_bytes``: what the allocator is expected to have reserved, holes included;
    ``holes_sd_bytes``: the standard deviation of the holes, ``tensors_sd_bytes`` that of what is
    allocated; ``needed_bytes``: ``device_bytes`` and the
    holes that cannot be given back, what the job fits by. ``low_bytes`` and ``high_bytes`` bound
    80 % of ``device_bytes``. ``host_bytes`` is a GPU's, ``host_lack_bytes`` what the GPUs of a node
    keep there beyond ``host_capacity_bytes``, the node's own.
    """

    terms: dict[str, float]
    allocated_bytes: float
    reserved_bytes: float
    cached_bytes: float
    device_bytes: float
    capacity_bytes: float
    host_bytes: float
    nvme_bytes: float
    moment: str
    low_bytes: float
    high_bytes: float
    holes_sd_bytes: float = 0.0
    tensors_sd_bytes: float = 0.0
    needed_bytes: float = 0.0
    host_lack_bytes: float = 0.0
    host_capacity_bytes: float = 0.0

    @property
    def shown_bytes(self) -> float:
        """What nvidia-smi shows: what the allocator has reserved, and what lies outside it."""
        return self.cached_bytes + self.device_bytes - self.reserved_bytes

    @property
    def least_bytes(self) -> float:
        """The least memory with which the job runs."""
        return max(self.needed_bytes, self.device_bytes)

    @property
    def fits(self) -> bool:
        """Whether the peak, with holes that cannot be given back, is within what there is."""
        return self.least_bytes <= self.capacity_bytes

    @property
    def margin_frac(self) -> float:
        """What is left, as a share of the capacity; negative where it does not fit."""
        return 1.0 - self.least_bytes / self.capacity_bytes


@dataclass(frozen=True, slots=True, kw_only=True)
class RankClass:
    """One kind of rank in the cluster; ``micro_batch`` is what each of them takes."""

    gpu: str
    n_gpus: int
    compute_s: float
    micro_batch: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class StageRun:
    """Neighbouring pipeline stages of equal parts: ``count`` from stage ``first`` on.

    ``memory_bytes`` is of the first of them, which has the most micro-batches in flight.
    """

    first: int
    count: int
    layers: int
    micro_step_s: float
    memory_bytes: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Prediction:
    """The answer to "will it fit, how fast, what limits it".

    ``options``: every option of the job by its name, with the value that it was predicted with.
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
    instead: tuple[str, ...] = ()  # of another kind of training, that fit
    why_none: str = ""  # why no more of these GPUs do, whatever else is changed
    uneven: tuple[WhatIf, ...] = ()
    faster: tuple[Faster, ...] = ()
    options: Mapping[str, Any] = field(default_factory=dict, repr=False, compare=False)
    timeline: Timeline | None = field(default=None, repr=False, compare=False)
    pipeline: PipelineLine | None = field(default=None, repr=False, compare=False)

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens of the whole job a second; None where a sample is no text."""
        if not self.sample_unit.startswith("sequence") or not self.tokens_per_sample:
            return None
        return self.samples_per_s * self.tokens_per_sample

    @property
    def fits(self) -> bool:
        """Whether the fullest GPU holds it."""
        return self.memory.fits
