"""Options under other programs' names lead to options that there are."""

from __future__ import annotations

import pytest
import typer

from simcore.cli.main import app
from simcore.cli.synonyms import _COMMANDS, command_meant, option_meant
from simcore.strategy.options import called, read_options

COMMANDS = typer.main.get_command(app)
PREDICT = [o for p in COMMANDS.commands["predict"].params for o in p.opts]  # type: ignore[attr-defined]


def test_what_is_proposed_exists_and_what_exists_is_not_renamed() -> None:
    for ours, theirs in called().items():
        assert not ours or f"--{ours.split()[0]}" in PREDICT, ours
        assert not {f"--{t}" for t in theirs.split()} & set(PREDICT), theirs


def test_no_name_has_two_meanings() -> None:
    names = [name for theirs in called().values() for name in theirs.split()]
    assert len(names) == len(set(names))


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("--per_device_train_batch_size", "--micro-batch"),
        ("--gradient_checkpointing", "--recompute full"),
        ("--tensor-model-parallel-size", "--tp"),
        ("--recomputee", "--recompute"),
        ("--torch_compile", "--compile on"),
        ("--grad-checkpointing", "--recompute full"),
        ("--tp-size", "--tp"),
        ("--seq", "--seq-len"),
        ("--sequence-len", "--seq-len"),
        ("--sequence-paralel", "--sequence-parallel"),
        ("--tensor-paralel", "--tp"),
        ("--learning-rate", ""),
        ("--verbose", ""),
    ],
)
def test_meant(typed: str, meant: str) -> None:
    assert option_meant(typed, PREDICT) == meant


def test_commands_that_are_proposed_exist() -> None:
    known = list(COMMANDS.commands)  # type: ignore[attr-defined]
    for ours, theirs in _COMMANDS.items():
        assert ours.split()[0] in known
        assert not set(theirs.split()) & set(known)
    names = [name for theirs in _COMMANDS.values() for name in theirs.split()]
    assert len(names) == len(set(names))
    assert command_meant("Fit", known) == "calibrate"
    assert command_meant("predcit", known) == "predict"
    assert command_meant("xyzzy", known) == ""


def test_only_options_of_the_command() -> None:
    assert option_meant("--dtype", ["--gpus", "--json"]) == ""


@pytest.mark.parametrize("flag", ["--quantized-base", "--quantised-base"])
def test_either_spelling_is_the_option(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "--model", "llama3.1-8b", "--gpus", "A100", "--lora-rank", "8"]
    assert COMMANDS.main([*words, f"{flag}=nf4"], standalone_mode=False) in (None, 0, 1)
    assert "nf4" in capsys.readouterr().out


def test_either_spelling_is_the_keyword() -> None:
    found, problems = read_options({"quantized_base": "nf4", "optimiser": "adamw", "sise": 1})
    assert found == {"quantised_base": "nf4", "optimizer": "adamw"}
    assert len(problems) == 1  # no option in either spelling
