"""Records of Hugging Face types: each says only what the reader and the architectures know."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simcore.base.errors import DataError
from simcore.workload.huggingface import class_names, model_types, read_config, records
from simcore.workload.huggingface.expressions import Translation
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.records import Rules, TypeRecord, shared, type_record
from simcore.workload.models import setting_kinds

KINDS = [k for k in (*model_types(), *class_names()) if not type_record(k).language_model]


def _all_rules(record: TypeRecord) -> tuple[Rules, ...]:
    return (record, *record.cases)


def _names(node: Any) -> Iterator[str]:
    """Every ``$name`` within an expression."""
    if isinstance(node, str) and node.startswith("$"):
        yield node[1:]
    elif isinstance(node, dict):
        for value in node.values():
            yield from _names(value)
    elif isinstance(node, (list, tuple)):
        for value in node:
            yield from _names(value)


@pytest.mark.parametrize("kind", KINDS)
def test_settings_are_those_of_the_architecture(kind: str) -> None:
    record = type_record(kind)
    for rules in _all_rules(record):
        assert rules.settings.keys() <= setting_kinds(record.arch).keys()


@pytest.mark.parametrize("kind", KINDS)
def test_every_name_is_one_of_the_record_or_a_sentence(kind: str) -> None:
    record = type_record(kind)
    known = {*record.values, *shared()["sentences"]}
    known |= {key for rules in _all_rules(record) for key in rules.settings}
    data = record.model_dump()
    assert set(_names(data)) <= known


def test_every_shared_word_is_used() -> None:
    text = "\n".join(
        p.read_text(encoding="utf-8")
        for p in records._folder().glob("*.yaml")
        if p.name != "words.yaml"
    )
    for name in shared()["sentences"]:
        assert f"${name}" in text or name in ("seeing", "sees", "holds")
    for name in shared()["tables"]:
        assert f"among: {name}" in text or f"are: {name}" in text


def test_an_added_record_is_a_supported_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plain type is one record: it is listed, read, and its mistakes are reported."""
    added = {
        "about": "llama whose embedding is scaled, with a norm that llama does not have.",
        "like": "llama",
        "defaults": {"vocab_size": 99},
        "requires": [{"flag": "odd", "default": False, "is": False, "else": "is not supported"}],
        "settings": {"scaled_embedding": True, "norm": None, "top_k": {"product": [2, "$layers"]}},
        "notes": ["of {layers} layers"],
    }
    files = {**records._files(), "added.yaml": {"added": added}}
    monkeypatch.setattr(records, "_files", lambda: files)
    for cached in (records._names, records._own_record, records.type_record):
        cached.cache_clear()
    try:
        assert "added" in model_types()
        keys = {
            "model_type": "added", "hidden_size": 48, "num_hidden_layers": 3,
            "num_attention_heads": 4, "intermediate_size": 72,
        }  # fmt: skip
        path = tmp_path / "added.json"
        path.write_text(json.dumps(keys), encoding="utf-8")
        record = read_config(path)
        assert (record.config["vocab"], record.config["scaled_embedding"]) == (99, True)
        assert record.config["top_k"] == 6 and "norm" not in record.config
        assert "of 3 layers" in record.notes
        path = tmp_path / "odd.json"
        path.write_text(json.dumps({**keys, "odd": True}), encoding="utf-8")
        with pytest.raises(DataError, match="odd: is not supported"):
            read_config(path)
    finally:
        monkeypatch.undo()
        for cached in (records._names, records._own_record, records.type_record):
            cached.cache_clear()


def test_a_record_with_a_wrong_word_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    files = {"wrong.yaml": {"wrong": {"about": "Wrong.", "seting": {}}}}
    monkeypatch.setattr(records, "_files", lambda: files)
    with pytest.raises(DataError, match=r"wrong\.yaml: wrong is no record of a type"):
        records._own_record.__wrapped__("wrong")


def test_values_are_left_out_by_none_and_by_conditions(tmp_path: Path) -> None:
    fields = Fields({"a": 3, "b": None, "c": {"d": [2, 0]}}, tmp_path, "")
    record = TypeRecord(about="", values={"big": {"less": [2, {"count": "a"}]}})
    t = Translation(record, fields)
    for expression, value in [
        ({"value": 7, "when": "$big"}, 7),
        ({"value": 7, "when": {"not": "$big"}}, None),
        ({"count": "b", "if_null": 5}, 5),
        ({"count": ["b", "a"]}, 3),
        ({"given": "b", "default": True}, False),
        ({"given": "z", "default": True}, True),
        ({"count": "z", "default": 0, "optional": True}, None),
        ({"joined": "c.d", "by": "-", "low": 0}, "2-0"),
        ({"least": [{"ratio": ["$big", 4]}, 1.0]}, 0.25),
        ({"length": "z", "default": 4}, 4),
    ]:
        assert t.value(expression) == value, expression
