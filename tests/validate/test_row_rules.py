"""The language of corpora: conditions, values, and rules one after the other."""

from pathlib import Path
from typing import Any

import pytest

from simcore.base.errors import DataError
from simcore.validate.formats import described
from simcore.validate.formats.formulas import NoJobError
from simcore.validate.formats.row_rules import NOTHING, cells_read, read_by, rules_of, value_of
from simcore.validate.formats.rules import Rule

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


def test_a_folder_whose_rules_ask_for_what_no_row_has(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt column would hold for no row, and nobody would know."""
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "format.yaml").write_text(
        "needs: [model]\nrules:\n  - {when: {gpu_typ: x}, skip: y}\n", encoding="utf-8"
    )
    monkeypatch.setattr(described, "corpora_folder", lambda: tmp_path)
    with pytest.raises(DataError, match="rules read gpu_typ, which no row has"):
        described.described_formats()
