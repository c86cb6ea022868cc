"""Results that remember: asked again, shown, drawn, handed on as tables."""

from __future__ import annotations

import pickle
from contextlib import redirect_stdout
from io import StringIO
from typing import Any

import pytest

import simcore
from simcore import api
from simcore.answer import result as plain
from simcore.base.errors import UnknownName, UsageError
from simcore.cli.main import run
from simcore.report.text import render

ASK: tuple[str, str] = ("latte-xl", "4x8xA6000ada")


@pytest.fixture(scope="module")
def answer() -> api.Prediction:
    return api.predict(*ASK)


CHANGES: list[dict[str, Any]] = [
    {"gpus": "8x8xH100", "micro_batch": 2},
    {"model": "gpt2", "micro_batch": None},
    {"strategy": "zero2", "steps": 100.0},
    {"precision": "amp-bf16", "recompute": "full"},
    {"micro_batch": "max"},
]


@pytest.mark.parametrize("changes", CHANGES)
def test_replace_is_the_prediction_of_the_changed_request(
    answer: api.Prediction, changes: dict[str, Any]
) -> None:
    model, gpus = changes.get("model", ASK[0]), changes.get("gpus", ASK[1])
    rest = {k: v for k, v in changes.items() if k not in ("model", "gpus")}
    assert answer.replace(**changes) == api.predict(model, gpus, **rest)


def test_what_was_asked_before_stays(answer: api.Prediction) -> None:
    first = answer.replace(micro_batch=1, strategy="zero1")
    second = first.replace(gpus="2x8xA6000ada")
    assert second == api.predict(ASK[0], "2x8xA6000ada", micro_batch=1, strategy="zero1")
    assert answer == api.predict(*ASK), "the first is as it was"


def test_of_two_words_that_exclude_each_other_the_new_one_counts() -> None:
    first = api.predict("gpt2", "8xA100", micro_batch=1, global_batch=64)
    assert first.replace(grad_accum=2).global_batch == 16
    assert first.replace(grad_accum=2).replace(global_batch=32).grad_accum == 4
    by_count = api.predict("gpt2", "A100", nnodes=2, nproc_per_node=4)
    assert by_count.replace(gpus="1x8xH100").n_gpus == 8
    run = api.predict(*ASK, epochs=2)
    assert run.replace(steps=10).run_steps == 10


def test_unknown_words_name_the_nearest(answer: api.Prediction) -> None:
    with pytest.raises(UnknownName, match="did you mean 'micro_batch'"):
        answer.replace(micro_bach=2)
    with pytest.raises(UsageError, match="did you mean 'A6000ada'"):
        answer.replace(gpus="4x8xA6000ad")
    with pytest.raises(UnknownName, match="did you mean 'roofline'"):
        answer.plot("rofline")


def test_memory_timeline_and_sweep_ask_again_too(answer: api.Prediction) -> None:
    less = answer.memory.replace(micro_batch=1)
    assert less == api.predict(*ASK, micro_batch=1).memory
    assert less.device_bytes < answer.memory.device_bytes
    steps = api.timeline(*ASK).replace(gpus="1x8xA6000ada")
    alone = api.predict(ASK[0], "1x8xA6000ada", keep_timeline=True).timeline
    assert alone is not None
    assert (steps.finish_s == alone.finish_s).all()
    over = api.memory_timeline("gpt2", "8xA100").replace(micro_batch=1)
    assert over.peak_reserved_bytes == (
        api.memory_timeline("gpt2", "8xA100", micro_batch=1).peak_reserved_bytes
    )
    swept = api.sweep("gpt2", ["1xA100", "8xA100"]).replace(micro_batch=(1, 2))
    assert swept.n_points == 4
    again = swept.replace(by="step", top=1)
    assert again.ranked_by == "step" and again.n_points == 4 and len(again.best) == 1
    curve = api.scaling("gpt2", "1x2xA100").replace(gpus="1x4xA100")
    assert [p.n_gpus for p in curve.points] == [1, 2, 4]
    both = api.compare("gpt2", ("8xA100", "8xH100")).replace(micro_batch=2)
    assert both.predictions == api.compare("gpt2", ("8xA100", "8xH100"), micro_batch=2).predictions


