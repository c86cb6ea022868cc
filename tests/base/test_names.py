"""Families of names and their order."""

from __future__ import annotations

import pytest

from simcore.base.names import by_size, family, has

_KNOWN = [
    "llama-7b", "llama-13b", "llama2-7b", "llama2-70b", "llama3-70b", "llama3-8b", "llama3.1-405b",
    "kimi-k2", "bert-base", "bert-base-apex", "H100-SXM-80GB",
]  # fmt: skip


@pytest.mark.parametrize(
    ("name", "found"),
    [
        ("llama3", ["llama3-8b", "llama3-70b", "llama3.1-405b"]),
        ("Llama-3", ["llama3-8b", "llama3-70b", "llama3.1-405b"]),
        ("llama3.1", ["llama3.1-405b"]),
        ("llama3-7", []),  # half a number
        ("kimi", ["kimi-k2"]),
        ("kim", []),  # half a word
        ("bert-bas", []),
        ("bert_base", ["bert-base", "bert-base-apex"]),
        ("h100", ["H100-SXM-80GB"]),
        ("", []),
        ("--", []),
    ],
)
def test_a_family_shares_whole_words_and_numbers(name: str, found: list[str]) -> None:
    assert family(name, _KNOWN) == found


@pytest.mark.parametrize(
    "ordered",
    [
        ["opt-125m", "opt-350m", "opt-1.3b", "opt-13b", "opt-175b"],
        ["gpt-145.6b", "gpt-310.1b", "gpt-1t"],
        ["llama-7b", "llama2-7b", "llama2-13b", "llama3-8b", "llama3.1-405b", "llama3.2-1b"],
        ["resnet-18", "resnet-50", "resnet-50-cifar", "resnet-101"],
        ["bloom-560m", "bloom-1b1", "bloom-1b7", "bloom-3b", "bloom-7b1", "bloom-176b"],
        ["mixtral-8x7b", "mixtral-8x22b"],
        ["vgg-9", "vgg-11", "vgg-19", "vgg-19-bn"],
    ],
)
def test_names_stand_by_size_then_by_version(ordered: list[str]) -> None:
    assert sorted(set(ordered), key=by_size) == ordered


@pytest.mark.parametrize(
    ("name", "part", "found"),
    [
        ("meta-llama/Llama-3.1-8B", "llama3", True), ("llama-30b", "llama3", False),
        ("Code Llama 34B", "llama 34b", True), ("Code Llama 34B", "34b llama", False),
        ("tinyllama-1.1b", "llama", False), ("anything", "", False), ("anything", "--", False),
    ],
)  # fmt: skip
def test_a_part_is_of_whole_words(name: str, part: str, found: bool) -> None:
    assert has(name, part) == found
