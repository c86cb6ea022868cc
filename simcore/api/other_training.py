"""Adapters in place of all weights, where these do not fit: another kind of training.

LoRA (Hu et al. 2021) trains products of two narrow matrices beside a frozen base; QLoRA (Dettmers
et al. 2023) holds that base in four bits. What they learn is not what training all weights does.
"""

from __future__ import annotations

from collections.abc import Iterator

from simcore.api.change import GROWING, NARROW_BASE, Ask, Change, Fix, Trial, grows
from simcore.engine.resolved import Request

#: The rank that is offered: what PEFT's and torchtune's recipes have, within a factor of two.
_LORA = Change("lora-rank 16", {"lora_rank": 16})
_NARROW = Change("quantised-base nf4", {"quantised_base": "nf4"})


def adapters_instead(request: Request, ask: Ask) -> list[Fix]:
    """Adapters on the same GPUs, with the fewest changes beside them: on a base as wide as now,
    where that fits, else on a narrow one. Empty where the model has none or trains them already.
    """
    if request.workload.frozen_base_numel:
        return []
    attempt = Trial(ask)
    for change in _changes(request):
        found = attempt(change)
        if found is not None:
            return [found]
        if attempt.nearest is None:  # refused: such a model takes none
            return []
    return []


def _changes(request: Request) -> Iterator[Change]:
    """The weakest first."""
    again = Change("recompute full", {"recompute": "full", "recompute_modules": None,
                                      "recompute_layers": None})  # fmt: skip
    one = Change("micro-batch 1", {"micro_batch": 1})
    beside = [Change("", {})]
    if request.strategy.recompute != "full":
        beside += [again]
    if not request.growing_segments and grows(request):
        beside += [c + GROWING for c in beside]
    if request.micro_batch > 1:
        beside += [c + one for c in beside]
    narrow = NARROW_BASE if request.strategy.zero_stage and request.cluster.n_gpus > 1 else _NARROW
    for base in (_LORA, _LORA + narrow):
        yield from (base + c for c in beside)
