"""What a reading notes, and which keys of a table are left: by hand, one rule after the other."""

from __future__ import annotations

import math
from typing import Any

import pytest

from simcore.strategy.dialects.base import Launch, Unsupported
from simcore.strategy.dialects.reading import Reading, Table, flat, places_of, short, stated
from simcore.strategy.dialects.record import Meaning
from simcore.strategy.dialects.source import Source
from simcore.strategy.strategy import parse_offload


def new() -> Reading:
    return Reading("deepspeed", Source("", "ds.json"))


def refusals(reading: Reading) -> list[str]:
    """What is refused, without the file's name."""
    return [u.text.removeprefix("ds.json: ") for u in reading.finish().unsupported]


# -- what is stated --------------------------------------------------------------------------------


def test_the_last_statement_counts_and_nothing_states_nothing() -> None:
    reading = new()
    reading.say("micro_batch", 2, "a")
    reading.say("micro_batch", 3, "b")
    reading.say("micro_batch", None, "c")
    assert (reading.said("micro_batch"), reading.key_of("micro_batch")) == (3, "b")
    assert reading.said("grad_accum") is None and reading.key_of("grad_accum") == ""
    with pytest.raises(AssertionError, match="shares"):
        reading.say("shares", "1:2", "d")  # no option of a launch file


def test_parts_of_offload_add_up() -> None:
    reading = new()
    reading.say("offload.optimizer", "cpu", "a")
    assert reading.said("offload") == "optimizer:cpu" and reading.key_of("offload") == "a"
    reading.say("offload.params", "nvme", "b")
    assert reading.said("offload") == "optimizer:cpu,params:nvme"
    assert reading.key_of("offload") == "a, b"
    reading.say("offload.params", "none", "c")
    assert reading.said("offload") == "optimizer:cpu" and reading.key_of("offload") == "a"
    reading.say("offload.optimizer", "none", "d")
    assert reading.said("offload") == "none" and reading.key_of("offload") == "d"


def test_the_whole_of_offload_states_its_parts() -> None:
    reading = new()
    reading.say("offload", "optimizer:cpu", "a")
    assert reading.said("offload.optimizer") == "cpu"
    reading.say("offload.params", "cpu", "b")
    assert reading.said("offload") == "optimizer:cpu,params:cpu"
    assert places_of(parse_offload("optimizer:cpu-far")) == {"optimizer": "cpu-far"}


def test_parts_of_overlap_are_switches_and_the_whole_replaces_them() -> None:
    reading = new()
    reading.say("overlap.grads", True, "a")
    reading.say("overlap.params", False, "b")
    assert reading.said("overlap") == "grads" and reading.key_of("overlap") == "a"
    reading.say("overlap", "none", "c")
    assert reading.said("overlap") == "none" and reading.key_of("overlap") == "c"


def test_a_launch_around_it_is_context_and_is_joined() -> None:
    reading = new()
    inner = Launch(where="run.sh", micro_batch=4, tp=2, other={"x": 1})
    reading.inner = inner
    reading.say("micro_batch", 8, "a")
    assert dict(reading.context) == {"micro_batch": 8}  # a file that it names is none yet
    reading = new()
    reading.within(inner)
    reading.say("micro_batch", 8, "a")
    assert dict(reading.context) == {"micro_batch": 8, "tp": 2, "other.x": 1}
    reading.within(Launch(tp=4, pp=2))
    assert reading.context["tp"] == 4 and reading.context["pp"] == 2
    found = reading.finish()
    assert (found.micro_batch, found.tp, found.pp) == (8, 4, 2) and found.dialect == "deepspeed"


def test_of_two_keys_that_exclude_each_other_neither_counts() -> None:
    reading = new()
    assert reading.alone("precision", "fp16", "fp16.enabled") == "fp16"
    reading.say("precision", "fp16", "fp16.enabled")
    assert reading.alone("precision", "fp16", "bf16.enabled") == "fp16"
    assert reading.alone("precision", "bf16", "bf16.enabled") is None
    assert reading.said("precision") is None and reading.key_of("precision") == ""
    assert refusals(reading) == ["fp16.enabled and bf16.enabled are both on: give --precision"]
    assert reading.alone("precision", "bf16", "x") is None  # refused once, it stays open


def test_what_the_program_does_not_have_is_taken_back() -> None:
    reading = new()
    reading.say("offload", "optimizer:cpu,params:cpu", "a")
    reading.take_back("offload.params", "needs stage 3")
    assert reading.said("offload") == "optimizer:cpu"
    assert refusals(reading) == ["a = 'cpu' needs stage 3: give --offload"]
    reading = new()
    reading.say("offload.optimizer", "cpu", "a")
    reading.take_back("offload", "is not there")
    assert reading.said("offload") is reading.said("offload.optimizer") is None
    assert refusals(reading) == ["a is not there: give --offload"]


