"""Modules, tensors, configs and clusters as arguments; what an answer writes; what there is."""

from __future__ import annotations

import inspect
import json
from pathlib import Path

import pytest

import simcore
from simcore import api
from simcore.base.errors import SimcoreError, UsageError
from simcore.hardware.cluster import parse_cluster
from simcore.report.jsonout import dumps, to_dict
from simcore.strategy.options import OPTIONS

torch = pytest.importorskip("torch")


def network() -> torch.nn.Module:  # type: ignore[name-defined]
    return torch.nn.Sequential(
        torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 10)
    )


def test_a_module_with_tensors_is_predicted_and_left_alone() -> None:
    net = network()
    before = {k: (v.data_ptr(), v.clone()) for k, v in net.state_dict().items()}
    found = simcore.predict(net, "1x2xH100", inputs=[torch.zeros(4, 3, 8, 8)], micro_batch=8)
    assert found.n_params == sum(p.numel() for p in net.parameters())
    shapes = simcore.predict(net, "1x2xH100", inputs="float32[B,3,8,8]", micro_batch=8)
    assert found.step_time_s == shapes.step_time_s and found.memory.terms == shapes.memory.terms
    assert found.replace(micro_batch=16).global_batch == 2 * found.global_batch
    after = net.state_dict()
    assert all(p == after[k].data_ptr() and v.equal(after[k]) for k, (p, v) in before.items())


def test_a_module_without_inputs_says_what_it_needs() -> None:
    with pytest.raises(UsageError, match=r"Sequential needs its inputs.*inputs=\[tensor\]"):
        simcore.predict(network(), "H100")


def test_a_config_is_its_file(tmp_path: Path) -> None:
    config = {"model_type": "llama", "hidden_size": 256, "num_hidden_layers": 2, "vocab_size": 1000,
              "num_attention_heads": 4, "intermediate_size": 512}  # fmt: skip
    file = tmp_path / "config.json"
    file.write_text(json.dumps(config))

    class Config:
        """As transformers have it."""

        model_type = "llama"

        def to_dict(self) -> dict[str, object]:
            return config

    by_file = simcore.predict(file, "8xA100")
    for given in (config, Config()):
        found = simcore.predict(given, "8xA100")
        assert (found.step_time_s, found.memory.terms) == (
            by_file.step_time_s, by_file.memory.terms
        )  # fmt: skip


def test_a_cluster_object_is_its_text() -> None:
    found = simcore.predict("gpt2", parse_cluster("1x8xA100"))
    assert to_dict(found) == to_dict(simcore.predict("gpt2", "1x8xA100"))


def test_an_answer_writes_itself(tmp_path: Path) -> None:
    found = simcore.predict("llama3-8b", "2x8xA100", strategy="zero1")
    wanted = api.launch_file("deepspeed", "llama3-8b", "2x8xA100", strategy="zero1")
    assert found.emit("deepspeed").text == wanted.text
    for name, text in (("a.json", dumps(found.to_dict())), ("a.txt", str(found))):
        found.save(tmp_path / name)
        assert (tmp_path / name).read_text("utf-8") == text
    found.save(tmp_path / "a.html")
    assert "<html" in (tmp_path / "a.html").read_text("utf-8")
    found.trace(tmp_path / "step.json")
    assert json.loads((tmp_path / "step.json").read_text("utf-8"))["traceEvents"]
    with pytest.raises(UsageError, match=r"must end in \.json, \.html, \.txt"):
        found.save(tmp_path / "a.docx")


def test_what_there_is_is_a_table() -> None:
    h100 = simcore.gpus("H100")
    assert "H100-SXM-80GB" in h100.names() and len(h100) == len(h100.to_pandas())
    assert h100.to_pandas()["memory_bytes"].min() > 70e9
    assert {"llama3-8b", "gpt2"} <= set(simcore.models().names())
    assert "H100-SXM-80GB" in str(h100) and len(simcore.programs()) > 20
    with pytest.raises(simcore.UnknownName, match="unknown gpu"):
        simcore.gpus("H10O")


def test_help_names_every_option_with_its_unit_and_default() -> None:
    told = inspect.getdoc(simcore.predict) or ""
    signature = inspect.signature(simcore.predict)
    for name, option in OPTIONS.options().items():
        assert name in signature.parameters, name
        if name in ("model", "gpus"):
            continue
        about = told.split(f"\n{name} ", 1)[1].split("\n", 1)[0] if f"\n{name} " in told else ""
        assert about, name
        if option.unit:
            rest = " ".join(told.split(f"\n{name} ", 1)[1].split("\n\n")[0].split())
            assert f"[{option.unit}]" in rest, name


def test_errors_are_one_tree() -> None:
    names = ("UsageError", "UnknownName", "BadQuantity", "InvalidConfig", "DataError")
    assert all(issubclass(getattr(simcore, name), SimcoreError) for name in names)
