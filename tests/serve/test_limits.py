"""What a hostile or hasty client gets: 4xx and one sentence, and the server lives on."""

from __future__ import annotations

import json
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from costs import cost_ratio
from serving import client_of
from starlette.testclient import TestClient

from simcore.api import predict
from simcore.base.units import KIB, MIB
from simcore.serve.guard import RATE
from simcore.serve.uploads import KEPT, MAX_CONFIG_BYTES

ROOT = Path(__file__).resolve().parents[2]
SEED = {"model": "latte-xl", "gpus": "4x8xA6000ada"}
LLAMA = {
    "model_type": "llama", "hidden_size": 2048, "intermediate_size": 8192,
    "num_hidden_layers": 16, "num_attention_heads": 32, "num_key_value_heads": 8,
    "vocab_size": 128256, "max_position_embeddings": 8192, "tie_word_embeddings": True,
    "_name_or_path": "some/one's \"model\"; $(rm -rf x)",
}  # fmt: skip
CALIBRATION = (ROOT / "hardware_db/calibrations/latte-ddp.yaml").read_text(encoding="utf-8")


def upload(client: TestClient, kind: str, body: bytes | str) -> tuple[int, dict[str, object]]:
    found = client.post("/api/v1/uploads", params={"kind": kind}, content=body)
    return found.status_code, found.json()


def said(answer: tuple[int, dict[str, object]]) -> str:
    status, body = answer
    assert status == 422, answer
    (problem,) = body["problems"]  # type: ignore[misc, attr-defined]
    message = problem["message"]  # type: ignore[index]
    assert isinstance(message, str) and "\n" not in message
    return message


# -- uploads --------------------------------------------------------------------------------------


def test_a_config_becomes_a_model(client: TestClient) -> None:
    status, body = upload(client, "model", json.dumps(LLAMA))
    assert status == 200, body
    found = client.get("/api/v1/answer", params={"model": body["name"], "gpus": "1x8xH100"})
    assert found.status_code == 200
    assert "1.24 B parameters" in found.json()["what"]  # Llama 3.2 1B has 1,235,814,400
    kept = client.get("/api/v1/predict", params={"model": body["name"], "gpus": "1x8xH100"})
    name = kept.headers["content-disposition"]
    assert not set("'$;() /") & set(name.partition("filename=")[2].strip('"'))


def test_a_calibration_is_used(client: TestClient) -> None:
    status, body = upload(client, "calibration", CALIBRATION)
    assert status == 200, body
    asked = [client.get("/api/v1/predict", params=SEED | {"calibration": c}).json()["step_time_s"]
             for c in (body["name"], "latte-ddp")]  # fmt: skip
    blind = client.get("/api/v1/predict", params=SEED).json()["step_time_s"]
    assert asked[0] == asked[1] != blind


def test_an_upload_is_one_kind_only(client: TestClient) -> None:
    _, body = upload(client, "calibration", CALIBRATION)
    found = client.get("/api/v1/answer", params={"model": body["name"], "gpus": "H100"})
    assert found.status_code == 422
    assert found.json()["problems"][0]["field"] == "model"


def test_the_oldest_upload_is_forgotten_with_a_clear_word() -> None:
    with client_of() as client:
        names = []
        for i in range(KEPT + 1):
            _, body = upload(client, "model", json.dumps(LLAMA | {"vocab_size": 1000 + i}))
            names.append(body["name"])
        first, last = (
            client.get("/api/v1/answer", params={"model": n, "gpus": "H100"}) for n in
            (names[0], names[-1])
        )  # fmt: skip
        assert last.status_code == 200
        assert first.status_code == 422
        assert "upload config.json again" in first.json()["problems"][0]["message"]


LAUGHS = "a: &a [x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
)


@pytest.mark.parametrize(
    ("body", "says"),
    [
        (LAUGHS, "anchors"),
        ("a: &a\n  b: *a\n", "anchors"),
        ("[" * 5000, "nested too deeply"),
        ("{a: " * 5000, "nested too deeply"),
        ("- " * 3000, "nested too deeply"),
        ("? " * 3000, "nested too deeply"),
        ("!!python/object/apply:os.system ['true']", "tags"),
        ("name: !!binary aGk=", "tags"),
        ("- 1\n" * 9000, "more than 5,000 values"),
        ("x" * (65 * KIB), "larger than 64 KiB"),
        ("name: x\nname: y\n", "duplicate"),
        ("name: x\n", "missing"),
        ("", "mapping"),
        ("just text", "mapping"),
        ("a: 2026-99-99", "not valid YAML"),
        ("? {a: b}\n: c", ""),
        ("a: \x07", "not valid YAML"),
        (b"\xff\xfe\x00", "UTF-8"),
        (CALIBRATION.replace("value: ", "value: 1e400 #"), ""),
        (CALIBRATION.replace("value: ", "value: -"), "greater than or equal"),
        (CALIBRATION + "\nextra: 1\n", "unknown key 'extra'"),
    ],
)
def test_a_hostile_calibration_is_refused(client: TestClient, body: bytes | str, says: str) -> None:
    assert says in said(upload(client, "calibration", body))


