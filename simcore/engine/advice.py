"""What would make a job go faster as it is: computed, not guessed."""

from __future__ import annotations

from dataclasses import replace

from simcore.engine.predict import central_step_s
from simcore.engine.resolved import Request, rank_groups
from simcore.engine.result import WhatIf

#: A gain that is worth a word.
WORTH_FRAC = 0.005


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
