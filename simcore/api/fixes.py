"""Changes that make a job fit in memory, single ones first, then several, or that make it faster.

Every changed job is resolved like any other, so invalid combinations are refused by the same rules.
Training LoRA adapters instead of all weights gives another model, so that this advice is separate:
LoRA (Hu et al. 2021) adds products of two low-rank matrices to a frozen base model and trains only
these; QLoRA (Dettmers et al. 2023) also holds the base in four bits.

A job that fits is faster with less sharding, or sharding only within nodes; for adapters with a
quantised base that is not sharded; for a pipeline with more micro-batches, or several chunks of
layers per rank.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import replace
from itertools import combinations
from math import inf
from pathlib import Path
from typing import Any

from simcore.answer.advice import uneven, uneven_batch
from simcore.answer.request import is_max, make_request
from simcore.answer.result import Advice, Faster, Prediction
from simcore.api.change import (
    DOUBLINGS,
    GROWING,
    KEPT,
    LONG_TOKENS,
    NARROW_BASE,
    Ask,
    Change,
    Fix,
    Trial,
    Words,
    grows,
    samples_a_step,
)
from simcore.base.errors import SimcoreError
from simcore.hardware.cluster import ClusterSpec
from simcore.memory.job import largest_batch, memory_result
from simcore.memory.result import MemoryResult
from simcore.report.formatting import plural
from simcore.request.resolved import Request
from simcore.strategy.strategy import HYBRID
from simcore.timing.steps import central_step_s
from simcore.workload.resolve import ModelSource
from simcore.workload.settings import settings_given

#: The suggested rank: within a factor of two of the recipes of PEFT and torchtune.
_LORA = Change("lora-rank 16", {"lora_rank": 16})
_QUANTISED = Change("quantised-base nf4", {"quantised_base": "nf4"})


def adapters_instead(request: Request, ask: Ask) -> list[Fix]:
    """Adapters on the same GPUs, with the fewest other changes, or an empty list.

    The base keeps its number format where that fits, else it is quantised. Empty where nothing
    fits, where the model takes no adapters or where it trains adapters already.
    """
    if request.workload.frozen_base_numel:
        return []
    attempt = Trial(ask)
    for change in _changes(request):
        found = attempt(change)
        if found is not None:
            return [found]
        if attempt.nearest is None:  # the request was refused: the model takes no adapters
            return []
    return []


def _changes(request: Request) -> Iterator[Change]:
    """Combinations of changes to try, those that change least first."""
    recompute = Change("recompute full", {"recompute": "full", "recompute_modules": None,
                                          "recompute_layers": None})  # fmt: skip
    batch_of_one = Change("micro-batch 1", {"micro_batch": 1})
    others = [Change("", {})]
    if request.strategy.recompute != "full":
        others += [recompute]
    if not request.growing_segments and grows(request):
        others += [c + GROWING for c in others]
    if request.micro_batch > 1:
        others += [c + batch_of_one for c in others]
    sharded = request.strategy.zero_stage and request.cluster.n_gpus > 1
    quantised = NARROW_BASE if sharded else _QUANTISED
    length = request.options.get("seq_len")  # not that of other adapters: the job's own
    if length is not None and "seq_len" not in settings_given(request.options.get("settings")):
        others = [Change(c.said, {**c.words, "seq_len": length}) for c in others]
    for base in (_LORA, _LORA + quantised):
        yield from (base + c for c in others)


#: How many changes are suggested at most, the fastest first.
MOST = 6
#: How many changes are combined at most, where fewer do not help.
_TOGETHER = 3


def advice_of(request: Request, ask: Ask) -> Advice:
    """The changes that make ``request`` fit, the fastest first.

    ``ask`` makes a changed request and may raise SimcoreError. More GPUs, and adapters instead of
    training all weights, are tried where no other change helps; larger GPUs where more GPUs do not
    help either.
    """
    attempt = Trial(ask)
    found = _on_these(request, attempt)
    shorter = next((str(f) for f in map(Trial(ask), _shorter(request)) if f), None)
    last = () if shorter is None else (shorter,)
    if found:
        return Advice(fixes=(*map(str, found[:MOST]), *last))
    from simcore.api.larger import larger_gpus, more_gpus, why_none  # few jobs need it

    instead = tuple(map(str, adapters_instead(request, ask)))
    more = Trial(ask)
    if found := more_gpus(request, more):
        return Advice(fixes=(*map(str, found), *last), instead=instead)
    if last:
        return Advice(fixes=last, instead=instead)
    larger = larger_gpus(request, Trial(ask))
    return Advice(fixes=tuple(map(str, larger)), instead=instead, why_none=why_none(more))


def _on_these(request: Request, attempt: Trial) -> list[Fix]:
    """Changes that help on the requested GPUs, the fastest first."""
    ladders = _ladders(request)
    now = memory_result(request)
    for many in range(1, _TOGETHER + 1):
        found: list[Fix] = []
        for group in combinations(ladders, many):
            if _at_odds(group) or (many > 1 and _hopeless(group, now, attempt)):
                continue
            fix = next((f for f in map(attempt, _rungs(group)) if f), None)
            if fix is not None:
                found.append(fix)
        if found:
            return sorted(found, key=lambda f: -f.samples_per_s)
    return []


#: Safety factor of ``_hopeless``: several changes together may save more than the product of their
#: savings term by term.
_TOGETHER_FACTOR = 2.0


def _hopeless(group: tuple[tuple[Change, ...], ...], now: MemoryResult, attempt: Trial) -> bool:
    """Whether several changes together need not be tried, since they would save far too little.

    The estimate multiplies, term by term, the shares of memory that each change leaves when it is
    tried alone.
    """
    left = dict(now.terms)
    for ladder in group:
        alone = [held for change in ladder if (held := attempt.held.get(change.said)) is not None]
        if not alone:  # invalid when tried alone; with the others it may be valid
            return False
        for term in left:
            share = min(held.get(term, 0.0) for held in alone) / max(now.terms[term], 1.0)
            left[term] *= min(share, 1.0)
    return sum(left.values()) > _TOGETHER_FACTOR * now.capacity_bytes


def _at_odds(group: tuple[tuple[Change, ...], ...]) -> bool:
    """Whether two ladders change the same option: they are alternatives."""
    said = [word for ladder in group for word in ladder[0].words.keys() - KEPT]
    return len(set(said)) < len(said)


def _rungs(group: tuple[tuple[Change, ...], ...]) -> Iterator[Change]:
    """Combined changes of several ladders: all on the first rung, then all on the next."""
    for height in range(max(map(len, group))):
        chosen = [ladder[min(height, len(ladder) - 1)] for ladder in group]
        words: Words = {}
        for change in chosen:
            words |= change.words
        yield Change(", ".join(c.said for c in chosen), words)


def _ladders(request: Request) -> list[tuple[Change, ...]]:
    """Ways to save memory, each a ladder of changes from the mildest to the strongest."""
    s, n_gpus = request.strategy, request.cluster.n_gpus
    layout = request.placed.layout if request.placed else None
    ladders: list[list[Change]] = []
    best = largest_batch(request, request.micro_batch)
    if layout is not None and layout.pp > 1 and request.micro_batch > 1:
        ladders.append([_batch(request, 1)])  # more, smaller micro-batches also shrink the bubble
    elif 0 < best < request.micro_batch:
        below = [b for b in range(best, 0, -1) if request.micro_batch % b == 0]
        ladders.append([_batch(request, b) for b in dict.fromkeys((best, *below))])
    elif request.micro_batch > 1:
        ladders.append([_batch(request, 1)])
    stronger = {"none": ("selective", "full"), "selective": ("full",), "full": ()}[s.recompute]
    defaults = {"recompute_modules": None, "recompute_layers": None}
    ladders.append([Change(f"recompute {how}", {"recompute": how, **defaults}) for how in stronger])
    if _whole_logits(request):
        given = settings_given(request.options.get("settings"))
        ladders.append([Change("set loss=chunked", {"settings": {**given, "loss": "chunked"}})])
    if n_gpus > 1:
        stages = range(max(1, s.zero_stage + 1), 4)
        ladders.append([Change(f"zero{n}", {"strategy": f"zero{n}"}) for n in stages])
    if s.shard_ranks:
        ladders.append([Change(f"{s.parallelism} over all GPUs",
                               {"strategy": s.parallelism, "shard_ranks": None})])  # fmt: skip
    if not request.growing_segments and grows(request):
        ladders.append([GROWING])
    if s.precision.name in ("fp32", "fp32-ieee", "tf32"):
        ladders.append([Change("amp-bf16", {"precision": "amp-bf16"})])
    long = request.workload.tokens_per_sample >= LONG_TOKENS
    for name in ("tp", "pp", *(("cp",) if long else ()), "ep"):
        now = getattr(layout, name, 1)
        degrees = [now * 2**i for i in range(1, DOUBLINGS + 1) if now * 2**i <= n_gpus]
        same_batch = {"global_batch": samples_a_step(request), "grad_accum": None}
        ladders.append([Change(f"{name} {n}", {name: n, **same_batch}) for n in degrees])
    if layout is not None and layout.pp > 1 and not layout.stages:
        ladders.append([Change("stages auto", {"stages": "auto"})])
    if uneven_batch(request):
        ladders.append([Change("shares auto", {"shares": "auto"})])
    if request.workload.frozen_base_numel:  # adapters: the frozen base can be quantised
        ladders.append([Change("quantised-base nf4", {"quantised_base": "nf4"})])
        if s.zero_stage == 3 and n_gpus > 1:
            ladders.append([NARROW_BASE])
    if not s.offload:
        offload: Words = {"offload": "optimizer"}
        if n_gpus == 1 and s.zero_stage == 0:  # ZeRO-Offload (Ren et al. 2021) on one GPU
            ladders.append([Change("zero2, offload optimizer", {"strategy": "zero2", **offload})])
        else:
            ladders.append([Change("offload optimizer", offload)])
    return [tuple(ladder) for ladder in ladders if ladder]


#: Shorter sequences are suggested down to this length [tokens].
_SHORTEST = 512


def _shorter(request: Request) -> Iterator[Change]:
    """Half the sequence length, a quarter, ...: another training, so it is suggested last."""
    length = request.options.get("seq_len")
    if not isinstance(length, int) or request.workload.tokens_per_sample != length:
        return
    while (length := length // 2) >= _SHORTEST:
        yield Change(f"seq-len {length}", {"seq_len": length})


def _whole_logits(request: Request) -> bool:
    """Whether a rank holds the logits of all its tokens, which a loss in chunks never does."""
    tp = request.placed.layout.tp if request.placed else 1
    return tp == 1 and any(op.role == "all_logits" for op in request.workload.blocks[-1].ops)


def _batch(request: Request, size: int) -> Change:
    """A smaller micro-batch, with more micro-steps where that keeps the samples per step."""
    words: Words = {"micro_batch": size}
    if request.micro_batch % size == 0 and (request.grad_accum > 1 or request.placed):
        words |= {"global_batch": samples_a_step(request), "grad_accum": None}
    return Change(f"micro-batch {size}", words)


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
        return replace(advice_of(request, ask), uneven=division)
    if request.placed is not None or request.strategy.zero_stage:
        return Advice(uneven=division, faster=faster_of(request, found, ask))
    return Advice(uneven=division)


#: Least gain in samples per second for which a change is suggested.
WORTH_FRAC = 0.05
#: The simplest of the strategies whose rate is within this share of the fastest is suggested.
_ALIKE_FRAC = 0.02
#: Strategies that shard less than each strategy, or only within nodes, the simplest first.
_LESS = {
    "zero1": ("ddp", HYBRID),
    "zero2": ("ddp", "zero1", HYBRID),
    "zero3": ("ddp", "zero1", "zero2", HYBRID),
}
#: GPipe (Huang et al. 2019): the bubble is negligible from four micro-batches per stage on.
_BATCHES_A_STAGE = 4
#: Numbers of chunks per pipeline rank that are tried.
_CHUNKS = (2, 4, 8)


def faster_of(request: Request, found: Prediction, ask: Ask) -> tuple[Faster, ...]:
    """Changes of strategy, accumulation or chunks that give more samples per second, best first.

    ``found``: the prediction of ``request``; ``ask``: makes a changed request. Empty for a job
    that does not fit.
    """
    if not found.fits:
        return ()
    worthwhile = [
        change
        for change in (
            _less_sharded(request, found, ask),
            _less_bubble(request, found, ask),
            _interleaved(request, found, ask),
        )
        if change is not None and change.gain_frac >= WORTH_FRAC
    ]
    return tuple(sorted(worthwhile, key=lambda f: -f.gain_frac))


def _tried(ask: Ask, words: Words, said: str, rate: float) -> Faster | None:
    """The change with its gain over ``rate`` [samples/s]; None where it is invalid or does not
    fit.
    """
    try:
        changed = ask(words)
    except SimcoreError:
        return None
    if not memory_result(changed).fits:
        return None
    then = samples_a_step(changed) / central_step_s(changed)
    return Faster(change=said, samples_per_s=then, gain_frac=then / rate - 1.0)


def _less_sharded(request: Request, found: Prediction, ask: Ask) -> Faster | None:
    """A strategy that shards less, or only within nodes, and still fits; None if there is none."""
    s = request.strategy
    if s.offload or request.data_ranks == 1:
        return None
    names = [
        name
        for name in _LESS.get(s.parallelism, ())
        if name != HYBRID or (request.cluster.n_nodes > 1 and not s.shard_ranks)
    ]
    tried = [
        _tried(ask, {"strategy": n, "shard_ranks": None}, f"strategy {n}", found.samples_per_s)
        for n in names
    ]
    if s.zero_stage == 3 and request.workload.frozen_base_numel and not any(tried):
        tried.append(_tried(ask, NARROW_BASE.words, NARROW_BASE.said, found.samples_per_s))
    return _simplest(tried)


def _simplest(tried: Iterable[Faster | None]) -> Faster | None:
    """The first of the changes that fit whose rate is close to the fastest; None if none fits."""
    fitting = [f for f in tried if f is not None]
    most = max((f.samples_per_s for f in fitting), default=inf)
    return next((f for f in fitting if f.samples_per_s >= (1.0 - _ALIKE_FRAC) * most), None)


def _less_bubble(request: Request, found: Prediction, ask: Ask) -> Faster | None:
    """More micro-batches for a pipeline: with the same samples per step if possible, else more."""
    placed = request.placed
    if placed is None or placed.layout.pp == 1 or not found.time_s.get("pipeline_bubble"):
        return None
    changes = _more_micro_batches(request, found.sample_unit, placed.layout.pp)
    tried = (_tried(ask, words, said, found.samples_per_s) for words, said in changes)
    return next((f for f in tried if f is not None and f.gain_frac >= WORTH_FRAC), None)


def _interleaved(request: Request, found: Prediction, ask: Ask) -> Faster | None:
    """Interleaved chunks of layers per pipeline rank, which divide the bubble by their number."""
    placed, accum = request.placed, request.grad_accum
    if placed is None or not placed.schedule.chunked or placed.layout.vpp > 1:
        return None
    pp = placed.layout.pp
    bubble_frac = found.time_s.get("pipeline_bubble", 0.0) / found.step_time_s.value
    # Megatron-LM's interleaved schedule needs a multiple of pp micro-batches; others have no such
    # schedule.
    impossible = accum % pp or not request.strategy.program.pipeline.interleaves
    if pp == 1 or impossible or bubble_frac < WORTH_FRAC:
        return None
    return _simplest(_tried(ask, {"vpp": n}, f"vpp {n}", found.samples_per_s) for n in _CHUNKS)


def _more_micro_batches(request: Request, unit: str, stages: int) -> Iterator[tuple[Words, str]]:
    """(options, text) of each change; the text uses the batch option that the user gave."""
    total = request.global_batch_given
    batch, accum = request.micro_batch, request.grad_accum
    each = batch * request.data_ranks
    wanted = _BATCHES_A_STAGE * stages
    if batch > 1 and accum < wanted:
        parts = next((n for n in range(2, batch + 1)
                      if batch % n == 0 and accum * n >= wanted), batch)  # fmt: skip
        words = {"micro_batch": batch // parts, "global_batch": accum * each, "grad_accum": None}
        said = f"micro-batch {batch // parts}"
        yield words, said if total else f"{said}, grad-accum {accum * parts}"
    while wanted > accum:
        samples = wanted * each
        words = {"micro_batch": batch, "global_batch": samples, "grad_accum": None}
        said = f"grad-accum {wanted} ({samples:,} {plural(unit)} a step)"
        yield words, f"global-batch {samples}" if total else said
        wanted //= 2
