"""One option and the table of all, made up for the test: what is derived from a declaration."""

from __future__ import annotations

import pytest
from strategies import on_by_default

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.strategy.options.kinds import Made, Name, NameList, Number, Pairs, Text, Texts, Whole
from simcore.strategy.options.option import (
    GROUPS,
    HEADINGS,
    LAYOUT_GROUP,
    Axis,
    Control,
    Option,
    OptionTable,
)


def option(name: str = "big_size", kind: object = Whole(), **words: object) -> Option:
    return Option(name=name, kind=kind, help="Help.", **{"heading": "Job", **words})  # type: ignore[arg-type]


def test_how_an_option_is_typed() -> None:
    plain, own = option(), option(flag="--big")
    assert (plain.word, plain.typed, own.typed) == ("big-size", "--big-size", "--big")
    assert option(heading="Expert").expert and not plain.expert and HEADINGS[-1] == "Expert"
    assert plain.on_command_line and not option(kind=Made("pathlib:Path", "x")).on_command_line
    for kind, repeated in ((Texts(), True), (Pairs(), True), (Whole(), False), (Text(), False)):
        assert option(kind=kind).repeated is repeated


def test_how_several_values_are_typed() -> None:
    axis, named = Axis(), Axis(metavar="CUT;CUT")
    assert option().several == "N" and option(axis=axis).several == "GRID"
    assert option(kind=Name(("a",)), axis=axis).several == "NAMES"
    assert option(kind=Number(), axis=axis).several == "LIST"
    assert option(kind=Text(), axis=named).several == "CUT;CUT"
    assert (axis.of, axis.separator, axis.metavar) == ("form", ",", "")


def test_names_and_help() -> None:
    named = Option(name="x", kind=Name(("a", "b")), help="One of {names}.", heading="Job")
    assert named.names() == ("a", "b") and named.help_text == "One of a, b."
    assert option().names() == () and option().help_text == "Help."
    assert option(kind=Name()).names() == ()


def test_messages_name_the_option() -> None:
    with pytest.raises(InvalidConfig, match=r"^--big-size must be at least 1, not 0$"):
        option(flag="--other").read(0)
    with pytest.raises(InvalidConfig, match=r"^--grind must be pairs"):
        option(kind=Pairs(), flag="--grind").read(3)


def test_nothing_is_said_of_an_option_unless_it_is() -> None:
    plain, control = option(), Control(label="x")
    assert (plain.part, plain.common, plain.in_launch) == ("option", False, False)
    assert plain.axis is plain.control is plain.unsaid is None and dict(plain.called) == {}
    assert (control.group, control.place, control.most, control.most_letters) == (
        "More", 0, 1_000_000, 100,
    )  # fmt: skip
    assert not control.fine and not control.wide and control.example is None


def table_of(*options: Option) -> OptionTable:
    found = OptionTable()
    found.register(*options)
    return found


def test_the_table_goes_heading_by_heading_and_tells_of_changes() -> None:
    table, seen = OptionTable(), []  # type: ignore[var-annotated]
    table.when_changed(lambda: seen.append((table.version, len(table))))
    table.register(option("c", heading="Memory"), option("a"), option("b", heading="Memory"))
    assert [o.name for o in table] == ["a", "c", "b"] and seen == [(0, 0), (1, 3)]
    with table.registered(option("d"), option("e")):
        assert "d" in table and len(table) == 5 and table["e"].name == "e"
    assert "d" not in table and seen[2:] == [(2, 5), (3, 3)] and table.version == 3
    assert table.get("d") is None and table.get("a") is table["a"]
    with pytest.raises(UnknownName, match="unknown option 'aa': did you mean 'a'"):
        table["aa"]


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"name": "a"}, "option 'a' is registered twice"),
        ({"heading": "None"}, "option 'big_size': no heading 'None'"),
        ({"control": Control(label="x", group="None")}, "option 'big_size': no group 'None'"),
    ],
)  # fmt: skip
def test_what_is_not_registered(wrong: dict[str, object], says: str) -> None:
    table = table_of(option("a"))
    with pytest.raises(ValueError, match=says):
        table.register(option(**wrong))  # type: ignore[arg-type]
    assert len(table) == 1
    for group in GROUPS:
        table.register(option(f"in {group}", control=Control(label="x", group=group)))


def test_which_options_are_of_a_job_of_its_run_and_typed() -> None:
    table = table_of(
        option("plain", in_launch=True), option("model", part="subject"),
        option("steps", part="length"), option("price", part="run"),
        option("short", part="shorthand", stands_for={"plain": 1}),
        option("typed_short", part="shorthand"), option("object", kind=Made("pathlib:Path", "x")),
    )  # fmt: skip
    assert list(table.options()) == ["plain", "object"]
    assert list(table.keywords()) == ["plain", "short", "object"]
    assert list(table.typed()) == ["plain", "short", "typed_short"]
    assert list(table.of_run()) == ["steps", "price"] and table.in_launch() == ("plain",)


def test_keys_of_launch_files() -> None:
    table = table_of(
        option("a", launch_keys={"megatron": "x y", "deepspeed": "z"}),
        option("b", launch_keys={"megatron": "w"}), option("c"),
    )  # fmt: skip
    assert table.launch_keys("megatron") == {"x": "a", "y": "a", "w": "b"}
    assert table.launch_keys("deepspeed") == {"z": "a"} and table.launch_keys("other") == {}


def test_groups_that_stand_among_other_options() -> None:
    assert GROUPS == {
        "Job": False, "Cluster": False, "Strategy": True, LAYOUT_GROUP: True, "Run": True,
        "More": True,
    }  # fmt: skip


def test_what_an_option_and_its_control_are_where_nothing_is_said() -> None:
    """A number is at least one; a control takes up to a million, or a hundred letters."""
    assert on_by_default(Whole) == {"least": 1}
    assert on_by_default(Number, Name, NameList, Option) == {}
    assert on_by_default(Control) == {"most": 1_000_000, "most_letters": 100}