# -- what is noted ---------------------------------------------------------------------------------


def test_notes_of_a_reading() -> None:
    reading = new()
    reading.refuse("a", "is wrong", "offload.params")
    reading.refuse("b", "is wrong", "no_option")
    reading.refuse("c", "is wrong")
    reading.refuse("c", "is wrong")
    reading.approximate("d", "is followed in part")
    reading.approximate("d", "is followed in part")
    for key in ("e", "f", "e"):
        reading.ignore(key)
    reading.not_known("micro_bacth", ["micro_batch", "other"])
    reading.not_known("zzz", ["micro_batch"])
    reading.not_at_hand("llama3_8b", "torchtitan", ["llama3_70b", "qwen"])
    reading.not_at_hand("file.yaml", "nemo")
    reading.not_understood("--flag 3")
    found = reading.finish()
    assert found.unsupported == (
        Unsupported("ds.json: a is wrong: give --offload", "offload"),
        Unsupported("ds.json: b is wrong"), Unsupported("ds.json: c is wrong"),
    )  # fmt: skip
    assert found.approximated == ("ds.json: d is followed in part",)
    assert found.ignored == ("e", "f")
    assert found.absent_files == ("llama3_8b", "file.yaml")
    not_known = "what it states is not known, give the file or the options"
    assert found.unknown == (
        "ds.json: unknown key 'micro_bacth': did you mean 'micro_batch'?",
        "ds.json: unknown key 'zzz'",
        "ds.json: llama3_8b of torchtitan is not at hand (did you mean 'llama3_70b'?): "
        f"{not_known}",
        f"ds.json: file.yaml of nemo is not at hand: {not_known}",
        "ds.json: --flag 3: not understood, and without effect here",
    )
    assert reading.refuses("offload") and not reading.refuses("precision")


def test_settings_and_other_facts_are_apart_from_options() -> None:
    reading = new()
    for option, value in (
        ("set.layers", 4), ("other.fsdp", True), ("model", "gpt2"), ("global_batch", 8),
        ("offload.params", "cpu"), ("tp", 2),
    ):  # fmt: skip
        reading.say(option, value, f"key of {option}")
    found = reading.finish()
    assert found.settings == {"layers": 4} and found.other == {"fsdp": True}
    assert (found.model, found.global_batch) == ("gpt2", 8)
    assert found.words() == {"tp": 2, "offload": "params:cpu"}
    assert found.keys == {
        "model": "key of model", "global_batch": "key of global_batch", "tp": "key of tp",
        "offload": "key of offload.params",
    }  # fmt: skip


# -- values ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "least", "found", "says"),
    [
        (4, 1, 4, ""), ("4", 1, 4, ""), (" +4 ", 1, 4, ""), ("5e8", 1, 500_000_000, ""),
        (4.0, 1, 4, ""), ("4_096", 1, 4096, ""), (None, 1, None, ""), (1, 1, 1, ""), (0, 0, 0, ""),
        (0, 1, None, "k = 0 must be at least 1"), (-5, None, -5, ""),
        (2.5, 1, None, "k = 2.5 is not a whole number"),
        ("x", 1, None, "k = 'x' is not a whole number"),
        (True, 1, None, "k = True is not a whole number"),
        ([4], 1, None, "k = [4] is not a whole number"),
        (math.inf, 1, None, "k = inf is not a whole number"),
        ("9" * 25, 1, int(float("9" * 25)), ""),
        ("1234567890123456789", 1, 1234567890123456789, ""),  # more digits are those of a float
        ("12345678901234567891", 1, int(12345678901234567891.0), ""),
    ],
)  # fmt: skip
def test_whole_numbers(value: object, least: int | None, found: int | None, says: str) -> None:
    reading = new()
    assert reading.whole("k", value, least=least) == found
    assert refusals(reading) == ([says] if says else [])


def test_a_whole_number_is_at_least_one_unless_said() -> None:
    reading = new()
    assert reading.whole("k", 1) == 1 and reading.whole("k", 0) is None
    assert refusals(reading) == ["k = 0 must be at least 1"]


@pytest.mark.parametrize(
    ("value", "found"),
    [(True, True), (False, False), ("yes", True), ("On", True), ("1", True), (1, True), (0, False),
     ("off", False), ("No", False), (None, None)],
)  # fmt: skip
def test_switches(value: object, found: bool | None) -> None:
    reading = new()
    assert reading.flag("k", value) is found and refusals(reading) == []
    assert reading.flag("k", "maybe") is None
    assert refusals(reading) == ["k = 'maybe' is neither true nor false"]


