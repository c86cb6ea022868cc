"""A change of a job's own words, and what it brings; asked like a job of its own."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from simcore.base.errors import SimcoreError
from simcore.engine.edge import settled
from simcore.engine.job_memory import memory_result
from simcore.engine.predict import central_step_s
from simcore.engine.resolved import Request
from simcore.engine.result import MemoryResult
from simcore.report.formatting import figure

Words = dict[str, Any]
#: The request with some of its words changed, the cluster's ``gpus`` among them.
Ask = Callable[[Words], Request]
#: Sequences from this length on are worth cutting (Llama 3, 2024: from 16 thousand tokens on).
LONG_TOKENS = 16_384
#: Degrees of parallelism are doubled this often.
DOUBLINGS = 3
#: Words by which a change keeps the samples of a step.
KEPT = frozenset(("global_batch", "grad_accum"))


@dataclass(frozen=True, slots=True)
class Change:
    """Words of the command line that differ, and how they are said."""

    said: str
    words: Words

    def __add__(self, other: Change) -> Change:
        said = ", ".join(text for text in (self.said, other.said) if text)
        return Change(said, self.words | other.words)


#: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: holes are given back.
GROWING = Change("growing-segments on", {"growing_segments": "on"})
#: An adapter's base held whole and narrow (QLoRA, Dettmers et al. 2023) is gathered by nobody.
NARROW_BASE = Change(
    "ddp, quantised-base nf4",
    {"strategy": "ddp", "shard_ranks": None, "quantised_base": "nf4"},
)


@dataclass(frozen=True, slots=True)
class Fix:
    """A change that fits, with its samples a second."""

    said: str
    samples_per_s: float

    def __str__(self) -> str:
        rate = self.samples_per_s
        return f"{self.said} ({figure(rate) if rate >= 1.0 else f'{rate:.3g}'}/s)"


class Trial:
    """Asks changes of one job.

    Of those that can be and do not fit ``nearest`` lacks least; ``held``: bytes by term, by what
    was said.
    """

    def __init__(self, ask: Ask) -> None:
        self._ask = ask
        self.nearest: tuple[Change, MemoryResult] | None = None
        self.held: dict[str, dict[str, float]] = {}

    def __call__(self, change: Change, *, surely: bool = False) -> Fix | None:
        """The change where it can be and fits; ``surely``: by the formula too, soon told."""
        try:
            request = self._ask(change.words)
        except SimcoreError:
            return None
        memory = memory_result(request)
        if memory.fits or not surely:
            memory = settled(request, memory)
        if not memory.fits:
            self.held[change.said] = memory.terms
            if self.nearest is None or memory.margin_frac > self.nearest[1].margin_frac:
                self.nearest = change, memory
            return None
        said = change.said
        if KEPT & change.words.keys() and request.grad_accum != self._accumulated(change.words):
            said = f"{said}, grad-accum {request.grad_accum}"
        return Fix(said, samples_a_step(request) / central_step_s(request))

    def _accumulated(self, words: Words) -> int | None:
        """The accumulation where nothing is said of the batch; None where that is refused."""
        try:
            return self._ask({k: v for k, v in words.items() if k not in KEPT}).grad_accum
        except SimcoreError:
            return None


def samples_a_step(request: Request) -> int:
    """Samples of all replicas in one step."""
    return request.micro_batch * request.grad_accum * request.data_ranks


def grows(request: Request) -> bool:
    """Whether the allocator can map more memory to a segment that it has (CUDA 11.4 on)."""
    return all(g.gpu.vendor == "NVIDIA" for g in request.cluster.groups)
