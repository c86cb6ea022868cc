"""Names of jobs side by side: the cluster, and every word in which they differ."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from simcore.engine.result import Prediction

#: Words of a call that a prediction has as an answer, and so as a name of its own.
_ANSWERED = {
    "model", "gpus", "nnodes", "nproc_per_node", "strategy", "precision", "recompute", "optimizer",
    "offload", "micro_batch", "grad_accum", "global_batch", "tp", "pp", "vpp", "cp", "ep",
    "sequence_parallel", "schedule", "keep_timeline", "steps", "epochs",
}  # fmt: skip


def told_apart(predictions: Sequence[Prediction]) -> list[tuple[str, ...]]:
    """The words of each prediction that tell it from the others; the cluster is always one."""
    answers = [
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
    telling = [words for words in answers if len(set(words)) > 1]
    asked = [_asked(p) for p in predictions]
    for word in dict.fromkeys(w for words in asked for w in words):
        shown = [_shown(word, words.get(word)) for words in asked]
        if len(set(shown)) > 1:
            telling.append(shown)
    return [
        (p.cluster, *(words[i] for words in telling if words[i])) for i, p in enumerate(predictions)
    ]


def _asked(p: Prediction) -> Mapping[str, Any]:
    """What was asked beyond what the answer repeats; nothing of a plain prediction."""
    asked = getattr(p, "asked", None)
    words: Mapping[str, Any] = asked.words if asked is not None else {}
    return {k: v for k, v in words.items() if k not in _ANSWERED}


def _shown(word: str, value: Any) -> str:
    if value is None:
        return ""
    if isinstance(value, str) and ("/" in value or "\\" in value):
        value = Path(value).stem
    return f"{word.replace('_', '-')} {value}"
