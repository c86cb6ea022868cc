"""A layout on a cluster: the stages to run, and what their ranks have to exchange."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, groupby

from simcore.strategy.layout import Layout
from simcore.strategy.overlap import Overlap
from simcore.workload.graph import Workload
from simcore.workload.sharding import TENSOR_SUMS, Stage


@dataclass(frozen=True, slots=True)
class LayerTraffic:
    """Elements a sample that one layer exchanges; widths in bytes of an activation.

    ``context``: what context ranks exchange at a time. ``hidden_copies``: to how many experts each
    token goes, ``expert_groups``: of how many groups, and how many of these it takes them from.
    ``tensor_sums``: how often tensor ranks sum ``hidden`` up, in forward and again in
    backward. ``expert_rows``: what the fullest expert rank receives over the mean.
    ``dispatched_frac``: width of what goes to experts over ``hidden``. ``weights_frac``: bytes of
    routing weights beside a row on its way to its expert, and of their gradients on their way back.
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
    """A layout on a cluster: how many GPUs a node has, and the stages to run.

    ``part`` is one tensor and expert rank's part of the model, which the stages cut.
    ``more_sums``: over tensor ranks in a layer's backward, beside one a sum of forward.
    ``column_grads_frac``: of a layer's FLOP those of the weight gradients of products that are cut
    by columns, beside which the gradients of their inputs can be summed up.
    ``gathers_again``: inputs of such products are kept as shares of the sequence, and backward
    gathers them once more, for their weights' gradients (Korthikanti et al. 2022, 4.2.2).
    ``gathered_frac``: bytes of what tensor ranks gather over those of what they sum up: products in
    fewer bits gather operands in these.
    ``bare_frac``: of the bytes that tensor ranks exchange, those of inputs that adapters read too:
    no product gathers them piece by piece.
    ``ring_shares``: of a node whose GPUs are not all joined alike, what a ring over its first 1, 2
    … GPUs gets of the bandwidth of one over those in use; nothing where all are.
    ``sends_whole``: every tensor rank hands the next stage all that the stage's output holds.
    ``tied_bytes``: gradients of a table that the first and the last stage hold each.
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

    @property
    def sending_ranks(self) -> int:
        """Among how many tensor ranks what a stage sends is shared out."""
        return 1 if self.sends_whole else self.layout.tp

    @property
    def narrow_gathers(self) -> bool:
        """Whether tensor ranks gather fewer bytes than they sum up."""
        return self.layout.sequence_parallel and self.gathered_frac < 1.0

    @property
    def gathers_received(self) -> bool:
        """Whether tensor ranks put together what each of them received a share of."""
        layout = self.layout
        return layout.tp > 1 and not (layout.sequence_parallel or self.sends_whole)

    @cached_property
    def distinct_stages(self) -> tuple[tuple[int, int], ...]:
        """(index of the first, how many) of the stages that have equal parts."""
        parts = [id(s.workload) for s in self.stages]
        return tuple((parts.index(part), parts.count(part)) for part in dict.fromkeys(parts))

    @property
    def hides_messages(self) -> bool:
        """Whether stages work while what they send and wait for is under way."""
        return self.overlap.pipeline and self.layout.vpp > 1

    @cached_property
    def behind(self) -> tuple[int, ...]:
        """Stages behind the last of each of ``distinct_stages``: of equal ones it waits longest."""
        parts = [id(s.workload) for s in reversed(self.stages)]
        return tuple(parts.index(id(self.stages[i].workload)) for i, _ in self.distinct_stages)

    @cached_property
    def runs(self) -> tuple[tuple[int, int], ...]:
        """(which of ``distinct_stages``, how many in a row), from the first stage to the last."""
        known = {id(self.stages[i].workload): n for n, (i, _) in enumerate(self.distinct_stages)}
        parts = groupby(known[id(s.workload)] for s in self.stages)
        return tuple((part, len(list(row))) for part, row in parts)

    @cached_property
    def run_starts(self) -> tuple[int, ...]:
        """The first stage of each of ``runs``."""
        counts = [count for _, count in self.runs]
        return tuple(accumulate(counts[:-1], initial=0))
