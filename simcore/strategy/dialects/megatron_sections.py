"""Programs that configure Megatron-Core in sections: Megatron-Bridge, NeMo 1 and 2.

Their keys are fields of Megatron-Core's and Megatron-LM's own dataclasses, which Megatron-LM makes
flags of: ``model.tensor_model_parallel_size`` is ``--tensor-model-parallel-size``. So they are read
as those flags; what has another name there is here.
"""

from __future__ import annotations

from typing import Any

from simcore.strategy.dialects.line_record import fold_key
from simcore.strategy.dialects.lines import ODD
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.record import FALSE, fold

#: Last parts of keys, and short flags (Megatron-Bridge, scripts/training/run_recipe.py), whose flag
#: of Megatron-LM has another name.
_CALLED = {
    "mb": "micro-batch-size", "gb": "global-batch-size", "sl": "seq-length",
    "tp": "tensor-model-parallel-size", "pp": "pipeline-model-parallel-size",
    "cp": "context-parallel-size", "vp": "virtual-pipeline-model-parallel-size",
    "ep": "expert-model-parallel-size", "etp": "expert-tensor-parallel-size",
    "grad-reduce-in-fp32": "accumulate-allreduce-grads-in-fp32",
    "num-layers-in-first-pipeline-stage": "decoder-first-pipeline-num-layers",
    "num-layers-in-last-pipeline-stage": "decoder-last-pipeline-num-layers",
    "sequence-parallelism": "sequence-parallel", "bucket-size": "ddp-bucket-size",
}  # fmt: skip
#: Recipes of mixed precision (Megatron-Bridge, training/mixed_precision.py; NeMo,
#: recipes/precision/mixed_precision.py) and names of the performance scripts, as flags.
_BF16, _FP8 = {"bf16": True}, {"bf16": True, "fp8-format": "hybrid"}
_PRECISIONS: dict[str, dict[str, Any]] = {
    "bf16": _BF16, "bf16-mixed": _BF16, "fp16-mixed": {"fp16": True},
    "bf16-with-fp8-mixed": _FP8, "fp8-ds": _FP8, "fp8-cs": _FP8,
    "bf16-with-fp8-delayed-scaling-mixed": _FP8,
    "bf16-with-fp8-current-scaling-mixed": {**_FP8, "fp8-recipe": "tensorwise"},
    "bf16-with-fp8-subchannel-scaling-mixed": {**_FP8, "fp8-recipe": "blockwise"},
    "bf16-with-mxfp8-mixed": {**_FP8, "fp8-recipe": "mxfp8"},
    "fp8-mx": {**_FP8, "fp8-recipe": "mxfp8"},
    "bf16-with-nvfp4-mixed": {"bf16": True, "fp4-format": "e2m1"},
    "nvfp4": {"bf16": True, "fp4-format": "e2m1"},
}  # fmt: skip
_PRECISION_KEYS = ("mixed_precision", "compute_dtype", "c", "trainer.plugins")
#: Modules that adapters adapt, by Megatron-Core's names.
_TARGETS = {"linear_qkv": "qkv_proj", "linear_proj": "o_proj", "linear_fc1": "gate_up_proj",
            "linear_fc2": "down_proj"}  # fmt: skip
_TYPES = {"bfloat16": "bf16", "float16": "fp16", "float32": "fp32", "torch.bfloat16": "bf16",
          "torch.float16": "fp16", "torch.float32": "fp32"}  # fmt: skip
