"""Records of optimizers: their names, implementations and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from strategies import on_by_default

from simcore.answer.request import make_request
from simcore.base.database import fold_name
from simcore.base.errors import DataError, InvalidConfig, UnknownName
from simcore.strategy.optimizers import (
    OPTIMIZERS,
    RECORDS,
    Optimizer,
    OptimizerRecord,
    Work,
    fitted,
    implementation_words,
    optimizer_named,
    step_impl_named,
)

#: Names that tables and files written before have for implementations, and what they are now.
OLD = {
    "bert-adam": "adamw/op-by-op",
    "bert-adam-asking": "adamw/op-by-op-sync",
    "adamw-tensorflow": "adamw/tensorflow",
    "lamb-tensorflow": "lamb",
}


@pytest.mark.parametrize(("old", "name"), OLD.items())
def test_names_of_before_mean_implementations_and_are_not_listed(old: str, name: str) -> None:
    assert optimizer_named(old) is optimizer_named(name)
    assert optimizer_named(old).name == name
    assert old not in list(OPTIMIZERS)


def test_every_name_is_unique() -> None:
    found = [fold_name(r.name) for r in RECORDS.all()]
    for record in RECORDS.all():
        found += [fold_name(a) for a in record.aliases]
        found += [fold_name(a) for i in record.implementations.values() for a in i.aliases]
    assert len(found) == len(set(found))


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_a_record_says_where_its_figures_are_from(name: str) -> None:
    record = RECORDS[name]
    assert record.source and all(i.source for i in record.implementations.values())
    optimizer = OPTIMIZERS[name]
    assert not optimizer.for_the_rest or optimizer.for_the_rest in OPTIMIZERS
    assert bool(optimizer.for_the_rest) <= bool(optimizer.by_shape)


def test_an_implementation_is_a_word_beside_the_optimizer() -> None:
    assert optimizer_named("adamw", "op-by-op") is optimizer_named("bert-adam")
    assert optimizer_named("adamw", "fused") is OPTIMIZERS["adamw"]
    assert step_impl_named("fused") == "fused" and step_impl_named("op-by-op") is None
    assert implementation_words()[:3] == ("foreach", "for-loop", "fused")
    job = {"optimizer": "adamw", "optimizer_impl": "op-by-op-sync"}
    asked = make_request("bert-large", "1xA100", **job)  # type: ignore[arg-type]
    assert asked.strategy.optimizer.syncs_each_tensor
    with pytest.raises(InvalidConfig, match="optimizer-impl of adamw 'op-by': did you mean"):
        make_request("bert-large", "1xA100", optimizer="adamw", optimizer_impl="op-by")
    with pytest.raises(UnknownName, match="optimizer-impl of sgd"):
        optimizer_named("sgd", "op-by-op")


def test_a_loop_in_python_launches_as_much_however_it_is_asked_for() -> None:
    loop = optimizer_named("bert-adam")
    assert loop.kernels == 30 * loop.kernels_per_tensor == 600


MINE = """\
name: my-rule
aliases: [ours]
meaning: a rule of one's own
source: my_rule.py, step
state_bytes: 12
traffic_elems: 9
kernels_per_tensor: 4
implementations:
  slow:
    meaning: as it was at first
    source: my_rule.py of before
    traffic_elems: 20
    kernels_per_tensor: 11
    syncs_each_tensor: true
"""


@pytest.mark.parametrize(
    ("wrong", "said"),
    [
        ("state_bytes: .inf", "state_bytes: Input should be a finite number"),
        ("state_bytes: -0.5", "state_bytes: .*greater than or equal to 0"),
        ("state_bytes: 12\ntemporary_elems: -0.5", "temporary_elems: .*greater than or equal to 0"),
    ],
)
def test_a_wrong_figure_is_refused(
    wrong: str, said: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIMCORE_DB", str(tmp_path))
    folder = tmp_path / "programs_db" / "optimizers"
    folder.mkdir(parents=True)
    (folder / "my-rule.yaml").write_text(MINE.replace("state_bytes: 12", wrong))
    with pytest.raises(DataError, match=said):
        optimizer_named("my-rule")


def test_an_optimizer_of_one_s_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SIMCORE_DB", str(tmp_path))
    folder = tmp_path / "programs_db" / "optimizers"
    folder.mkdir(parents=True)
    file = folder / "my-rule.yaml"
    file.write_text(MINE)
    assert "my-rule" in list(OPTIMIZERS)
    mine = optimizer_named("Ours")
    assert (mine.state_bytes, mine.kernels, mine.flop) == (12, 120, 0.0)
    slow = optimizer_named("my-rule", "slow")
    assert slow.name == "my-rule/slow" and slow.syncs_each_tensor and slow.state_bytes == 12
    held = {
        name: make_request("gpt2", "1xA100", optimizer=name, strategy="manual", precision="fp32")
        for name in ("my-rule", "adamw")
    }
    assert held["my-rule"].strategy.optimizer is mine
    model, precision = held["adamw"].workload, held["adamw"].strategy.precision
    assert fitted(mine, model, precision) is mine
    file.write_text(MINE.replace("traffic_elems: 9", "traffic_elems: 9\ntemporary_elem: 1"))
    with pytest.raises(DataError) as told:
        optimizer_named("my-rule")
    assert f"{file}:7: " in str(told.value) and "did you mean 'temporary_elems'" in str(told.value)


def test_an_optimizer_does_nothing_that_its_record_does_not_say() -> None:
    assert on_by_default(Optimizer, Work, OptimizerRecord) == {}
