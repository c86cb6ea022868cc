"""What every way to divide a layer over ranks states: tensor, context and expert, one file each.

# C configs, all arrays [C]
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import fields
from functools import cached_property
from typing import Any, ClassVar, NamedTuple, Self, TypeVar

import numpy as np

from simcore.base.arrays import Array
from simcore.base.record import dataclass, replace
from simcore.physics.collectives import Collective, Group, collective_time_s
from simcore.strategy.layout import Layout
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block, Workload
from simcore.workload.models import Scalar
from simcore.workload.resolve import ModelSource
from simcore.workload.sharding import layer_counts


@dataclass(frozen=True, kw_only=True)
class DividedJob:
    """A model, its ``config`` (settings) and the layout that divides it.

    ``workload``: the whole model, before it is divided.
    """

    record: ModelSource
    config: Mapping[str, Scalar]
    workload: Workload
    layout: Layout
    strategy: Strategy
    gpus_per_node: int

    @cached_property
    def layers(self) -> list[tuple[Block, int]]:
        """(repeated layer, how often it runs) for each kind of layer."""
        return layers_of(self.workload)

    @property
    def output_bytes(self) -> float:
        """Bytes of a layer's output that a context rank has, a sample."""
        elements = max((b.boundary.high + b.boundary.low for b, _ in self.layers), default=0.0)
        return elements / self.layout.cp * self.strategy.precision.low_bytes

    @property
    def repeated_frac(self) -> float:
        """Share of the layers whose whole forward recompute repeats, exchanges included."""
        strategy, n_layers = self.strategy, layer_counts(self.workload)
        if "layer" in strategy.recompute_modules:
            return min(1.0, (strategy.recompute_layers or n_layers) / max(1, n_layers))
        return float(strategy.recompute == "full")


def layers_of(workload: Workload) -> list[tuple[Block, int]]:
    """(repeated layer, how often it runs) for each kind of layer of a model."""
    times = Counter(workload.order)
    return [(b, times[i]) for i, b in enumerate(workload.blocks) if b.recomputable and times[i]]


class Pair(NamedTuple):
    """Exchanges and the compute that can hide them, in shares of a micro-step's.

    ``exchanged_frac``: of the time of all exchanges of these ranks. ``covering_frac``: of the time
    of all compute, or with ``by_products`` of the time of all matrix products.
    """

    exchanged_frac: float
    covering_frac: float = 1.0
    by_products: bool = False


@dataclass(frozen=True, kw_only=True)
class LayerRanks:
    """Ranks that divide every layer, and what they exchange for it.

    ``ranks``: how many; ``stride``: distance of two neighbours in the numbering of ranks.
    ``sample_bytes``: bytes of one exchange of a rank, a sample. ``forward``, ``backward``:
    exchanges of a layer in each pass. ``layers_frac``: share of the layers that have them.
    ``seen_frac``: share of their time that is exposed at most. ``pairs``: exchanges that compute
    can hide, each with the compute that does. ``nic_ranks``: ranks over which hidden exchanges are
    laid out, 0 for none; ``hidden_backward_frac``: share of these in backward.
    """

    name: ClassVar[str]
    #: Whether the host waits for the device before each exchange.
    host_waits: ClassVar[bool] = False
    #: Whether compute of another micro-batch hides exchanges, not that of their own.
    beside_others: ClassVar[bool] = False

    ranks: int
    stride: float
    sample_bytes: float
    forward: float
    backward: float
    layers_frac: float = 1.0
    seen_frac: float = 1.0
    pairs: tuple[Pair, ...] = ()
    nic_ranks: int = 0
    hidden_backward_frac: float = 0.0

    @classmethod
    def of(cls, job: DividedJob) -> Self:
        """The ranks of this kind in a job. Raises InvalidConfig where they cannot divide it."""
        raise NotImplementedError

    @staticmethod
    def refused(record: ModelSource, layout: Layout, overrides: Mapping[str, Scalar]) -> list[str]:
        """One sentence for each rule that dividing a model with these settings breaks."""
        return []

    @staticmethod
    def divided(part: Workload, job: DividedJob) -> Workload:
        """What one of the ranks holds and computes of a ``part`` of the model."""
        return part

    @property
    def word(self) -> str:
        """The first word of its name: tensor, context or expert."""
        return self.name.split(" ", maxsplit=1)[0]

    @property
    def passes(self) -> tuple[float, float]:
        """Exchanges of a layer in forward and in backward."""
        return self.forward, self.backward

    @property
    def collectives(self) -> Mapping[Collective, float]:
        """The collectives of an exchange, in order, and the bytes of each over ``sample_bytes``."""
        raise NotImplementedError

    @property
    def layer_times(self) -> Mapping[str, float]:
        """NCCL's operations, and how often a layer runs each in a micro-step, on average."""
        times = self.layers_frac * (self.forward + self.backward)
        return dict.fromkeys(self.collectives, times)

    def once_s(self, n_bytes: Array, group: Group) -> dict[str, Array]:
        """Seconds of one exchange of ``n_bytes`` by NCCL's operation."""
        return {
            op: collective_time_s(op, (share * n_bytes)[None, :], group)[0]
            for op, share in self.collectives.items()
        }


Ranks = TypeVar("Ranks", bound=LayerRanks)


def joined_ranks(each: Sequence[Ranks], rows: int) -> Ranks:
    """The ranks of several jobs that differ in recompute alone, as those of one job.

    Figures in which they differ are columns: ``rows`` equal rows for each job [jobs x rows, 1].
    """
    first, *others = each
    if first.ranks == 1 or all(ranks == first for ranks in others):
        return first

    def column(values: Sequence[Any]) -> Any:
        equal = all(value == values[0] for value in values)
        return values[0] if equal else np.repeat(values, rows)[:, None]

    figures = {f.name: column([getattr(r, f.name) for r in each])
               for f in fields(first) if f.name != "pairs"}  # fmt: skip
    pairs = tuple(Pair(*map(column, zip(*alike, strict=True)))
                  for alike in zip(*(r.pairs for r in each), strict=True))  # fmt: skip
    return replace(first, **figures, pairs=pairs)
