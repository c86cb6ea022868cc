"""torchtune's file and lines: what its record cannot express."""

from __future__ import annotations

import re

from simcore.strategy.dialects.lines import ODD
from simcore.strategy.dialects.reading import Reading, Table

#: Builder of a model: lora_llama3_1_8b, qwen2_5_7b_base, of torchtune.models.llama3_1.
_BUILDER = re.compile(
    r"^(?P<kind>lora_|qlora_|)(?P<family>[a-z]+\d*(?:_\d+)?)_(?P<size>\d+(?:_\d+)?[bm])"
)
#: Its modules by Hugging Face's names.
_MODULES = {"output_proj": "o_proj"}
_MLP = "gate_proj,up_proj,down_proj"


@ODD.register("recipe's model")
def _model(reading: Reading, table: Table) -> None:
    """Read the model and its adapters from the builder that the file names."""
    component = str(table.take("model.-component-") or "").rpartition(".")[2]
    match = _BUILDER.match(component)
    if match is None:
        if component:
            reading.approximate(f"model._component_ {component}", "is not read: --model says it")
    else:
        family, size = match["family"].replace("_", "."), match["size"].replace("_", ".")
        if "model" not in reading.facts:
            reading.say("model", f"{family}-{size}", "model._component_")
        if match["kind"] == "qlora_":
            reading.say("quantised_base", "nf4", "model._component_")
    modules = str(table.take("model.lora-attn-modules") or "")
    listed = [_MODULES.get(m.strip(), m.strip()) for m in modules.split(",") if m.strip()]
    if table.take("model.apply-lora-to-mlp") in (True, "True", "true"):
        listed.append(_MLP)
    if table.take("model.apply-lora-to-output") in (True, "True", "true"):
        reading.approximate(
            "model.apply_lora_to_output", "is not followed: the head has no adapter"
        )
    if listed:
        reading.say("lora_targets", ",".join(listed), "model.lora_attn_modules")


@ODD.register("recipe's sharding")
def _strategy(reading: Reading, _table: Table) -> None:
    """State how it shards: FSDP 2 in recipes for several devices."""
    if "strategy" not in reading.facts:
        alone = "single_device" in str(reading.context.get("other.script", ""))
        reading.say("strategy", "single" if alone else "zero3", "the recipe")
