"""Sizes that papers give in GPT-2's layout, held against transformers and what they print."""

from __future__ import annotations

import pytest
import torch
import transformers

from simcore.workload.models import MODELS

#: Table 1 of Narayanan et al. 2021, and the row of January 2021: billions of parameters.
_PRINTED = {
    "gpt-1.7b": 1.7, "gpt-3.6b": 3.6, "gpt-7.5b": 7.5, "gpt-18.4b": 18.4, "gpt-39.1b": 39.1,
    "gpt-76.1b": 76.1, "gpt-145.6b": 145.6, "gpt-310.1b": 310.1, "gpt-529.6b": 529.6,
    "gpt-1008b": 1008.0, "gpt-290.8b": 290.8,
}  # fmt: skip
_MADE = [
    name
    for name in MODELS.names()
    if name.startswith(("gpt-", "gpt3-", "mpt-"))
    and not name.startswith(("gpt-oss", "gpt-neo", "gpt-j"))
]


@pytest.mark.parametrize("name", _MADE)
def test_parameters_are_those_of_gpt2_of_that_shape(name: str) -> None:
    given = MODELS[name].settings({})
    config = transformers.GPT2Config(
        n_layer=given["layers"], n_embd=given["hidden"], n_head=given["heads"],
        n_positions=given["max_positions"] or given["seq_len"], vocab_size=given["vocab"],
        tie_word_embeddings=given["tied"],
    )  # fmt: skip
    with torch.device("meta"):
        model = transformers.GPT2LMHeadModel(config)
    assert sum(p.numel() for p in model.parameters()) == MODELS[name].params.value


@pytest.mark.parametrize("name", _PRINTED)
def test_parameters_are_those_printed(name: str) -> None:
    assert round(MODELS[name].params.value / 1e9, 1) == _PRINTED[name]
