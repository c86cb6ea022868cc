"""What makes a job fit that does not: single changes first, then several together.

Every change is asked like a job of its own, so whatever breaks a rule falls out by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import combinations
from typing import Any

from simcore.base.errors import SimcoreError
from simcore.engine.advice import uneven_batch
from simcore.engine.edge import largest_batch, settled
from simcore.engine.job_memory import memory_result
from simcore.engine.predict import central_step_s
from simcore.engine.resolved import Request
from simcore.report.words import figure

#: How many of the found changes are told, the fastest first.
MOST = 6
#: How many changes are tried at once where no smaller number helps.
_TOGETHER = 3
#: Up to so many times the GPUs, all of whose state is cut and whose activations run again.
_MOST_NODES, _NODE = 256, 8
#: Sequences from this length on are worth cutting (Llama 3, 2024: from 16 thousand tokens on).
_LONG_TOKENS = 16_384
#: Degrees of parallelism are doubled this often.
_DOUBLINGS = 3

Words = dict[str, Any]
#: Words by which a change keeps the samples of a step.
_KEPT = frozenset(("global_batch", "grad_accum"))


@dataclass(frozen=True, slots=True)
class Change:
    """Words of the command line that differ, and how they are said."""

    said: str
    words: Words


#: PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True: holes are given back.
_GROWING = Change("growing-segments on", {"growing_segments": "on"})
#: An adapter's base held whole and narrow (QLoRA, Dettmers et al. 2023) is gathered by nobody.
NARROW_BASE = Change(
    "ddp, quantised-base nf4",
    {"strategy": "ddp", "shard_ranks": None, "quantised_base": "nf4"},
)


@dataclass(frozen=True, slots=True)
class _Fix:
    said: str
    samples_per_s: float

    def __str__(self) -> str:
        rate = self.samples_per_s
        return f"{self.said} ({figure(rate) if rate >= 1.0 else f'{rate:.3g}'}/s)"


def fixes_of(request: Request, ask: Callable[[Words], Request]) -> tuple[str, ...]:
    """The changes that make ``request`` fit, fastest first, as ``recompute full (8.1/s)``.

    Behind each its samples a second. ``ask`` makes the request with some of its words changed,
    the cluster's ``gpus`` among them; it may raise SimcoreError. More GPUs are tried where
    nothing else helps. Empty where that does not either.
    """
    ladders, attempt = _ladders(request), _tried(ask)
    for many in range(1, _TOGETHER + 1):
        found: list[_Fix] = []
        for group in combinations(ladders, many):
            if _at_odds(group):
                continue
            fix = next((f for f in map(attempt, _rungs(group)) if f), None)
            if fix is not None:
                found.append(fix)
        if found:
            found.sort(key=lambda f: -f.samples_per_s)
            return tuple(map(str, found[:MOST]))
    larger = next((f for f in map(attempt, _larger(request)) if f), None)
    return (str(larger),) if larger else ()


def _tried(ask: Callable[[Words], Request]) -> Callable[[Change], _Fix | None]:
    def attempt(change: Change) -> _Fix | None:
        try:
            request = ask(change.words)
        except SimcoreError:
            return None
        if not settled(request, memory_result(request)).fits:
            return None
        said = change.said
        if _KEPT & change.words.keys() and request.grad_accum != accumulated(change.words):
            said = f"{said}, grad-accum {request.grad_accum}"
        return _Fix(said, samples_a_step(request) / central_step_s(request))

    def accumulated(words: Words) -> int | None:
        """The accumulation where nothing is said of the batch; None where that is refused."""
        try:
            return ask({k: v for k, v in words.items() if k not in _KEPT}).grad_accum
        except SimcoreError:
            return None

    return attempt


def samples_a_step(request: Request) -> int:
    """Samples of all replicas in one step."""
    return request.micro_batch * request.grad_accum * request.data_ranks


def _at_odds(group: tuple[tuple[Change, ...], ...]) -> bool:
    """Whether two ladders change the same word: they are alternatives."""
    said = [word for ladder in group for word in ladder[0].words.keys() - _KEPT]
    return len(set(said)) < len(said)


def _rungs(group: tuple[tuple[Change, ...], ...]) -> Iterator[Change]:
    """One change of several ladders: all on their first rung, then all one higher."""
    for height in range(max(map(len, group))):
        chosen = [ladder[min(height, len(ladder) - 1)] for ladder in group]
        words: Words = {}
        for change in chosen:
            words |= change.words
        yield Change(", ".join(c.said for c in chosen), words)


def _ladders(request: Request) -> list[tuple[Change, ...]]:
    """Ways to need less memory, each a ladder of ever stronger changes."""
    s, n_gpus = request.strategy, request.cluster.n_gpus
    layout = request.placed.layout if request.placed else None
    ladders: list[list[Change]] = []
    best = largest_batch(request, request.micro_batch)
    if layout is not None and layout.pp > 1 and request.micro_batch > 1:
        ladders.append([_batch(request, 1)])  # and the smaller its bubble
    elif 0 < best < request.micro_batch:
        below = [b for b in range(best, 0, -1) if request.micro_batch % b == 0]
        ladders.append([_batch(request, b) for b in dict.fromkeys((best, *below))])
    elif request.micro_batch > 1:
        ladders.append([_batch(request, 1)])
    again = {"none": ("selective", "full"), "selective": ("full",), "full": ()}[s.recompute]
    whole = {"recompute_modules": None, "recompute_layers": None}
    ladders.append([Change(f"recompute {how}", {"recompute": how, **whole}) for how in again])
    if n_gpus > 1:
        stages = range(max(1, s.zero_stage + 1), 4)
        ladders.append([Change(f"zero{n}", {"strategy": f"zero{n}"}) for n in stages])
    if s.shard_ranks:
        ladders.append([Change(f"{s.parallelism} over all GPUs",
                               {"strategy": s.parallelism, "shard_ranks": None})])  # fmt: skip
    if not request.growing_segments and _grows(request):
        ladders.append([_GROWING])
    if s.precision.name in ("fp32", "fp32-ieee", "tf32"):
        ladders.append([Change("amp-bf16", {"precision": "amp-bf16"})])
    long = request.workload.tokens_per_sample >= _LONG_TOKENS
    for name in ("tp", "pp", *(("cp",) if long else ()), "ep"):
        now = getattr(layout, name, 1)
        degrees = [now * 2**i for i in range(1, _DOUBLINGS + 1) if now * 2**i <= n_gpus]
        kept = {"global_batch": samples_a_step(request), "grad_accum": None}
        ladders.append([Change(f"{name} {n}", {name: n, **kept}) for n in degrees])
    if layout is not None and layout.pp > 1 and not layout.stages:
        ladders.append([Change("stages auto", {"stages": "auto"})])
    if uneven_batch(request):
        ladders.append([Change("shares auto", {"shares": "auto"})])
    if request.workload.frozen_base_numel:  # adapters: what is frozen may be narrow
        ladders.append([Change("quantised-base nf4", {"quantised_base": "nf4"})])
        if s.zero_stage == 3 and n_gpus > 1:
            ladders.append([NARROW_BASE])
    if not s.offload:
        away: Words = {"offload": "optimizer"}
        if n_gpus == 1 and s.zero_stage == 0:  # ZeRO-Offload (Ren et al. 2021) on one GPU
            ladders.append([Change("zero2, offload optimizer", {"strategy": "zero2", **away})])
        else:
            ladders.append([Change("offload optimizer", away)])
    return [tuple(ladder) for ladder in ladders if ladder]


def _grows(request: Request) -> bool:
    """Whether the allocator can map more memory to a segment that it has (CUDA 11.4 on)."""
    return all(g.gpu.vendor == "NVIDIA" for g in request.cluster.groups)


def _larger(request: Request) -> Iterator[Change]:
    """More GPUs of the same type, a whole node first, with everything else that needs less."""
    if len(request.cluster.groups) != 1:
        return
    group = request.cluster.groups[0]
    sparing: Words = {"micro_batch": 1, "strategy": "zero3", "recompute": "full",
                      "recompute_modules": None, "recompute_layers": None,
                      "nnodes": None, "nproc_per_node": None}  # fmt: skip
    if not any(b.recomputable for b in request.workload.blocks):
        del sparing["recompute"]
    per_node = max(group.gpus_per_node, _NODE)
    # What sharding alone leaves whole on every GPU: a long sample, a layer's experts, its products.
    cuts = [("cp", per_node)] if request.workload.tokens_per_sample >= _LONG_TOKENS else []
    cuts += [("ep", per_node), *(("tp", 2**i) for i in range(1, _DOUBLINGS + 1))]
    nodes = 1 if group.gpus_per_node < per_node else 2
    while nodes <= _MOST_NODES:
        gpus = f"{max(nodes, group.n_nodes)}x{per_node}x{group.gpu.name}"
        said = ", ".join((gpus, "zero3", *(["recompute full"] if "recompute" in sparing else [])))
        yield Change(f"{said}, micro-batch 1", {"gpus": gpus, **sparing})
        if not request.growing_segments and _grows(request):
            yield Change(f"{said}, micro-batch 1, {_GROWING.said}",
                         {"gpus": gpus, **sparing, **_GROWING.words})  # fmt: skip
        for name, degree in cuts:  # refused where there is nothing to cut so
            yield Change(f"{said}, micro-batch 1, {name} {degree}",
                         {"gpus": gpus, **sparing, name: degree})  # fmt: skip
        nodes *= 2


def _batch(request: Request, size: int) -> Change:
    """A smaller micro-batch: more micro-steps where the samples of a step can stay the same."""
    words: Words = {"micro_batch": size}
    if request.micro_batch % size == 0 and (request.grad_accum > 1 or request.placed):
        words |= {"global_batch": samples_a_step(request), "grad_accum": None}
    return Change(f"micro-batch {size}", words)
