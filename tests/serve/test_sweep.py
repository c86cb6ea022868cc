"""The map of the page is the sweep of the library, and each of its cells a prediction."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from simcore import api
from simcore.serve.sweep import MOST_CELLS

JOB = {"model": "llama3-8b", "gpus": "8xH100", "strategy": "zero1"}
PAIR = {"x": "tp", "x_values": "1,2,4,8", "y": "pp", "y_values": "1..8*2"}


def get(client: TestClient, **words: object) -> Any:
    return client.get("/api/v1/sweep", params={k: str(v) for k, v in words.items()})


def test_the_map_is_the_sweep_of_python(client: TestClient) -> None:
    found = get(client, **JOB, **PAIR).json()
    swept = api.sweep(**JOB, tp="1,2,4,8", pp="1,2,4,8", top=1)  # type: ignore[arg-type]
    columns = swept.columns()
    cells = {(found["x"][c["x"]], found["y"][c["y"]]): c for c in found["cells"]}
    assert len(cells) == swept.n_evaluated == 10
    for tp, pp, rate, memory, fits in zip(
        *(columns[k] for k in ("tp", "pp", "tokens_per_s", "memory_bytes", "fits")), strict=True
    ):
        cell = cells[str(tp), str(pp)]
        assert (cell["rate_per_s"], cell["memory_bytes"], cell["fits"]) == (rate, memory, fits)
    (best,) = [c for c in found["cells"] if c["best"]]
    assert best["rate_per_s"] == swept.best[0].work_per_s
    assert found["left_out"] == ["6 of the pairs: tp x pp = N does not divide N GPUs"]


@pytest.mark.parametrize(
    ("job", "pair"),
    [
        (JOB | {"grad_accum": 8}, PAIR),
        ({"model": "latte-xl", "gpus": "4x8xA6000ada"},
         {"x": "micro_batch", "x_values": "1..4*2", "y": "strategy", "y_values": "ddp,zero3"}),
        ({"model": "latte-xl", "gpus": "4x8xA6000ada", "grad_accum": 2},
         {"x": "nodes", "x_values": "1,2", "y": "global_batch", "y_values": "64,128"}),
        ({"model": "gpt2", "gpus": "8xH100", "precision": "bf16"},
         {"x": "seq_len", "x_values": "512,1024", "y": "lora_rank", "y_values": "8,16"}),
    ],
)  # fmt: skip
def test_a_cell_opens_as_the_set_up_with_its_answer(
    client: TestClient, job: dict[str, Any], pair: dict[str, str]
) -> None:
    cells = get(client, **job, **pair).json()["cells"]
    assert len(cells) >= 4
    for cell in cells:
        answer = client.get("/api/v1/answer", params=cell["set_up"]).json()
        tiles = {t["label"]: t["value"] for t in answer["tiles"]}
        assert answer["step"]["text"] == cell["step"] and answer["fits"] is cell["fits"]
        assert tiles["throughput"] == pytest.approx(cell["rate_per_s"], rel=1e-12)
        assert tiles["memory a GPU"] == cell["memory_bytes"]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ({"y": "tp"}, "two different axes"),
        ({"x_values": "1..17"}, "an axis may have 16 values, not 17"),
        ({"x_values": "1..11", "y_values": "1..11"}, f"{MOST_CELLS} cells, not 121"),
        ({"x_values": "1..99999999999"}, "more than"),
        ({"x_values": "some"}, "some"),
        ({"x": "model"}, "x"),
        ({"x": "nodes", "x_values": "4096"}, "at most 1,024 nodes"),
        ({"x": "nodes", "gpus": "1x2xA100+1x3xT4"}, "GPUs of one type"),
        ({"model": "pkg.mod:net"}, "pkg.mod:net"),
        ({"model": "upload:0123456789abcdef"}, "by name"),
        ({"tpp": "2"}, "tpp"),
    ],
)
def test_a_wrong_map_is_refused_in_a_sentence(
    client: TestClient, words: dict[str, object], said: str
) -> None:
    found = get(client, **{**JOB, **PAIR, **words})
    assert found.status_code == 422
    listed = found.json()["problems"]
    assert any(said in f"{p['field']} {p['message']}" for p in listed), listed
