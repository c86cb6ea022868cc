"""Holes that logits leave in freed blocks of the loss: allocations replayed, and by their sizes."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.answer.request import make_request
from simcore.base.units import MIB
from simcore.memory.allocator import CachingAllocator
from simcore.memory.parts import rests_of_loss
from simcore.request.resolved import Request
from simcore.workload.models import MODELS

#: Logits in 16 bit, in MiB; the loss's tensors are fp32.
NARROW, WIDE = 64, 128
WORDS: dict[str, Any] = {"software": "scaling", "global_batch": 64, "micro_batch": 2,
                         "precision": "bf16", "strategy": "zero1", "pp": 2}  # fmt: skip


def hole_mib(buffered: bool, parts: int) -> float:
    """Segments beyond the most live tensors of four micro-batches' logits and losses.

    ``buffered``: logits live until the next but one micro-batch has its own; ``parts``: of how many
    gathered pieces they are joined.
    """
    allocator, sizes = CachingAllocator(), dict[int, float]()
    live = most = 0.0

    def begin(mib: float) -> int:
        nonlocal live, most
        number = len(sizes)
        allocator.allocate(number, round(mib * MIB), 0)
        sizes[number] = mib
        live += mib
        most = max(most, live)
        return number

    def end(*numbers: int) -> None:
        nonlocal live
        for number in numbers:
            allocator.free(number, 0)
            live -= sizes[number]

    waiting: list[int] = []
    for _ in range(4):
        pieces = [begin(NARROW / parts) for _ in range(parts)]
        waiting.append(begin(NARROW))
        end(*pieces, *([waiting.pop(0)] if len(waiting) > 2 else []))
        copy, softmax = begin(WIDE), begin(WIDE)
        end(copy)
        of_softmax, of_copy = begin(WIDE), begin(WIDE)
        end(softmax, of_softmax)
        of_logits = begin(NARROW)
        end(of_copy, of_logits, *([] if buffered else [waiting.pop()]))
    return allocator.peak_reserved / MIB - most


@pytest.mark.parametrize(
    ("buffered", "parts", "times"), [(False, 0, 0), (True, 0, 1), (False, 2, 1), (True, 4, 2)]
)
def test_of_a_freed_block_of_the_loss_the_rest_is_lost(
    buffered: bool, parts: int, times: int
) -> None:
    assert hole_mib(buffered, parts) == times * (WIDE - NARROW)


def _rests(request: Request, stage: int) -> float:
    assert request.placed is not None
    return rests_of_loss(request.placed.stages[stage].workload, request.strategy.precision)


@pytest.mark.parametrize(("tp", "times"), [(1, 1), (2, 2), (8, 2)])
def test_rests_are_what_logits_lack_of_fp32(tp: int, times: int) -> None:
    """2 of 4 bytes an element: of the buffer's logits, and of those that tensor ranks join."""
    request = make_request("llama3-8b", "2x8xA100", **WORDS, tp=tp)
    logits = 128256 * MODELS["llama3-8b"].build().tokens_per_sample
    assert _rests(request, -1) == times * 2 * logits
    assert _rests(request, 0) == 0.0


def test_buffered_logits_as_wide_as_the_loss_leave_nothing() -> None:
    request = make_request("llama3-8b", "2x8xA100", **WORDS | {"software": "deepspeed"})
    assert _rests(request, -1) == 0.0


def test_a_job_needs_the_rests_of_its_micro_batch() -> None:
    """Where segments grow page by page there are none."""
    words = WORDS | {"tp": 2, "recompute": "full"}
    one = api.predict("llama3-8b", "2x8xA100", **words).memory
    apart = api.predict("llama3-8b", "2x8xA100", **words, settings="gathered_logits=false").memory
    grows = api.predict("llama3-8b", "2x8xA100", **words, growing_segments=True).memory
    logits = 2 * 128256 * MODELS["llama3-8b"].build().tokens_per_sample
    assert one.needed_bytes - one.device_bytes > 2 * 2 * logits
    assert apart.needed_bytes - apart.device_bytes < one.needed_bytes - one.device_bytes
    assert grows.needed_bytes == grows.device_bytes
