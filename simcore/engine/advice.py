"""What would make a job fit or go faster as it is: each is computed, not guessed."""

from __future__ import annotations

from dataclasses import replace

from simcore.engine.job_memory import fitting_batch
from simcore.engine.predict import Request, central_step_s, predict, rank_groups
from simcore.engine.result import WhatIf
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import parallelism_named

#: A gain that is worth a word.
WORTH_FRAC = 0.005


def fixes(request: Request) -> tuple[str, ...]:
    """What would make the job fit, cheapest first; each is computed, not guessed."""
    found: list[str] = []

    def fits(changed: Request, what: str) -> None:
        if predict(changed).fits:
            found.append(what)

    best = fitting_batch(request)
    if best:
        found.append(f"micro-batch {best}")
    s = request.strategy
    if s.recompute == "none" and any(b.recomputable for b in request.workload.blocks):
        fits(replace(request, strategy=replace(s, recompute="full")), "recompute full")
    if request.cluster.n_gpus > 1 and s.zero_stage < 3:
        for stage in range(max(1, s.zero_stage + 1), 4):
            name = parallelism_named(f"zero{stage}")
            before = len(found)
            fits(replace(request, strategy=replace(s, parallelism=name)), name)
            if len(found) > before:
                break
    if s.precision.name in ("fp32", "tf32"):
        fits(replace(request, strategy=replace(s, precision=PRECISIONS["amp-bf16"])), "amp-bf16")
    if request.placed is not None and request.placed.layout.pp > 1:
        from simcore.engine.stages import with_balanced_stages  # most predictions have no pipeline

        cut = with_balanced_stages(request)
        assert cut.placed is not None
        fits(cut, f"stages {cut.placed.layout.stages}")
    if uneven_batch(request):
        from simcore.engine.shares import best_deal, ratio_of

        if (deal := best_deal(request)) is not None:
            fits(replace(request, shares=deal), f"shares {ratio_of(deal)}")
    return tuple(found)


def uneven(request: Request) -> tuple[WhatIf, ...]:
    """What dealing out the batch unevenly over unequal GPUs would give, where that is faster."""
    if not uneven_batch(request):
        return ()
    from simcore.engine.shares import best_deal, ratio_of  # most predictions are of one kind of GPU

    deal = best_deal(request)
    before = central_step_s(request)
    after = before if deal is None else central_step_s(replace(request, shares=deal))
    if deal is None or after >= before * (1.0 - WORTH_FRAC):
        return ()
    samples = " and ".join(map(str, deal))
    said = f"shares {ratio_of(deal)} ({samples} samples a GPU)"
    return (WhatIf(resource=said, step_time_s=after, gain_frac=1.0 - after / before),)


def uneven_batch(request: Request) -> bool:
    """Whether equal shares are dealt to GPUs of several kinds, and could be others."""
    several = len(rank_groups(request.cluster)) > 1 and request.placed is None
    return several and not request.shares and request.micro_batch > 1
