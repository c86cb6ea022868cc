"""The language of a corpus' rules, and that every shipped rule can be read and has its facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore.base.errors import DataError
from simcore.validate.formats import rules
from simcore.validate.formats.rules import TEXT, Facts, Rule, corpus

FACTS: Facts = {
    "model": "BERT-Large", "gpu": "V100(32GB)", "torch": (1, 10), "gpus": 8.0, "library": False,
    "note": "", "version": None, TEXT: "a lab | bert-large | squad fine-tune",
}  # fmt: skip


@pytest.mark.parametrize(
    ("when", "holds"),
    [
        ({}, True),
        ({"model": "BERT-Large"}, True),
        ({"model": "bert-large"}, False),  # names are as the table writes them
        ({"model": "BERT-*"}, True),
        ({"model": ["GNMT*", "BERT-*"]}, True),
        ({"model": ["GNMT*", "T5-*"]}, False),
        ({"gpu": "V100(32GB)"}, True),
        ({"torch": "<1.11"}, True),  # the tenth minor version is before the eleventh
        ({"torch": "<1.9"}, False),
        ({"torch": ">=1.10"}, True),
        ({"torch": ">1.10"}, False),
        ({"torch": "<=1.10"}, True),
        ({"gpus": ">1"}, True),
        ({"gpus": 8}, True),
        ({"library": False}, True),
        ({"library": True}, False),
        ({"version": "<2.0"}, False),  # what is not known is not older
        ({"version": ["unknown", "<2.0"]}, True),
        ({"note": "unknown"}, True),
        ({"note": "given"}, False),
        ({"model": "given"}, True),
        ({"model": "/L.rge$/"}, True),
        ({"model": "/^Large/"}, False),
        ({"model": "<2"}, False),  # text that is no number
        ({"model": "unknown"}, False),
        ({"says": "SQuAD"}, True),
        ({"says": ["squad", "bert"]}, True),
        ({"says": ["squad", "gnmt"]}, False),
        ({"not": {"model": "GNMT*"}}, True),
        ({"not": {"model": "BERT-*", "gpus": ">1"}}, False),
        ({"not": {"model": "BERT-*", "gpus": ">8"}}, True),  # not both hold
        ({"model": "BERT-*", "gpus": ">8"}, False),
    ],
)
def test_when_a_rule_holds(when: dict[str, object], holds: bool) -> None:
    assert Rule(when, {}).holds(FACTS) == holds


def test_a_fact_that_no_row_has_is_a_mistake_of_the_rule() -> None:
    with pytest.raises(KeyError, match="modle"):
        Rule({"modle": "BERT-*"}, {}).holds(FACTS)


def written(path: Path, text: str) -> rules.Corpus:
    path.write_text(text, encoding="utf-8")
    return rules._corpus(str(path))


def test_sections_are_rules_in_order_or_tables_of_names(tmp_path: Path) -> None:
    made = written(
        tmp_path / "small.yaml",
        "gpus: {theirs: ours}\n"
        "layouts:\n"
        "  - {when: {model: GNMT}, layout: first}\n"
        "  - {when: {model: BERT-*}, layout: second, source: a page}\n"
        "  - {layout: third}\n",
    )
    assert made.names["gpus"]["theirs"] == "ours"
    assert made.value("layouts", "layout", FACTS) == "second"
    assert [r.gives["layout"] for r in made.every("layouts", FACTS)] == ["second", "third"]
    found = made.first("layouts", FACTS)
    assert found is not None and found.source == "a page" and "source" not in found.gives
    assert made.value("layouts", "width", FACTS) is None


@pytest.mark.parametrize("text", ["- a\n", "rules: 3\n", "rules: [3]\n", "rules: [{when: x}]\n"])
def test_a_file_that_holds_no_rules_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"bad\.yaml"):
        written(tmp_path / "bad.yaml", text)


def test_every_model_of_a_shipped_rule_exists() -> None:
    from simcore.workload.resolve import resolve_model

    for rule in corpus("ddp").rules["models"]:
        assert resolve_model(rule.gives["model"]).training


def test_what_no_table_shows_says_where_it_is_from() -> None:
    """A rule that changes how a job runs cites a source; one that names a model need not."""
    found = corpus("ddp").rules
    for section in ("settings", "regions", "newest_torch", "without_p2p"):
        assert all(rule.source for rule in found[section]), section
    told = [r for r in found["options"] if not {"recompute", "software"} & r.gives["words"].keys()]
    assert told and all(rule.source for rule in told)
