"""A layout placed on a cluster, with every rule checked: stages, ranks that divide each layer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import accumulate, groupby
from typing import NamedTuple

from simcore.base.errors import InvalidConfig
from simcore.base.record import Same, dataclass, first_equal, replace
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.paths import mesh_share
from simcore.step.parallel.context import ContextRanks
from simcore.step.parallel.expert import ExpertRanks
from simcore.step.parallel.layer_ranks import DividedJob, LayerRanks, joined_ranks
from simcore.step.parallel.tensor import TensorRanks
from simcore.step.schedules import layout_violations, schedule_of
from simcore.step.schedules.base import Schedule
from simcore.strategy.cuts import cut_sizes, written
from simcore.strategy.layout import Layout, Overlap
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Workload
from simcore.workload.models import ModelRecord, Scalar
from simcore.workload.recompute import head_recomputed, offloaded, recomputed
from simcore.workload.resolve import ModelSource
from simcore.workload.sharding import (
    Stage,
    buffered,
    layer_counts,
    opposite_joined,
    pipeline_stages,
    tensor_overrides,
    tied_numel,
)


@dataclass(frozen=True)
class Placed:
    """A layout on a cluster, with its pipeline stages.

    ``gpus_per_node``: GPUs that a node has. ``part``: the part of the model of one tensor and
    expert rank, which the stages divide. ``tensor``, ``context``, ``expert``: the ranks that divide
    each layer. ``ring_shares``: for a node whose GPUs are not all joined alike, the bandwidth of a
    ring over its first 1, 2 … GPUs over that of a ring over all GPUs in use; empty where all are
    joined alike. ``sends_whole``: every tensor rank sends the next stage the stage's whole output.
    ``tied_bytes``: gradients of a table that both the first and the last stage hold.
    """

    layout: Layout
    gpus_per_node: int
    part: Workload
    stages: tuple[Stage, ...]
    tensor: TensorRanks
    context: ContextRanks
    expert: ExpertRanks
    overlap: Overlap
    sends_whole: bool = False
    ring_shares: tuple[float, ...] = ()
    tied_bytes: float = 0.0

    @property
    def dimensions(self) -> tuple[LayerRanks, ...]:
        """All ranks that divide each layer."""
        return self.tensor, self.context, self.expert

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of its pipeline."""
        return schedule_of(self.layout)

    @property
    def stages_text(self) -> str:
        """Number of layers of each pipeline stage, as text."""
        return written([s.n_layers for s in self.stages])

    @property
    def sending_ranks(self) -> int:
        """Number of tensor ranks among which a stage's output is divided when it is sent."""
        return 1 if self.sends_whole else self.layout.tp

    @property
    def gathers_received(self) -> bool:
        """Whether tensor ranks gather the shares of the stage input that each has received."""
        layout = self.layout
        return layout.tp > 1 and not (layout.sequence_parallel or self.sends_whole)

    @cached_property
    def distinct_stages(self) -> tuple[tuple[int, int], ...]:
        """(index of the first, how many) for each set of stages with equal parts of the model."""
        parts = [id(s.workload) for s in self.stages]
        return tuple((parts.index(part), parts.count(part)) for part in dict.fromkeys(parts))

    @property
    def hides_messages(self) -> bool:
        """Whether stages compute while the messages that they send and wait for are under way."""
        return self.overlap.pipeline and self.layout.vpp > 1

    @cached_property
    def behind(self) -> tuple[int, ...]:
        """For each of ``distinct_stages``: stages after the last of them, which waits longest."""
        parts = [id(s.workload) for s in reversed(self.stages)]
        return tuple(parts.index(id(self.stages[i].workload)) for i, _ in self.distinct_stages)

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """(index into ``distinct_stages``, how many in a row), from the first stage to the last."""
        known = {id(self.stages[i].workload): n for n, (i, _) in enumerate(self.distinct_stages)}
        parts = groupby(known[id(s.workload)] for s in self.stages)
        return tuple((part, len(list(row))) for part, row in parts)

    @cached_property
    def run_starts(self) -> tuple[int, ...]:
        """Index of the first stage of each of ``runs``."""
        counts = [count for _, count in self.runs]
        return tuple(accumulate(counts[:-1], initial=0))


def joined(alike: Sequence[Placed]) -> Placed:
    """Placements that differ in what recompute changes alone as one, for their exchanges.

    Figures of layers' exchanges in which they differ are columns, with a row for each kind of stage
    of each placement (``joined_ranks``).
    """
    first, rows = alike[0], len(alike[0].distinct_stages)
    if len(alike) == 1:
        return first
    return replace(
        first,
        tensor=joined_ranks([placed.tensor for placed in alike], rows),
        context=joined_ranks([placed.context for placed in alike], rows),
        expert=joined_ranks([placed.expert for placed in alike], rows),
    )


#: The ways to divide a layer over ranks, in the order in which they divide a part of the model.
DIMENSIONS: tuple[type[LayerRanks], ...] = (TensorRanks, ContextRanks, ExpertRanks)


