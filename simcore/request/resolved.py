"""A job with every name and default resolved, and its kinds of rank."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from typing import TYPE_CHECKING, Any

from simcore.base.record import dataclass
from simcore.base.units import FP32_BYTES
from simcore.hardware.cluster import ClusterSpec, NodeGroup
from simcore.hardware.profile import Profile
from simcore.strategy.options import OPTIONS, Option
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Workload

if TYPE_CHECKING:
    from simcore.request.placed import Placed


@dataclass(frozen=True)
class Loading:
    """How samples are loaded; see ``workload.models.Dataset``.

    ``samples``: those of an epoch, None where they are not known. ``measured_here``: the load time
    is that of the job's own processors. ``worker_start_s``: time that the training process takes to
    start one worker and to end it, on a processor of ``Dataset``'s kind. ``sample_traffic_bytes``:
    what loading a sample moves to and from a node's memory.
    """

    samples: float | None
    sample_load_s: float
    workers: int
    persistent: bool
    prefetch: int = 2
    load_sd_frac: float = 0.0
    measured_here: bool = True
    worker_start_s: float = 0.0
    sample_traffic_bytes: float = 0.0


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
    cudnn_benchmark: bool = False
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


def settings_in_effect(options: Mapping[str, Any], settings: Mapping[str, Any]) -> dict[str, Any]:
    """The options that were given, with the model's own value of those that are its settings."""
    found = {name: settings[name] for name in OPTIONS.settings if name in settings}
    return {**options, **found, "resolution": options.get("resolution") or _resolution(settings)}


def _resolution(settings: Mapping[str, Any]) -> str | None:
    """Height and width of a model's images [pixels] as text; None where it has no images."""
    height = settings.get("height", settings.get("image"))
    if isinstance(height, str):
        return height  # a side for each dimension
    width = settings.get("width", settings.get("image_width") or height)
    return None if height is None else f"{height}x{width}"


def resolved_options(request: Request) -> dict[str, Any]:
    """Value of every option, None where it has none; plain types as in JSON."""
    return {o.name: _plain(_value(request, o)) for o in OPTIONS.options().values()
            if o.on_command_line}  # fmt: skip


def _value(request: Request, option: Option) -> Any:
    """The value in the resolved job; else the one that was given; else the default."""
    found: Any = None
    if (of := _OF.get(option.name)) is not None:
        found = of(request)
    elif option.resolved:
        found = request
        for name in option.resolved.split("."):
            found = getattr(found, name, None)
    if found is None:
        found = request.options.get(option.name)
    return option.unsaid if found is None else found


def as_given(option: Option) -> bool:
    """Whether a resolved job does not hold the option, so that only the given value is known."""
    return not option.resolved and option.name not in _OF


def _plain(value: Any) -> Any:
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, Mapping):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, tuple | list):
        return [_plain(v) for v in value]
    return str(value) or None


def main_grads(request: Request) -> str:
    """Width of the gradient sums: the weights', the weights' with fused sums, or fp32."""
    precision = request.strategy.precision
    if not precision.main_grads:
        return "weights"
    return "fp32" if precision.grad_bytes == FP32_BYTES else "fused"


def _stages(request: Request) -> str | None:
    """Number of layers of each pipeline stage, as text."""
    return None if request.placed is None else request.placed.stages_text


def _per_node(request: Request) -> int | None:
    """GPUs of each node; None where nodes differ."""
    counts = {g.gpus_per_node for g in request.cluster.groups}
    return counts.pop() if len(counts) == 1 else None


def _bucket_numel(request: Request) -> int:
    """Elements of a gradient bucket: DeepSpeed sets elements, DDP sets bytes."""
    strategy = request.strategy
    if strategy.zero_stage in (1, 2):
        return strategy.buckets.zero_numel
    return int(strategy.buckets.cap_bytes // strategy.precision.grad_bytes)


#: Options whose value is derived from several fields of the resolved job.
_OF: Mapping[str, Callable[[Request], Any]] = {
    "main_grads": main_grads,
    "recompute_modules": lambda r: ",".join(r.strategy.recompute_modules) or None,
    "stages": _stages,
    "shares": lambda r: r.shares_text or None,
    "node": lambda r: "+".join(dict.fromkeys(g.node.name for g in r.cluster.as_written)),
    "nproc_per_node": _per_node,
    "bucket_numel": _bucket_numel,
    "sample_load": lambda r: r.loading and f"{r.loading.sample_load_s:g} s",
    "epoch_samples": lambda r: r.loading and r.loading.samples and round(r.loading.samples),
}
