"""Pieces of a pipeline's work, and where in the model each is."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, TypeAlias

from simcore.strategy.layout import Layout

#: Forward; backward; with zero-bubble backward of the input alone, then that of the weights.
Kind = Literal["forward", "backward", "weights"]


@dataclass(frozen=True, slots=True)
class Work:
    """One micro-batch on one chunk of a stage; of DualPipe, ``chunk`` is the end it came from."""

    kind: Kind
    micro_batch: int
    chunk: int


#: Work that is done as one: it waits for all that its parts wait for, and is sent on at its end.
Cell: TypeAlias = tuple[Work, ...]


def place_of(layout: Layout, stage: int, chunk: int) -> int:
    """How many chunks of the model lie before this one on a micro-batch's way."""
    if layout.directions > 1:
        return stage if chunk == 0 else layout.pp - 1 - stage
    return chunk * layout.pp + stage


def stage_at(layout: Layout, place: int, chunk: int) -> int:
    """The rank of the pipeline at a place; ``chunk`` tells the end that a micro-batch came from."""
    if layout.directions > 1:
        return place if chunk == 0 else layout.pp - 1 - place
    return place % layout.pp


def last_place(layout: Layout) -> int:
    """The last place of a micro-batch's way."""
    return layout.pp * layout.vpp - 1
