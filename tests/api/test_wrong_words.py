"""What a call in Python can get wrong that a command line cannot: kinds, objects, numbers."""

from __future__ import annotations

import html
import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from torch import nn

import simcore
from simcore import api
from simcore.base.errors import InvalidConfig, UsageError
from simcore.planning.fleet import FleetJob
from simcore.planning.goodput import Reliability

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_attention_heads": 4,
    "num_hidden_layers": 2, "vocab_size": 1000, "max_position_embeddings": 128,
}  # fmt: skip
QUESTIONS = {
    "predict": {}, "scaling": {}, "goodput": {}, "compare": {}, "sweep": {},
    "plan": {"samples": 1e6},
}  # fmt: skip


@pytest.mark.parametrize("term", [3, None, ["comm"]])
def test_a_term_is_text(term: Any) -> None:
    with pytest.raises(UsageError, match="term must be text such as step_time"):
        api.explain("gpt2", "8xA100", term)


@pytest.mark.parametrize(
    ("word", "value", "says"),
    [
        ("sequence_parallel", "no", "unknown sequence-parallel .no."),
        ("gather_tensors", "false", "unknown gather-tensors .false."),
        ("settings", 3, "must be pairs"),
        ("settings", "layers", "is not KEY=VALUE"),
        ("settings", {"layer": 3}, "did you mean 'layers'"),
        ("settings", {"layers": "x"}, "layers must be a whole number"),
        ("eager_kernels", [False], "True or False"),
        ("fp8_params", 3, "True or False, not 3"),
        ("offload_layers", -1, "at least 0, not -1"),
        ("prefetch_blocks", -1, "at least 0"),
        ("bucket_numel", 0, "at least 1, not 0"),
        ("inputs", 3, "list of texts"),
        ("inputs", ["float32[B,3]", 3], "list of texts"),
        ("profile", "mine.yaml", "a result of read_calibration"),
        ("overlap", "none,grads", "none cannot be combined"),
        ("steps", "100 steps", "'100 steps' is not a number"),
        ("epochs", True, "True is not a number"),
    ],
)
def test_what_python_would_take_for_something_else_is_refused(
    word: str, value: Any, says: str
) -> None:
    with pytest.raises(UsageError, match=says):
        api.predict("gpt2", "8xA100", **{word: value})


@pytest.mark.parametrize("value", [True, np.True_, 1])
def test_a_switch_is_on_however_true_is_written(value: Any) -> None:
    assert api.predict("gpt2", "8xA100", grad_clip=value) == api.predict(
        "gpt2", "8xA100", grad_clip=True
    )


@pytest.mark.parametrize("ask", QUESTIONS)
@pytest.mark.parametrize(
    ("model", "says"),
    [
        (nn.Linear(2, 2), "the module Linear needs its inputs"),
        (lambda: nn.Linear(2, 2), "__main__:function"),
        (None, "not None"),
        (3, "not 3"),
    ],
)
def test_a_model_is_named(ask: str, model: Any, says: str) -> None:
    with pytest.raises(UsageError, match=says):
        getattr(simcore, ask)(model, "8xA100", **QUESTIONS[ask])


@pytest.mark.parametrize("ask", ["sweep", "plan", "compare"])
def test_many_predictions_take_models_by_name(ask: str) -> None:
    with pytest.raises(UsageError, match="by name, not the object 'llama'"):
        getattr(simcore, ask)(LLAMA, "8xA100", **QUESTIONS[ask])


@pytest.mark.parametrize("ask", QUESTIONS)
@pytest.mark.parametrize("gpus", [8, None, [8], []])
def test_a_cluster_is_text(ask: str, gpus: Any) -> None:
    with pytest.raises(UsageError, match=r"gpus must be text|no clusters"):
        getattr(simcore, ask)("gpt2", gpus, **QUESTIONS[ask])


@pytest.mark.parametrize("ask", QUESTIONS)
def test_a_file_of_a_model_answers_every_question(ask: str, tmp_path: Path) -> None:
    """By its path too; its name is not looked up among the models that are shipped."""
    file = tmp_path / "gpt2.json"
    file.write_text(json.dumps(LLAMA))
    by_text, by_path = (
        getattr(simcore, ask)(m, "1x2xA100", **QUESTIONS[ask]) for m in (str(file), file)
    )
    assert by_text.to_pandas().equals(by_path.to_pandas())
    if ask == "plan":
        assert by_text.best[0].prediction.model_full_name == "gpt2 (llama)"


