"""The API answers as the command line does, and refuses in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import jsonschema
import pytest
from evil import NAME, Evil
from starlette.testclient import TestClient
from typer.main import get_command

from simcore import api
from simcore.cli.main import app
from simcore.report.formatting import gigabytes
from simcore.report.schema import build
from simcore.report.text import render
from simcore.report.trace import to_trace
from simcore.serve.query import arguments, set_up
from simcore.serve.uploads import Uploads

SEED = {"model": "latte-xl", "gpus": "4x8xA6000ada"}
GPT2 = {"model": "gpt2", "gpus": "2x8xA100", "precision": "bf16"}


def get(client: TestClient, endpoint: str, **words: object) -> dict[str, object]:
    found = client.get(f"/api/v1/{endpoint}", params={k: str(v) for k, v in words.items()})
    assert found.status_code == 200, found.text
    data: dict[str, object] = found.json()
    return data


def problems(client: TestClient, endpoint: str = "answer", **words: object) -> list[dict[str, str]]:
    found = client.get(f"/api/v1/{endpoint}", params={k: str(v) for k, v in words.items()})
    assert found.status_code == 422, found.text
    listed: list[dict[str, str]] = found.json()["problems"]
    return listed


# -- the same words as the command line -----------------------------------------------------------


@pytest.mark.parametrize(
    "words",
    [
        {},
        {"strategy": "zero2", "micro_batch": "max"},
        {"micro_batch": "20"},
        {"steps": 1000, "grad_accum": 4, "optimizer": "sgd"},
    ],
)
def test_the_answer_is_the_command_line_s(client: TestClient, words: dict[str, object]) -> None:
    answer = get(client, "answer", **SEED, **words)
    p = api.predict(**SEED, **words)  # type: ignore[arg-type]
    text = render(p)
    assert answer["text"] == text
    assert answer["fits"] is p.fits
    flat = " ".join(text.split())
    said = [
        answer["batch"],
        answer["verdict"]["text"],
        answer["step"]["text"],  # type: ignore[index]
        answer["step"]["interval"],
    ]  # type: ignore[index]
    said += [f["text"] for f in answer["facts"]]  # type: ignore[attr-defined]
    said += [line["text"] for line in answer["time"]]  # type: ignore[attr-defined]
    assert not [s for s in said if s not in flat]


def test_shares_add_up_to_the_whole(client: TestClient) -> None:
    answer = get(client, "answer", **SEED)
    whole = [t for t in answer["time"] if not t["part"] and t["key"] != "communication_hidden"]  # type: ignore[attr-defined]
    assert sum(t["frac"] for t in whole) == pytest.approx(1.0, abs=0.01)
    assert sum(t["frac"] for t in answer["memory"]["terms"]) == pytest.approx(1.0, abs=0.01)  # type: ignore[index]


def test_the_command_says_the_set_up_for_a_shell(client: TestClient) -> None:
    answer = get(client, "answer", **SEED, network="25 Gbit/s")
    assert answer["command"] == (
        "simcore predict --model latte-xl --gpus 4x8xA6000ada --network '25 Gbit/s'"
    )


def test_json_is_the_published_contract(client: TestClient) -> None:
    found = client.get("/api/v1/predict", params=SEED)
    assert 'filename="simcore-latte-xl-4x8xA6000ada.json"' in found.headers["content-disposition"]
    jsonschema.validate(found.json(), build())
    assert found.json()["step_time_s"]["value"] == api.predict(**SEED).step_time_s.value  # type: ignore[arg-type]


def test_the_trace_is_the_command_line_s(client: TestClient) -> None:
    wanted = to_trace(api.predict(**SEED, keep_timeline=True))  # type: ignore[arg-type]
    assert get(client, "trace", **SEED) == json.loads(json.dumps(wanted))


def test_the_report_needs_nothing_from_elsewhere(client: TestClient) -> None:
    found = client.get("/api/v1/report", params=SEED)
    assert found.status_code == 200
    assert found.headers["content-type"].startswith("text/html")
    assert "Latte-XL/2" in found.text
    for word in ("<script src", "<link ", 'src="http', "@import", "url(http"):
        assert word not in found.text


@pytest.mark.parametrize("dialect", api.choices()["emit"])
def test_every_launch_file_is_the_command_line_s(client: TestClient, dialect: str) -> None:
    words = {"model": "llama3-8b", "gpus": "2x8xA100", "strategy": "zero1"}
    found = client.get("/api/v1/launch", params=words | {"dialect": dialect})
    try:
        wanted = api.launch_file(dialect, **words)  # type: ignore[arg-type]
    except Exception as err:
        assert found.status_code == 422
        assert found.json()["problems"][0]["message"] in str(err)
    else:
        assert found.text == wanted.text
        assert found.headers.get("simcore-not-in-file", "") == ", ".join(wanted.left)


def test_memory_is_one_figure_and_has_the_names_of_pytorch(client: TestClient) -> None:
    for words in (SEED, {"model": "llama3-70b", "gpus": "8xH100"}):
        answer = get(client, "answer", **words)
        memory = answer["memory"]
        assert answer["tiles"][2]["text"] == memory["text"]  # type: ignore[index]
        assert memory["text"].removesuffix(" GB") in answer["verdict"]["text"]  # type: ignore[index]
        found = client.get("/api/v1/memory", params=words).json()
        told = client.get("/api/v1/predict", params=words).json()["memory_bytes"]
        counted = [told["allocated"], told["reserved"], told["device"]]
        assert [f["text"] for f in found] == [f"{gigabytes(n)} GB" for n in counted]


def test_scaling_holds_the_set_up_and_one_node(client: TestClient) -> None:
    curve = get(client, "scaling", **SEED)
    points = {p["nodes"]: p for p in curve["points"]}  # type: ignore[attr-defined]
    assert [n for n, p in points.items() if p["asked"]] == [4]
    assert set(points) == {1, 2, 4, 8, 16}
    for nodes, point in points.items():
        p = api.predict("latte-xl", f"{nodes}x8xA6000ada")
        assert point["rate_per_s"] == p.work_per_s
        assert point["low"] <= point["rate_per_s"] <= point["high"]


def test_scaling_leaves_out_what_cannot_be_with_its_reason(client: TestClient) -> None:
    curve = get(client, "scaling", **SEED | {"gpus": "1x8xA6000ada"}, strategy="dp")
    assert [p["nodes"] for p in curve["points"]] == [1]  # type: ignore[attr-defined]
    assert "one process on one node" in curve["left_out"][0]  # type: ignore[index]


def test_scaling_multiplies_a_mixed_cluster(client: TestClient) -> None:
    curve = get(client, "scaling", model="bert-base", gpus="1x2xA100+1x3xT4", network="eth-25")
    assert [p["gpus"] for p in curve["points"]] == [5, 10, 20, 40]  # type: ignore[attr-defined]


# -- what is wrong, beside the control that it is about -------------------------------------------


@pytest.mark.parametrize(
    ("words", "field", "says"),
    [
        ({"model": "latte-xxl"}, "model", "did you mean 'latte-xl'"),
        ({"gpus": "4x8xA6000ad"}, "gpus", "did you mean 'A6000ada'"),
        ({"gpus": "4x"}, "gpus", "NODESxGPUSxTYPE"),
        ({"gpus": "0x8xA100"}, "gpus", "at least 1"),
        ({"gpus": "4x64xA6000ada"}, "gpus", "holds"),
        ({"network": "foo"}, "network", "unknown link"),
        ({"network": "25 Gbits"}, "network", ""),
        ({"network": "nvlink3"}, "network", "does not join nodes"),
        ({"node": "dgx"}, "node", "unknown node"),
        ({"strategy": "zero9"}, "strategy", "unknown strategy"),
        ({"strategy": "dp"}, "strategy", "one node"),
        ({"precision": "fp7"}, "precision", "unknown precision"),
        ({"optimizer": "shampoo"}, "optimizer", "unknown optimizer"),
        ({"recompute": "some"}, "recompute", "unknown recompute"),
        ({"offload": "weights"}, "offload", "unknown offload"),
        ({"offload": "optimizer:cpu", "strategy": "ddp"}, "offload", "needs zero"),
        ({"micro_batch": "many"}, "micro_batch", "neither a whole number nor 'max'"),
        ({"micro_batch": "0"}, "micro_batch", "must be 1 to"),
        ({"grad_accum": "1.5"}, "grad_accum", "not a whole number"),
        ({"global_batch": "63"}, "global_batch", "not a multiple"),
        ({"tp": "0"}, "tp", "must be at least 1"),
        ({"tp": "two"}, "tp", "not a whole number"),
        ({"tp": "7"}, "tp", "does not divide"),
        ({"pp": "500"}, "pp", ""),
        ({"steps": "-1"}, "steps", "must be above 0"),
        ({"steps": "1", "epochs": "1"}, "steps", "not both"),
        ({"seq_len": "77"}, "seq_len", "seq"),
        ({"main_grads": "fp8"}, "main_grads", "main"),
        ({"calibration": "mine"}, "calibration", "unknown calibration"),
        ({"startegy": "ddp"}, "", "did you mean 'strategy'"),
        ({"launch": "/etc/passwd"}, "", "unknown parameter 'launch'"),
        ({"inputs": "float32[1]"}, "", "unknown parameter 'inputs'"),
    ],
)
def test_a_wrong_word_is_told_at_its_control(
    client: TestClient, words: dict[str, str], field: str, says: str
) -> None:
    found = problems(client, **SEED | words)
    assert any(p["field"] == field and says in p["message"] for p in found), found
    assert all(p["message"] and "\n" not in p["message"] for p in found)


@pytest.mark.parametrize("value", ["foo", "7", "none,x"])
def test_every_control_hears_of_its_own_mistakes(client: TestClient, value: str) -> None:
    """Whatever else a sentence names: known are experts, pipeline, fp8 …"""
    job = {"model": "mixtral-8x7b", "gpus": "8x8xH100", "precision": "bf16"}
    refused = set()
    for name in set_up().model_fields:
        answer = client.get("/api/v1/answer", params={**job, name: value})
        if answer.status_code == 422:
            refused.add(name)
            for problem in answer.json()["problems"]:
                assert problem["field"] == name, (name, problem)
    assert len(refused) > 20 or value == "7"
    assert {"pp", "cp", "expert_tp", "overlap", "software", "fp8_params"} <= refused


def test_everything_that_is_wrong_is_told_at_once(client: TestClient) -> None:
    words = {"model": "lattexxl", "gpus": "4x8xA6000ad", "calibration": "mine"}
    assert {p["field"] for p in problems(client, **words)} == {"model", "gpus", "calibration"}


# -- names, never files ---------------------------------------------------------------------------

_PATHS = [
    "{file}", "{file}/", "../{name}", "./{name}", "file://{file}", "{file}\0.yaml", "os:getcwd",
    "simcore.api:predict", "models_db/latte-xl.yaml", "/etc/passwd", "..%2f..%2fetc%2fpasswd",
    "upload:../../etc/passwd", "timm:../{name}", "torchvision:{name}", "~/{name}",
    "\\\\host\\share\\x.yaml",
]  # fmt: skip


@pytest.mark.parametrize("text", _PATHS)
@pytest.mark.parametrize("word", ["model", "calibration", "gpus", "node", "network"])
def test_no_word_reads_a_file(
    client: TestClient, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, word: str, text: str
) -> None:
    """A valid file of each kind lies where the word points, and is not found."""
    monkeypatch.chdir(tmp_path)
    root = Path(__file__).resolve().parents[2]
    source = "hardware_db/calibrations/latte-ddp.yaml" if word == "calibration" else (
        "models_db/mnist-cnn.yaml"
    )  # fmt: skip
    (tmp_path / "mine.yaml").write_text((root / source).read_text(encoding="utf-8"))
    said = text.format(file=tmp_path / "mine.yaml", name="mine.yaml")[:100]
    opened: list[str] = []
    real = Path.read_text

    def watched(self: Path, *a: str, **k: str) -> str:
        opened.append(str(self))
        return real(self, *a, **k)

    monkeypatch.setattr(Path, "read_text", watched)
    found = problems(client, **SEED | {word: said})
    assert any(p["field"] in (word, "gpus", "") for p in found)
    assert not [name for name in opened if "mine.yaml" in name or "passwd" in name]


def test_static_files_end_at_their_folder(client: TestClient) -> None:
    for path in ("/static/../app.py", "/static/%2e%2e/app.py", "/static/..%2fapp.py",
                 "/static//etc/passwd", "/static/%00", "/../pyproject.toml"):  # fmt: skip
        assert client.get(path).status_code in (400, 404), path


def test_words_become_records_and_not_strings() -> None:
    found = arguments(set_up()(**SEED), Uploads())
    assert not isinstance(found["model"], str)


def test_a_set_up_says_what_the_command_line_does_but_for_files_and_code() -> None:
    words = {p.name for p in get_command(app).commands["predict"].params}  # type: ignore[attr-defined]
    files = {
        "launch",
        "inputs",
        "trace",
        "chakra",
        "plot",
        "memory_snapshot",
        "memory_plot",
        "save_dir",
        "watch",
        "allow_code",
        "strict",  # about a launch file's keys
    }
    torchrun = {"nnodes", "nproc_per_node"}  # `gpus` has the counts
    shown = {"as_json", "emit", "explain", "scaling", "plot_kind", "help", "inference",
             "measured_step"}  # fmt: skip
    other_names = {"zero", "qlora", "prices"}  # of a strategy, of a rank and a base, of many prices
    assert words - set(set_up().model_fields) <= files | torchrun | shown | other_names
    assert set(set_up().model_fields) <= words


# -- the page -------------------------------------------------------------------------------------


def test_the_api_describes_itself_without_another_site(client: TestClient) -> None:
    schema = client.get("/openapi.json").json()
    page = client.get("/docs").text
    for path in schema["paths"]:
        assert path in page
    assert "http://127.0.0.1" in page.replace("https://", "http://")  # the example of curl alone
    assert page.count("http") == page.count("http://127.0.0.1")
    parameters = {p["name"] for p in schema["paths"]["/api/v1/answer"]["get"]["parameters"]}
    assert parameters == set(set_up().model_fields)


def test_every_response_forbids_what_the_page_does_not_need(client: TestClient) -> None:
    for path in ("/", "/docs", "/static/app.js", "/api/v1/choices", "/nowhere", "/api/v1/answer"):
        headers = client.get(path).headers
        assert "default-src 'none'" in headers["content-security-policy"], path
        assert headers["x-content-type-options"] == "nosniff"


def test_choices_are_what_the_options_take(client: TestClient) -> None:
    found = get(client, "choices")
    assert "latte-xl" in found["model"] and "A6000ada" in found["gpu"]  # type: ignore[operator]
    for name in ("strategy", "precision", "optimizer", "recompute"):
        for value in found[name]:  # type: ignore[attr-defined]
            gpus = "1x1xH100" if value == "single" else "1x8xH100"
            words = {"model": "gpt2", "gpus": gpus, name: value}
            assert client.get("/api/v1/answer", params=words).status_code == 200, (name, value)


def test_an_unknown_path_is_told_in_the_same_shape(client: TestClient) -> None:
    found = client.get("/api/v2/answer")
    assert found.status_code == 404
    assert found.json()["problems"][0]["message"]
    assert json.loads(client.post("/api/v1/answer").text)["problems"]


def test_no_query_and_no_upload_runs_code(client: TestClient, evil: Evil) -> None:
    """``serve`` looks names up in databases and libraries' lists; it has no ``--allow-code``."""
    for endpoint in ("answer", "report", "scaling"):
        found = client.get(f"/api/v1/{endpoint}", params={"model": NAME, "gpus": "1x1xA100"})
        assert found.status_code in (404, 422), endpoint
    config = {"model_type": "evilmod", "auto_map": {"AutoModel": NAME}, "trust_remote_code": True}
    bad = (
        ("model", json.dumps(config).encode()),
        ("model", evil.pickled()),
        ("calibration", b'name: !!python/object/apply:os.system ["touch RAN"]\n'),
        ("calibration", evil.pickled()),
    )
    for kind, raw in bad:
        assert client.post("/api/v1/uploads", params={"kind": kind}, content=raw).status_code >= 400
    assert not evil.ran
