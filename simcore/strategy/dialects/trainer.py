"""Arguments of Hugging Face's Trainer, as given to the script on a launch line.

Names: transformers 5.23, ``TrainingArguments`` and ``OptimizerNames`` in training_args.py,
``FSDPOption`` in trainer_utils.py. Other arguments belong to the script.
"""

from __future__ import annotations

from collections.abc import Sequence

from simcore.strategy.dialects.reading import NOT_YET, Reading
from simcore.strategy.optimizers import optimizer_named
from simcore.strategy.options import OPTIONS
from simcore.strategy.strategy import HYBRID

#: Values of ``--optim`` (training_args.py, OptimizerNames). Paged optimizers are assumed to stay on
#: the device; ``sgd`` is torch's without momentum.
OPTIMIZERS = (
    "adamw_torch", "adamw_torch_fused", "adamw_bnb_8bit", "adamw_8bit", "paged_adamw_32bit",
    "paged_adamw_8bit", "lion_32bit", "paged_lion_32bit", "adafactor", "sgd",
)  # fmt: skip
_WITHOUT_MOMENTUM = {"sgd": "sgd-plain"}
#: Prefixes of the Trainer's other optimizers.
_OTHERS = ("adamw", "ademamix", "paged_", "lion", "rmsprop", "galore", "lomo", "adalomo", "adagrad",
           "grokadamw", "schedule_free", "apollo", "stable_adamw")  # fmt: skip
#: How ``--fsdp`` shards; ``auto_wrap`` and ``offload`` may be given too.
SHARDING = {"full_shard": "zero3", "shard_grad_op": "zero2", "no_shard": "ddp",
            "hybrid_shard": HYBRID}  # fmt: skip
_REFUSED = ("hybrid_shard_zero2",)


def read_argument(reading: Reading, flag: str, values: Sequence[str]) -> bool:
    """Read one argument; False where it is no argument of the Trainer that matters."""
    name = flag.lstrip("-").replace("_", "-")
    value = values[0] if values else "true"
    if (word := OPTIONS.launch_keys("trainer").get(name)) is not None:
        reading.option(flag, value, word)
    elif name in ("bf16", "fp16") and reading.flag(flag, value):
        reading.say("precision", f"amp-{name}", flag)
    elif name == "gradient-checkpointing" and reading.flag(flag, value):
        reading.say("recompute", "full", flag)
    elif name == "optim":
        return _optimizer(reading, flag, value)
    elif name == "fsdp":
        return _fsdp(reading, flag, " ".join(values).replace(",", " ").lower().split())
    elif name == "torch-compile" and reading.flag(flag, value):
        reading.say("compile", True, flag)
    else:
        return False
    return True


def _optimizer(reading: Reading, flag: str, value: str) -> bool:
    name = value.lower()
    if name in OPTIMIZERS:
        meant = optimizer_named(_WITHOUT_MOMENTUM.get(name, name)).name
        reading.say("optimizer", meant, flag)
        if name.startswith("paged_"):
            reading.approximate(f"{flag} {value}", "is predicted as kept on the device")
    elif name.startswith(_OTHERS):
        reading.refuse(f"{flag} {value}", NOT_YET, "optimizer")
    else:
        return False
    return True


def _fsdp(reading: Reading, flag: str, options: Sequence[str]) -> bool:
    """Read ``--fsdp``, such as ``full_shard auto_wrap``; with it, mixed precision is FSDP's own."""
    how = next((o for o in options if o in SHARDING or o in _REFUSED), None)
    if how is None:
        return False
    if how in _REFUSED:
        reading.refuse(f"{flag} {how}", NOT_YET, "strategy")
        return True
    reading.say("strategy", SHARDING[how], flag)
    if SHARDING[how] != "ddp":
        reading.say("software", "transformers", flag)
    if "offload" in options and SHARDING[how] in ("zero3", HYBRID):
        reading.say("offload", "optimizer:cpu,params:cpu", flag)
    elif "offload" in options:
        reading.refuse(f"{flag} {' '.join(options)}", NOT_YET, "offload")
    return True


def settle_precision(reading: Reading, *, sharded: bool) -> None:
    """With FSDP or a DeepSpeed file, ``--bf16`` means 16-bit weights instead of autocast."""
    said = reading.said("precision")
    if sharded and isinstance(said, str):
        reading.say("precision", said.removeprefix("amp-"), "--" + said.removeprefix("amp-"))
