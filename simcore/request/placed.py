"""A layout placed on a cluster: its pipeline stages, and what their ranks have to exchange."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby

from simcore.step.schedules import schedule_of
from simcore.step.schedules.base import Schedule
from simcore.strategy.layout import Layout
from simcore.strategy.overlap import Overlap
from simcore.workload.graph import Workload
from simcore.workload.sharding import TENSOR_SUMS, Stage


@dataclass(frozen=True, slots=True)
class LayerTraffic:
    """What one layer exchanges, in elements a sample unless stated otherwise.

    ``hidden``: a layer's output; ``context``: one exchange of context ranks. ``hidden_copies``:
    experts that each token goes to; ``expert_groups``: (number of groups of experts, groups among
    which a token chooses). ``width_bytes``: bytes of an activation. ``tensor_sums``: sums of
    ``hidden`` over tensor ranks, as many in forward as in backward. ``expert_rows``: rows that the
    fullest expert rank receives over the mean. ``dispatched_frac``: width of a row sent to experts
    over ``hidden``. ``weights_frac``: bytes of routing weights over those of the row that they
    accompany to its expert; their gradients accompany the row back.
    """

    hidden: float
    context: float
    hidden_copies: float
    width_bytes: float
    tensor_sums: float = TENSOR_SUMS
    expert_rows: float = 1.0
    dispatched_frac: float = 1.0
    expert_groups: tuple[int, int] = (1, 1)
    weights_frac: float = 0.0


@dataclass(frozen=True)
class Placed:
    """A layout on a cluster, with its pipeline stages.

    ``gpus_per_node``: GPUs that a node has. ``part``: the part of the model of one tensor and
    expert rank, which the stages divide. ``recompute_frac``: sums over tensor ranks that recompute
    repeats, over those of forward. ``experts_again``: recompute repeats the exchanges of experts.
    ``attention_again_frac``: share of forward's context exchanges that recompute repeats.
    ``expert_layers_frac``: share of the layers that have routed experts. ``more_sums``: sums over
    tensor ranks in a layer's backward beyond one for each in forward. ``column_grads_frac``: share
    of a layer's FLOP in weight gradients of column-parallel products, during which the gradients of
    their inputs can be summed up. ``gathers_again``: inputs of such products are saved as shares of
    the sequence, and backward gathers them again for the weight gradients (Korthikanti et al. 2022,
    4.2.2). ``gathered_frac``: bytes that tensor ranks gather over those that they sum up: products
    with operands of fewer bits gather these. ``bare_frac``: share of the bytes exchanged by tensor
    ranks in inputs that adapters also read, which no product gathers piece by piece.
    ``ring_shares``: for a node whose GPUs are not all joined alike, the bandwidth of a ring over
    its first 1, 2 … GPUs over that of a ring over all GPUs in use; empty where all are joined
    alike. ``sends_whole``: every tensor rank sends the next stage the stage's whole output.
    ``tied_bytes``: gradients of a table that both the first and the last stage hold.
    """

    layout: Layout
    gpus_per_node: int
    part: Workload
    stages: tuple[Stage, ...]
    traffic: LayerTraffic
    recompute_frac: float
    experts_again: bool
    attention_again_frac: float
    overlap: Overlap
    expert_layers_frac: float
    column_grads_frac: float
    more_sums: int = 0
    sends_whole: bool = False
    gathers_again: bool = False
    gathered_frac: float = 1.0
    bare_frac: float = 0.0
    ring_shares: tuple[float, ...] = ()
    tied_bytes: float = 0.0

    @cached_property
    def schedule(self) -> Schedule:
        """The schedule of its pipeline."""
        return schedule_of(self.layout)

    @property
    def sending_ranks(self) -> int:
        """Number of tensor ranks among which a stage's output is divided when it is sent."""
        return 1 if self.sends_whole else self.layout.tp

    @property
    def narrow_gathers(self) -> bool:
        """Whether tensor ranks gather fewer bytes than they sum up."""
        return self.layout.sequence_parallel and self.gathered_frac < 1.0

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
