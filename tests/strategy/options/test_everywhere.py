"""An option that a test registers is everywhere where options are, with no other change."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from starlette.testclient import TestClient

import simcore
from simcore import api
from simcore.base.errors import InvalidConfig, UsageError
from simcore.cli.main import headings, run
from simcore.serve.app import create_app
from simcore.serve.run import LOOPBACK
from simcore.strategy.options import OPTIONS, Axis, Control, Name, Option, Pairs, Whole

JOB = ("gpt2", "1x8xA100")
ASK = ("--model", JOB[0], "--gpus", JOB[1])
BREAKS = Option(
    name="coffee_breaks", heading="Parallelism", kind=Whole(least=0), unit="breaks",
    help="Breaks of the crew in a day.", axis=Axis(),
    control=Control(label="Coffee breaks", most=24, example=3),
    called={"": "pauses"}, in_launch=True,
    launch_keys={"deepspeed": "crew_breaks", "megatron": "crew-breaks"},
)  # fmt: skip
ROAST = Option(
    name="coffee_roast", heading="Expert", kind=Name(("light", "medium", "dark")),
    help="How dark the beans are.", axis=Axis(), unsaid="medium",
    control=Control(label="Roast"),
)  # fmt: skip
MILL = Option(
    name="mill", flag="--grind", heading="Model", kind=Pairs(keys=("size", "speed")),
    help="Settings of the mill.", control=Control(label="Mill"),
)  # fmt: skip


@pytest.fixture(autouse=True)
def _registered() -> Iterator[None]:
    with OPTIONS.registered(BREAKS, ROAST, MILL):
        yield
    assert "coffee_breaks" not in OPTIONS


@pytest.fixture
def typed(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def call(*words: str) -> tuple[int, str, str]:
        capfd.readouterr()
        code = run(words)
        return (code, *capfd.readouterr())

    return call


def _client() -> TestClient:
    return TestClient(create_app(hosts=LOOPBACK, rate=10**6), base_url="http://127.0.0.1")


def test_in_the_help_under_its_heading(typed: Callable) -> None:
    for command, metavar in (("predict", "N"), ("sweep", "GRID"), ("report", "N")):
        _, out, _ = typed(command, "--help-all")
        at = out.index(f"--coffee-breaks {metavar} ")
        names = [*headings(), "Expert"]
        above = max(names, key=lambda h: out.rfind(f"\n{h}:", 0, at))
        assert above == "Parallelism" and "Breaks of the crew in a day." in out[at:]
        assert out.index("\nExpert:") < out.index("--coffee-roast")


def test_in_the_signature_and_help_of_python() -> None:
    for function in (simcore.predict, simcore.scaling, api.launch_file):
        found = inspect.signature(function).parameters["coffee_breaks"]
        assert found.annotation == (int | None) and found.default is None
        assert found.kind is found.KEYWORD_ONLY
        assert "coffee_breaks" in (function.__doc__ or "")
    assert "[breaks]" in (simcore.predict.__doc__ or "")
    assert "coffee_breaks" in inspect.signature(simcore.sweep).parameters


def test_every_option_of_the_table_is_in_the_signature() -> None:
    found = inspect.signature(simcore.predict).parameters
    assert set(OPTIONS.options()) <= set(found)
    assert not any(p.kind is p.VAR_KEYWORD for p in found.values())


def test_it_is_taken_and_stands_in_the_json(typed: Callable) -> None:
    plain, with_breaks = api.predict(*JOB), api.predict(*JOB, coffee_breaks="3")  # type: ignore[call-arg]
    assert plain.step_time_s == with_breaks.step_time_s
    code, out, _ = typed("predict", *ASK, "--coffee-breaks", "3", "--grind", "size=2",
                         "--grind", "speed=0.5", "--json")  # fmt: skip
    options = json.loads(out)["options"]
    assert code in (0, 1)
    assert options["coffee_breaks"] == 3 and options["coffee_roast"] == "medium"
    assert options["mill"] == {"size": "2", "speed": "0.5"}
    assert with_breaks.options["coffee_breaks"] == 3 and plain.options["coffee_breaks"] is None
    assert with_breaks.replace(coffee_breaks=4).options["coffee_breaks"] == 4


def test_it_is_an_axis_of_sweeps(typed: Callable) -> None:
    words = {"coffee_breaks": "0..3", "coffee_roast": "all", "strategy": "ddp"}
    assert len(api.make_space(JOB[0], JOB[1], **words)) == 4 * 3
    found = api.compare(JOB[0], JOB[1], coffee_breaks=[1, 2])
    assert [c.words for c in found.columns] == ["coffee-breaks 1", "coffee-breaks 2"]
    code, out, err = typed("sweep", *ASK, "--coffee-breaks", "0,2", "--coffee-roast", "dark")
    assert code == 0 and "2 " in out, err


def test_pairs_hold_for_all_points_of_a_grid() -> None:
    found = api.plan(JOB[0], "A100", tokens=1e9, max_gpus=8, mill={"size": 2}, top=1)
    assert dict(found.best[0].form.options)["mill"] == {"size": 2}
    (best, *_) = api.sweep(JOB[0], "A100:1x8", mill="size=2 speed=3", strategy="ddp").best
    assert dict(best.form.options)["mill"] == {"size": "2", "speed": "3"}


def test_on_the_page() -> None:
    with _client() as client:
        form = client.get("/api/v1/controls").json()
        more = next(g for g in form if g["title"] == "More")["controls"]
        (control,) = [c for c in more if c["name"] == "coffee_breaks"]
        assert (control["label"], control["kind"], control["least"]) == (
            "Coffee breaks",
            "number",
            0,
        )
        assert client.get("/api/v1/choices").json()["coffee_roast"] == ["light", "medium", "dark"]
        asked = {"model": JOB[0], "gpus": JOB[1], "coffee_breaks": "3", "mill": "size=2"}
        answer = client.get("/api/v1/answer", params=asked).json()
        assert "--coffee-breaks 3" in answer["command"] and "--grind size=2" in answer["command"]
        assert client.get("/api/v1/predict", params=asked).json()["options"]["mill"] == {
            "size": "2"
        }


WRONG = [
    ("coffee_breaks", "-1", "--coffee-breaks must be at least 0, not -1"),
    ("coffee_breaks", "many", "--coffee-breaks 'many' is not a whole number"),
    ("coffee_roast", "drak", "unknown coffee-roast 'drak': did you mean 'dark'?"),
    ("mill", "sise=3", "--grind: unknown key 'sise': did you mean 'size'?"),
]


@pytest.mark.parametrize(("name", "value", "says"), WRONG)
def test_a_wrong_value_is_refused_alike_everywhere(
    name: str, value: str, says: str, typed: Callable
) -> None:
    wrong: dict[str, Any] = {name: value}
    with pytest.raises(UsageError) as refused:
        api.predict(*JOB, **wrong)
    assert says in str(refused.value)
    code, _, err = typed("predict", *ASK, OPTIONS[name].typed, value)
    assert code == 2 and f"error: {says}" in err and err.count("\n") == 1
    with _client() as client:
        found = client.get("/api/v1/answer", params={"model": JOB[0], "gpus": JOB[1], **wrong})
        (problem,) = found.json()["problems"]
        assert found.status_code == 422
        assert problem["field"] == name and says in problem["message"]


def test_an_axis_refuses_what_the_option_refuses() -> None:
    with pytest.raises(InvalidConfig, match="coffee-breaks 'many' is not a number, a list"):
        api.make_space(*JOB, coffee_breaks="many")
    with pytest.raises(InvalidConfig, match="unknown coffee-roast 'drak': did you mean 'dark'"):
        api.make_space(*JOB, coffee_roast="drak")


def test_other_programs_words_lead_to_it(typed: Callable) -> None:
    with pytest.raises(InvalidConfig, match="did you mean coffee_breaks"):
        api.predict(*JOB, pauses=3)  # type: ignore[call-arg]
    code, _, err = typed("predict", *ASK, "--pauses", "3")
    assert code == 2 and "did you mean --coffee-breaks?" in err


def test_a_launch_file_states_it_by_the_key_of_the_table(tmp_path: Any) -> None:
    file = tmp_path / "ds.json"
    file.write_text('{"train_micro_batch_size_per_gpu": 2, "crew_breaks": 5}')
    found = api.predict(*JOB, launch=str(file))
    assert found.options["coffee_breaks"] == 5
    assert any("coffee-breaks 5" in text for text in found.assumptions)
