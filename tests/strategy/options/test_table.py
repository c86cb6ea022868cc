"""The table of options: what its kinds read and refuse."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.strategy.options import (
    OPTIONS,
    File,
    Name,
    NameList,
    Number,
    Option,
    Pairs,
    Switch,
    Text,
    Texts,
    Whole,
)
from simcore.strategy.options.kinds import Kind, looked_up, whole_meant
from simcore.strategy.options.option import HEADINGS
from simcore.strategy.options.values import read_options, shown, sides


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
