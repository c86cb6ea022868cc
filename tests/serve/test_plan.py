"""The page plans a run as the command line does, with bounds of its own."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from simcore import api
from simcore.report.text_of import text_of
from simcore.serve.plan import FEW_GPUS, LISTED

RUN = {"model": "gpt2", "gpus": "H100,A100", "tokens": 1e12, "max_gpus": 16, "deadline": "300d"}


def get(client: TestClient, **words: object) -> Any:
    return client.get("/api/v1/plan", params={k: str(v) for k, v in words.items()})


def test_the_plan_is_that_of_python(client: TestClient) -> None:
    found = get(client, **RUN).json()
    rest = {k: v for k, v in RUN.items() if k not in ("model", "gpus")}
    plan = api.plan("gpt2", "H100,A100", top=LISTED, **rest)  # type: ignore[arg-type]
    assert found["feasible"] and found["text"] == text_of(plan)
    assert [w["cluster"] for w in found["best"]] == [o.cluster for o in plan.best]
    assert [w["cost_usd"] for w in found["front"]] == [o.cost_usd for o in plan.front]
    assert all(w["odds"] for w in found["best"])


def test_an_option_is_a_set_up_with_the_same_step(client: TestClient) -> None:
    way = get(client, **RUN).json()["best"][0]
    answer = client.get("/api/v1/answer", params=way["set_up"])
    assert answer.status_code == 200
    assert answer.json()["step"]["text"] == way["step"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"gpus": "H100,A100,L4,T4"}, "4 types"),
        ({"gpus": "H1000"}, "did you mean"),
        ({"model": "pkg.mod:net"}, "pkg.mod:net"),
        ({"model": "/etc/passwd"}, "passwd"),
        ({"tokens": 5e-324}, "give a longer one"),
        ({"deadline": "soon"}, "neither a duration nor a date"),
        ({"max_gpus": 10**6}, "4,096"),
        ({"objective": "beauty"}, "objective"),
    ],
)
def test_a_wrong_plan_is_refused_in_a_sentence(
    client: TestClient, words: dict[str, object], said: str
) -> None:
    found = get(client, **{**RUN, **words})
    assert found.status_code == 422
    listed = found.json()["problems"]
    assert any(said in f"{p['field']} {p['message']}" for p in listed), listed


def test_limits_without_a_number_of_gpus_are_of_few(client: TestClient) -> None:
    found = get(client, model="mnist-cnn", gpus="T4", epochs=1).json()
    assert f"at most {FEW_GPUS} GPUs" in " ".join(found["text"].split())