#: Keys whose false is not an absent flag.
_FALSE_COUNTS = ("overlap-p2p-comm",)
#: ms-swift's defaults that are not Megatron-LM's (swift/megatron/arguments/megatron_args.py;
#: bf16 is the format of the checkpoint), and its names of Megatron-LM's arguments.
_OF_SWIFT: dict[str, Any] = {
    "micro-batch-size": 1, "global-batch-size": 16, "recompute-granularity": "selective",
    "use-distributed-optimizer": True, "cross-entropy-loss-fusion": True, "bf16": True,
    "moe-grouped-gemm": True, "attention-backend": "flash",
}  # fmt: skip
_CALLED_BY_SWIFT = {"max-length": "seq-length"}
#: NeMo 1's defaults (conf/megatron_gpt_config.yaml of 382c533a, lines 45-73), and its names of
#: Megatron-LM's arguments.
_OF_NEMO_1: dict[str, Any] = {
    "micro-batch-size": 4, "global-batch-size": 8, "seq-length": 512, "num-layers": 12,
    "hidden-size": 768, "num-attention-heads": 12,
}  # fmt: skip
_CALLED_BY_NEMO_1 = {
    "encoder-seq-length": "seq-length", "gradient-clip-val": "clip-grad",
    "activations-checkpoint-granularity": "recompute-granularity",
    "activations-checkpoint-method": "recompute-method",
    "activations-checkpoint-num-layers": "recompute-num-layers",
    "rotary-percentage": "rotary-percent",
}  # fmt: skip
#: What values of its keys are, as flags; a value that is not here is Megatron-LM's default.
_VALUES_OF_NEMO_1: dict[str, dict[str, dict[str, Any]]] = {
    "bias": {"false": {"disable-bias-linear": True}},
    "share-embeddings-and-output-weights": {"false": {"untie-embeddings-and-output-weights": True}},
    "activation": {"swiglu": {"swiglu": True}, "fast-swiglu": {"swiglu": True},
                   "squared-relu": {"squared-relu": True}},
    "normalization": {"rmsnorm": {"normalization": "RMSNorm"}},
    "fp8": {"true": {"fp8-format": "hybrid"}},
    "name": {"distributed_fused_adam": {"use-distributed-optimizer": True}},
}  # fmt: skip
_HALVES = {"bf16": "bf16", "bf16-mixed": "bf16", "16": "fp16", "16-mixed": "fp16"}
#: Several keys of one value, of which the first one decides (run_recipe.py: the dataset owns it).
_OWNER = {"model.seq_length": "dataset.seq_length", "model.seq-length": "dataset.seq-length"}


@ODD.register("sections as flags")
def as_flags(reading: Reading, table: Table) -> None:
    """Turn the keys of a configuration in sections into Megatron-LM's flags."""
    _adapters(reading, table)
    given = {k: table.take(k) for k in list(table.given)}
    named = {fold_key(k): v for k, v in given.items()}
    settled = any(fold_key(str(named.get(fold_key(k)))) in _PRECISIONS for k in _PRECISION_KEYS)
    for key, value in given.items():
        table.drop(key)
        del table.given[key]
        if fold_key(key) in map(fold_key, _PRECISION_KEYS):
            _precision(reading, table, key, value)
        elif key not in _OWNER or _OWNER[key] not in given:
            last = fold_key(key.rpartition(".")[2])
            name = _CALLED.get(last, last)
            off = value is None or (fold(value) in FALSE and name not in _FALSE_COUNTS)
            if last == "grad-reduce-in-fp32" and settled and "ddp." in key:
                continue  # the recipe of mixed precision overwrites it
            if last == "grad-reduce-in-fp32" and off:
                table.put("grad-reduce-in-bf16", True)
            elif not off:
                table.put(name, _TYPES.get(str(value), value), key)
    if "accumulate-allreduce-grads-in-fp32" in table.given:
        table.given.pop("grad-reduce-in-bf16", None)
        table.take("grad-reduce-in-bf16")


def _precision(reading: Reading, table: Table, key: str, value: object) -> None:
    flags = _PRECISIONS.get(fold_key(str(value)))
    if flags is None:
        reading.approximate(f"{key} = {value}", "is not followed: bf16 is predicted")
    for name, flag in (flags or _BF16).items():
        table.put(name, flag)


