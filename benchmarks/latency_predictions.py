"""Time of single predictions in Python, for ``benchmarks.latency``: seconds of the quickest call.

Each call accumulates another number of micro-batches, so that none finds its own answer cached.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from benchmarks.rows import least_s

Job = dict[str, Any]
DENSE: Job = {"model": "llama3-8b", "gpus": "4x8xH100", "strategy": "zero3", "recompute": "full"}
PIPELINE: Job = {"model": "gpt3-175b", "gpus": "16x8xH100", "tp": 8, "pp": 8}
EXPERTS: Job = {
    "model": "deepseek-v3", "gpus": "256x8xH100", "pp": 16, "ep": 64, "recompute": "full",
}  # fmt: skip
LARGEST: Job = {"model": "llama3-8b", "gpus": "4x8xH100", "strategy": "zero3", "micro_batch": "max"}
#: Jobs of which none fits, from one change that helps to GPUs that no change makes enough.
TOO_LARGE: tuple[Job, ...] = (
    {"model": "llama3-70b", "gpus": "1x8xH100"},
    {"model": "latte-xl", "gpus": "4x8xA6000ada", "micro_batch": 64},
    {"model": "gpt3-175b", "gpus": "16x8xH100", "tp": 8, "pp": 8, "micro_batch": 16},
)


def _quickest_s(n: int, job: Job, ask: Callable[[Any], Any], first: int = 16) -> float:
    """Seconds of ``ask`` of a prediction and the prediction together, of ``first`` or more
    micro-batches.
    """
    import simcore

    counts = iter(range(first, first + 16 * (n + 2), 16))
    call = lambda: ask(simcore.predict(**job, grad_accum=next(counts)))  # noqa: E731
    call()  # what it imports and builds is there from now on
    return least_s(call, 0.0, n)


def predict_s(n: int, job: Job) -> float:
    """Seconds of ``simcore.predict``."""
    return _quickest_s(n, job, lambda p: p.step_time_s)


def advice_s(n: int) -> float:
    """Seconds of the slowest of ``TOO_LARGE`` with what would make it fit."""
    return max(_quickest_s(n, job, lambda p: p.fixes) for job in TOO_LARGE)


def json_s(n: int) -> float:
    """Seconds of a prediction of latte-xl and of its JSON, which replays the allocator."""
    from simcore.memory.over_time import _peak_reserved_bytes

    def as_json(p: Any) -> None:
        _peak_reserved_bytes.cache_clear()
        p.to_dict()

    return _quickest_s(n, {"model": "latte-xl", "gpus": "4x8xA6000ada"}, as_json)


def _ratio(n: int, jobs: Iterable[Job], first: int = 96) -> float:
    """How many times the quickest of the jobs the slowest takes."""
    every = [_quickest_s(n, job, lambda p: p.step_time_s, first) for job in jobs]
    return max(every) / min(every)


def over_gpus(n: int) -> float:
    """Data-parallel jobs of 8 to 131,072 GPUs."""
    return _ratio(n, ({**DENSE, "gpus": f"{nodes}x8xH100"} for nodes in (1, 16, 512, 16_384)))


def over_layers(n: int) -> float:
    """Models of 12 to 200 layers."""
    job = {"model": "gpt3-175b", "gpus": "64x8xH100", "tp": 8}
    return _ratio(n, ({**job, "settings": f"layers={k}"} for k in (12, 48, 96, 200)))


def over_stages(n: int) -> float:
    """One to 96 pipeline stages."""
    job = {"model": "gpt3-175b", "gpus": "96x8xH100", "tp": 8}
    return _ratio(n, ({**job, "pp": pp} for pp in (1, 2, 8, 32, 96)))


def over_micro_batches(n: int) -> float:
    """A pipeline of 8 stages with 8 to 32,768 micro-batches."""
    every = [_quickest_s(n, PIPELINE, lambda p: p.step_time_s, k) for k in (8, 64, 1024, 32_768)]
    return max(every) / min(every)
