"""Who may name code: the permission is the name's type, and is lost by whatever forgets it."""

from __future__ import annotations

import pickle

import pytest
from evil import NAME, Evil

from simcore.answer.request import make_request
from simcore.workload.resolve import resolve_model
from simcore.workload.settings import (
    CodeRefused,
    TrustedName,
    UntrustedName,
    name_in_call,
    name_in_file,
    names_code,
    permitted,
)
from simcore.workload.trace import trace_callable, trace_data
from simcore.workload.trace.callables import build, find_callable


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (NAME, True), ("a.b.c:d.e", True), ("tim:resnet18", True), ("os:getcwd", True),
        ("gpt2", False), ("meta-llama/Llama-3", False), ("timm:resnet18", False),
        ("torchvision:resnet50", False), ("timm:hf-hub:a/b", False), ("a:b.yaml", False),
    ],
)  # fmt: skip
def test_what_names_code(text: str, code: bool) -> None:
    assert names_code(text) is code


def test_a_file_that_is_there_is_no_code(evil: Evil) -> None:
    assert names_code("mine:net")
    evil.write("mine:net", "")
    assert not names_code("mine:net")


@pytest.mark.parametrize("text", [NAME, UntrustedName(NAME), str(TrustedName(NAME))])
def test_whatever_resolves_a_name_refuses_one_that_nobody_typed(evil: Evil, text: str) -> None:
    for ask in (resolve_model, trace_callable, trace_data, find_callable, build, permitted):
        with pytest.raises(CodeRefused, match="--allow-code"):
            ask(text)  # type: ignore[arg-type]
    with pytest.raises(Exception, match="is Python code"):
        make_request(text, "1x1xA100")
    assert not evil.ran


def test_what_is_typed_runs(evil: Evil) -> None:
    assert resolve_model(TrustedName(NAME)).name == NAME
    assert evil.ran


@pytest.mark.parametrize("kind", [TrustedName, UntrustedName])
def test_parts_are_as_trusted_as_the_whole(kind: type[TrustedName] | type[UntrustedName]) -> None:
    parts = [p.strip() for p in kind(f"gpt2 , {NAME} ").split(",")]
    assert parts == ["gpt2", NAME] and {type(p) for p in parts} == {kind}
    assert type(pickle.loads(pickle.dumps(kind(NAME)))) is kind  # as processes pass it on


@pytest.mark.parametrize(
    "change", [str, str.lower, lambda t: t[:], lambda t: f"{t}", lambda t: "".join(t)]
)
def test_a_name_that_is_made_anew_is_trusted_no_more(change) -> None:  # type: ignore[no-untyped-def]
    with pytest.raises(CodeRefused):
        permitted(change(TrustedName(NAME)))


def test_a_file_s_name_is_refused_where_it_stands() -> None:
    with pytest.raises(CodeRefused, match=rf"^t.csv:7: model '{NAME}' is Python code"):
        name_in_file(NAME, "t.csv:7", allow_code=False)
    assert type(name_in_file(NAME, "t.csv:7", allow_code=True)) is TrustedName
    assert type(name_in_file("timm:resnet18", "t.csv:7", allow_code=False)) is UntrustedName


def test_text_of_a_call_is_trusted_but_what_a_file_said_is_not() -> None:
    assert type(name_in_call(NAME)) is TrustedName
    assert type(name_in_call(UntrustedName(NAME))) is UntrustedName
    assert [type(n) for n in name_in_call((NAME, UntrustedName(NAME)))] == [
        TrustedName, UntrustedName,
    ]  # fmt: skip
    assert name_in_call(3) == 3


def test_a_library_is_proposed_where_one_is_meant() -> None:
    with pytest.raises(CodeRefused, match=r"did you mean timm:resnet18\?"):
        resolve_model("tim:resnet18")