def _adapters(reading: Reading, table: Table) -> None:
    """State adapters: LoRA of Megatron-Bridge and NeMo (peft/lora.py), of rank 32 by default."""
    kind = table.take("peft")
    own = {k: v for k, v in table.drop("peft").items() if k != "peft"}
    for key in ("peft", *own):
        table.given.pop(key, None)
    if kind is None or fold(kind) in ("none", "null"):
        return
    if fold(kind) != "lora":
        reading.approximate(f"peft = {kind}", "is predicted as LoRA")
    reading.say("lora_rank", reading.whole("peft.dim", own.get("peft.dim", 32)), "peft")
    targets = str(own.get("peft.target_modules", ",".join(_TARGETS))).split(",")
    every = set(targets) >= set(_TARGETS)
    named = "all-linear" if every else ",".join(_TARGETS.get(t, t) for t in targets)
    reading.say("lora_targets", named, "peft")


def _emptied(table: Table) -> dict[str, Any]:
    """What the table was given, by folded key; nothing is left in it."""
    given = {fold_key(k): table.take(k) for k in list(table.given)}
    for key in list(table.given):
        table.drop(key)
        del table.given[key]
    return given


@ODD.register("sections of a trainer as flags")
def nemo(reading: Reading, table: Table) -> None:
    """NeMo's trainer has the nodes, and names Megatron's FSDP."""
    for key, option in (("trainer.num_nodes", "nnodes"), ("trainer.devices", "nproc_per_node")):
        value = table.take(key)
        table.given.pop(key, None)
        reading.say(option, reading.whole(key, value), key)
    fsdp = table.take("trainer.strategy.fsdp")
    table.given.pop("trainer.strategy.fsdp", None)
    if fold(fsdp) == "megatron":
        table.put("use_megatron_fsdp", True)
    as_flags(reading, table)


@ODD.register("a model beside its trainer")
def nemo_1(reading: Reading, table: Table) -> None:
    """NeMo 1's ``model`` and ``trainer``; without megatron_amp_O2 torch casts fp32 weights."""
    given = _emptied(table)
    if (name := given.pop("config-name", None)) not in (None, "megatron_gpt_config"):
        reading.not_at_hand(str(name), "NeMo")
    for key, option in (("trainer.num-nodes", "nnodes"), ("trainer.devices", "nproc_per_node")):
        reading.say(option, reading.whole(key, given.pop(key, None)), key)
    half = _HALVES.get(str(given.pop("trainer.precision", 16)))
    if half and fold(given.pop("model.megatron-amp-O2", False)) == "true":
        table.put(half, True)
    else:
        reading.say("precision", f"amp-{half}" if half else "fp32", "trainer.precision")
    if given.pop("model.tokenizer.library", "megatron") == "megatron":
        table.put("tokenizer-type", "GPT2BPETokenizer")
    flags: dict[str, Any] = {**_OF_NEMO_1}
    for key, value in given.items():
        last = key.rpartition(".")[2]
        if last in _VALUES_OF_NEMO_1:
            flags |= _VALUES_OF_NEMO_1[last].get(fold(value), {})
        elif value is not None and fold(value) not in (*FALSE, "none", "null"):
            flags[_CALLED_BY_NEMO_1.get(last, last)] = value
    flags.setdefault("ffn-hidden-size", 4 * int(flags["hidden-size"]))
    if "num-query-groups" in flags:
        flags["group-query-attention"] = True
    for name, value in flags.items():
        table.put(name, value)


@ODD.register("flags with other defaults")
def swift(reading: Reading, table: Table) -> None:
    """ms-swift's arguments: switches with values, and defaults that Megatron-LM does not have."""
    given = _emptied(table)
    reading.say("model", str(given.pop("model", "")) or None, "--model")
    kind, rank = given.pop("tuner-type", "full"), given.pop("lora-rank", 8)
    targets = str(given.pop("target-modules", "all-linear"))
    if kind != "full":
        reading.say("lora_rank", reading.whole("--lora_rank", rank), "--tuner_type")
        reading.say("lora_targets", targets, "--target_modules")
    for key, value in {**_OF_SWIFT, **given}.items():
        name, plain = _CALLED_BY_SWIFT.get(key, key), fold(value)
        if plain not in (*FALSE, "none", "null"):
            table.put(name, True if plain == "true" else _TYPES.get(str(value), value), key)
