"""Broken YAML: each gives one sentence with file, line and key. Names: how a file is found."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Literal

import pytest

from simcore.base.database import Database, fold_name, load_record
from simcore.base.errors import DataError, UnknownName
from simcore.base.figures import Bandwidth, Count, Part, Sourced, check_record, entry


class Port(Part):
    lanes: int
    source: str


class Thing(Sourced):
    kind: Literal["fast", "slow"]
    bw: Bandwidth
    n_units: Count | None = None
    rates: dict[Literal["a", "b"], Bandwidth] = entry(default_factory=dict)
    ports: tuple[Port, ...] = ()


GOOD = """\
name: thing-1
aliases: [Thing One, "42", t1]
kind: fast
sources:
  sheet: a data sheet
bw: {value: 960 GB/s, source: sheet}
n_units: {value: 142, source: sheet}
rates:
  a: {value: 2 GB/s, source: sheet}
ports:
  - {lanes: 16, source: sheet}
"""


def write(folder: Path, text: str, stem: str = "thing-1") -> Path:
    path = folder / f"{stem}.yaml"
    path.write_text(text, encoding="utf-8")
    return path


def test_a_good_file_parses_to_si(tmp_path: Path) -> None:
    thing = load_record(write(tmp_path, GOOD), Thing)
    assert thing.bw.value == 960e9
    assert thing.n_units is not None
    assert thing.n_units.value == 142.0
    assert set(thing.figures()) == {"bw", "n_units", "rates.a"}
    assert thing.aliases == ("Thing One", "42", "t1")


#: case: (text to replace, replacement, line of the error, key it names, words of the sentence)
BROKEN = {
    "bare number": ("value: 960 GB/s", "value: 960", 6, "bw", "has no unit"),
    "unknown unit": ("960 GB/s", "960 GBs", 6, "bw", "unknown unit 'GBs'"),
    "wrong dimension": ("960 GB/s", "960 GB", 6, "bw", "unknown unit 'GB'"),
    "text nan": ("960 GB/s", "nan GB/s", 6, "bw", "is not a quantity"),
    "yaml nan": ("value: 142", "value: .nan", 7, "n_units", "must be finite"),
    "text inf": ("960 GB/s", "1e999 GB/s", 6, "bw", "is not finite"),
    "yaml inf": ("value: 142", "value: .inf", 7, "n_units", "must be finite"),
    "endless count": ("value: 142", f"value: {10**400}", 7, "n_units", "must be finite"),
    "negative": ("960 GB/s", "-960 GB/s", 6, "bw", "must be above zero"),
    "negative count": ("value: 142", "value: -1", 7, "n_units", "above zero"),
    "zero": ("960 GB/s", "0 GB/s", 6, "bw", "must be above zero"),
    "text for a count": ("value: 142", "value: many", 7, "n_units", "must be a plain number"),
    "duplicate key": ("kind: fast", "kind: fast\nkind: slow", 4, "", "duplicate key"),
    "unknown key": ("kind: fast", "kind: fast\nbww: 1", 4, "bww", "did you mean 'bw'?"),
    "missing key": ("kind: fast\n", "", None, "kind", "key 'kind' is missing"),
    "missing source": (", source: sheet}\nn", "}\nn", 6, "bw", "key 'source' is missing"),
    "tab indentation": ("  sheet: a data", "\tsheet: a data", 5, "", "not valid YAML"),
    "wrong type": ("name: thing-1", "name: 7", 1, "name", "should be a valid string (got 7)"),
    "figure as text": (
        "bw: {value: 960 GB/s, source: sheet}", "bw: 960 GB/s", 6, "bw", "write a figure as",
    ),
    "source not listed": ("960 GB/s, source: sheet", "960 GB/s, source: shet", 6, "bw", "'shet'"),
    "source of a part": ("lanes: 16, source: sheet", "lanes: 16, source: no", 11, "ports", "'no'"),
    "source not text": ("960 GB/s, source: sheet", "960 GB/s, source: 3", 6, "bw", "string"),
    "count of nothing": ("value: 142", "value: 0", 7, "n_units", "above zero"),
    "bad enum": ("kind: fast", "kind: quick", 3, "kind", "'fast' or 'slow'"),
    "bad key of a table": ("  a: {value", "  c: {value", 9, "rates", "'a' or 'b'"),
    "wrong type in a list": ("lanes: 16", "lanes: lots", 11, "ports", "valid integer"),
    "empty file": (GOOD, "", 1, "", "must be a mapping"),
    "only comments": (GOOD, "# nothing\n", 1, "", "must be a mapping"),
    "list at top level": (GOOD, "- name: thing-1\n", 1, "", "must be a mapping"),
    "text at top level": (GOOD, "thing\n", 1, "", "must be a mapping"),
    "unclosed brace": ("sheet}\nn_units", "sheet\nn_units", 7, "", "not valid YAML"),
    "two documents": (GOOD, GOOD + "---\n" + GOOD, None, "", "not valid YAML"),
    "python object": ("kind: fast", "kind: !!python/name:os.system", 3, "", "not valid YAML"),
    "key that is no text": ("kind: fast", "kind: fast\n3: x", None, "3", ""),
    "control character": ("kind: fast", "kind: fa\x07st", None, "", "not valid YAML"),
    "alias to itself": ("kind: fast", "kind: &k [*k]", None, "", "refers to a value that"),
}  # fmt: skip


@pytest.mark.parametrize("case", BROKEN)
def test_a_broken_file_gives_one_sentence(case: str, tmp_path: Path) -> None:
    old, new, line, key, words = BROKEN[case]
    assert old in GOOD
    path = write(tmp_path, GOOD.replace(old, new, 1))
    with pytest.raises(DataError) as caught:
        load_record(path, Thing)
    text = str(caught.value)
    assert text.startswith(str(path)), text
    assert words in text
    assert caught.value.key.startswith(key)
    if line is not None:
        assert caught.value.line == line, text
    assert "\n" not in text
    assert "Traceback" not in text
    assert "pydantic" not in text
    assert len(text) < len(str(path)) + 240
    assert caught.value.__cause__ is None
    assert caught.value.__suppress_context__ or caught.value.__context__ is None


def test_several_errors_are_told_and_beyond_four_counted(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD.replace("bw:", "bwx:").replace("kind: fast", "kind: x"))
    with pytest.raises(DataError) as caught:
        load_record(path, Thing)
    for said in ("kind:", "key 'bw' is missing", "unknown key 'bwx': did you mean 'bw'?"):
        assert said in str(caught.value)
    assert "more)" not in str(caught.value)
    path.write_text("a: 1\nb: 2\nc: 3\n" + path.read_text())
    with pytest.raises(DataError, match=r"\(and 2 more\)"):
        load_record(path, Thing)


def test_a_link_to_nothing_is_a_data_error(tmp_path: Path, things: Database[Thing]) -> None:
    (tmp_path / "db" / "things" / "gone.yaml").symlink_to(tmp_path / "nowhere")
    for read in (lambda: things["gone"], things.all):
        with pytest.raises(DataError, match=r"gone\.yaml: cannot be read"):
            read()


def test_a_missing_or_binary_file_is_a_data_error(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        load_record(tmp_path / "absent.yaml", Thing)
    (tmp_path / "binary.yaml").write_bytes(bytes(range(256)))
    with pytest.raises(DataError, match="not valid YAML"):
        load_record(tmp_path / "binary.yaml", Thing)
    deep = write(tmp_path, "a: " + "[" * 5_000, "deep")
    with pytest.raises(DataError, match="not valid YAML"):
        load_record(deep, Thing)


@pytest.fixture
def things(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Database[Thing]:
    (tmp_path / "db" / "things").mkdir(parents=True)
    monkeypatch.setenv("SIMCORE_DB", str(tmp_path / "db"))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path / "empty")
    write(tmp_path / "db" / "things", GOOD)
    return Database("thing", "things", Thing)


@pytest.mark.parametrize("name", ["thing-1", "THING_1", "thing 1", "thing one", "T1", "42"])
def test_a_record_is_found_by_name_or_alias(name: str, things: Database[Thing]) -> None:
    assert things[name].name == "thing-1"


@pytest.mark.parametrize(
    "written",
    [
        'aliases: [Thing One, "42", t1]  # three',
        "aliases:\n- Thing One\n- '42'  # a number\n- t1",
        "aliases:\n  - Thing One\n  # of old\n  - '42'\n  - t1",
        'aliases: [Thing One,\n  "42", t1]',
        "aliases: [\n  Thing One,\n  '42',\n  t1,\n  ]",
    ],
)
@pytest.mark.parametrize("name", ["thing one", "T1", "42", "thing-1"])
def test_aliases_are_found_however_yaml_writes_a_list(
    written: str, name: str, things: Database[Thing], tmp_path: Path
) -> None:
    text = GOOD.replace('aliases: [Thing One, "42", t1]', written)
    write(tmp_path / "db" / "things", text)
    assert things[name].aliases == ("Thing One", "42", "t1")
    with pytest.raises(UnknownName):
        things["fast"]  # the key after them is no alias


@pytest.mark.parametrize("name", ["", "  ", "thing", "thing-2", "../thing-2", "t\x00", "-", "./"])
def test_other_names_are_unknown(name: str, things: Database[Thing]) -> None:
    with pytest.raises(UnknownName, match="thing"):
        things[name]


def test_name_and_file_must_agree(things: Database[Thing], tmp_path: Path) -> None:
    write(tmp_path / "db" / "things", GOOD.replace("thing-1", "other"), "thing-9")
    with pytest.raises(DataError, match=r"is 'other' but the file is 'thing-9.yaml'") as caught:
        things["thing-9"]
    assert caught.value.line == 1
    assert caught.value.key == "name"


def test_one_broken_file_does_not_hide_the_others(things: Database[Thing], tmp_path: Path) -> None:
    folder = tmp_path / "db" / "things"
    write(folder, "name: [", "broken")
    (folder / "binary.yaml").write_bytes(b"\xff\xfe\x00")
    assert things["thing-1"].kind == "fast"
    with pytest.raises(DataError, match=r"broken\.yaml"):
        things["broken"]


def test_a_list_with_a_wrong_item_is_not_also_said_to_be_too_short() -> None:
    class Shape(Part):
        shape: tuple[int, ...] = entry(min_length=2)

    with pytest.raises(DataError, match="valid integer") as wrong:
        check_record({"shape": [8, "x"]}, Shape, "shape: [8, x]", "my.yaml")
    assert "at least 2" not in str(wrong.value)
    with pytest.raises(DataError, match="at least 2"):
        check_record({"shape": [8]}, Shape, "shape: [8]", "my.yaml")


def test_an_edited_file_is_read_again(things: Database[Thing], tmp_path: Path) -> None:
    assert things["thing-1"].bw.value == 960e9
    path = write(tmp_path / "db" / "things", GOOD.replace("960", "480"))
    os.utime(path, ns=(1, 1))
    assert things["thing-1"].bw.value == 480e9


def test_the_nearer_root_wins(
    things: Database[Thing], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    near = tmp_path / "near" / "things"
    near.mkdir(parents=True)
    write(near, GOOD.replace("960", "111"))
    monkeypatch.chdir(tmp_path / "near")
    assert things["t1"].bw.value == 111e9
    assert things.names() == ["thing-1"]


def test_a_dot_between_digits_tells_names_apart() -> None:
    assert fold_name("eth-2.5") != fold_name("eth-25")
    assert fold_name("2.5GbE") != fold_name("25GbE")
    assert fold_name("DiT-XL/2") == fold_name("dit_xl 2")
    assert fold_name("Inception.v3") == fold_name("inception-V3")


def test_a_checked_record_is_kept_and_an_altered_entry_is_not_trusted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMCORE_CACHE", str(tmp_path / "cache"))
    path = write(tmp_path, GOOD)
    first = load_record(path, Thing)
    (entry_file,) = (tmp_path / "cache" / "records").iterdir()
    with monkeypatch.context() as nothing_is_checked:
        nothing_is_checked.setattr("simcore.base.figures.check_record", None)
        assert load_record(path, Thing).model_dump() == first.model_dump()
        assert load_record(path, Thing).ports == first.ports
    for change in (
        lambda raw: raw.replace(b"960000000000.0", b"1.0"),
        lambda raw: raw.replace(b"Thing", b"Other"),
        lambda raw: raw[:-9],
    ):
        entry_file.write_bytes(change(entry_file.read_bytes()))
        assert load_record(path, Thing).model_dump() == first.model_dump()
    entry_file.chmod(0o666)
    assert load_record(path, Thing).model_dump() == first.model_dump()
    with pytest.raises(DataError, match="'source' is missing"):
        load_record(write(tmp_path, GOOD.replace("lanes: 16, source: sheet", "lanes: 16")), Thing)
