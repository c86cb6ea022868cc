"""Facts of programs that hold for some kinds of job only."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcore import api
from simcore.base.errors import DataError
from simcore.request.training_library import Library
from simcore.strategy.options import OPTIONS
from simcore.strategy.programs import PROGRAMS, program_named
from simcore.strategy.programs.kinds import kind_of
from simcore.strategy.programs.mechanisms import OfKind
from simcore.workload.models import ModelRecord, setting_kinds
from simcore.workload.resolve import model_of


def test_later_facts_override_and_none_takes_back() -> None:
    kinds = (
        OfKind(when={"arch": "bert"}, options={"overlap": "none"}, settings={"xla": True, "a": 1}),
        OfKind(when={"precision": "amp*"}, settings={"a": None}, precisions={"amp-fp16": "fp16"}),
        OfKind(when={"arch": "gnmt"}, options={"overlap": "grads"}),
    )
    found = kind_of(kinds, {"arch": "bert", "precision": "amp-fp16"})
    assert found.options == {"overlap": "none"} and found.settings == {"xla": True}
    assert found.precisions == {"amp-fp16": "fp16"}
    plain = kind_of(kinds, {"arch": "bert", "precision": "fp32"})
    assert plain.settings == {"xla": True, "a": 1} and not plain.precisions


def test_a_fact_that_a_job_does_not_have_is_blank() -> None:
    kind = OfKind(when={"head": "unknown"}, options={"overlap": "none"})
    assert kind_of([kind], {"arch": "bert"}).options == {"overlap": "none"}


@pytest.mark.parametrize(
    ("release", "precision", "optimizer"),
    [
        ("torch-1.7", "fp32", "adamw/op-by-op-sync"),
        ("torch-1.10", "fp32", "adamw/op-by-op-sync"),  # a version, not a number
        ("torch-1.13", "fp32", "adamw/op-by-op"),
        ("torch-1.13", "amp-fp16", None),
    ],
)
def test_a_release_of_pytorch_decides(release: str, precision: str, optimizer: str | None) -> None:
    library = Library(program_named(f"lambda-benchmark@{release}"))
    options = {"seq_len": 384, "precision": precision}
    words = library.words(options, model_of("bert-large"))
    assert words.get("optimizer") == optimizer
    assert words["precision"] == ("fp16" if precision == "amp-fp16" else precision)


def test_what_the_job_says_wins() -> None:
    library = Library(program_named("nvidia-examples"))
    given = {"precision": "fp32", "overlap": "grads", "settings": {"gelu": "fused"}}
    record = model_of("bert-large", settings=given["settings"])
    made = library.on(record, given)
    assert isinstance(made, ModelRecord) and made.settings({})["gelu"] == "fused"
    assert library.words(given, record)["overlap"] == "grads"


def test_the_step_of_a_program_is_the_step_of_its_words() -> None:
    """Naming the program gives what a user would otherwise spell out."""
    job: dict[str, Any] = {"gpus": "1x1xV100-SXM2-16GB", "micro_batch": 8, "seq_len": 384}
    named = api.predict("bert-large", precision="amp-fp16", software="nvidia-examples", **job)
    spelt = api.predict(
        "bert-large", precision="fp16", optimizer_impl="fused", grad_clip=True, overlap="none",
        settings={"gelu": "scripted", "torch": "1.7"}, **job,
    )  # fmt: skip
    assert named.step_time_s.value == pytest.approx(spelt.step_time_s.value, rel=1e-9)


def test_every_condition_is_on_a_fact_that_some_job_has() -> None:
    """A typing error in a condition would make a fact that never holds."""
    facts = {"model", "arch", "precision", "strategy", "torch", "dispatcher"}
    facts |= {option.name for option in OPTIONS if option.setting}
    for record in PROGRAMS.all():
        for fact in [*record.facts, *(f for r in record.releases.values() for f in r.facts)]:
            when = fact.get("when", {})
            names = (when.keys() | when.get("not", {}).keys()) - {"not"} - facts
            archs = when.get("arch", ("bert", "resnext", "efficientdet"))
            several = [archs] if isinstance(archs, str) else archs
            known = {setting for arch in several for setting in setting_kinds(arch)}
            assert names <= known, (record.name, when)


def test_a_fact_of_some_jobs_sets_only_what_jobs_have(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "programs_db"
    folder.mkdir()
    fact = "{source: x, when: {arch: bert}, runs: {issuer: torch}}"
    text = f"name: own\nmeaning: a test\nfacts: [{fact}]\n"
    (folder / "own.yaml").write_text(text)
    monkeypatch.setenv("SIMCORE_DB", str(tmp_path))
    with pytest.raises(DataError, match="issuer"):
        program_named("own")


def test_a_switch_of_a_job_is_yes_or_no() -> None:
    kinds = [OfKind(when={"xla": "yes"}, options={"overlap": "none"})]
    assert kind_of(kinds, {"xla": True}).options == {"overlap": "none"}
    assert not kind_of(kinds, {"xla": False}).options and not kind_of(kinds, {}).options
