"""Pieces of work of a pipeline, and their place in the model."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from simcore.strategy.layout import Layout

#: forward; backward (with zero-bubble: of the input only); weights: backward of the weights.
Kind = Literal["forward", "backward", "weights"]


@dataclass(frozen=True, slots=True)
class Work:
    """One micro-batch on one chunk of a stage; DualPipe: ``chunk`` is the end where it entered."""

    kind: Kind
    micro_batch: int
    chunk: int


#: Work done as one unit: it starts when all its parts may, and sends its results at its end.
Cell: TypeAlias = tuple[Work, ...]


def place_of(layout: Layout, stage: int, chunk: int) -> int:
    """Number of chunks of the model that a micro-batch passes before this one."""
    if layout.directions > 1:
        return stage if chunk == 0 else layout.pp - 1 - stage
    return chunk * layout.pp + stage


def stage_at(layout: Layout, place: int, chunk: int) -> int:
    """Pipeline rank at a place; DualPipe: ``chunk`` is the end where the micro-batch entered."""
    if layout.directions > 1:
        return place if chunk == 0 else layout.pp - 1 - place
    return place % layout.pp


def last_place(layout: Layout) -> int:
    """The last place that a micro-batch passes."""
    return layout.pp * layout.vpp - 1