def place(
    record: ModelSource,
    workload: Workload,
    cluster: ClusterSpec,
    strategy: Strategy,
    layout: Layout,
    overrides: Mapping[str, Scalar],
) -> Placed | None:
    """Stages and exchanges of a layout; None where the model is not divided.

    Raises InvalidConfig with every violation.
    """
    n_layers = layer_counts(workload)
    problems = layout_violations(layout, cluster.n_gpus, n_layers)
    if layout.trivial and not problems:
        return None
    if len({g.gpu.name for g in cluster.groups}) > 1:
        problems.append("tensor, pipeline, context and expert parallelism need GPUs of one type")
    if strategy.parallelism in ("dp", "manual"):
        problems.append(
            f"strategy {strategy.parallelism} cannot be combined with tp, pp, cp or ep: use ddp "
            "or zero1 to zero3"
        )
    gpus_per_node = max(g.gpus_per_node for g in cluster.groups)
    of_model, of_layers = (Same(record), tuple(overrides.items())), _of_layers(layout)
    own, refused = _own_settings(*of_model, of_layers)
    if problems := [*problems, *refused]:
        raise InvalidConfig(problems)
    part, config, tensor, context, expert = _divided(
        *of_model, own, Same(workload), _in_layers(strategy), of_layers, gpus_per_node
    )
    sizes = cut_sizes(layout.stages, n_layers, layout.pp, strategy.program.pipeline.cut, config)
    return Placed(
        layout=layout,
        gpus_per_node=gpus_per_node,
        part=part,
        stages=_stages(part, layout, sizes, strategy),
        tensor=tensor,
        context=context,
        expert=expert,
        overlap=strategy.overlap,
        ring_shares=_ring_shares(cluster),
        sends_whole=strategy.program.pipeline.sends_whole_output and not layout.sequence_parallel,
        # a rank that is fed from both ends holds both stages, and the table once
        tied_bytes=(layout.pp > 1 and schedule_of(layout).directions == 1)
        * strategy.precision.grad_bytes
        * float(tied_numel(part)),
    )


def _ring_shares(cluster: ClusterSpec) -> tuple[float, ...]:
    group = cluster.groups[0]
    used = group.gpus_per_node
    if not group.node.mesh_rings or used == 1:
        return ()
    shares = [mesh_share(group.node, n) for n in range(2, used + 1)]
    return (1.0, *(share / shares[-1] for share in shares))


@lru_cache(maxsize=1000)
def _in_layers(strategy: Strategy) -> Strategy:
    """What the division of layers depends on, which is not the division of their state."""
    return first_equal(replace(strategy, parallelism="ddp", shard_ranks=0, expert_ranks=1.0))


@lru_cache(maxsize=1000)
def _of_layers(layout: Layout) -> Layout:
    """What the division of layers depends on, which is not their order in a pipeline."""
    return first_equal(replace(layout, pp=1, vpp=1, stages=""))


#: Settings of a model, or some of them, as a key of caches.
_Settings = tuple[tuple[str, Scalar], ...]


@lru_cache(maxsize=256)
def _own_settings(
    record: Same[ModelSource], overrides: _Settings, layout: Layout
) -> tuple[_Settings, Sequence[str]]:
    """(settings of one tensor and expert rank's part, every rule that this division breaks)."""
    model, changed = record.it, dict(overrides)
    refused = [p for kind in DIMENSIONS for p in kind.refused(model, layout, changed)]
    if min(layout.tp, layout.ep, layout.expert_tp) < 1:
        return (), refused  # ``place`` reports the error in the layout
    if isinstance(model, ModelRecord):
        whole = model.model_copy(update={"config": {**model.config, **changed}})
        try:
            own = tensor_overrides(whole, layout.tp, layout.ep, layout.expert_tp)
        except InvalidConfig as err:
            return (), [*refused, *err.violations]
        return tuple(own.items()), refused
    if layout.tp > 1 or layout.ep > 1:
        refused.append(f"{model.name}: tensor parallelism needs a transformer record")
    return (), refused


class _Divided(NamedTuple):
    """One rank's part of a model, all settings of the whole, and the ranks that divide layers."""

    part: Workload
    config: Mapping[str, Scalar]
    tensor: TensorRanks
    context: ContextRanks
    expert: ExpertRanks


@lru_cache(maxsize=256)
def _divided(
    record: Same[ModelSource], overrides: _Settings, own: _Settings, workload: Same[Workload],
    strategy: Strategy, layout: Layout, gpus_per_node: int,
) -> _Divided:  # fmt: skip
    """The layers divided over tensor, context and expert ranks; ``own``: settings of a rank's part.

    Jobs that differ in pipeline stages, or in how they shard their state, share it.
    """
    model = record.it
    part, config = workload.it, dict[str, Scalar]()
    if isinstance(model, ModelRecord):
        config = {**model.settings({}), **dict(overrides)}
        part = model.build(**{**dict(overrides), **dict(own)}) if own else part
    if part is not workload.it:
        part = recomputed(
            part,
            strategy.recompute_modules,
            strategy.recompute_layers,
            strategy.program.recompute.stops_early,
            exchanges=layout.ep > 1,
        )
        if strategy.recompute == "full" and strategy.program.recompute.full_includes_head:
            part = head_recomputed(part)
        part = offloaded(part, strategy.offload_layers, checkpointed=strategy.recompute == "full")
    job = DividedJob(
        record=model,
        config=config,
        workload=workload.it,
        layout=layout,
        strategy=strategy,
        gpus_per_node=gpus_per_node,
    )
    for kind in DIMENSIONS:
        part = kind.divided(part, job)
    ranks = TensorRanks.of(job), ContextRanks.of(job), ExpertRanks.of(job)
    return _Divided(part, config, *ranks)


def _stages(
    part: Workload, layout: Layout, sizes: tuple[int, ...] | None, strategy: Strategy
) -> tuple[Stage, ...]:
    """The stage that each pipeline rank holds; fed from both ends, also the opposite rank's."""
    both_ends = schedule_of(layout).directions > 1
    stages = pipeline_stages(part, layout.pp, sizes, one_table=both_ends)
    library = strategy.program
    if strategy.zero_stage < 3 and any(b.recomputable for b in part.blocks):
        stages = buffered(
            stages,
            library.pipeline.received_copies,
            library.pipeline.sent_copies,
            library.pipeline.logits_bytes,
        )
    return opposite_joined(stages) if both_ends else stages
