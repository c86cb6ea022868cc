"""The language of corpora: conditions, values, and rules one after the other."""

import re
from pathlib import Path
from typing import Any

import pytest

from simcore.base.errors import DataError
from simcore.base.record import Same
from simcore.cli.main import run
from simcore.validate.case import Case
from simcore.validate.formats import described
from simcore.validate.formats.formulas import NoJobError, applied
from simcore.validate.formats.row_rules import (
    NOTHING,
    Rule,
    cells_read,
    read_by,
    rules_of,
    value_of,
)
from simcore.validate.table import read_table

CELLS = {"source": "a-lab", "gpus": "32", "variant": "25.09", "notes": "Async TP; x", "tp": "",
         "model": "big-moe"}  # fmt: skip


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({"source": "a-lab"}, True),
        ({"source": ["b", "a-*"]}, True),
        ({"source": "lab"}, False),
        ({"notes": "/(?i)async ?tp/"}, True),
        ({"notes": "/^x/"}, False),
        ({"tp": "unknown"}, True),
        ({"gpus": "unknown"}, False),
        ({"gpus": "given"}, True),
        ({"tp": "given"}, False),
        ({"gpus": ">31"}, True),
        ({"gpus": "<32"}, False),
        ({"gpus": 32}, True),
        ({"gpus": 3}, False),
        ({"tp": "<2"}, False),
        ({"tp": ["unknown", "<2"]}, True),
        ({"variant": ">=25.09"}, True),
        ({"variant": ">=26"}, False),
        ({"notes": ">0"}, False),
        ({"not": {"source": "a-lab"}}, False),
        ({"source": "a-lab", "not": {"gpus": "<8"}}, True),
    ],
)
def test_conditions(when: dict[str, Any], holds: bool) -> None:
    assert Rule(when, {}).holds(CELLS) is holds


def test_a_version_compares_part_by_part() -> None:
    assert Rule({"variant": ">=26"}, {}).holds({"variant": "26.02.01"})
    assert not Rule({"variant": ">=26.3"}, {}).holds({"variant": "26.02.01"})


@pytest.mark.parametrize(
    ("raw", "value"),
    [
        ("plain", "plain"),
        (False, False),
        ("{gpus} of {source}", "32 of a-lab"),
        ({"cell": "gpus"}, 32),
        ({"cell": "variant"}, 25.09),
        ({"cell": "source"}, "a-lab"),
        ({"cell": "tp"}, NOTHING),
        ({"cell": "tp", "else": 1}, 1),
        ({"cell": "tp", "else": {"cell": "gpus"}}, 32),
        ({"cell": "gpus", "among": {32: "many"}, "else": "few"}, "many"),
        ({"cell": "gpus", "among": {8: "many"}, "else": "few"}, "few"),
        ({"found": "^[a-z]+", "in": "source"}, "a"),
        ({"found": r"(\d+)\.", "in": "variant"}, 25),
        ({"found": "no", "in": "variant", "else": 2}, 2),
        ({"product": [4, {"cell": "gpus"}]}, 128),
        ({"product": [4, {"cell": "tp"}]}, NOTHING),
        ({"quotient": [100, {"cell": "gpus"}]}, 3),
        ({"least": [{"cell": "gpus"}, 8]}, 8),
    ],
)
def test_values(raw: Any, value: Any) -> None:
    assert value_of(raw, CELLS) == value


def rules(tmp_path: Path, text: str) -> tuple[Rule, ...]:
    path = tmp_path / "corpus.yaml"
    path.write_text(text, encoding="utf-8")
    return rules_of(path)


