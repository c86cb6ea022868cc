"""Launch lines and files as typed: read to the settings that a careful person would type.

Each ``launch/PROGRAM.yaml`` lists samples: ``name``, ``source`` (where the facts are documented),
``line`` (the command; absent where a file is given alone), ``files`` (name: text), ``read``
(options, ``model`` and ``set.NAME`` that must be read with these values), ``warns`` (names of
switches that must be told as not understood or not followed) and ``mutate``: each switch of the
sample is changed in turn, and what is read must change, or a sentence must name the switch, or the
program's record must list it among those without effect.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from simcore.base.database import read_yaml
from simcore.base.errors import SimcoreError
from simcore.strategy.dialects import Launch, read_launch
from simcore.strategy.dialects.line_record import fold_key

FOLDER = Path(__file__).parent / "launch"
SAMPLES = [(p.stem, s) for p in sorted(FOLDER.glob("*.yaml")) for s in read_yaml(p)]
KEYS = {"name", "source", "line", "files", "read", "warns", "mutate"}
IDS = [f"{program}: {sample['name']}" for program, sample in SAMPLES]
#: A key with its value, as a flag, an override, or a line of YAML or TOML.
_SWITCH = re.compile(
    r"(?P<flag>(?<![\w-])--?[A-Za-z][\w.-]*)(?P<by>=|[ \t]+)(?![+\w./@]+=)"
    r"(?P<value>'[^']*'|\"[^\"]*\"|[^\s\\-][^\s\\]*)"
    r"|(?P<bare>(?<![\w-])--?[A-Za-z][\w.-]*)(?=\s|$)"
    r"|(?<!\S)(?P<key>\+{0,2}[A-Za-z_][\w./@-]*)=(?P<set>[^\s\\]+)"
)
_LINE = re.compile(
    r"^(?P<key>[ ]*[A-Za-z_][\w.-]*)(?P<by>: *| = )(?P<value>[^\n#{\[]+?)(?:[ ]+#.*)?$",
    re.MULTILINE,
)


def written(sample: dict[str, Any], folder: Path) -> str:
    """The sample's line, or the name of its file, with its files in a folder."""
    for name, text in (sample.get("files") or {}).items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return str(sample.get("line") or next(iter(sample["files"])))


def read(sample: dict[str, Any], folder: Path) -> Launch:
    return read_launch(written(sample, folder))


def stated(launch: Launch) -> dict[str, Any]:
    """Everything that is read, options and others."""
    others = {"model": launch.model, "global_batch": launch.global_batch, "n_gpus": launch.n_gpus}
    return {
        **launch.words(),
        **{k: v for k, v in others.items() if v},
        **{f"set.{k}": v for k, v in launch.settings.items()},
        **{f"shape.{k}": v for k, v in launch.shape.items()},
        **{f"other.{k}": v for k, v in launch.other.items()},
    }


def sentences(launch: Launch) -> list[str]:
    return [*launch.unknown, *launch.approximated, *launch.violations()]


@pytest.fixture(autouse=True)
def _in_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


@pytest.mark.parametrize(("program", "sample"), SAMPLES, ids=IDS)
def test_what_is_read(program: str, sample: dict[str, Any], tmp_path: Path) -> None:
    assert set(sample) <= KEYS and sample["source"], sample["name"]
    launch = read(sample, tmp_path)
    found = stated(launch)
    assert {k: found.get(k) for k in sample["read"]} == sample["read"]
    told = sentences(launch)
    wanted = sample.get("warns") or []
    assert [w for w in wanted if not any(w in t for t in told)] == []
    assert wanted or not launch.unknown, "everything is understood, or named among warns"


def switches(sample: dict[str, Any]) -> Iterator[tuple[str, list[dict[str, Any]]]]:
    """Each switch of the sample, and samples with it changed, of which one at least must matter."""
    line = str(sample.get("line") or "")
    for match in _SWITCH.finditer(line):
        changed = [line[: match.start()] + new + line[match.end() :] for new in others(match)]
        name = match["flag"] or match["bare"] or match["key"]
        if name.isupper():
            continue  # the environment
        yield name, [{**sample, "line": text} for text in changed]
    for file, text in (sample.get("files") or {}).items():
        for match in _LINE.finditer(text):
            changed = [
                text[: match.start()] + f"{match['key']}{match['by']}{new}" + text[match.end() :]
                for new in values(match["value"].strip())
            ]
            yield (
                match["key"].strip(),
                [{**sample, "files": {**sample["files"], file: text}} for text in changed],
            )


def others(match: re.Match[str]) -> list[str]:
    """Other texts for a switch of a line: another value; where it has none, without it, or off."""
    if match["bare"]:
        return ["", f"{match['bare']} false"]
    if match["flag"]:
        return [f"{match['flag']}{match['by']}{new}" for new in values(match["value"])]
    return [f"{match['key']}={new}" for new in values(match["set"])]


def values(value: str) -> list[str]:
    """Other values than this one: one of its kind, and of a number zero, which switches off."""
    number = re.fullmatch(r"[\d.]+(e-?\d+)?", value.strip("'\""))
    return [other(value), "0"] if number else [other(value)]


def other(value: str) -> str:
    """Another value than this one, of its kind."""
    folded = value.strip("'\"").lower()
    words = ("true", "false"), ("yes", "no"), ("on", "off")
    switched = {a: b for pair in words for a, b in (pair, pair[::-1])}
    if folded in switched:
        return switched[folded]
    if re.fullmatch(r"\d+", folded):
        return str(int(folded) * 2 or 1)
    if re.fullmatch(r"[\d.]+(e-?\d+)?", folded):
        return str(float(folded) * 2)
    return "zzz"


def noticed(switch: str, before: Launch, sample: dict[str, Any], folder: Path) -> bool:
    """Whether a change is noticed: in what is read, in a sentence, or as listed without effect."""
    try:
        after = read(sample, folder)
    except SimcoreError:
        return True
    full = fold_key(switch.lstrip("+ "))
    name = full.rpartition(".")[2]
    listed = {fold_key(k) for k in (*before.ignored, *after.ignored)}
    ignored = {k.rpartition(".")[2] for k in listed}
    return (
        stated(after) != stated(before)
        or any(name in fold_key(t) for t in (*sentences(before), *sentences(after)))
        or sentences(after) != sentences(before)  # of the file that the switch names
        or name in ignored
        or any(full.startswith(f"{section}.") for section in listed)
    )


MUTATED = [(p, s) for p, s in SAMPLES if s.get("mutate")]


@pytest.mark.parametrize(
    ("program", "sample"), MUTATED, ids=[f"{p}: {s['name']}" for p, s in MUTATED]
)
def test_no_switch_is_dropped_in_silence(
    program: str, sample: dict[str, Any], tmp_path: Path
) -> None:
    before = read(sample, tmp_path)
    found = list(switches(sample))
    silent = [
        s for s, changes in found if not any(noticed(s, before, c, tmp_path) for c in changes)
    ]
    assert found and silent == []


def test_the_changes_are_found() -> None:
    """The switches of a line and of a file, each once."""
    sample = {
        "line": "a train.py --x 3 --y on --z a.b=c +d.e=1",
        "files": {"f.yaml": "k: 2\nn:\n  m: no\n"},
    }
    assert [s for s, _ in switches(sample)] == ["--x", "--y", "--z", "a.b", "+d.e", "k", "m"]
