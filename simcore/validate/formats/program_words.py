"""Options and settings of a row's job: the row's own, else those that its program sets."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simcore.base.record import dataclass
from simcore.strategy.programs.program import SCALED_A_TENSOR, Program, Runs
from simcore.workload.models import Scalar

#: Settings that only mixtures of experts have.
_OF_EXPERTS = ("weighed_early",)


@dataclass(frozen=True)
class StatedJob:
    """The job of a row as far as the row's rules state it.

    ``usual_words``, ``words``, ``usual_settings``, ``settings``, ``all_told``: as in ``row_rules``.
    ``steps``: pairs ("hidden" or "exposed", communication), in the order in which rules gave them.
    ``precision``: the text of the row's cell. ``layer_graphs``: whether CUDA graphs of single
    layers issue kernels.
    """

    usual_words: Mapping[str, Any]
    words: Mapping[str, Any]
    usual_settings: Mapping[str, Scalar]
    settings: Mapping[str, Scalar]
    steps: Iterable[tuple[str, str]]
    all_told: bool
    precision: str
    layer_graphs: bool


def words_of(program: Program, stated: StatedJob) -> dict[str, Any]:
    """The options of a job that ``program`` runs, without the model's settings."""
    runs = program.runs or Runs()
    made: dict[str, Any] = {
        **stated.usual_words,
        "software": program.name,
        "issuer": runs.issuer,
        "main_grads": runs.main_grads,
        "recompute_modules": runs.selective_modules,
        "sequence_parallel": runs.sequence_parallel,
        **runs.options,
    }
    if runs.fp32_gradient_sums and stated.precision != "fp16":
        made["main_grads"] = "fp32"
    if runs.fp8_weights:
        made["fp8_params"] = stated.precision in SCALED_A_TENSOR
    made |= stated.words
    if stated.layer_graphs and made["issuer"] == "megatron":
        made["issuer"] = "megatron_graphs"
    if (precision := runs.precisions.get(made.get("precision", ""))) is not None:
        made["precision"] = precision
    made.setdefault("overlap", _overlap(runs, stated, made))
    if made.get("recompute") != "selective":
        made.pop("recompute_modules", None)
    if made.get("recompute") != "full":
        made.pop("recompute_layers", None)
    return made


def _overlap(runs: Runs, stated: StatedJob, made: Mapping[str, Any]) -> str:
    """The option ``overlap``: communication that the program hides, changed by the row's rules."""
    hidden = set(runs.overlap)
    if runs.zero1_reduces_after_backward and made.get("strategy") == "zero1":
        hidden.discard("grads")
    if not stated.all_told:
        hidden |= runs.recipe_overlap
    for step, word in stated.steps:
        if step == "hidden":
            hidden.add(word)
        else:
            hidden.discard(word)
    return ",".join(sorted(hidden)) or "none"


def layers_of(program: Program, stated: StatedJob, made: Mapping[str, Any]) -> dict[str, Scalar]:
    """Settings of a language model's layers as the program implements them.

    ``made``: the options of the job (``words_of``).
    """
    runs = program.runs or Runs()
    tensor_ranks = made.get("tp") or 1
    given = {**stated.usual_settings, **runs.settings, **stated.settings}
    heads = int(given.get("heads") or 0) // tensor_ranks * (made.get("micro_batch") or 1)
    found = {**stated.usual_settings, **runs.layers(tensor_ranks, heads), **stated.settings}
    if not found.get("experts"):
        found = {k: v for k, v in found.items() if k not in _OF_EXPERTS}
    return found
