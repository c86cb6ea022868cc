"""Names of tuned models are those of their base: the same shapes."""

from __future__ import annotations

import pytest

from simcore.base.errors import UnknownName
from simcore.workload.resolve import resolve_model


@pytest.mark.parametrize(
    ("name", "record"),
    [
        ("meta-llama/Llama-3.1-8B-Instruct", "llama3-8b"),
        ("Qwen/Qwen3-8B-Base", "qwen3-8b"),
        ("google/gemma-3-27b-it", "gemma-3-27b"),
        ("meta-llama/Llama-2-7b-chat-hf", "llama2-7b"),
        ("mistralai/Mistral-7B-Instruct-v0.1", "mistral-7b"),
        ("bert-base", "bert-base"),
        ("meta-llama/Llama-3.3-70B-Instruct", "llama3-70b"),
    ],
)
def test_tuned_models_have_the_shapes_of_their_base(name: str, record: str) -> None:
    assert resolve_model(name).name == record


def test_what_has_no_base_is_unknown_as_it_was_typed() -> None:
    with pytest.raises(UnknownName, match="'nobody-7b-instruct'"):
        resolve_model("nobody-7b-instruct")
