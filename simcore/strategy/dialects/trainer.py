"""Arguments of Hugging Face's Trainer and of programs around it: what records cannot express."""

from __future__ import annotations

import re
from itertools import product

from simcore.strategy.dialects.lines import ODD, of_table
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.source import beside, json_table

#: Strategies that shard weights or optimizer state.
_SHARDED = ("zero1", "zero2", "zero3", "hsdp")
#: 16-bit formats.
_NARROW = ("bf16", "fp16")
#: Weights in the 16-bit format of the GPU, which ``request.launch`` settles.
_OF_GPU = "native"
#: Ends of the names of embeddings and heads, on which no adapters are predicted.
_WORDS = ("embed_tokens", "lm_head", "wte", "embed_out", "output_layer")
#: Ends of the names of checkpoints whose base is stored in 4 bits, and its format.
_STORED = {"bnb-4bit": "nf4", "gptq-int4": "gptq"}
#: The last name of a pattern of module names, with choices in it: ``(up|down)_proj``.
_LAST_NAMES = re.compile(r"(?:^|[.\\])((?:\w*\((?:\?:)?[\w|]{1,200}\)\w*){1,2})\$?$")


@ODD.register("sharding words")
def sharding_words(reading: Reading, table: Table) -> None:
    """Take the words of ``--fsdp`` apart: how it shards, and whether it offloads.

    FSDPOption in trainer_utils.py: full_shard, shard_grad_op, no_shard, hybrid_shard,
    hybrid_shard_zero2, offload, auto_wrap.
    """
    named = table.given.get("fsdp-config")
    if isinstance(named, str):  # of a mapping its keys stand apart
        table.take("fsdp-config")
        for key, inner in of_table(json_table(beside(reading.source, named))).given.items():
            table.put(f"fsdp-config.{key}", inner)
    value = table.given.get("fsdp")
    if not isinstance(value, str):
        return
    words = value.replace(",", " ").lower().split()
    how = [w for w in words if w not in ("offload", "auto_wrap")]
    table.put("fsdp", how[0] if how else ("full_shard" if words else None))
    if "offload" in words:
        table.put("fsdp-offload", True)


def settle_precision(reading: Reading, _table: Table) -> None:
    """State the precision by the switch of autocast, what weights are loaded in, and the sharding.

    ``other.dtype`` is what weights are loaded in, ``other.shards`` what FSDP keeps of them if not
    fp32. DeepSpeed keeps fp32 copies, and so does FSDP under mixed precision: Accelerate makes what
    it trains fp32 (accelerator.py, prepare_model, of FSDP 1; utils/fsdp_utils.py,
    fsdp2_prepare_model, but for 1.13.0, where it had no effect). Adapters are fp32 on a 16-bit base
    (PEFT, autocast_adapter_dtype), whose activations are in 16 bits too; a quantised base is
    loaded in 16 bits where nothing is said (bitsandbytes' products need them).
    """
    facts = reading.context
    quantised = "quantised_base" in facts
    if "precision" not in reading.facts and "other.dtype" not in facts and not quantised:
        return
    said = str(facts.get("precision") or "")
    cast = said.removeprefix("amp-").removesuffix("-true")
    plain = cast if cast in _NARROW else "bf16"
    loaded = str(facts.get("other.dtype", plain if quantised else ""))
    loaded = plain if loaded == _OF_GPU else loaded.replace("auto", "bf16")
    narrow = next((f for f in (cast, loaded) if f in _NARROW), "")
    fsdp = facts.get("strategy") in _SHARDED and not _by_deepspeed(reading)
    if not narrow:
        found = loaded or said
    elif fsdp and (facts.get("other.shards") == 16 or cast not in _NARROW):
        found = f"{narrow}-true" if loaded in _NARROW else narrow
    elif facts.get("strategy") in _SHARDED:
        found = narrow
    elif loaded in _NARROW:
        found = loaded if "lora_rank" in facts else f"{loaded}-true"
    else:
        found = f"amp-{narrow}"
    if found and found != said:
        key = reading.key_of("precision") or reading.key_of("other.dtype")
        reading.say("precision", found, key)


def _by_deepspeed(reading: Reading) -> bool:
    return reading.inner is not None and reading.inner.software == "deepspeed"


def sharding_program(reading: Reading, _table: Table) -> None:
    """Under DeepSpeed the program is DeepSpeed around the Trainer's modules."""
    if _by_deepspeed(reading) and reading.said("software") is not None:
        reading.say("software", "transformers-deepspeed", "DeepSpeed")


def _spelt_out(pattern: str) -> list[str]:
    """The names that a pattern of PEFT's ends in: ``.*\\.(q|v)_proj`` is q_proj and v_proj.

    The pattern is not run. A text without a choice in its last name is returned as it is.
    """
    if (tail := _LAST_NAMES.search(pattern)) is None:
        return [pattern]
    parts = [p.removeprefix("?:").split("|") for p in re.split(r"[()]", tail[1])]
    return ["".join(words) for words in product(*parts)]


def adapted(reading: Reading, _table: Table) -> None:
    """Name what is adapted by its products, and the format of a base that is stored in 4 bits.

    A name may have the modules around it (``self_attn.q_proj``), or be a pattern of such names.
    Experts that all tokens see, embeddings and heads are left out: adapters are on all products of
    layers that have a name, or on none.
    """
    if isinstance(said := reading.said("lora_targets"), str):
        said = ",".join(_spelt_out(said))
        every = [t.strip() for t in said.split(",")]
        left = [t for t in every if "shared_expert" in t or t.endswith(_WORDS)]
        names = [t.rpartition(".")[2] for t in every if t not in left]
        key = reading.key_of("lora_targets")
        reading.say("lora_targets", ",".join(dict.fromkeys(names)) or said, key)
        if left and names:
            reading.approximate(key, f"is not followed for {', '.join(left)}: these stay frozen")
    model = str(reading.said("model") or "").lower()
    stored = next((kind for end, kind in _STORED.items() if model.endswith(end)), None)
    if stored and "lora_rank" in reading.context and "quantised_base" not in reading.context:
        reading.say("quantised_base", stored, reading.key_of("model"))


@ODD.register("sharding and precision")
def finish(reading: Reading, table: Table) -> None:
    """Settle what follows from several keys, and from the launch files that a line names."""
    adapted(reading, table)
    settle_precision(reading, table)
    sharding_program(reading, table)