def test_numbers() -> None:
    reading = new()
    assert reading.number("k", "1e-4") == 1e-4 and reading.number("k", 3) == 3.0
    assert type(reading.number("k", 3)) is float
    assert reading.number("k", None) is None and refusals(reading) == []
    assert reading.number("k", "much") is None and reading.number("k", True) is None
    assert refusals(reading) == ["k = 'much' is not a number", "k = True is not a number"]


@pytest.mark.parametrize(
    ("value", "found", "says"),
    [
        ("AdamW", "adamw", ""), (" adamw ", "adamw", ""), (None, None, ""),
        ("lion", None, "k = 'lion' is not supported yet: give --optimizer"),
        ("adamwx", None, "k = 'adamwx' is unknown: did you mean 'adamw'?"),
        ("zzzzzz", None, "k = 'zzzzzz' is unknown: known are adamw, lion"),
    ],
)  # fmt: skip
def test_one_of_several_values(value: object, found: str | None, says: str) -> None:
    reading = new()
    assert reading.choose("k", value, {"AdamW": "adamw", "lion": None}, "optimizer") == found
    assert refusals(reading) == ([says] if says else [])


def test_values_that_are_no_names_may_have_a_reason() -> None:
    reading = new()
    assert reading.choose("--k", "x", {"a": "b"}, "optimizer", otherwise="must be a") is None
    assert reading.choose("k", True, {"true": None}, "optimizer.x", "is not there") is None
    assert refusals(reading) == ["--k x must be a: give --optimizer",
                                 "k is not there: give --optimizer"]  # fmt: skip


@pytest.mark.parametrize(
    ("option", "value", "found"),
    [
        ("global_batch", "64", 64), ("n_gpus", 8, 8), ("set.layers", "12", 12),
        ("set.p", "0.5", 0.5),
        ("set.tied", True, True), ("model", "7", "7"), ("other.name", "abc", "abc"), ("tp", "2", 2),
        ("sequence_parallel", "off", False), ("expert_capacity", "1.25", 1.25),
        ("optimizer", "adamw", "adamw"), ("optimizer", None, None), ("recompute_layers", 0, 0),
    ],
)  # fmt: skip
def test_values_by_the_kind_of_their_option(option: str, value: object, found: object) -> None:
    reading = new()
    read = reading.value("k", value, option)
    assert read == found and type(read) is type(found) and refusals(reading) == []


@pytest.mark.parametrize(
    ("words", "value", "found"),
    [
        ({"option": "tp", "read": "degree"}, 4, 4), ({"option": "tp", "read": "degree"}, 1, None),
        ({"option": "tp", "read": "degree"}, -1, None), ({"option": "tp", "read": "count"}, 1, 1),
        ({"option": "tp", "read": "count"}, 0, None), ({"option": "tp", "read": "count"}, -1, None),
        ({"option": "set.x", "read": "whole"}, "0", 0),
        ({"option": "grad_clip", "read": "positive"}, "0.5", True),
        ({"option": "grad_clip", "read": "positive"}, 0, False),
        ({"option": "grad_clip", "read": "positive"}, None, None),
        ({"option": "compile", "read": "flag"}, "yes", True),
        ({"option": "compile", "read": "flag"}, "no", False),
        ({"option": "recompute", "values": {"true": "full"}}, True, "full"),
        ({"option": "recompute", "values": {"true": "full"}}, "on", "full"),
        ({"option": "recompute", "values": {"true": "full"}}, "off", None),
        ({"option": "recompute", "values": {"true": "full"}}, False, None),
        ({"option": "recompute", "values": {"true": "full", "false": "none"}}, False, "none"),
        ({"option": "recompute", "values": {"full": "full", "block": "full"}}, "no", None),
        ({"option": "optimizer", "read": "free", "values": {"x": "adamw"}}, "X", "adamw"),
        ({"option": "optimizer", "read": "free", "values": {"x": "adamw"}}, "sgd", "sgd"),
        ({"option": "micro_batch"}, "3", 3),
        ({"option": "model", "values": {"gpt2": "gpt2"}}, "/models/gpt2", "gpt2"),
    ],
)  # fmt: skip
def test_what_a_value_means(words: dict[str, Any], value: object, found: object) -> None:
    reading = new()
    meant = reading.meant("k", Meaning(**words), value)
    assert meant == found and type(meant) is type(found)
    assert refusals(reading) == []


