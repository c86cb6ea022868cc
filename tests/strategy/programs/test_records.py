"""Records of training programs: what they say is of words that simcore knows, with its source."""

from __future__ import annotations

import pickle
from dataclasses import fields, is_dataclass, replace
from pathlib import Path
from typing import Any

import pytest

import simcore.strategy.programs as programs_records
from simcore.answer.request import make_request
from simcore.base.database import fold_name
from simcore.base.errors import DataError, UnknownName
from simcore.strategy.layout import CUT_RULES, parse_overlap
from simcore.strategy.precision import MAIN_GRADS, PRECISIONS
from simcore.strategy.programs import PROGRAMS, aliases, facts_of, program_named, program_names
from simcore.strategy.programs.mechanisms import ISSUERS, PLAIN, Program, Runs
from simcore.workload.models import MODELS, ModelRecord
from simcore.workload.recompute import modules_named

NAMES = [
    *(p.name for p in PROGRAMS.all()),
    *(f"{p.name}@{r}" for p in PROGRAMS.all() for r in p.releases),
]


def every_fact() -> list[Any]:
    return [
        pytest.param(fact, id=f"{p.name}-{i}-{j}")
        for p in PROGRAMS.all()
        for i, facts in enumerate([p.facts, *(r.facts for r in p.releases.values())])
        for j, fact in enumerate(facts)
    ]


@pytest.mark.parametrize("name", NAMES)
def test_a_program_speaks_in_known_words(name: str) -> None:
    program = program_named(name)
    assert program.name == name and program.meaning and not program.meaning.endswith(".")
    assert program.pipeline.cut in CUT_RULES
    runs = program.runs
    if runs is None:
        return
    record = MODELS["llama3-8b"]
    assert isinstance(record, ModelRecord)
    known = record.model_copy(update={"config": {**record.config, "experts": 8}}).settings({})
    assert {*runs.settings, *runs.compiled_settings} <= {*known, "residual"}
    for words in (runs.overlap, runs.recipe_overlap):
        assert set(str(parse_overlap(",".join(words) or "none")).split(",")) - {"none"} == words
    assert runs.issuer in ISSUERS and {*runs.precisions, *runs.precisions.values()} <= {*PRECISIONS}
    assert runs.main_grads in MAIN_GRADS
    assert modules_named(runs.selective_modules)


@pytest.mark.parametrize("fact", every_fact())
def test_a_fact_has_a_source_or_says_that_it_is_inferred(fact: dict[str, Any]) -> None:
    assert bool(fact.get("source")) != bool(fact.get("origin"))
    assert fact.get("source") or fact.get("note"), "what is inferred says from what"
    assert set(fact) - {"source", "origin", "note", "when"}, "a fact is about something"


def test_names_and_aliases_are_unique() -> None:
    found = [fold_name(p.name) for p in PROGRAMS.all()]
    for p in PROGRAMS.all():
        found += [fold_name(a) for a in p.aliases]
        found += [fold_name(a) for r in p.releases.values() for a in r.aliases]
    assert len(found) == len(set(found))
    assert fold_name(PLAIN.name) not in found


def test_an_alias_names_a_program_or_a_release() -> None:
    for alias, name in aliases().items():
        assert program_named(alias) == program_named(name)
    assert aliases()["deepspeed-2021"] == "deepspeed@2021"
    assert program_named("Hugging Face").name == program_named("hf").name == "transformers"
    assert program_named("megatron-core@recipes").name == "megatron@recipes"


def test_no_mechanism_has_more_than_25_fields() -> None:
    subjects = [Runs, *programs_records.SUBJECTS.values()]
    assert all(is_dataclass(s) and len(fields(s)) <= 25 for s in subjects)


def test_a_release_changes_what_it_says_and_nothing_else() -> None:
    base, later = program_named("fsdp"), program_named("fsdp@2022")
    assert base.recompute.stops_early and not later.recompute.stops_early
    changed = {f.name for f in fields(Program) if getattr(base, f.name) != getattr(later, f.name)}
    assert changed == {"name", "meaning", "fsdp", "recompute"}
    old, new = program_named("megatron-lm@2022").runs, program_named("megatron-lm@2023").runs
    assert old is not None and new is not None
    assert old.settings["attention"] == "fused_softmax" and new.settings["attention"] == "flash"
    others = [{k: v for k, v in r.settings.items() if k != "attention"} for r in (old, new)]
    assert others[0] == others[1]
    with pytest.raises(TypeError):
        new.settings["attention"] = "math"  # type: ignore[index]


