"""Arguments of Hugging Face's Trainer on a launch line: what their record cannot express."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from simcore.strategy.dialects.keyed import TableDialect
from simcore.strategy.dialects.reading import Reading
from simcore.strategy.dialects.record import LINES, fold

#: Its record is that of a part of a launch line, not of files: it is no dialect of its own.
TRAINER = TableDialect("trainer", records=LINES)


def argument(name: str, values: Sequence[str]) -> dict[str, Any]:
    """The keys of the record that an argument states; none where it belongs to the script."""
    meanings = {n: m[0] for names, m in TRAINER.record.table().items() for n in names}
    if (meaning := meanings.get(name)) is None:
        return {}
    if name == "fsdp":
        words = " ".join(values).replace(",", " ").lower().split()
        how = next((word for word in words if word in meaning.values), None)
        return {} if how is None else {name: how, "fsdp-offload": "offload" in words}
    several = name.endswith("target-modules")
    value = ",".join(values) if several else values[0] if values else "true"
    if _switched_off(value):
        value = "false"
    named = set(meaning.values) <= {"true", "false"} or fold(value) in meaning.values
    off = bool(meaning.values) and value == "false" and value not in meaning.values
    return {name: value} if named and not off else {}


def without_effect(name: str, values: Sequence[str]) -> bool:
    """Whether an argument does not change the prediction, or is a switch left off."""
    if name in TRAINER.record.without_effect()[0]:
        return True
    known = any(name in names for names in TRAINER.record.table())
    return known and bool(values) and _switched_off(values[0])


def _switched_off(value: str) -> bool:
    return fold(value) in ("false", "no", "off", "0")


def settle_precision(reading: Reading) -> None:
    """With FSDP or a DeepSpeed file, ``--bf16`` means 16-bit weights instead of autocast."""
    sharded = reading.inner is not None or reading.said("strategy") in ("zero2", "zero3", "hsdp")
    if sharded and isinstance(said := reading.said("precision"), str):
        reading.say("precision", said.removeprefix("amp-"), "--" + said.removeprefix("amp-"))
