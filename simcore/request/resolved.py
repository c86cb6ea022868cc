"""A job with every name and default resolved, and its kinds of rank."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from simcore.base.record import dataclass
from simcore.hardware.cluster import ClusterSpec, NodeGroup
from simcore.hardware.profile import Profile
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Workload

if TYPE_CHECKING:
    from simcore.request.placed import Placed


@dataclass(frozen=True)
class Loading:
    """How samples are loaded; see ``workload.models.Dataset``.

    ``samples``: those of an epoch, None where they are not known. ``measured_here``: the load time
    is that of the job's own processors. ``worker_start_s``: time that the training process takes to
    start one worker and to end it, on a processor of ``Dataset``'s kind.
    """

    samples: float | None
    sample_load_s: float
    workers: int
    persistent: bool
    prefetch: int = 2
    load_sd_frac: float = 0.0
    measured_here: bool = True
    worker_start_s: float = 0.0


@dataclass(frozen=True)
class Request:
    """Everything that a prediction depends on: workload, cluster, strategy, calibration and batch.

    ``shares``: micro-batch of each kind of rank (``rank_groups``) where they differ; their sum over
    all ranks is that of ``micro_batch`` everywhere. ``software_assumed``: nobody named the training
    library of a layout that needs one. ``global_batch_given``: the user gave the samples of a step
    and not its micro-steps. ``peak_workload``: the model with the largest batch of training, where
    batch sizes vary; ``peak_placed``: the part of it that each rank of a layout holds. ``options``:
    the options that were given, and the model's settings among the options.
    """

    workload: Workload
    full_name: str
    cluster: ClusterSpec
    strategy: Strategy
    micro_batch: int
    grad_accum: int
    profile: Profile
    loading: Loading | None = None
    defaults: tuple[str, ...] = ()
    assumptions: tuple[str, ...] = ()
    placed: Placed | None = None
    eager_kernels: bool = False
    growing_segments: bool = False
    compiled: bool = False
    shares: tuple[int, ...] = ()
    software_assumed: bool = False
    global_batch_given: bool = False
    peak_workload: Workload | None = None
    peak_placed: Placed | None = None
    options: Mapping[str, Any] = field(default_factory=dict, compare=False, repr=False)

    @property
    def held(self) -> Request:
        """The request that memory is computed for: that of the largest batch."""
        if self.peak_workload is None:
            return self
        return replace(
            self, workload=self.peak_workload, placed=self.peak_placed, peak_workload=None,
            peak_placed=None,
        )  # fmt: skip

    @property
    def held_workload(self) -> Workload:
        """The workload that memory is computed for."""
        return self.peak_workload or self.workload

    @property
    def kinds(self) -> tuple[NodeGroup, ...]:
        """One node group for each kind of rank."""
        return rank_groups(self.cluster)

    @property
    def shares_text(self) -> str:
        """The option ``shares``; empty where all ranks have equal micro-batches."""
        return ":".join(str(self.shares[i]) for i in as_written(self.cluster) if self.shares)

    @property
    def micro_steps(self) -> float:
        """Micro-batches that pass each stage of the model in a step."""
        return self.grad_accum / (self.placed.schedule.directions if self.placed else 1)

    @property
    def global_batch(self) -> int:
        """Samples of one optimizer step."""
        return self.micro_batch * self.grad_accum * self.data_ranks

    @property
    def data_ranks(self) -> int:
        """Number of replicas that read different samples."""
        n_gpus = self.cluster.n_gpus
        return self.placed.layout.data_ranks(n_gpus) if self.placed else n_gpus


def _class_key(group: NodeGroup) -> tuple[str, str, int]:
    """Key by which groups are of one kind: same GPU, same node, same number of GPUs in it."""
    return group.gpu.name, group.node.name, group.gpus_per_node


def rank_groups(cluster: ClusterSpec) -> tuple[NodeGroup, ...]:
    """One node group for each rank class."""
    seen: dict[tuple[str, str, int], NodeGroup] = {}
    for g in cluster.groups:
        seen.setdefault(_class_key(g), g)
    return tuple(seen.values())


def rank_counts(cluster: ClusterSpec) -> tuple[int, ...]:
    """Number of ranks of each class, in the order of ``rank_groups``."""
    return tuple(
        sum(g.n_gpus for g in cluster.groups if _class_key(g) == _class_key(c))
        for c in rank_groups(cluster)
    )


def as_written(cluster: ClusterSpec) -> tuple[int, ...]:
    """Indices into ``rank_groups`` in the order in which the user wrote the groups."""
    keys = [_class_key(g) for g in rank_groups(cluster)]
    return tuple(dict.fromkeys(keys.index(_class_key(g)) for g in cluster.as_written))
