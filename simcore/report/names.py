"""Names for jobs shown side by side: the cluster, and every setting in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simcore.answer.result import Prediction

#: Options of a request that need no look-up, since the prediction states what they became.
_IN_PREDICTION = {
    "model", "gpus", "nnodes", "nproc_per_node", "strategy", "precision", "recompute", "optimizer",
    "offload", "micro_batch", "grad_accum", "global_batch", "tp", "pp", "vpp", "cp", "ep",
    "sequence_parallel", "schedule", "keep_timeline", "steps", "epochs",
}  # fmt: skip


def told_apart(predictions: Sequence[Prediction]) -> list[tuple[str, ...]]:
    """For each prediction its cluster and the settings in which it differs from the others."""
    results = [
        [p.model for p in predictions],
        [p.strategy for p in predictions],
        [p.layout for p in predictions],
        [p.precision for p in predictions],
        [p.optimizer for p in predictions],
        [f"recompute {p.recompute}" for p in predictions],
        [f"offload {p.offload}" for p in predictions],
        [f"micro-batch {p.micro_batch}" for p in predictions],
        [f"accum {p.grad_accum}" for p in predictions],
    ]
    differing = [texts for texts in results if len(set(texts)) > 1]
    requests = [_other_options(p) for p in predictions]
    for option in dict.fromkeys(name for request in requests for name in request):
        shown = [_shown(option, request.get(option)) for request in requests]
        if len(set(shown)) > 1:
            differing.append(shown)
    return [
        (p.cluster, *(texts[i] for texts in differing if texts[i]))
        for i, p in enumerate(predictions)
    ]


def _other_options(p: Prediction) -> Mapping[str, Any]:
    """The requested options that the prediction does not repeat; empty if it has no request."""
    call = getattr(p, "call", None)
    options: Mapping[str, Any] = call.words if call is not None else {}
    return {k: v for k, v in options.items() if k not in _IN_PREDICTION}


def _shown(option: str, value: Any) -> str:
    """An option and its value as text; of a path only the file's name. "" without a value."""
    if value is None:
        return ""
    if isinstance(value, str) and ("/" in value or "\\" in value):
        value = Path(value).stem
    return f"{option.replace('_', '-')} {value}"
