"""Expressions of records: conditions, and readings of keys that are no plain number or word."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcore.workload.huggingface.expressions import FORMS, Expression, Translation


@FORMS.register("given")
def _given(t: Translation, key: str, x: Expression) -> bool:
    """Whether a key has a value; ``default``: the answer for a file without the key."""
    missing = not t.fields.has(key) and not t.fields.is_null(key)
    return bool(x["default"]) if missing and "default" in x else t.fields.has(key)


@FORMS.register("as_written")
def _as_written(t: Translation, key: str, x: Expression) -> Any:
    """The value of a key, unchecked; ``default`` if the file does not have the key."""
    found = t.fields.value(key)
    return x.get("default") if found is None and not t.fields.is_null(key) else found


@FORMS.register("classes")
def _classes(t: Translation, key: str, _: Expression) -> int:
    """Number of classes: that of the labels, or, without any, the number under ``key``."""
    count = t.fields.count(key, default=2)
    return max(len(t.fields.inside("id2label").data), 1) if t.fields.has("id2label") else count


@FORMS.register("architecture")
def _architecture(t: Translation, endings: Mapping[str, str], x: Expression) -> str:
    """What the end of the first class in ``architectures`` means."""
    named = next(iter(t.fields.words("architectures")), "")
    return next((v for end, v in endings.items() if named.endswith(end)), x["default"])


@FORMS.register("length")
def _length(t: Translation, key: str, x: Expression) -> int:
    """A number of layers, or the length of a text that has a letter for each."""
    written = t.fields.value(key)
    return len(written) if written and isinstance(written, str) else t.fields.count(
        key, default=x["default"]
    )  # fmt: skip


@FORMS.register("joined")
def _joined(t: Translation, key: str, x: Expression) -> str:
    """A list of numbers from ``low`` (1) on, as text with ``by`` between them."""
    numbers = t.fields.counts(key) or tuple(x.get("default", ()))
    if min(numbers, default=1) < x.get("low", 1):
        raise t.fields.error(key, "must be numbers from 1")
    return str(x["by"]).join(map(str, numbers))


@FORMS.register("if")
def _if(t: Translation, condition: Any, x: Expression) -> Any:
    return t.value(x["then"] if t.value(condition) else x["else"])


@FORMS.register("value")
def _value(t: Translation, operand: Any, _: Expression) -> Any:
    return t.value(operand)


@FORMS.register("not")
def _not(t: Translation, operand: Any, _: Expression) -> bool:
    return not t.value(operand)


@FORMS.register("all")
def _all(t: Translation, operands: Any, _: Expression) -> bool:
    return all(t.value(one) for one in operands)


@FORMS.register("any")
def _any(t: Translation, operands: Any, _: Expression) -> bool:
    return any(t.value(one) for one in operands)


@FORMS.register("size")
def _size(t: Translation, operand: Any, _: Expression) -> int:
    return len(t.value(operand))


@FORMS.register("nonempty")
def _nonempty(t: Translation, key: str, _: Expression) -> bool:
    return bool(t.fields.counts(key))
