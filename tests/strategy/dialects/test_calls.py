"""Arguments of calls in scripts and notebooks, by hand."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcore.strategy.dialects.calls import arguments_of, called, calls_in
from simcore.strategy.dialects.source import MAX_NODES, Source


def script(text: str, name: str = "run.py") -> Source:
    return Source(text, name, Path(name))


@pytest.mark.parametrize(
    ("value", "known"),
    [("3", 3), ("-1.5", -1.5), ("'x'", "x"), ("[1, 'a']", [1, "a"]), ("{'a': 1}", {"a": 1}),
     ("torch.bfloat16", "bfloat16"), ("SIZE", 8), ("False", False), ("(1, 2)", (1, 2))],
)  # fmt: skip
def test_values_that_are_known(value: str, known: Any) -> None:
    ((name, given),) = calls_in(script(f"SIZE = 8\na.b.Trainer(x={value})\n"))
    assert name == "a.b.Trainer" and dict(given) == {"x": known}


@pytest.mark.parametrize("value", ["None", "other", "f.g", "SIZE + 1", "b'x'", "lambda: 1", "1j"])
def test_values_that_are_not(value: str) -> None:
    assert calls_in(script(f"SIZE = 8\nrun(x={value})\n")) == (("run", {}),)


def test_constants_are_plain_names_with_one_value_and_count_wherever_they_stand() -> None:
    text = "run(a=A, b=B, c=C, d=D)\nA = 1\nB = C = 2\nD, E = 1, 2\nself.A = 5\nA = A2 = 3\n"
    assert calls_in(script(text))[0] == ("run", {"a": 1})


def test_the_first_argument_has_no_name_and_others_none_at_all() -> None:
    assert calls_in(script("run('m', 3, x=1, **more)\n")) == (("run", {"model": "m", "x": 1}),)
    assert calls_in(script("run('m', model='n')\n")) == (("run", {"model": "n"}),)
    assert calls_in(script("(lambda: 1)()\nx[0](a=1)\nx[0].y(a=1)\n")) == (("y", {"a": 1}),)


def test_calls_are_known_by_the_ends_of_their_names() -> None:
    text = "a.Config(x=1)\nConfig(y=2)\nMyConfig(z=3)\na.Train(lr=4)\nConfig(x=5)\n"
    found = arguments_of(script(text), {"Config": "", "Train": "t.", "a.Train": "u."})
    assert found == {"x": 5, "y": 2, "t.lr": 4, "u.lr": 4}
    assert called(script(text), {"Config": "", "Train": "", "Other": "", "Conf": ""}) == 2


def test_arguments_are_evaluated_before_the_call() -> None:
    text = "Trainer(args=Config(x=1))\nif False:\n    late(y=2)\n"
    assert [name for name, _ in calls_in(script(text))] == ["Config", "Trainer", "late"]


def test_what_is_loaded_after_the_trainer_is_not_trained() -> None:
    """Notebooks load the saved adapters by the same call, to use them."""
    text = "A.load('base', r=8)\nt = SFTTrainer(args=Config(x=1))\nt.train()\nA.load('mine', x=2)\n"
    assert arguments_of(script(text), {"A.load": "", "Config": ""}) == {
        "model": "base", "r": 8, "x": 1,
    }  # fmt: skip
    twice = f"{text}u = DPOTrainer(m)\nA.load('last')\n"
    assert arguments_of(script(twice), {"A.load": ""})["model"] == "mine"


def test_cells_of_a_notebook_and_its_commands() -> None:
    cells = [
        {"cell_type": "code", "source": ["%pip install x\n", "!ls\n", "run(a=1)\n"]},
        {"cell_type": "markdown", "source": ["run(a=2)"]},
        {"cell_type": "code", "source": ["this is broken\n"]},
        {"cell_type": "code", "source": ["  ! ls\n", "run(a=3)"]},
    ]
    found = calls_in(script(json.dumps({"cells": cells}), "book.ipynb"))
    assert found == (("run", {"a": 1}), ("run", {"a": 3}))
    for text in ("{", "[]", '{"cells": 3}', '{"cells": [{}]}'):
        assert calls_in(script(text, "book.ipynb")) == ()
    assert calls_in(script("this is broken")) == ()


def test_very_long_scripts_are_read_up_to_a_number_of_nodes() -> None:
    """A call of a name is a statement, a call and a name."""
    n = MAX_NODES // 3
    assert 0 < len(calls_in(script("f()\n" * (2 * n)))) < 2 * n
    assert len(calls_in(script("f()\n" * (n // 4)))) == n // 4
