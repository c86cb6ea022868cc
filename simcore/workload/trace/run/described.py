"""A captured model whose library describes it: by its configuration instead of by its trace.

Such a model can be divided over tensor ranks and stages, and its sequences lengthened.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from torch import nn

from simcore.base.errors import SimcoreError
from simcore.workload.huggingface.read import parse_config


def described(
    module: nn.Module, sample: tuple[Any, ...], words: dict[str, Any]
) -> dict[str, Any] | None:
    """The plain data of the model's record from its configuration; None where it does not fit.

    ``sample``: the step's inputs; ``words``: options of the job, to which adapters are added. The
    configuration fits if it has as many trained parameters as the module, or if the module is one
    stage of a pipeline, which has a part of them.
    """
    config = _config_of(module)
    if config is None:
        return None
    try:
        record = parse_config(json.dumps(config, default=str), Path("config.json"))
        length = next((int(t.shape[1]) for t in sample if t.dim() == 2), 0) * words.get("cp", 1)
        if "seq_len" in record.settings({}) and length:
            record = record.model_copy(update={"config": {**record.config, "seq_len": length}})
        trained = record.build().trainable_numel
    except SimcoreError:
        return None
    adapters = _adapters(module)
    held = sum(p.numel() for n, p in module.named_parameters() if "lora_" not in n)
    if held != trained and "pp" not in words:
        return None
    words.update(adapters)
    own = ("name", "full_name", "arch", "sample_unit", "config", "modules_of")
    return {
        **{key: getattr(record, key) for key in own},
        "params": {"value": float(trained), "source": "config"},
        "training": {
            "micro_batch": 1, "precision": "fp32", "optimizer": "adamw", "source": "",
            "waits_for_gradients": False,
        },
        "notes": list(record.notes),
        "sources": {"config": ""},
    }  # fmt: skip


def _config_of(module: nn.Module) -> dict[str, Any] | None:
    """The configuration that a transformers model, or a layer of one, refers to."""
    for part in module.modules():
        config = getattr(part, "config", None)
        if config is not None and hasattr(config, "model_type") and hasattr(config, "to_dict"):
            return config.to_dict()
    return None


def _adapters(module: nn.Module) -> dict[str, Any]:
    """Options of LoRA adapters, by the names that peft gives their parameters."""
    ranks, targets = set(), set()
    for name, p in module.named_parameters():
        parts = name.split(".")
        if "lora_A" in parts:
            ranks.add(int(p.shape[0]))
            targets.add(parts[parts.index("lora_A") - 1])
    if not ranks:
        return {}
    return {"lora_rank": max(ranks), "lora_targets": ",".join(sorted(targets))}