def test_one_input_needs_no_list(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "one_input.py").write_text(
        "from torch import nn\ndef build(): return nn.Linear(16, 16)\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("SIMCORE_TRACE_CACHE", "off")
    of = ("one_input:build", "1xA100")
    shape = "float32[B,16]"
    one = api.predict(*of, inputs=shape)  # type: ignore[arg-type]
    assert one == api.predict(*of, inputs=(shape,))
    page = api.report(*of, inputs=[shape], fp8_params=False)
    assert f"--input '{shape}' --fp8-params off" in html.unescape(page)
    for ask in ("compare", "sweep", "plan"):
        for inputs in (shape, [shape]):
            getattr(simcore, ask)(*of, inputs=inputs, **QUESTIONS[ask])


def test_points_of_a_curve_are_known_clusters_of_its_gpu() -> None:
    for clusters, says in (
        ("1xA100", ""), (["1xA10", "8xH100"], "A10 is not of H100|is not of"),
        (["1xH10", "8xH100"], "unknown gpu 'H10'"),
    ):  # fmt: skip
        if not says:
            assert api.scaling("gpt2", "8xA100", clusters=clusters).points[0].n_gpus == 1
            continue
        with pytest.raises(UsageError, match=says):
            api.scaling("gpt2", "8xH100", clusters=clusters)


@pytest.mark.parametrize("top", [0, "3", -1, 2.5])
def test_how_many_are_shown_is_at_least_one(top: Any) -> None:
    with pytest.raises(InvalidConfig, match="top must be"):
        api.sweep("gpt2", "8xA100", top=top)


@pytest.mark.parametrize("work_s", [-1, 0, "50d", float("nan")])
def test_work_takes_time(work_s: Any) -> None:
    with pytest.raises(InvalidConfig, match="work_s must be"):
        api.goodput("gpt2", "8xA100", work_s=work_s)


def test_reliability_is_of_numbers() -> None:
    with pytest.raises(InvalidConfig, match="restart must be a number, not '10 min'"):
        Reliability(restart_s="10 min")  # type: ignore[arg-type]


def test_predictions_are_compared_with_predictions() -> None:
    with pytest.raises(UsageError, match="compare takes predictions, not '8xA100'"):
        api.predict("gpt2", "8xH100").compare("8xA100")  # type: ignore[arg-type]


def test_one_table_or_several_by_text_or_path(tmp_path: Path) -> None:
    table = Path(__file__).parents[2] / "validate" / "tables" / "latte.csv"
    rows = api.validate([str(table)])["rows"]
    assert rows == api.validate(table)["rows"] == api.validate(str(table))["rows"] > 10
    with pytest.raises(UsageError, match="no file given"):
        api.validate([])
    with pytest.raises(UsageError, match="one file, not to"):
        api.calibrate_from([table])  # type: ignore[arg-type]
    written = tmp_path / "mine.yaml"
    api.calibrate_from(table, output=written)
    by_path = api.predict("latte-l", "8xA6000ada", calibration=written)  # type: ignore[arg-type]
    assert by_path == api.predict("latte-l", "8xA6000ada", calibration=str(written))
    assert by_path.step_time_s != api.predict("latte-l", "8xA6000ada").step_time_s


@pytest.mark.parametrize(
    ("words", "says"),
    [
        ({"gpus": "64"}, "gpus must be a whole number"),
        ({"wait_s": -1}, "wait_s must be at least 0"),
        ({"gpus": 8, "quantile": 95}, "quantile must be at most 1"),
        ({"gpus": 8, "checkpoint_s": "1h"}, "checkpoint_s must be a number"),
        ({}, "give either"),
    ],
)
def test_a_fleet_is_of_numbers(words: dict[str, Any], says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        api.fleet([FleetJob("a", 0, 8, 100)], **words)


def test_a_fleet_s_jobs_are_jobs() -> None:
    with pytest.raises(InvalidConfig, match="a job is a FleetJob"):
        api.fleet([("a", 0, 8, 100)], 64)  # type: ignore[list-item]


@pytest.mark.parametrize(("checkpoint_s", "lost_s"), [(3600.0, 1000.0), (400.0, 200.0), (0, 0.0)])
def test_the_fewest_gpus_save_as_often_as_asked(checkpoint_s: float, lost_s: float) -> None:
    """A job stopped after 1,000 s loses what it did since its last checkpoint."""
    jobs = [FleetJob("long", 0, 8, 5000), FleetJob("urgent", 1000, 8, 100, priority=1)]
    found = api.fleet(jobs, policy="preempt", wait_s=1e6, checkpoint_s=checkpoint_s)
    assert (found.gpus, found.preemptions, found.lost_gpu_s) == (8, 1, 8 * lost_s)