def test_later_rules_win_and_groups_add_their_condition(tmp_path: Path) -> None:
    made = read_by(
        rules(
            tmp_path,
            """
rules:
  - words: {tp: 1, network: slow}
    settings: {norm: layernorm}
  - when: {source: a-lab}
    rules:
      - when: {gpus: ">8"}
        words: {tp: 2, network: null}
        cells: {large: "yes"}
      - when: {gpus: "<8"}
        words: {tp: 3}
  - when: {large: "yes"}
    settings: {norm: rmsnorm}
    hidden: [grads]
  - when: {source: another}
    words: {tp: 4}
""",
        ),
        {**CELLS, "large": ""},
    )
    assert made.maps["words"] == {"tp": 2}
    assert made.maps["settings"] == {"norm": "rmsnorm"}
    assert made.steps == [("hidden", "grads")]


def test_a_row_that_is_no_job_says_why(tmp_path: Path) -> None:
    text = "rules:\n  - when: {gpus: 32}\n    skip: '{gpus} are too many'\n"
    with pytest.raises(NoJobError, match="32 are too many"):
        read_by(rules(tmp_path, text), CELLS)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("rules:\n  - {wrods: {tp: 1}}\n", "a rule has no 'wrods': did you mean 'words'"),
        ("words: {tp: 1}\n", "must have a list of 'rules'"),
        ("rules: [3]\n", "a rule is a mapping"),
        ("rules:\n  - {words: {micro_bach: 1}}\n", "did you mean 'micro_batch'"),
        ("rules:\n  - {usual_words: {grad_clip: maybe}}\n", "known are off, on"),
        ("rules:\n  - {when: {a: /(/}, skip: x}\n", r"'\(' is no regular expression"),
        ("rules:\n  - {words: {tp: {found: '(', in: a}}}\n", r"'\(' is no regular expression"),
        ("rules:\n  - {words: {tp: {sell: gpus}}}\n", "is not a value: it has none of cell, found"),
        ("rules:\n  - {words: {tp: {formula: one_layer}}}\n", "did you mean 'one_layer_a_chunk'"),
        (
            "rules:\n  - when: {a: 1}\n    rules:\n      - when: {a: 2}\n        skip: x\n",
            "'a' is in the 'when' of an outer group too",
        ),
    ],
)
def test_a_file_that_is_no_corpus(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(DataError, match=says):
        rules(tmp_path, text)


def test_the_cells_that_rules_ask_for(tmp_path: Path) -> None:
    text = """
rules:
  - when: {a: 1, not: {b: given}}
    words:
      tp: {cell: c, among: {x: 1}, else: {product: [2, {cell: d}]}}
      stages: {formula: one_layer_a_chunk, of: {found: y, in: e}}
    cells: {z: "{f} of {g}"}
"""
    assert cells_read(rules(tmp_path, text)) == set("abcdefg")


#: A published table's own columns, as a contributor describes them.
FORMAT = """\
needs: [network, cards, batch, seconds]
model: "{network}"
gpus: "1x{cards}"
measured:
  step_time_s: {cell: seconds}
rules:
  - words: {micro_batch: {cell: batch, else: 1}, optimizer: sgd}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of corpora with one format of a contributor's own."""
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "format.yaml").write_text(FORMAT, encoding="utf-8")
    monkeypatch.setattr(described, "corpora_folder", lambda: tmp_path)
    return tmp_path / "mine"


def test_rows_of_a_format_of_one_s_own_are_the_options_that_it_states(folder: Path) -> None:
    (read,) = described.described_formats()
    row = {"network": "resnet50", "cards": "8xA100", "batch": "64", "seconds": "0.25"}
    case = read.read("mine:2", row)
    assert isinstance(case, Case)
    assert (case.model, case.gpus, case.measured) == ("resnet50", "1x8xA100", {"step_time_s": 0.25})
    assert case.options == {"micro_batch": 64, "optimizer": "sgd"}


