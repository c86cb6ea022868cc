"""torchtitan's Python configurations in the keys of its record, and a job as such a file."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcore.strategy.dialects.base import Job
from simcore.strategy.dialects.recipes import TABLES, Keys

TOKENS, LENGTH = "training.num_tokens_per_microbatch_per_dp_rank", "training.max_context_length"
LOCAL, SEQ_LEN = "training.local_batch_size", "training.seq_len"
CHECKPOINTING, CHOICE = "activation_checkpoint.mode", "activation_checkpoint.selective_ac_option"
CONVERTERS = "model_spec.converters"
_SECTION = "activation_checkpoint"
#: Classes of activation checkpointing (torchtitan/distributed/activation_checkpoint.py) by mode.
_CLASSES = {"selective": "SelectiveAC", "full": "FullAC", "memory_budget": "MemoryBudgetAC"}
#: Names of a batch in samples, until August 2026 (commit 73aed7f6, "fold batch dim").
_OF_SAMPLES = (LOCAL, SEQ_LEN, "training.global_batch_size")
#: Keys without a section that mean something themselves.
_WHOLE = ("loss", "optimizer", "hf_assets_path", "dump_folder")
#: Converters of models to low precision (torchtitan/components/quantization), by that precision.
_CONVERTER_OF = {
    "fp8-rowwise": 'Float8LinearConverter.Config(recipe_name="rowwise")',
    "mxfp8": "MXFP8LinearConverter.Config()",
    "nvfp4": "NVFP4LinearConverter.Config()",
}
FUNCTION = "predicted_job"


def in_record(keys: Keys) -> Keys:
    """The keys of a Python configuration as the record names them, with defaults of Trainer.Config.

    Where keys of the years in samples are given, those in tokens are turned into them.
    """
    found = {k: v for k, v in keys.items() if "." in k or k in _WHOLE}
    chosen = keys.get(_SECTION, "selective")
    modes = {name: mode for mode, name in _CLASSES.items()} | {None: "none"}
    found.setdefault(CHECKPOINTING, modes.get(chosen, chosen))
    if found[CHECKPOINTING] == "selective":
        found.setdefault(CHOICE, "op")
    found.setdefault(TOKENS, 16384)  # torchtitan/config/configs.py, TrainingConfig
    found.setdefault(LENGTH, 2048)
    if any(key in found for key in _OF_SAMPLES):
        tokens, length = found.pop(TOKENS), found.pop(LENGTH)
        found.setdefault(SEQ_LEN, length)
        if isinstance(tokens, int) and isinstance(length, int):
            found.setdefault(LOCAL, max(tokens // length, 1))
    return found


def shipped(model: str) -> str | None:
    """The name of the configuration that torchtitan ships for a model of models_db."""
    return next(iter(TABLES["torchtitan"].models.get(model, ())), None)


def python_text(job: Job, data: Mapping[str, Any]) -> str:
    """A Python file with one function that returns the configuration of a job.

    It starts from the configuration that torchtitan ships for the model. For another model, what is
    the user's (the model, the optimizer with its learning rate, the data) is imported by name.
    """
    recipe = shipped(job.model)
    values = {k: v for k, v in data.items() if k not in (CHECKPOINTING, CHOICE, CONVERTERS)}
    imports = ["from torchtitan.trainer import Trainer"]
    precision = str(data.get(CONVERTERS, ""))
    lines: list[str]
    if recipe is None:
        own = "from my_models import DATALOADER, FLAVOR, OPTIMIZER, model_registry  # yours"
        imports.append(own)
        lines = ["config = Trainer.Config(optimizer=OPTIMIZER, dataloader=DATALOADER)",
                 f"config.model_spec = {_registry('FLAVOR', '', precision, imports)}"]  # fmt: skip
    else:
        module, _, name = recipe.rpartition(".")
        imports.append(f"from torchtitan.models.{module}.config_registry import {name}")
        lines = [f"config = {name}()"]
        keys = TABLES["torchtitan"].keys(recipe) or {}
        if precision or CONVERTERS in keys:
            imports.append(f"from torchtitan.models.{module} import model_registry")
            flavor, backend = keys["model_spec.flavor"], keys.get("model_spec.attn_backend", "")
            made = _registry(f'"{flavor}"', str(backend), precision, imports)
            lines.append(f"config.model_spec = {made}")
    lines += [f"config.{_attribute(key)} = {_literal(value)}" for key, value in values.items()]
    mode = data.get(CHECKPOINTING)
    if mode in _CLASSES:
        imports.append(f"from torchtitan.distributed.activation_checkpoint import {_CLASSES[mode]}")
    if mode is not None:
        made = f"{_CLASSES[mode]}.Config()" if mode in _CLASSES else "None"
        lines.append(f"config.{_SECTION} = {made}")
    body = "\n".join(f"    {line}" for line in [*lines, "return config"])
    title = f"torchtitan's configuration for {job.model}: --config {FUNCTION}."
    return (
        f'"""{title}"""\n\n'
        + "\n".join(sorted(imports))
        + f"\n\n\ndef {FUNCTION}() -> Trainer.Config:\n{body}\n"
    )


def _registry(flavor: str, backend: str, precision: str, imports: list[str]) -> str:
    """The call that makes the model, with a converter to low precision or without one."""
    arguments = [flavor]
    if backend:
        arguments.append(f'attn_backend="{backend}"')
    if made := _CONVERTER_OF.get(precision):
        imports.append(f"from torchtitan.components.quantization import {made.partition('.')[0]}")
        arguments.append(f"converters=[{made}]")
    return f"model_registry({', '.join(arguments)})"


def _literal(value: Any) -> str:
    return f'"{value}"' if isinstance(value, str) else repr(value)


def _attribute(key: str) -> str:
    """A dotted key as attributes: ``a.0.b`` as ``a[0].b``."""
    first, *rest = key.split(".")
    return first + "".join(f"[{p}]" if p.isdigit() else f".{p}" for p in rest)
