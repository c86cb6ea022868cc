"""AMD Primus's YAML: a module of another program whose settings it overrides.

``modules.pre_trainer`` names the program (``framework``), a file with the model and ``overrides``
of that program's own arguments, which its dialect or record reads.
"""

from __future__ import annotations

import re
from typing import Any

from simcore.base.units import KIB
from simcore.strategy.dialects.base import Launch
from simcore.strategy.dialects.keyed import DIALECTS
from simcore.strategy.dialects.lines import ODD, LineDialect, of_table
from simcore.strategy.dialects.reading import Reading, Table

_MODULES = ("modules.pre-trainer.", "modules.post-trainer.", "modules.sft-trainer.")
_OVERRIDES = "overrides."
#: A variable of the environment with its default: ${PRIMUS_MODEL:llama3_8B}.
_DEFAULT = re.compile(r"^\$\{\w+:([^}]*)\}")
#: Primus's names of Megatron-LM's switches (primus/backends/megatron/core/transformer/moe).
_RENAMED = {"use-turbo-deepep": "moe-enable-deepep"}
#: primus/configs/modules/megatron/pre_trainer.yaml and trainer_base.yaml of Primus 26.5.
_OF_MEGATRON = {"bf16": True, "use-distributed-optimizer": True, "use-flash-attn": True,
                "micro-batch-size": 2, "global-batch-size": 16, "seq-length": KIB}  # fmt: skip


@ODD.register("overrides of a framework")
def overrides(reading: Reading, table: Table) -> None:
    """Read the overrides of a module by the program that it names."""
    for key, value in table.given.items():
        if isinstance(value, str):
            table.put(key, _DEFAULT.sub(lambda m: m[1].strip('"'), value))
    prefix = next((m for m in _MODULES if table.has(m.removesuffix("."))), _MODULES[0])
    framework = str(table.take(f"{prefix}framework") or "megatron")
    own = [k for k in table.given if k.startswith(prefix + _OVERRIDES)]
    plain, sections = LineDialect("primus").record.without_effect()
    data: dict[str, Any] = {}
    for key in own:
        inner = key.removeprefix(prefix)
        if inner in plain or inner.startswith(tuple(f"{s}." for s in sections)):
            table.take(key)
            reading.ignore(key)
        else:
            data[inner.removeprefix(_OVERRIDES)] = table.take(key)
    if data.pop("lora.enabled", False):
        reading.say("lora_rank", reading.whole("lora.dim", data.get("lora.dim")), "lora.dim")
    if data.get("recompute-num-layers") == 0:  # no layer is run again
        data = {k: v for k, v in data.items() if not k.startswith("recompute-")}
    data = {k: v for k, v in data.items() if not k.startswith("lora.")}
    if (model := table.take(f"{prefix}model")) is not None:
        reading.say("model", str(model).removesuffix(".yaml"), f"{prefix}model")
    reading.within(_read(reading, framework, data))


def _read(reading: Reading, framework: str, data: dict[str, Any]) -> Launch:
    """What the overrides say to the program ``framework``."""
    if framework == "megatron":
        named = {_RENAMED.get(k, k): v for k, v in data.items()}
        flags = {**_OF_MEGATRON, **{k: v for k, v in named.items() if v is not None}}
        given = {k: v for k, v in flags.items() if v is not False}  # as absent switches
        launch = DIALECTS["megatron"].read_table(Reading("megatron", reading.source), Table(given))
        reading.say("software", "primus", "framework: megatron")
        return launch
    named = {k.replace("-", "_"): v for k, v in data.items()}
    if framework == "torchtitan":
        return DIALECTS["torchtitan"].read_table(
            Reading("torchtitan", reading.source), Table(named)
        )  # fmt: skip
    if framework == "maxtext":
        inner = Reading("maxtext", reading.source)
        return LineDialect("maxtext").read_arguments(inner, of_table(named), "the file")
    reading.refuse(f"framework {framework}", "is not supported yet: megatron, torchtitan, maxtext")
    return Reading("primus", reading.source).finish()
