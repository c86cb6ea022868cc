"""Shell completion through the protocol that the installed scripts speak."""

from __future__ import annotations

from collections.abc import Callable

import pytest

START = "simcore predict --model bert-base --gpus "


def _bash(process: Callable, line: str) -> list[str]:
    words = line.split(" ")
    ran = process(
        _SIMCORE_COMPLETE="complete_bash", COMP_WORDS=line, COMP_CWORD=str(len(words) - 1)
    )
    return ran.out.split()


def _zsh(process: Callable, line: str) -> str:
    return process(_SIMCORE_COMPLETE="complete_zsh", _TYPER_COMPLETE_ARGS=line).out


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("simcore predict --model latte-x", "latte-xl"),
        (START + "A6000a", "A6000ada"),
        (START + "4x8xA6000a", "4x8xA6000ada"),
        (START + "1x2xA100-SXM-80GB+1x3xT", "1x2xA100-SXM-80GB+1x3xT4"),
        ("simcore predict --node dgx-h1", "dgx-h100"),
        ("simcore predict --network ib-x", "ib-xdr"),
        ("simcore predict --strategy zero", "zero3"),
        ("simcore predict --precision amp-b", "amp-bf16"),
        ("simcore predict --explain memory.act", "memory.activations"),
        ("simcore show link nvlink", "nvlink4"),
        ("simcore list pre", "precisions"),
        ("simcore predict --micro", "--micro-batch"),
        ("simcore predict --plot-kind roof", "roofline"),
        ("simcore report --gpus 8xA100 --gpus 4x8xA6000a", "4x8xA6000ada"),
        ("simcore report --model latte-x", "latte-xl"),
        ("simcore report --strategy zero", "zero3"),
        ("simcore rep", "report"),
        ("simcore conf", "config"),
    ],
)
def test_bash(line: str, found: str, process: Callable) -> None:
    assert found in _bash(process, line)


def test_zsh(process: Callable) -> None:
    assert '"4x8xA6000ada"' in _zsh(process, START + "4x8xA6000a")
    assert '"latte-xl"' in _zsh(process, "simcore predict --model latte-x")


def test_scripts_can_be_made(process: Callable) -> None:
    assert "complete_bash" in process(_SIMCORE_COMPLETE="source_bash").out
    assert "complete_zsh" in process(_SIMCORE_COMPLETE="source_zsh").out
    assert "--install-completion" in process("--help").out


def test_broken_database_completes_nothing(
    process: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    from simcore.cli import names

    def broken() -> list[str]:
        raise OSError("no such folder")

    assert "A100-PCIE-40GB" in names.completions("gpu", "A", {})
    monkeypatch.setitem(names._LISTED, "gpu", broken)
    assert names.completions("gpu", "A", {}) == []
