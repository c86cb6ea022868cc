"""The table of options: what its kinds read and refuse."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.strategy.options import (
    OPTIONS,
    File,
    Made,
    Name,
    NameList,
    Number,
    Option,
    Pairs,
    Switch,
    Text,
    Texts,
    Whole,
    check_shares,
    command_words,
    inputs_of,
    on_or_off,
    options_typed,
    read_options,
    shown,
    sides,
    spelt,
    with_files,
    word_meant,
    written_out,
)
from simcore.strategy.options.kinds import (
    SWITCH,
    Kind,
    Pairing,
    looked_up,
    names_of,
    whole_meant,
)
from simcore.strategy.options.option import HEADINGS


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (Whole(), "4", 4),
        (Whole(), 4.0, 4),
        (Whole(least=0), 0, 0),
        (Whole(or_max=True), " MAX ", "max"),
        (Number(least=1), "1.25", 1.25),
        (Switch(), "off", False),
        (Switch(), 1, True),
        (Name(("all-gather", "ring")), "All_Gather", "all-gather"),
        (Name(("nhwc",), also={"channelslast": "nhwc"}), "channels-last", "nhwc"),
        (Name(("a",), judged=True), "b", "b"),
        (NameList(("mlp", "moe")), "MLP, moe", "mlp,moe"),
        (Text(), "7,14x8,7", "7,14x8,7"),
        (Texts(), ("a", "b"), ("a", "b")),
        (Pairs(), "layers=16 rope-base=1e4", {"layers": "16", "rope_base": "1e4"}),
        (Pairs(), ["tied=on", "act=gelu"], {"tied": "on", "act": "gelu"}),
        (Pairs(), {"layers": 16}, {"layers": 16}),
    ],
)
def test_a_value_is_read(kind: Kind, value: object, read: object) -> None:
    found = kind.read("--x", value)
    assert found == read and isinstance(found, type(read))
    assert not isinstance(read, int) or type(found) is type(read)
    hash(found)


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (Whole(), "two", "--x 'two' is not a whole number"),
        (Whole(), "4k", "--x '4k' is not a whole number: did you mean 4000?"),
        (Whole(binary=True), "4k", "--x '4k' is not a whole number: did you mean 4096?"),
        (Whole(), 2.5, "--x must be a whole number, not 2.5"),
        (Whole(), True, "--x must be a whole number, not True"),
        (Whole(), "0", "--x must be at least 1, not 0"),
        (Whole(most=3), 4, "--x must be 1 to 3, not 4"),
        (Whole(or_max=True), "many", "--x 'many' is neither a whole number nor 'max'"),
        (Number(least=1), "0.5", "--x must be a number of at least 1, not 0.5"),
        (Number(least=1), float("inf"), "--x must be a number of at least 1, not inf"),
        (Number(), "nan", "--x must be finite, not nan"),
        (Number(), [1], "--x [1] is not a number"),
        (Switch(), "yes", "unknown x 'yes': known are off, on"),
        (Switch(), 3, "--x must be True or False, not 3"),
        (Name(("ring", "ulysses")), "rign", "unknown x 'rign': did you mean 'ring'?"),
        (Name(("none", "full"), for_true=("none", "full")), True, "--x must be text ('full'), not"),
        (NameList(("mlp", "moe")), "mlp,moo", "unknown x 'moo': did you mean 'moe'?"),
        (Text(), ["a", "b"], "--x must be text ('a,b'), not ['a', 'b']"),
        (Texts(such_as="f32[B]"), 3, "--x must be a list of texts such as f32[B], not 3"),
        (Pairs(such_as="layers=16"), "layers", "--x 'layers' is not KEY=VALUE, such as layers=16"),
        (Pairs(keys=("layers",)), "layrs=2", "--x: unknown key 'layrs': did you mean 'layers'?"),
        (Pairs(), 3, "--x must be pairs such as layers=16, not 3"),
        (File(), 3, "--x must be text, not 3"),
    ],
)
def test_a_wrong_value_is_refused_in_one_sentence(kind: Kind, value: object, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        kind.read("--x", value)
    assert str(refused.value).startswith(says) and "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "meant"), [("1e6", 1_000_000), ("4,096", 4096), ("2.0", 2), ("2.5", None), ("k", None)]
)
def test_numbers_otherwise_written(text: str, meant: int | None) -> None:
    assert whole_meant(text) == meant


def test_all_that_is_wrong_is_told_and_the_rest_is_read() -> None:
    read, problems = read_options({"tp": "two", "pp": "2", "grad_clip": "on", "batch_size": 3})
    assert read == {"pp": 2, "grad_clip": True}
    assert problems == [
        "--tp 'two' is not a whole number",
        "unknown setting 'batch_size': did you mean micro_batch?",
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [(True, "on"), (3, "3"), ({"layers": 16, "tied": False}, "layers=16 tied=false")],
)
def test_values_are_shown_as_they_are_typed(value: object, text: str) -> None:
    assert shown(value) == text


def _refs(option: Option) -> Iterator[str]:
    for field in ("names", "also", "check", "type_"):
        place: Any = getattr(option.kind, field, "")
        if isinstance(place, str) and place:
            yield place


def test_what_the_table_names_by_its_place_is_there() -> None:
    for option in OPTIONS:
        for place in _refs(option):
            assert looked_up(place) is not None, option.name
        if getattr(option.kind, "names", ()):
            assert option.names(), option.name


def test_every_option_stands_under_a_heading_with_a_sentence() -> None:
    order = [HEADINGS.index(o.heading) for o in OPTIONS]
    assert order == sorted(order)
    for option in OPTIONS:
        assert option.help.endswith(".") and "\n" not in option.help, option.name
        assert option.name == option.name.lower() and " " not in option.name


def test_an_option_is_registered_once_and_under_a_known_heading() -> None:
    with pytest.raises(ValueError, match="'tp' is registered twice"):
        OPTIONS.register(OPTIONS["tp"])
    with pytest.raises(ValueError, match="no heading 'Coffee'"):
        OPTIONS.register(Option(name="x", kind=Whole(), help="X.", heading="Coffee"))
    with pytest.raises(UnknownName, match="did you mean 'micro_batch'"):
        OPTIONS["micro_bach"]
    with pytest.raises(InvalidConfig):
        OPTIONS["tp"].read("0")


@pytest.mark.parametrize(
    ("text", "expected"), [("512", (512, 512)), (" 480 x 832 ", (480, 832)), ("1x2", (1, 2))]
)
def test_a_side_or_height_and_width(text: str, expected: tuple[int, int]) -> None:
    assert sides(text) == expected


@pytest.mark.parametrize("text", ["", "0", "480x0", "480x832x3", "-1", "wide", "512.5"])
def test_what_is_no_size_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfig, match="neither a side nor HEIGHTxWIDTH"):
        sides(text)


@pytest.mark.parametrize(
    ("kind", "value", "read"),
    [
        (Number(counts=True), "300B", 300e9), (Number(counts=True), " 1_000k", 1e6),
        (Number(counts=True), "1,5", 15.0), (Number(counts=True), "2t", 2e12),
        (Number(counts=True), "7", 7.0), (Number(counts=True), 7, 7.0), (Number(), "1e3", 1000.0),
        (Number(least=0.5), 0.5, 0.5), (Whole(least=None), "-3", -3), (Whole(most=3), 3, 3),
        (Whole(most=3), 1, 1), (Whole(least=0, most=3), 0, 0), (Whole(), np.int64(5), 5),
        (Switch(), np.bool_(True), True), (Switch(), 0, False), (Switch(), "on", True),
        (Text(), "", ""), (Texts(), "a", "a"), (Texts(), [], []), (File(), Path("a/b"), "a/b"),
        (NameList(("a",), judged=True), "b,c", "b,c"), (NameList(("a", "b")), " A,,b ", "a,b"),
        (Pairs(), {"rope-base": None, "x": 0.5}, {"rope_base": None, "x": 0.5}), (Pairs(), "", {}),
        (Made("pathlib:PurePath", "a_path"), Path("a"), Path("a")),
    ],
)  # fmt: skip
def test_more_values_as_they_may_be_given(kind: Kind, value: object, read: object) -> None:
    found = kind.read("--x", value)
    assert found == read and type(found) in (type(read), Pairing)


@pytest.mark.parametrize(
    ("kind", "value", "says"),
    [
        (Number(counts=True), "many", "--x 'many' is not a number, such as 1e12, 300B or 15T"),
        (Number(), "300B", "--x '300B' is not a number"), (Number(), True, "--x True is not a num"),
        (Number(least=0.5), 0.4, "--x must be a number of at least 0.5, not 0.4"),
        (Number(), "inf", "--x must be finite, not inf"), (Number(), 10**400, "--x 1"),
        (Whole(most=3), 0, "--x must be 1 to 3, not 0"),
        (Whole(least=None, most=1000), 1001, "--x must be None to 1,000, not 1001"),
        (Whole(or_max=True), "2k", "--x '2k' is neither a whole number nor 'max': did you mean 20"),
        (Whole(), "max", "--x 'max' is not a whole number"), (Whole(), None, "--x must be a whole"),
        (Switch(), np.array([1, 0]), "--x must be True or"), (Switch(), "ON", "unknown x 'ON'"),
        (Name(("a",), for_true=("no", "yes")), False, "--x must be text ('no'), not False"),
        (Name(("a",)), True, "--x must be text, not True"),
        (Text(), [], "--x must be text, not []"),
        (Text(), ["a", 1], "--x must be text, not ['a', 1]"),
        (Text(), ("a", "b"), "--x must be text ('a,b'), not ('a', 'b')"),
        (Texts(such_as="s"), ["a", 1], "--x must be a list of texts such as s, not ['a', 1]"),
        (Pairs(), {"a": [1]}, "--x: a must be text, a number or true or false, not [1]"),
        (Pairs(such_as="s"), ["a=1", 2], "--x must be pairs such as s, not ['a=1', 2]"),
        (Made("pathlib:PurePath", "a_path"), 3, "--x must be a result of a_path, not 3"),
    ],
)  # fmt: skip
def test_more_that_is_refused(kind: Kind, value: object, says: str) -> None:
    with pytest.raises(UsageError) as refused:
        kind.read("--x", value)
    assert str(refused.value).startswith(says)


def test_names_to_choose_from_may_be_given_in_many_forms() -> None:
    for names in (("a", "b"), {"a": 1, "b": 2}, lambda: ["a", "b"]):
        assert names_of(names) == ("a", "b")  # type: ignore[arg-type]
    assert names_of("simcore.strategy.options.kinds:SWITCH") == ("on", "off")
    assert names_of("simcore.strategy.optimizers:StepImpl") == ("foreach", "for-loop", "fused")
    assert set(names_of("simcore.strategy.optimizers:RECORDS")) >= {"adamw", "sgd"}
    assert Name(("x",), also="simcore.strategy.options.kinds:SWITCH").others == SWITCH
    assert Name(("x",)).others == {} and Name(("x",), also={"y": "x"}).others == {"y": "x"}


def test_how_values_are_shown_in_help_and_signatures() -> None:
    assert (Whole().metavar, Whole(or_max=True).metavar) == ("N", "N|max")
    assert Whole().python == (int | None) and Whole(or_max=True).python == (int | str | None)
    assert Made("pathlib:PurePath", "a_path").python == "PurePath | None"
    of = {name: OPTIONS[name] for name in ("tp", "precision", "stages", "inputs", "settings")}
    assert of["tp"].several == "GRID" and of["precision"].several == "NAMES"
    assert of["stages"].several == "CUT;CUT" and of["inputs"].several == "DTYPE[SHAPE]"
    assert of["inputs"].repeated and of["settings"].repeated and not of["tp"].repeated
    assert not OPTIONS["profile"].on_command_line and of["tp"].on_command_line
    assert OPTIONS["profile"].expert and not of["tp"].expert


@pytest.mark.parametrize(
    ("text", "meant"),
    [("2k", 2000), ("3M", 3_000_000), ("1B", 10**9), ("1g", 10**9), ("2T", 2 * 10**12),
     ("1_000", 1000), ("", None), ("inf", None), ("1.5k", 1500)],
)  # fmt: skip
def test_suffixes_of_counts(text: str, meant: int | None) -> None:
    assert whole_meant(text) == meant


def test_suffixes_of_lengths_are_powers_of_two() -> None:
    assert whole_meant("128k", binary=True) == 131_072 and whole_meant("1M", binary=True) == 2**20
    assert whole_meant("1B", binary=True) is None


# -- calls and command lines -----------------------------------------------------------------------


def test_words_of_a_command_line_and_back() -> None:
    options = {"tp": 2, "grad_clip": False, "inputs": ["a", "b"], "settings": {"layers": 2},
               "strategy": None, "model": "gpt2"}  # fmt: skip
    words = command_words(options)
    assert words == ["--tp", "2", "--grad-clip", "off", "--input", "a", "--input", "b", "--set",
                     "layers=2", "--model", "gpt2"]  # fmt: skip
    assert options_typed(words) == {
        "tp": "2", "grad_clip": "off", "inputs": ["a", "b"], "settings": ["layers=2"],
        "model": "gpt2",
    }  # fmt: skip
    assert command_words({"inputs": "a"}) == ["--input", "a"]
    assert options_typed(["--tp=2", "--model=x=y"]) == {"tp": "2", "model": "x=y"}
    for wrong, says in (
        (["tp", "2"], "'tp' is no option of a job"), (["--tp"], "--tp has no value"),
        (["--tp", "--pp", "2"], "--tp has no value"), (["--nothing=3"], "'--nothing=3' is no"),
    ):  # fmt: skip
        with pytest.raises(InvalidConfig, match=re.escape(says)):
            options_typed(wrong)


def test_shorthands_leave_what_is_given() -> None:
    stood_for = dict(OPTIONS["qlora"].stands_for)
    assert stood_for and written_out({"qlora": True, "tp": 2}) == {"tp": 2, **stood_for}
    assert (
        written_out({"qlora": "off", "tp": 2}) == {"tp": 2} == written_out({"qlora": None, "tp": 2})
    )
    first = next(iter(stood_for))
    assert written_out({"qlora": "on", first: "mine"})[first] == "mine"
    assert written_out({"qlora": "on", first: None})[first] == stood_for[first]
    with pytest.raises(UsageError, match="unknown qlora 'maybe'"):
        written_out({"qlora": "maybe"})


def test_words_of_other_programs() -> None:
    known = OPTIONS.options()
    assert word_meant("zero", 2, known) == "strategy='zero2'"
    assert word_meant("ZeRO", 4, known) == "strategy='zeroN'"
    assert word_meant("per_device_train_batch_size", 4, known) == "micro_batch"
    assert word_meant("per_device_train_batch_size", 4, ()) == ""
    assert word_meant("no such word", 4, known) == ""


def test_empty_texts_and_both_spellings() -> None:
    for value in ("", "  ", ["a", " "]):
        read, problems = read_options({"strategy": value})
        assert read == {} and problems == ["--strategy is empty: give it a value, or leave it out"]
    assert read_options({"quantized_base": "nf4", "tp": None})[0] == {
        "quantised_base": "nf4", "tp": None,
    }  # fmt: skip
    assert spelt("quantized", ["quantised"]) == "quantised" == spelt("quantised", ["quantised"])
    assert spelt("siezed", ["other"]) == "siezed"


def test_small_helpers_of_calls() -> None:
    assert [on_or_off("x", v) for v in (True, None, "on", "off", False)] == [
        True, False, True, False, False,
    ]  # fmt: skip
    with pytest.raises(InvalidConfig, match="unknown x 'yes'"):
        on_or_off("x", "yes")
    assert with_files({"a": Path("b"), "c": 1}) == {"a": "b", "c": 1}
    assert inputs_of({}) == () == inputs_of({"inputs": None}) and inputs_of({"inputs": "a"}) == (
        "a",
    )
    assert inputs_of({"inputs": ["a", "b"]}) == ("a", "b")


@pytest.mark.parametrize(
    ("text", "shares"),
    [("3:1", "3:1"), (" AUTO ", "auto"), ("equal", ""), ("Even", ""), ("1:2:10", "1:2:10")],
)
def test_shares_of_unlike_devices(text: str, shares: str) -> None:
    assert check_shares(text) == shares


@pytest.mark.parametrize("text", ["3", "0:1", "a:b", "1:", "3:1:0", "1:2x", ""])
def test_what_are_no_shares(text: str) -> None:
    with pytest.raises(InvalidConfig, match="are not auto, equal or a ratio"):
        check_shares(text)


def test_text_is_judged_by_its_check_and_any_text_passes_without_one() -> None:
    checked = Text(check="simcore.strategy.strategy:parse_offload")
    checked.judge("optimizer:cpu")
    with pytest.raises(UnknownName):
        checked.judge("optimizer:moon")
    Text().judge("optimizer:moon")