@pytest.mark.parametrize(
    ("body", "says"),
    [
        ("[" * 100_000, "nested too deeply"),
        ('{"a":' * 40_000, "nested too deeply"),
        ("[1]", "must be an object"),
        ("{", "not valid JSON"),
        ('{"model_type": "llama", "hidden_size": NaN}', "must be a whole number"),
        ('{"model_type": "llama", "hidden_size": ' + "9" * 5000 + "}", "not valid JSON"),
        ('{"model_type": "lama"}', "nearest supported: 'llama', a different network"),
        ('{"model_type": ["llama"]}', "must be a word"),
        ("{}", "is this a Hugging Face config?"),
        (json.dumps(LLAMA | {"hidden_size": 10**9}), "hidden_size"),
        (json.dumps(LLAMA | {"num_hidden_layers": -1}), "num_hidden_layers"),
        (json.dumps(LLAMA | {"num_key_value_heads": 7}), ""),
        (" " * (MAX_CONFIG_BYTES + 1), None),
    ],
)
def test_a_hostile_config_is_refused(client: TestClient, body: str, says: str | None) -> None:
    answer = upload(client, "model", body)
    if says is None:
        assert answer[0] == 413
    else:
        assert says in said(answer)


HUGE = {"hidden_size": 65_536, "num_attention_heads": 512, "num_key_value_heads": 512,
        "intermediate_size": 10**6}  # fmt: skip


def test_a_model_that_would_keep_everybody_waiting_is_refused(client: TestClient) -> None:
    body = json.dumps(LLAMA | {"num_hidden_layers": 10_000})
    assert "at most 256" in said(upload(client, "model", body))


@pytest.mark.parametrize(
    "words", [{"gpus": "8xH100"}, {"gpus": "100x8xH100", "pp": "100", "tp": "8"}]
)
def test_the_largest_model_that_is_taken_is_answered(
    words: dict[str, str], client: TestClient
) -> None:
    status, body = upload(client, "model", json.dumps(LLAMA | HUGE | {"num_hidden_layers": 250}))
    assert status == 200, body
    found = client.get("/api/v1/answer", params={"model": body["name"], **words})
    assert found.status_code in (200, 422), found.text


def test_equal_layers_cost_an_answer_nothing_but_their_allocations(
    client: TestClient, tmp_path: Path
) -> None:
    """240 equal layers are one block with a count: they cost what 6 do. Both fit: no advice.

    Only the allocator's replay, which `predict --json` shows, goes through the tensors of each.
    """
    thin = LLAMA | {"hidden_size": 256, "intermediate_size": 1024, "num_attention_heads": 8}
    small, large = (
        {"model": upload(client, "model", json.dumps(thin | {"num_hidden_layers": n}))[1]["name"],
         "gpus": "8xH100", "micro_batch": "1"}
        for n in (6, 240)
    )  # fmt: skip
    ratio = cost_ratio(
        lambda: client.get("/api/v1/predict", params=small),
        lambda: client.get("/api/v1/predict", params=large),
    )
    assert ratio < 240 / 6

    configs = []
    for n in (6, 240):
        configs.append(tmp_path / f"{n}.json")
        configs[-1].write_text(json.dumps(thin | {"num_hidden_layers": n}), encoding="utf-8")
    few, many = (partial(predict, str(c), "8xH100", micro_batch=1) for c in configs)
    assert cost_ratio(few, many) < 5.0


# -- sizes, rates, names --------------------------------------------------------------------------


def test_fifty_megabytes_are_dropped_and_told(client: TestClient) -> None:
    status, body = upload(client, "model", b"x" * (50 * MIB))
    assert status == 413
    assert "262,144 bytes" in str(body)


def test_a_body_of_unstated_size_is_counted(client: TestClient) -> None:
    def chunks() -> Iterator[bytes]:
        for _ in range(50):
            yield b"x" * (16 * KIB)

    found = client.post("/api/v1/uploads", params={"kind": "model"}, content=chunks())
    assert found.status_code == 413


def test_too_many_requests_are_told_when_to_come_back() -> None:
    with client_of(rate=5) as client:
        codes = [client.get("/api/v1/answer", params=SEED) for _ in range(12)]
    statuses = {c.status_code for c in codes}
    assert statuses == {200, 429}
    refused = next(c for c in codes if c.status_code == 429)
    assert refused.headers["retry-after"] == "1"
    assert "try again" in refused.json()["problems"][0]["message"]


def test_the_page_itself_is_not_counted() -> None:
    with client_of(rate=1) as client:
        assert {client.get("/").status_code for _ in range(20)} == {200}


def test_a_quick_hand_is_within_the_rate() -> None:
    """Ten moves a second, each an answer and a curve."""
    assert RATE > 10 * (1 + 4)


@pytest.mark.parametrize(
    "host", ["evil.example", "127.0.0.1.evil.example", "", "localhost.evil:80"]
)
def test_another_name_is_not_answered(client: TestClient, host: str) -> None:
    assert client.get("/api/v1/choices", headers={"Host": host}).status_code == 400


@pytest.mark.parametrize("host", ["localhost", "LOCALHOST:1", "127.0.0.1:8765", "[::1]:8765"])
def test_its_own_names_are(client: TestClient, host: str) -> None:
    assert client.get("/api/v1/choices", headers={"Host": host}).status_code == 200


def test_a_page_of_another_site_uploads_nothing(client: TestClient) -> None:
    body = json.dumps(LLAMA)
    for origin, status in (("https://evil.example", 403), ("null", 403), ("http://127.0.0.1", 200)):
        found = client.post(
            "/api/v1/uploads", params={"kind": "model"}, content=body, headers={"Origin": origin}
        )
        assert found.status_code == status, origin


def test_a_report_of_uploads_is_one_file(client: TestClient) -> None:
    _, model = upload(client, "model", json.dumps(LLAMA))
    _, calibration = upload(client, "calibration", CALIBRATION)
    words = {"model": model["name"], "calibration": calibration["name"], "gpus": "1x2xA6000ada"}
    found = client.get("/api/v1/report", params=words)
    assert found.status_code == 200, found.text
    assert "latte-ddp" in found.text
    assert "$(rm" not in found.headers["content-disposition"]
    assert "http" not in found.headers["content-disposition"]
    assert len(found.content) < MIB
