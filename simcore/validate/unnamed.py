"""A row as somebody would ask who names the job and not the program that runs it.

What is left is the model's sizes, GPUs, precision, batch, parallel degrees, sharding and recompute;
kernels, overlaps, copies of libraries and what issues work are simcore's assumptions, as they are
on the command line.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace
from typing import cast

from simcore.engine.options import Options
from simcore.strategy.programs import Runs, usual_of_language_models
from simcore.validate.case import Case
from simcore.workload.models import ModelRecord, Scalar

#: Options that describe the job.
_JOB = (
    "strategy", "precision", "recompute", "recompute_modules", "recompute_layers", "micro_batch",
    "grad_accum", "global_batch", "tp", "pp", "vpp", "cp", "ep", "shard_ranks", "schedule",
    "offload", "offload_layers", "network", "dispatcher", "seq_len", "resolution", "frames",
)  # fmt: skip
#: Settings that a program has beside those that libraries set: as PyTorch's modules have them.
_PLAIN: dict[str, Scalar] = {"fused_qkv": False, "upcast_loss": True}
_OWN = (
    "dropout", "gathered_inputs", "gathered_logits", "fp8_activation_input", "fused_rope",
    "logit_metrics",
)  # fmt: skip
#: What names of norms add that a program writes by itself.
_NORM = re.compile("_(eager|again)$")


def unnamed(case: Case, told: Collection[str] = ()) -> Case:
    """The case without what tells its program, but for the options that are ``told``."""
    kept = {*_JOB, *told}
    options = cast("Options", {k: v for k, v in case.options.items() if k in kept})
    record = case.record
    if isinstance(record, ModelRecord) and record.as_run:
        # adapters name products, which have to stay as they are
        usual = (usual_of_language_models().record.runs or Runs()).settings
        drop = set() if record.config.get("lora_rank") else {*usual, *_OWN}
        config = {**_PLAIN, **{k: v for k, v in record.config.items() if k not in drop}}
        config["norm"] = _NORM.sub("", str(config.get("norm", "layernorm")))
        record = record.model_copy(update={"config": config, "as_run": False})
    return replace(case, options=options, record=record)
