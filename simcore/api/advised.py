"""What would help a job: changes with which it fits, or with which it is faster."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from simcore.answer.advice import uneven
from simcore.answer.request import is_max, make_request
from simcore.answer.result import Advice, Prediction
from simcore.api.change import Ask, Words
from simcore.hardware.cluster import ClusterSpec
from simcore.request.resolved import Request
from simcore.workload.resolve import ModelSource


def asking(
    model: str | Path | ModelSource, gpus: str | ClusterSpec, options: Mapping[str, Any]
) -> Ask:
    """A function that resolves the job with some of its options, or its GPUs, changed."""
    largest = is_max(options.get("micro_batch"))

    def ask(words: Words) -> Request:
        if largest and "micro_batch" not in words:  # micro_batch="max" is resolved anew
            words = {k: v for k, v in words.items() if k not in ("global_batch", "grad_accum")}
        changed = {**options, **words}
        where = changed.pop("gpus", gpus)
        return make_request(model, where, **changed)

    return ask


def advice_on(request: Request, found: Prediction, ask: Ask) -> Advice:
    """What would help the job of a request. ``found``: its prediction."""
    division = uneven(request)
    if not found.fits:
        from simcore.api.fixes import advice_of

        return replace(advice_of(request, ask), uneven=division)
    if request.placed is not None or request.strategy.zero_stage:
        from simcore.api.faster import faster_of

        return Advice(uneven=division, faster=faster_of(request, found, ask))
    return Advice(uneven=division)
