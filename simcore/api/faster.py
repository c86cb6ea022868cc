"""Changes that make a job that fits faster.

Less sharding, or sharding only within nodes; for adapters a quantised base that is not sharded;
for a pipeline more micro-batches, or several chunks of layers per rank. Every changed job is
resolved and predicted like any other, as in ``api.fixes``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from math import inf

from simcore.answer.result import Faster, Prediction
from simcore.api.change import NARROW_BASE, Ask, Words, samples_a_step
from simcore.base.errors import SimcoreError
from simcore.memory.job import memory_result
from simcore.report.formatting import plural
from simcore.request.resolved import Request
from simcore.strategy.strategy import HYBRID
from simcore.timing.steps import central_step_s

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
