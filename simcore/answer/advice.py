"""Changes that would make a job faster on the same hardware, each with its predicted step time."""

from __future__ import annotations

from dataclasses import replace

from simcore.answer.result import WhatIf
from simcore.request.resolved import Request, as_written, rank_groups
from simcore.timing.steps import central_step_s

#: The smallest gain, as a share of the step time, that is reported.
WORTH_FRAC = 0.005


def uneven(request: Request) -> tuple[WhatIf, ...]:
    """The gain from giving faster GPUs a larger micro-batch, on a cluster with several GPU types.

    Empty where the micro-batches cannot be uneven, or where the gain is below ``WORTH_FRAC``.
    """
    if not uneven_batch(request):
        return ()
    from simcore.answer.shares import best_deal, ratio_of  # most jobs have one type of GPU

    deal = best_deal(request)
    before = central_step_s(request)
    after = before if deal is None else central_step_s(replace(request, shares=deal))
    if deal is None or after >= before * (1.0 - WORTH_FRAC):
        return ()
    samples = " and ".join(str(deal[i]) for i in as_written(request.cluster))
    division = (
        f"--shares {ratio_of(deal, request)} (micro-batches of {samples} samples, by GPU type)"
    )
    return (WhatIf(resource=division, step_time_s=after, gain_frac=1.0 - after / before),)


def uneven_batch(request: Request) -> bool:
    """Whether a cluster has several kinds of rank, all with the same micro-batch above 1."""
    several = len(rank_groups(request.cluster)) > 1 and request.placed is None
    return several and not request.shares and request.micro_batch > 1
