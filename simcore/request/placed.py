"""A layout placed on a cluster: its pipeline stages, and the ranks that divide each layer."""

from __future__ import annotations

from functools import cached_property
from itertools import accumulate, groupby

from simcore.base.record import dataclass
from simcore.step.parallel.context import ContextRanks
from simcore.step.parallel.expert import ExpertRanks
from simcore.step.parallel.layer_ranks import LayerRanks
from simcore.step.parallel.tensor import TensorRanks
from simcore.step.schedules import schedule_of
from simcore.step.schedules.base import Schedule
from simcore.strategy.cuts import written
from simcore.strategy.layout import Layout
from simcore.strategy.overlap import Overlap
from simcore.workload.graph import Workload
from simcore.workload.sharding import Stage


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
