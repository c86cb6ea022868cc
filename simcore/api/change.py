"""A change of a job's options, and its effect: the changed job is resolved like any other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simcore.base.errors import SimcoreError
from simcore.base.record import dataclass
from simcore.memory.job import memory_result
from simcore.memory.result import MemoryResult
from simcore.report.formatting import figure
from simcore.request.resolved import Request
from simcore.timing.steps import central_step_s

Words = dict[str, Any]
#: Returns the request with some of its options (also ``gpus``) changed. Raises SimcoreError.
Ask = Callable[[Words], Request]
#: Context parallelism is tried for samples of at least this many tokens (Llama 3, 2024: from 16
#: thousand tokens on).
LONG_TOKENS = 16_384
#: How often a degree of parallelism is doubled when looking for one that fits.
DOUBLINGS = 3
#: Options that a change sets only to keep the number of samples per step.
KEPT = frozenset(("global_batch", "grad_accum"))


@dataclass(frozen=True)
class Change:
    """Options that differ from those of the job (``words``), and the text that says so."""

    said: str
    words: Words

    def __add__(self, other: Change) -> Change:
        said = ", ".join(text for text in (self.said, other.said) if text)
        return Change(said, self.words | other.words)


#: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: no memory is lost to fragmentation.
GROWING = Change("growing-segments on", {"growing_segments": "on"})
#: Under adapters, hold the whole base quantised on every GPU (QLoRA, Dettmers et al. 2023), so that
#: it need not be sharded and gathered.
NARROW_BASE = Change(
    "ddp, quantised-base nf4",
    {"strategy": "ddp", "shard_ranks": None, "quantised_base": "nf4"},
)


@dataclass(frozen=True)
class Fix:
    """A change with which the job fits, and its samples per second."""

    said: str
    samples_per_s: float

    def __str__(self) -> str:
        rate = self.samples_per_s
        return f"{self.said} ({figure(rate) if rate >= 1.0 else f'{rate:.3g}'}/s)"


class Trial:
    """Tries changes of one job and records those that are valid but do not fit in memory.

    nearest  the one of them that comes closest to fitting, with its memory
    held     bytes by term of each of them, by its text
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.nearest: tuple[Change, MemoryResult] | None = None
        self.held: dict[str, dict[str, float]] = {}

    def __call__(self, change: Change) -> Fix | None:
        """The change as a fix, or None where it is invalid or does not fit."""
        request = self._fitting(change)
        if request is None:
            return None
        said = change.said
        if KEPT & change.words.keys() and request.grad_accum != self._accumulated(change.words):
            said = f"{said}, grad-accum {request.grad_accum}"
        return Fix(said, samples_a_step(request) / central_step_s(request))

    def fits(self, change: Change) -> bool:
        """Whether the changed job is valid and fits."""
        return self._fitting(change) is not None

    def _fitting(self, change: Change) -> Request | None:
        """The changed job, or None where it is invalid or does not fit."""
        try:
            request = self._ask(change.words)
        except SimcoreError:
            return None
        memory = memory_result(request)
        if memory.fits:
            return request
        self.held[change.said] = memory.terms
        if self.nearest is None or memory.margin_frac > self.nearest[1].margin_frac:
            self.nearest = change, memory
        return None

    def _accumulated(self, words: Words) -> int | None:
        """Micro-batches per step without the options in ``KEPT``; None where that is invalid."""
        try:
            return self._ask({k: v for k, v in words.items() if k not in KEPT}).grad_accum
        except SimcoreError:
            return None


def samples_a_step(request: Request) -> int:
    """Samples per step, over all data-parallel replicas."""
    return request.micro_batch * request.grad_accum * request.data_ranks


def grows(request: Request) -> bool:
    """Whether PyTorch's allocator is used and supports expandable segments on all GPUs.

    It does from CUDA 11.4 on.
    """
    planned = request.strategy.program.layers.buffers_planned
    return not planned and all(g.gpu.vendor == "NVIDIA" for g in request.cluster.groups)