def test_values_that_nothing_means_name_the_option_that_can_replace_them() -> None:
    """The key's own, unless its record says another; a folder is a name of models alone."""
    reading = new()
    lacks: dict[str, Any] = {"option": "optimizer", "values": {"lion": None}}
    assert reading.meant("a", Meaning(**lacks), "lion") is None
    assert reading.meant("b", Meaning(**lacks, instead="precision"), "lion") is None
    assert reading.meant("c", Meaning(option="optimizer", values={"sgd": "sgd"}), "x/sgd") is None
    assert (
        reading.meant("d", Meaning(option="offload.params", values={"cpu": "cpu"}), "gpu") is None
    )
    assert refusals(reading) == [
        "a = 'lion' is not supported yet: give --optimizer",
        "b = 'lion' is not supported yet: give --precision",
        "c = 'x/sgd' is unknown: did you mean 'sgd'?",
        "d = 'gpu' is unknown: did you mean 'cpu'?",
    ]
    assert [u.word for u in reading.finish().unsupported] == [
        "optimizer", "precision", "optimizer", "offload",
    ]  # fmt: skip


def test_a_count_below_none_is_refused() -> None:
    reading = new()
    assert reading.meant("k", Meaning(option="tp", read="count"), -2) is None
    assert reading.meant("k", Meaning(option="set.x", read="whole"), -1) is None
    assert refusals(reading) == ["k = -2 must be at least -1", "k = -1 must be at least 0"]


# -- tables ----------------------------------------------------------------------------------------

DATA = {"a": {"b": 1, "c": {"d": 2}}, "e": None, "f": {}, "g": [1]}


def test_keys_of_nested_tables() -> None:
    assert dict(flat(DATA)) == {"a.b": 1, "a.c.d": 2, "e": None, "f": None, "g": [1]}


def test_keys_are_taken_once() -> None:
    table = Table(DATA, "train.", {"a.b": "--a-b"})
    assert (table.shown("a.b"), table.shown("g")) == ("--a-b", "train.g")
    assert table.take("a.b") == 1 and table.take("a.b") is None and table.take("x") is None
    assert table.has("a.b") and table.has("a.c") and table.has("e") and not table.has("a.bb")
    assert not table.has("x") and table.given["a.b"] == 1
    table.put("x", 5, "--x")
    assert table.take("x") == 5 and table.shown("x") == "--x" and table.shown("a.b") == "--a-b"


def test_the_first_of_several_keys() -> None:
    table = Table({"b": 2, "c": 3, "d": None})
    assert table.first("a", "b", "c") == ("b", 2)
    assert table.first("a", "d", otherwise=7) == ("a", 7)
    assert table.first("b", "c") == ("c", 3)


def test_sections_are_taken_as_a_whole() -> None:
    assert Table(DATA).drop("a") == {"a.b": 1, "a.c.d": 2}
    table = Table({"a": {"b": 1, "c": None}, "ab": 2})
    assert table.drop("a", but=("a.b",)) == {} and table.take("a.b") == 1 and table.take("ab") == 2
    for data, there in (
        ({"s": {"x": 1}}, True), ({"s": {"enabled": True}}, True),
        ({"s": {"enabled": False}}, False),
        ({"s": {"enable": False}}, False), ({"s": 3}, True), ({}, None), ({"st": 1}, None),
    ):  # fmt: skip
        assert Table(data).take_section("s") is there, data
    kept = Table({"s": {"x": 1, "y": 2}})
    assert kept.take_section("s", but=("s.y",)) is True and kept.take("s.y") == 2


def test_what_is_left_is_ignored_or_odd() -> None:
    data = {"a": 1, "plain": 2, "s": {"x": 3}, "sx": 4, "asked": 5, "odd": 6, "up": None}
    table, reading = Table(data, "t."), new()
    table.take("a")
    table.first("asked", "none")
    table.put("asked", 5)
    assert table.left(reading, {"plain", "up.x"}, ("s",)) == ["sx", "odd"]
    assert reading.finish().ignored == ("t.plain", "t.s.x", "t.up", "t.asked")
    table, reading = Table({**data, "plan": 7}), new()
    table.take("a")
    table.leftovers(reading, ("plain",), ("s",))
    found = reading.finish()
    assert found.ignored == ("plain", "s")
    assert [u.split("'")[1] for u in found.unknown] == ["sx", "asked", "odd", "up", "plan"]
    assert found.unknown[-1] == "ds.json: unknown key 'plan': did you mean 'plain'?"


def test_keys_and_values_as_messages_write_them() -> None:
    assert (stated("--a", 1), stated("a", "x")) == ("--a 1", "a = 'x'")
    assert short("x" * 38) == "'" + "x" * 38 + "'"  # 40 letters
    assert short("x" * 39) == "'" + "x" * 36 + "..." and len(short("x" * 39)) == 40
