"""Former names of models: each is a model and words, works everywhere and is listed nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore import api
from simcore.base.errors import DataError
from simcore.strategy.options import Options
from simcore.workload import model_aliases
from simcore.workload.model_aliases import alias_named
from simcore.workload.model_aliases import model_aliases as aliases
from simcore.workload.models import MODELS
from simcore.workload.resolve import resolve_model

NAMES = sorted(aliases())


@pytest.mark.parametrize("name", NAMES)
def test_its_words_make_the_parameters_that_it_states(name: str) -> None:
    assert resolve_model(name).build().trainable_numel == aliases()[name].params


@pytest.mark.parametrize("name", NAMES)
def test_it_is_no_entry_and_not_listed(name: str) -> None:
    assert MODELS.path(name) is None
    assert name not in MODELS.names() and name not in MODELS.aliases()


@pytest.mark.parametrize("name", NAMES)
def test_its_words_say_the_same_as_the_name(name: str) -> None:
    """The name alone, and the plain model with the words typed out, are one prediction."""
    alias = aliases()[name]
    words: Options = {**alias.words, **({"settings": alias.settings} if alias.settings else {})}  # type: ignore[typeddict-item]
    named = api.predict(name, "2xA100-SXM4-80GB")
    typed = api.predict(alias.model, "2xA100-SXM4-80GB", **words)
    assert named.step_time_s == typed.step_time_s
    assert named.memory.device_bytes == typed.memory.device_bytes


def test_what_a_job_says_wins_over_the_words() -> None:
    own = api.predict("bert-large-apex", "A100-SXM4-80GB", seq_len=128, precision="bf16")
    plain = api.predict(
        "bert-large", "A100-SXM4-80GB", seq_len=128, precision="bf16", micro_batch=8,
        optimizer_impl="fused", grad_clip=True, settings={"gelu": "scripted"},
    )  # fmt: skip
    assert own.step_time_s == plain.step_time_s


def test_names_fold_as_those_of_entries() -> None:
    assert alias_named("BERT_large_Apex") == aliases()["bert-large-apex"]
    assert alias_named("bert-large") is None


def test_a_file_that_is_no_list_of_aliases_is_refused(tmp_path: Path) -> None:
    bad = tmp_path / "bad.yaml"
    for text in ("- bert\n", "bert-x: {model: bert-large}\n", "bert-x: {modle: bert-large}\n"):
        bad.write_text(text, encoding="utf-8")
        with pytest.raises(DataError, match=r"bad\.yaml"):
            model_aliases._read(bad)
