"""What an evaluator asks in one call: forms on clusters of a kind, and pieces of their points."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from typing import Any, NamedTuple

import numpy as np

from simcore.answer.sweep import Axis, Outcome, same_pipeline, whatever_pipeline
from simcore.base.arrays import NDArray
from simcore.base.record import dataclass
from simcore.planning.points import NO_MEMORY, Batch, FormWords
from simcore.planning.variants import Deal
from simcore.request.resolved import Request
from simcore.strategy.layout import AUTO, Layout


@dataclass(frozen=True)
class Unit:
    """A form on all clusters of one kind.

    members  indices of the clusters
    reasons  why each of them is invalid; empty text for valid ones
    request  the resolved job, for all of them; None where no cluster is valid
    shares   how batches are divided over unequal GPUs, as text
    by_batch the jobs of micro-batches whose layers run other kernels
    """

    members: list[int]
    reasons: list[str]
    request: Request | None = None
    layout: Layout = field(default_factory=Layout)
    words: FormWords | None = None
    shares: str = ""
    by_batch: Mapping[int, Request] = field(default_factory=dict)


class Piece(NamedTuple):
    """The valid points of a piece of a unit, to be evaluated.

    wires    ``wires_of`` the valid clusters, and ``members``, their indices in the space
    of       fields of the result that are known already
    """

    held: Unit
    request: Request
    axis: Axis
    deals: list[Deal] | None
    wires: dict[str, Any]
    members: NDArray[np.intp]
    of: dict[str, Any]

    def batch(self, outcome: Outcome) -> Batch:
        """Its result."""
        axis, invalid = self.axis, self.of["invalid"]
        if dead := int((~outcome.fits).sum()):
            invalid[NO_MEMORY] = dead
        which, micro = axis.cluster, axis.micro_batch
        ranks = np.asarray(self.wires["n_ranks"] // self.held.layout.model_ranks, dtype=np.float64)
        # a view of the step times would keep a larger array alive
        values = {**vars(outcome), "step_time_s": outcome.step_time_s.copy()}
        return Batch(
            **values, **self.of, form=self.held.words, cluster=self.members[which],
            micro_batch=micro, grad_accum=axis.grad_accum,
            samples_per_s=micro * axis.grad_accum * ranks[which] / outcome.step_time_s,
        )  # fmt: skip

    @property
    def has_variants(self) -> bool:
        """Whether its points have several requests (``evaluate_points``)."""
        own_cuts = self.held.layout.stages == AUTO
        return self.deals is not None or own_cuts or bool(self.held.by_batch)


#: Pieces with the same points, whose requests differ in recompute alone.
Group = list[Piece]


def together(pieces: Sequence[Piece]) -> list[list[Group]]:
    """The pieces in groups, and the groups by what is evaluated in one call."""
    calls: list[tuple[tuple[object, ...], list[Group]]] = []
    for piece in pieces:
        key = whatever_pipeline(piece.request)
        groups = next((found for known, found in calls if known == key), None)
        if groups is None:
            calls.append((key, groups := []))
        for group in groups:
            same = same_pipeline(group[0].request, piece.request)
            if same and group[0].axis.equals(piece.axis):
                group.append(piece)
                break
        else:
            groups.append([piece])
    return [groups for _, groups in calls]
