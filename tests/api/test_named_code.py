"""Python calls run the code that they name; what they read from files does not."""

from __future__ import annotations

import inspect
from collections.abc import Callable
from pathlib import Path

import pytest
from evil import NAME, REFUSED, Evil

import simcore
from simcore import api
from simcore.base.errors import UsageError
from simcore.validate.judge import judge
from simcore.validate.table import read_table
from simcore.workload.settings import UntrustedName

TABLE = f"id,model,gpus,step_time_s\na,{NAME},1x1xA100,0.1\nb,mnist-cnn,1x1xA100,0.001\n"
#: Public functions that take a model, with what else they must be given.
TAKERS: dict[str, dict[str, object]] = {
    name: {"gpus": "1x1xA100"}
    for name in (
        "answer_of", "compare", "goodput", "make_request", "make_space", "memory_timeline", "plan",
        "predict", "replay", "report", "roofline", "scaling", "sensitivity", "sweep", "terms",
        "timeline",
    )
} | {
    "explain": {"gpus": "1x1xA100", "term": "comm"},
    "launch_file": {"gpus": "1x1xA100", "dialect": "torchrun"},
    "slower": {"gpus": "1x1xA100", "measured_s": 0.1},
}  # fmt: skip
TAKERS["answer_of"] |= {"options": {}}
TAKERS["plan"] |= {"samples": 1000.0}
#: A model that is looked up only where there is a launch file; a trace's that is there; one that is
#: timed on this machine (below); one that is a language model.
ELSEWHERE = {"launched_words", "explain_trace", "calibrate_model", "inference"}


def test_every_public_function_with_a_model_is_here() -> None:
    functions = {n: f for n in api.__all__ if inspect.isfunction(f := getattr(api, n))}
    found = {n for n, f in functions.items() if "model" in inspect.signature(f).parameters}
    assert found == TAKERS.keys() | ELSEWHERE


@pytest.mark.parametrize("name", TAKERS)
def test_a_name_of_a_file_is_refused_and_a_typed_one_runs(evil: Evil, name: str) -> None:
    ask: Callable[..., object] = getattr(api, name)
    with pytest.raises(UsageError, match=REFUSED):
        ask(model=UntrustedName(NAME), **TAKERS[name])
    assert not evil.ran
    ask(model=NAME, **TAKERS[name])
    assert evil.ran


def test_a_name_of_a_file_is_not_timed(evil: Evil) -> None:
    with pytest.raises(UsageError, match=REFUSED):
        api.calibrate_model(UntrustedName(NAME))
    assert not evil.ran


def test_a_sweep_of_several_runs_what_is_typed(evil: Evil) -> None:
    found = simcore.sweep(["mnist-cnn", NAME], "1x1xA100")
    assert {p.form.model for p in found.best} == {"mnist-cnn", NAME} and evil.ran


def test_an_answer_asked_again_runs_the_same(evil: Evil) -> None:
    assert simcore.predict(NAME, "1x1xA100").replace(micro_batch=2).micro_batch == 2


def test_tables_run_code_only_where_it_is_allowed(evil: Evil) -> None:
    path = evil.write("t.csv", TABLE)
    found = api.validate(path)
    assert found["simulated"] == 1
    assert [r for r in found["skipped"] if r.startswith(f"t.csv:2: {REFUSED}")]
    assert list(api.calibrate_from(path)["skipped"])
    assert not evil.ran
    assert api.validate(path, allow_code=True)["simulated"] == 2
    assert evil.ran
    assert not api.calibrate_from(path, allow_code=True)["skipped"]


@pytest.mark.parametrize(
    "text",
    [
        f"model,gpu,nodes,gpus_per_node,local_batch,iter_per_s,mem_gb\n{NAME},A100,1,1,1,1,10\n",
        f"model,gpus,samples_per_s\n{NAME},1x1xA100,5\n",
        f"Model,GPUs,Step Time (s)\n{NAME},1x1xA100,5\n",
    ],
)
def test_tables_of_other_formats_run_nothing(evil: Evil, text: str) -> None:
    table = read_table(evil.write("other.csv", text))
    verdict = judge([table])
    assert not verdict.judged and REFUSED in verdict.skipped[0][1] and not evil.ran


def test_a_row_without_the_permission_of_its_table_runs_nothing(evil: Evil, tmp_path: Path) -> None:
    """Cases made elsewhere have plain names."""
    from dataclasses import replace

    table = read_table(evil.write("t.csv", TABLE))
    (case,) = table.cases
    verdict = judge([replace(table, cases=(replace(case, model=NAME),), skipped=())])
    assert REFUSED in verdict.skipped[0][1] and not evil.ran
