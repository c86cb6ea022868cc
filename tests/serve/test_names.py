"""Names are found by what people type, and are those that the command line takes."""

from __future__ import annotations

from typing import Any

import pytest
from starlette.testclient import TestClient

from simcore.serve.names import MOST


def found(client: TestClient, kind: str, text: str) -> list[str]:
    answer: Any = client.get("/api/v1/names", params={"kind": kind, "text": text})
    assert answer.status_code == 200
    return [f["name"] for f in answer.json()]


@pytest.mark.parametrize(
    ("kind", "text", "first"),
    [
        ("model", "llama3 70b", "llama3-70b"),
        ("model", "70b llama3", "llama3-70b"),
        ("model", "meta-llama/Llama-3.1-8B", "llama3-8b"),
        ("model", "unsloth/Llama-3.2-1B-Instruct-bnb-4bit", "llama3.2-1b"),
        ("model", "lama3-8b", "llama3-8b"),  # misspelt
        ("model", "gpt2", "gpt2"),
        ("gpu", "a100 40", "A100-PCIE-40GB"),
        ("gpu", "NVIDIA H100 PCIe", "H100-PCIE-80GB"),
        ("gpu", "h100", "H100-SXM-80GB"),
        ("gpu", "4090", "RTX4090"),
    ],
)
def test_the_nearest_name_is_first(client: TestClient, kind: str, text: str, first: str) -> None:
    names = found(client, kind, text)
    assert names[0] == first and len(names) == len(set(names)) <= MOST


def test_a_family_is_in_order_of_size(client: TestClient) -> None:
    assert found(client, "model", "qwen3 ")[:3] == ["qwen3-0.6b", "qwen3-1.7b", "qwen3-4b"]


@pytest.mark.parametrize(
    "text", ["/etc/passwd", "pkg.mod:net", "timm:resnet18", "\0", "%", "x" * 99]
)
def test_any_text_has_an_answer(client: TestClient, text: str) -> None:
    found(client, "model", text)


def test_another_kind_is_refused(client: TestClient) -> None:
    answer = client.get("/api/v1/names", params={"kind": "file", "text": "x"})
    assert answer.status_code == 422 and "kind" in answer.json()["problems"][0]["message"]
