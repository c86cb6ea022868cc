"""Advice to train LoRA adapters instead of all weights, for jobs that do not fit in memory.

LoRA (Hu et al. 2021) adds products of two low-rank matrices to a frozen base model and trains only
these; QLoRA (Dettmers et al. 2023) also holds the base in four bits. The trained model differs from
one whose weights are all trained, so this advice is separate from other changes.
"""

from __future__ import annotations

from collections.abc import Iterator

from simcore.api.change import GROWING, NARROW_BASE, Ask, Change, Fix, Trial, grows
from simcore.request.resolved import Request
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