def test_words_of_a_recipe_have_its_switches() -> None:
    """What tensor ranks exchange in pieces covers the sums beside weights' gradients."""
    runs = program_named("megatron-lm@2024-overlaps").runs
    assert runs is not None and runs.overlap >= {"dgrad"}
    assert runs.words()["overlap"] == "grads,params,pipeline,tensor"
    assert Runs().words() == {"issuer": "torch", "overlap": "grads", "main_grads": "weights"}


def test_libraries_around_a_user_s_own_loop_do_not_say_how_they_run() -> None:
    silent = {n for n in NAMES if program_named(n).runs is None}
    assert {"deepspeed", "deepspeed@2021", "deepspeed@2022", "fsdp", "fsdp@2022"} <= silent
    assert PLAIN.runs is None
    assert not silent & {"megatron", "megatron-lm", "transformers", "torchtitan", "torchtune"}


def test_of_several_parents_the_later_wins() -> None:
    """Megatron-DeepSpeed: Megatron's layers, DeepSpeed's pipeline and gradients."""
    both = program_named("megatron-deepspeed")
    assert both.pipeline == program_named("deepspeed").pipeline
    assert both.zero3 == program_named("deepspeed").zero3
    runs, of_2021 = both.runs, program_named("megatron-lm@2021").runs
    assert runs is not None and of_2021 is not None
    assert runs.settings == of_2021.settings and runs.main_grads == "weights"


def test_megatron_deepspeed_sums_gradients_of_inputs_beside_products_since_july_2023() -> None:
    since, before = (program_named(n).runs for n in ("megatron-ds", "megatron-deepspeed@2022"))
    assert since is not None and before is not None
    assert (since.words()["overlap"], before.words()["overlap"]) == ("dgrad", "none")


def test_facts_are_told_with_the_record_that_they_stand_in() -> None:
    told = facts_of("fsdp@no-sync")
    assert {t.of for t in told} == {"fsdp", "fsdp@no-sync"}
    assert all(t.source for t in told)
    assert facts_of("plain") == ()


def test_an_unknown_release_names_the_nearest() -> None:
    with pytest.raises(
        UnknownName, match=r"unknown release of deepspeed '2202': did you mean '202"
    ):
        program_named("deepspeed@2202")
    with pytest.raises(UnknownName, match="did you mean 'deepspeed'"):
        program_named("deepsped@2021")


MINE = """\
name: my-trainer
aliases: [our-trainer, my-wrapper]
inherits: fsdp
meaning: a trainer of one's own
read_as: {my-wrapper: "my-trainer, which it calls"}
facts:
  - source: my_trainer/loop.py
    pipeline: {interleaves: false}
    runs:
      settings: {norm: rmsnorm_eager}
      options: {grad_clip: true}
releases:
  "2":
    meaning: its second release
    aliases: [my-trainer-two]
    facts:
      - origin: inferred, to verify
        note: a guess
        recompute: {stops_early: null}
"""


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of one's own that programs are found in."""
    monkeypatch.setenv("SIMCORE_DB", str(tmp_path))
    (tmp_path / "programs_db").mkdir()
    return tmp_path / "programs_db"


def test_a_program_of_one_s_own(folder: Path) -> None:
    (folder / "my-trainer.yaml").write_text(MINE)
    assert "my-trainer" in program_names()
    mine = program_named("our trainer")
    assert mine.fsdp == program_named("fsdp").fsdp and not mine.pipeline.interleaves
    second = program_named("my-trainer-two")
    assert second.name == "my-trainer@2"
    assert mine.recompute.stops_early and not second.recompute.stops_early
    request = make_request("llama3-8b", "1x8xH100", software="my-wrapper")
    assert request.strategy.program == mine and request.strategy.grad_clip
    assert "software: my-wrapper is read as my-trainer, my-trainer, which it calls" in (
        request.assumptions
    )


