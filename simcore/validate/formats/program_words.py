"""How a program runs a row's job: what its recipes set where the row's rules say nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simcore.strategy.programs import Program, Runs
from simcore.workload.archs.lm_attention import FUSED_SOFTMAX_SCORES
from simcore.workload.models import Scalar

#: Settings of mixtures of experts, which mean nothing without them.
_OF_EXPERTS = ("weighed_early",)
#: Precisions of products in 8 bits with a scale a tensor, in which weights can be held.
_SCALED_A_TENSOR = ("fp8", "fp8-cs")


@dataclass(frozen=True, slots=True)
class Told:
    """What a row's rules say of a job: as ``row_rules`` names it.

    ``precision``: the row's own word; ``layer_graphs``: whether graphs of layers issue kernels.
    """

    usual_words: Mapping[str, Any]
    words: Mapping[str, Any]
    usual_settings: Mapping[str, Scalar]
    settings: Mapping[str, Scalar]
    steps: Iterable[tuple[str, str]]
    all_told: bool
    precision: str
    layer_graphs: bool


def words_of(program: Program, told: Told) -> dict[str, Any]:
    """The options of a job that a program runs, without the model's settings."""
    runs = program.runs or Runs()
    made: dict[str, Any] = {
        **told.usual_words,
        "software": program.name,
        "issuer": runs.issuer,
        "main_grads": runs.main_grads,
        "recompute_modules": runs.selective_modules,
        "sequence_parallel": runs.sequence_parallel,
        **runs.options,
    }
    if runs.fp32_gradient_sums and told.precision != "fp16":
        made["main_grads"] = "fp32"
    if runs.fp8_weights:
        made["fp8_params"] = told.precision in _SCALED_A_TENSOR
    made |= told.words
    if told.layer_graphs and made["issuer"] == "megatron":
        made["issuer"] = "megatron_graphs"
    if made.get("precision") == "fp8":
        made["precision"] = runs.fp8_format
    made.setdefault("overlap", _overlap(runs, told, made))
    if made.get("recompute") != "selective":
        made.pop("recompute_modules", None)
    if made.get("recompute") != "full":
        made.pop("recompute_layers", None)
    return made


def _overlap(runs: Runs, told: Told, made: Mapping[str, Any]) -> str:
    """What communication hides: the program's, changed step by step by the row's rules."""
    hidden = set(runs.overlap)
    if runs.zero1_reduces_after_backward and made.get("strategy") == "zero1":
        hidden.discard("grads")
    if not told.all_told:
        hidden |= runs.recipe_overlap
    for step, word in told.steps:
        if step == "hidden":
            hidden.add(word)
        else:
            hidden.discard(word)
    return ",".join(sorted(hidden)) or "none"


def layers_of(program: Program, told: Told, made: Mapping[str, Any]) -> dict[str, Scalar]:
    """Settings of a language model's layers as the program writes them."""
    runs = program.runs or Runs()
    found: dict[str, Scalar] = {
        **told.usual_settings, "dropout": runs.dropout, **runs.settings,
    }  # fmt: skip
    if runs.loss_with_tensor_ranks and (made.get("tp") or 1) > 1:
        found["loss"] = runs.loss_with_tensor_ranks
    found |= told.settings
    if not found.get("experts"):
        found = {k: v for k, v in found.items() if k not in _OF_EXPERTS}
    heads = int(found.get("heads") or 0) // (made.get("tp") or 1) * (made.get("micro_batch") or 1)
    if found.get("attention") == "fused_softmax" and heads % FUSED_SOFTMAX_SCORES:
        found["attention"] = "math"
    return found
