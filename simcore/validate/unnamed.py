"""A measured row as a user would state it who describes the job, and at most names its program.

The model's sizes, GPUs, precision, batch, parallel degrees, sharding and recompute remain. Kernels,
overlaps, copies of libraries and the issuer of kernels are simcore's assumptions, as on the command
line: those of the program and release if they are named (``by_program``).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import replace

from simcore.request.placement import layout_of
from simcore.request.training_library import library_of
from simcore.strategy.options import Options
from simcore.strategy.programs import Runs, usual_of_language_models
from simcore.validate.case import Case
from simcore.workload.models import Scalar
from simcore.workload.resolve import resolve_model
from simcore.workload.settings import settings_given

#: Options that describe the job.
_JOB = (
    "strategy", "precision", "recompute", "recompute_modules", "recompute_layers", "micro_batch",
    "grad_accum", "global_batch", "tp", "pp", "vpp", "cp", "ep", "shard_ranks", "schedule",
    "offload", "offload_layers", "network", "dispatcher", "seq_len", "resolution", "frames",
)  # fmt: skip
#: Options with which large language models are usually trained, by any program.
_LOOP: Options = {"optimizer": "adamw", "optimizer_impl": "fused", "grad_clip": True}
#: Settings of a program other than those that libraries set, with the values of PyTorch's modules.
_PLAIN: dict[str, Scalar] = {"fused_qkv": False, "upcast_loss": True}
_OWN = (
    "dropout", "gathered_inputs", "gathered_logits", "fp8_activation_input", "fused_rope",
    "logit_metrics",
)  # fmt: skip
#: Suffixes of norms that a program implements itself.
_NORM = re.compile("_(eager|again)$")


def by_program(case: Case) -> Case:
    """The case as its row describes it, with its program's name and release but no other word."""
    told = {k: v for k, v in case.options.items() if k in case.own}
    every = settings_given(case.options.get("settings"))
    given = {k: v for k, v in every.items() if k in case.own}
    if "norm" in every:  # which norm is the model's, how it is computed the program's
        given["norm"] = _NORM.sub("", str(every["norm"]))
    named = {"software": case.program} if case.program else {}
    return replace(case, options=told | named | ({"settings": given} if given else {}))


def unnamed(case: Case, told: Collection[str] = ()) -> Case:
    """The case without the options that reveal its program, except those in ``told``."""
    return _as_asked(case, {k: v for k, v in case.options.items() if k in told})


def _as_asked(case: Case, told: Options) -> Case:
    """The case with the options that describe its job, and those in ``told``."""
    options = {k: v for k, v in case.options.items() if k in _JOB} | told
    given = settings_given(case.options.get("settings"))
    if case.settings_of_program:
        options |= _LOOP
        given = _plain_layers(case.model, given, options)
    return replace(case, options=options | {"settings": given} if given else options)


def _plain_layers(model: str, given: Mapping[str, Scalar], options: Options) -> dict[str, Scalar]:
    """Settings with the values of PyTorch's modules, less those that the assumed library sets."""
    # adapters name single products, which must not be fused
    usual = (usual_of_language_models().record.runs or Runs()).settings
    drop = set() if given.get("lora_rank") else {*usual, *_OWN}
    plain = {**_PLAIN, **{k: v for k, v in given.items() if k not in drop}}
    plain["norm"] = _NORM.sub("", str(plain.get("norm", "layernorm")))
    record = resolve_model(model, settings=plain)
    library = library_of(options, record, layout_of(options, []))
    by_library = library.settings(record, options)
    return {k: v for k, v in plain.items() if k not in by_library}