@pytest.mark.parametrize(
    ("old", "new", "line", "said"),
    [
        ("interleaves: false", "interleave: false", 8, "did you mean 'interleaves'?"),
        ("pipeline:", "pipelines:", 8, "unknown key 'pipelines': did you mean 'pipeline'?"),
        ("interleaves: false", "interleaves: 1", 8, "must be true or false"),
        ("source: my_trainer/loop.py", "note: none", 7, "a fact needs its source"),
        ("origin: inferred, to verify", "origin: a guess", 17, "must be 'inferred, to verify'"),
        ("inherits: fsdp", "inherited: fsdp", 3, "did you mean 'inherits'?"),
        ("my-wrapper: ", "my-rapper: ", 5, "'my-rapper' is no alias of my-trainer"),
        ("interleaves: false", "cut: evn", 8, "did you mean 'even'?"),
        ("norm: rmsnorm", "nrom: rmsnorm", 10, "unknown key 'nrom': did you mean 'norm'?"),
        ("grad_clip: true", "grad_clop: true", 11, "did you mean 'grad_clip'?"),
        ("grad_clip: true", "grad_clip: 17", 11, "--grad-clip"),
        ("settings:", "overlap: [grad]\n      settings:", 10, "did you mean 'grads'?"),
        ("settings:", "main_grads: fp23\n      settings:", 10, "did you mean 'fp32'?"),
        ("settings:", "dropout: 7\n      settings:", 10, "at least 0 and below 1, not 7"),
        ("settings:", "dropout: 1\n      settings:", 10, "at least 0 and below 1, not 1"),
        ("settings:", "dropout: -0.5\n      settings:", 10, "at least 0 and below 1, not -0.5"),
    ],
)  # fmt: skip
def test_mistakes_are_told_with_file_line_and_key(
    folder: Path, old: str, new: str, line: int, said: str
) -> None:
    file = folder / "my-trainer.yaml"
    file.write_text(MINE.replace(old, new, 1))
    with pytest.raises(DataError) as told:
        program_named("my-trainer")
    assert f"{file}:{line}: " in str(told.value) and said in str(told.value)


def test_a_release_that_is_not_named_is_no_release() -> None:
    with pytest.raises(UnknownName, match="unknown release of fsdp ''"):
        program_named("fsdp@")


def test_a_program_that_inherits_nothing_that_there_is(folder: Path) -> None:
    file = folder / "my-trainer.yaml"
    file.write_text(MINE.replace("inherits: fsdp", "inherits: fsdpp"))
    with pytest.raises(DataError, match="did you mean 'fsdp'"):
        program_named("my-trainer")
    file.write_text(MINE.replace("inherits: fsdp", "inherits: my-trainer@2"))
    with pytest.raises(DataError, match="inherits itself"):
        program_named("my-trainer")


def test_layers_of_a_program_by_their_ranks_and_scores() -> None:
    """A loss for tensor ranks where there are several; a fused softmax takes multiples of four."""
    runs = replace(Runs(), loss_with_tensor_ranks="vocab_parallel", settings={})
    assert runs.layers(1, 8).get("loss") is None
    assert runs.layers(2, 8)["loss"] == "vocab_parallel"
    assert "loss" not in replace(runs, loss_with_tensor_ranks="").layers(2, 8)
    fused = replace(runs, settings={"attention": "fused_softmax"})
    found = {heads: fused.layers(1, heads)["attention"] for heads in (1, 2, 4, 6, 8)}
    assert found == {1: "math", 2: "math", 4: "fused_softmax", 6: "math", 8: "fused_softmax"}
    other = replace(runs, settings={"attention": "flash"})
    assert other.layers(1, 3)["attention"] == "flash"


@pytest.mark.parametrize("name", program_names())
def test_a_program_travels_to_another_process(name: str) -> None:
    """Its mappings cannot be written, and so are not what pickle copies by itself."""
    found = pickle.loads(pickle.dumps(program_named(name)))
    assert found == program_named(name) and hash(found) == hash(program_named(name))
    if found.runs is not None:
        assert found.runs == program_named(name).runs
        with pytest.raises(TypeError):
            found.runs.settings["depth"] = 1  # type: ignore[index]


def test_a_record_may_say_that_a_program_runs_nothing_itself(folder: Path) -> None:
    """``runs`` without a value undoes what is inherited; another subject needs a mapping."""
    file = folder / "my-trainer.yaml"
    runs = "    runs:\n      settings: {norm: rmsnorm_eager}\n      options: {grad_clip: true}\n"
    assert runs in MINE
    file.write_text(MINE.replace(runs, "    runs:\n"))
    assert program_named("my-trainer").runs is None
    file.write_text(MINE.replace("pipeline: {interleaves: false}", "pipeline:"))
    with pytest.raises(DataError, match="must be a mapping of keys to values"):
        program_named("my-trainer")