@pytest.mark.parametrize("cell", ["resnet50", "gpt2"])
def test_a_rule_may_name_the_program_of_a_row(folder: Path, cell: str) -> None:
    text = FORMAT + "  - {when: {network: gpt2}, program: megatron-lm@2023}\n"
    (folder / "format.yaml").write_text(text, encoding="utf-8")
    (read,) = described.described_formats()
    case = read.read("mine:2", {"network": cell, "cards": "8xA100", "batch": "", "seconds": "1"})
    assert isinstance(case, Case)
    assert case.options.get("software") == ("megatron-lm@2023" if cell == "gpt2" else None)
    assert case.options["micro_batch"] == 1


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ('model: "{network}"\n', "", "must say as 'model' what --model"),
        ("{network}", "{netwrk}", "read netwrk, which no row has"),
        ("cell: seconds", "cell: second", "read second, which no row has"),
        ("step_time_s:", "step_tim_s:", "did you mean 'step_time_s'"),
        ("{cell: seconds}", "seconds", r"step_time_s must be \{cell: COLUMN\}"),
    ],
)
def test_what_is_wrong_with_a_format(folder: Path, old: str, new: str, says: str) -> None:
    (folder / "format.yaml").write_text(FORMAT.replace(old, new), encoding="utf-8")
    (read,) = described.described_formats()
    with pytest.raises(DataError, match=says):
        read.read("mine:2", {})
    (problem,) = described.problems_of_corpora()
    assert re.search(says, problem)


def test_a_folder_whose_rules_ask_for_what_no_row_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt column would hold for no row, and nobody would know."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "format.yaml").write_text(
        FORMAT + "  - {when: {gpu_typ: x}, skip: y}\n", encoding="utf-8"
    )
    monkeypatch.setattr(described, "corpora_folder", lambda: tmp_path)
    (problem,) = described.problems_of_corpora()
    assert "rules read gpu_typ, which no row has" in problem


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (FORMAT.replace("cell: seconds", "cell: second"), "read second, which no row has"),
        ("needs: [network", "no column"),
    ],
)
def test_a_broken_corpus_stops_its_own_tables_only(
    folder: Path, capsys: pytest.CaptureFixture[str], text: str, reason: str
) -> None:
    """Its tables' rows are left out with the reason, or it is as if nobody had described them."""
    (folder / "format.yaml").write_text(text, encoding="utf-8")
    mine, other = folder / "mine.csv", folder / "other.csv"
    mine.write_text("network,cards,batch,seconds\nresnet50,8xA100,64,0.25\n", encoding="utf-8")
    other.write_text("model,gpus,step_time_s\ngpt2,1xA100,0.5\n", encoding="utf-8")
    assert len(read_table(other).cases) == 1
    if reason == "no column":
        with pytest.raises(DataError, match="needs columns model and gpus"):
            read_table(mine)
    else:
        (skipped,) = read_table(mine).skipped
        assert reason in skipped.reason
    assert run(["validate", str(other)]) == 0
    assert "note: tables of a corpus are left out" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("layout", "pp", "stages"),
    [
        ("Et*4|(t*4|)*14tmL", "4", "3x16,14"),  # 61 layers and a further module in 16 chunks
        ("Ett|tt|tt|tL", "4", "3x2,1"),
        ("Ett|tt|tL", "2", None),  # three chunks on two stages
    ],
)
def test_stages_of_a_stated_layout(layout: str, pp: str, stages: str | None) -> None:
    assert applied("stages_of_layout", {"pp": pp}, {"layout": layout}) == stages


@pytest.mark.parametrize(("given", "left"), [("", [0, 1, 2]), ("source", [0, 1, 2, 3])])
def test_rules_of_other_sources_are_left_out_unless_a_rule_names_the_source(
    given: str, left: list[int]
) -> None:
    gives = {"cells": {given or "tp": "b"}}
    conditions: list[dict[str, Any]] = [{}, {"source": ["b", "a-*"]}, {"gpus": "8"}]
    rules = (*(Rule(when, gives) for when in conditions), Rule({"source": "other"}, gives))
    of = Same(described.Description("x", {}, rules))
    assert described._rules_for(of, "a-lab") == tuple(rules[i] for i in left)
