"""The language of a corpus' rules, and that every shipped rule can be read and has its facts."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore.base.errors import DataError
from simcore.validate.formats.row_rules import TEXT, Facts, Rule, corpora_folder, read_by, rules_of

FACTS: Facts = {
    "model": "BERT-Large", "gpu": "V100(32GB)", "torch": "1.10.0", "gpus": "8", "library": "no",
    "note": "", "version": "", TEXT: "a lab | bert-large | squad fine-tune",
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
        ({"library": "no"}, True),
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


def written(path: Path, text: str) -> tuple[Rule, ...]:
    path.write_text(text, encoding="utf-8")
    return rules_of(path)


def test_of_a_group_first_the_first_rule_that_holds_applies(tmp_path: Path) -> None:
    made = written(
        tmp_path / "small.yaml",
        "rules:\n"
        "  - first:\n"
        "      - {when: {model: GNMT}, cells: {layout: first}}\n"
        "      - {when: {model: BERT-*}, cells: {layout: second}, source: a page}\n"
        "      - {cells: {layout: third}}\n"
        "  - {cells: {also: every}}\n"
        "  - {when: {model: '*'}, cells: {also: later}}\n",
    )
    cells = {"model": "BERT-Large", "layout": "", "also": ""}
    assert read_by(made, cells).cells == {**cells, "layout": "second", "also": "later"}
    assert read_by(made, {**cells, "model": "T5"}).cells["layout"] == "third"
    assert made[1].source == "a page" and "source" not in made[1].gives


def test_says_searches_the_text_that_a_format_names(tmp_path: Path) -> None:
    made = written(tmp_path / "small.yaml", "rules: [{when: {says: Fine}, cells: {b: found}}]\n")
    cells = {"a": "FINE tune", "b": ""}
    assert read_by(made, cells).cells["b"] == "found"
    assert read_by(made, cells, "{b} only").cells["b"] == ""


@pytest.mark.parametrize("text", ["- a\n", "rules: 3\n", "rules: [3]\n", "rules: [{when: x}]\n"])
def test_a_file_that_holds_no_rules_is_refused_by_its_name(tmp_path: Path, text: str) -> None:
    with pytest.raises(DataError, match=r"bad\.yaml"):
        written(tmp_path / "bad.yaml", text)


def ddp_rules() -> tuple[Rule, ...]:
    return rules_of(corpora_folder() / "ddp" / "format.yaml")


def test_every_model_of_a_shipped_rule_exists() -> None:
    from simcore.workload.resolve import resolve_model

    named = [r.gives["cells"]["entry"] for r in ddp_rules() if "entry" in r.gives.get("cells", {})]
    entries = [name for name in named if isinstance(name, str)]
    assert len(entries) > 35
    assert all(resolve_model(name).training for name in entries)


#: Options that rules set because of what a program does, not because the row states them.
OF_PROGRAMS = {"overlap", "optimizer", "optimizer_impl", "eager_kernels", "attention", "main_grads"}


def test_what_no_table_shows_says_where_it_is_from() -> None:
    """A rule that changes how a job runs cites a source; one that names a model need not."""
    for keys in ({"settings"},):
        told = [r for r in ddp_rules() if keys & r.gives.keys()]
        assert told and all(rule.source for rule in told), keys
    told = [r for r in ddp_rules() if OF_PROGRAMS & r.gives.get("words", {}).keys()]
    assert len(told) > 4 and all(rule.source for rule in told)
    cells = [
        r
        for r in ddp_rules()
        if r.gives.get("cells") in ({"without_p2p": "yes"}, {"torch": "1.4.0"})
    ]
    assert len(cells) == 2 and all(rule.source for rule in cells)
