"""Records of libraries and programs: what they say is of words that simcore knows."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module

import pytest

from simcore.hardware.host import ISSUERS
from simcore.strategy.overlap import parse_overlap
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.software import FILES, PLAIN, RUNS, SOFTWARE, Program
from simcore.strategy.software.megatron import MEGATRON_2021, RECIPES
from simcore.workload.models import MODELS, ModelRecord


def programs() -> Iterator[tuple[str, Program]]:
    for name in FILES:
        held = vars(import_module(f"simcore.strategy.software.{name}"))
        yield from ((f"{name}.{k}", v) for k, v in held.items() if isinstance(v, Program))


@pytest.mark.parametrize(("name", "program"), list(programs()))
def test_a_program_speaks_in_known_words(name: str, program: Program) -> None:
    record = MODELS["llama3-8b"]
    assert isinstance(record, ModelRecord)
    known = record.model_copy(update={"config": {**record.config, "experts": 8}}).settings({})
    assert set(program.settings) <= {*known, "residual"}
    for words in (program.overlap, program.switched):
        assert set(str(parse_overlap(",".join(words) or "none")).split(",")) - {"none"} == words
    assert program.issuer in ISSUERS
    assert program.fp8 in PRECISIONS
    assert program.software is SOFTWARE[program.software.name]


def test_a_later_release_changes_what_it_says_and_nothing_else() -> None:
    later = MEGATRON_2021.with_settings(attention="flash")
    assert later.settings["attention"] == "flash"
    assert MEGATRON_2021.settings["attention"] == "fused_softmax"
    assert {k: v for k, v in later.settings.items() if k != "attention"} == {
        k: v for k, v in MEGATRON_2021.settings.items() if k != "attention"
    }
    with pytest.raises(TypeError):
        later.settings["attention"] = "math"  # type: ignore[index]


def test_words_of_a_recipe_have_its_switches() -> None:
    """What tensor ranks exchange in pieces covers the sums beside weights' gradients."""
    assert RECIPES.overlap >= {"dgrad"}
    assert RECIPES.words()["overlap"] == "grads,params,pipeline,tensor"
    assert Program().words() == {"issuer": "torch", "overlap": "grads", "main_grads": "weights"}


def test_only_libraries_with_a_loop_of_their_own_say_how_they_run() -> None:
    loops = {
        "transformers",
        "transformers-2023",
        "transformers-2022",
        "transformers-deepspeed",
        "transformers-liger",
        "unsloth",
    }
    loops |= {"torchtitan", "torchtune"}
    assert set(RUNS) == {"megatron", "megatron-lm", "precision-aware"} | loops
    assert set(RUNS) <= set(SOFTWARE)
    assert PLAIN.name not in RUNS


def test_other_names_are_of_libraries_that_there_are() -> None:
    from simcore.strategy.software.record import _CALLED, software_named

    assert not set(_CALLED) & set(SOFTWARE)
    assert {software_named(name).name for name in _CALLED} == set(_CALLED.values())
    assert software_named("Hugging Face").name == software_named("hf").name == "transformers"