def test_a_result_made_by_hand_says_that_it_cannot_be_changed(answer: api.Prediction) -> None:
    from dataclasses import replace

    with pytest.raises(UsageError, match="does not know the call"):
        replace(answer, call=None).replace(micro_batch=1)


def test_results_are_the_engines_values(answer: api.Prediction) -> None:
    assert isinstance(answer, plain.Prediction)
    assert isinstance(answer.memory, plain.MemoryResult)
    assert simcore.Prediction is api.Prediction
    assert pickle.loads(pickle.dumps(answer)) == answer
    again = pickle.loads(pickle.dumps(answer)).replace(micro_batch=1)
    assert again == answer.replace(micro_batch=1)


def test_text_is_that_of_the_command_line(answer: api.Prediction) -> None:
    assert str(answer) == render(answer)
    step = f"{answer.step_time_s.value:.3g}"
    assert repr(answer) == f"<latte-xl on 4x8xA6000ada: fits, {step} s a step>"
    for shown in (
        answer.memory, api.timeline(*ASK), answer.memory.over_step(), api.scaling(*ASK),
        api.sweep("gpt2", ["8xA100"]), api.compare("gpt2", ("8xA100", "8xH100")),
        answer.compare(answer.replace(gpus="8xH100")), api.goodput("gpt2", "8xA100"),
        api.plan("gpt2", "A100:1..2x8", samples=1e6), api.plan("gpt2", "A100:1x8", samples=1e6,
                                                               deadline="1min"),
    ):  # fmt: skip
        lines = str(shown).splitlines()
        assert lines and max(map(len, lines)) <= 80


def test_a_terminal_notebook_prints_the_text(answer: api.Prediction) -> None:
    class Printer:
        told = ""

        def text(self, words: str) -> None:
            self.told += words

    printer = Printer()
    answer._repr_pretty_(printer, False)
    assert printer.told == str(answer).rstrip()


def test_a_report_is_written_from_the_answer(answer: api.Prediction) -> None:
    page = answer.to_html()
    assert page == api.report(*ASK)


def test_a_result_in_a_traceback_or_a_list_is_one_line(answer: api.Prediction) -> None:
    """Fields hold every event of a step, every point of a space: a repr of them fills a screen."""
    results = [
        answer,
        answer.memory,
        api.timeline("gpt2", "8xA100"),
        api.memory_timeline("gpt2", "8xA100"),
        api.scaling("gpt2", "8xA100"),
        api.sweep("gpt2", "8xA100", micro_batch="1..8"),
        api.compare("gpt2", ["8xA100", "8xH100"]),
        api.goodput("gpt2", "8xA100"),
        api.explain("gpt2", "8xA100", "mfu"),
    ]
    for result in results:
        shown = repr(result)
        assert "\n" not in shown and 10 < len(shown) < 120
        assert pickle.loads(pickle.dumps(result)).__class__ is result.__class__


def test_an_explanation_prints_as_the_command_line_shows_it() -> None:
    found = api.explain("gpt2", "8xA100", "mfu")
    with redirect_stdout(StringIO()) as out:
        assert run(["predict", "--model", "gpt2", "--gpus", "8xA100", "--explain", "mfu"]) == 0
    assert str(found) == out.getvalue()


def test_an_answer_explains_its_terms() -> None:
    answer = simcore.predict("gpt2", "8xH100", micro_batch=4, steps=10)
    said = answer.explain("mfu")
    assert said == simcore.explain("gpt2", "8xH100", "mfu", micro_batch=4)
    assert said.term == "mfu" and answer.time_s.keys() >= {"compute"}
    with pytest.raises(UsageError, match="unknown term 'mfuu': did you mean 'mfu'"):
        answer.explain("mfuu")


def test_python_says_which_name_of_the_package_is_near() -> None:
    with pytest.raises(AttributeError) as told:
        simcore.predct  # noqa: B018
    assert told.value.name == "predct" and "predict" in dir(told.value.obj)
