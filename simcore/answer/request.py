"""A request whose largest batch, uneven shares and balanced stages are found by search."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

from simcore.hardware.cluster import ClusterSpec
from simcore.memory.job import largest_batch
from simcore.request.make import read_request
from simcore.request.resolved import Request
from simcore.workload.resolve import ModelSource

#: ``micro_batch="max"`` searches for the largest micro-batch that fits, up to this.
MAX_BATCH = 4096


def make_request(
    model: str | Path | ModelSource,
    gpus: str | ClusterSpec,
    **options: Any,
) -> Request:
    """The request with every option resolved. Raises InvalidConfig with every violation."""
    read = read_request(model, gpus, **options)
    request = read.request
    if read.largest_batch:
        request = _with_largest_batch(request)
    if read.shares:
        from simcore.answer.shares import with_shares  # few requests have uneven shares

        request = with_shares(request, read.shares)
    if read.stages:
        from simcore.answer.stages import with_balanced_stages  # or unbalanced stages

        request = with_balanced_stages(request)
    return request


def _with_largest_batch(request: Request) -> Request:
    """The request with the largest micro-batch that fits, or with 1 and a note where none does."""
    best = largest_batch(request, MAX_BATCH)
    note = f"micro-batch {best} is the largest that fits" if best else "not even 1 fits"
    return replace(request, micro_batch=max(best, 1), assumptions=(*request.assumptions, note))
