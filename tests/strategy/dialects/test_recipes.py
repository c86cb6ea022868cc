"""What functions of configurations say, followed by hand; nothing of them is run."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcore.base.errors import DataError
from simcore.strategy.dialects.recipes import (
    TABLES,
    Recipe,
    RecipeTable,
    names_given,
    read_recipe,
    recipe_names,
)
from simcore.strategy.dialects.source import MAX_DEPTH, MAX_NODES, Source


def source(text: str) -> Source:
    return Source(text, "file.py", Path("file.py"))


def recipe(text: str, name: str = "mine", **known: Any) -> Recipe:
    found = read_recipe(source(text), name, known.get)
    assert found is not None
    return found


def of(body: str, before: str = "") -> Recipe:
    """A function with a configuration ``c`` of a trainer, a body, and its return."""
    lines = "\n".join(f"    {line}" for line in ["c = Trainer.Config()", *body.split("\n")])
    return recipe(f"{before}\ndef mine():\n{lines}\n    return c\n")


@pytest.mark.parametrize(
    ("value", "read"),
    [
        ("3", 3), ("-3", -3), ("-2.5", -2.5), ("'x'", "x"), ("True", True), ("[1, 2]", [1, 2]),
        ("(1, -2)", [1, -2]), ("2 + 3 * 4", 14), ("7 // 2", 3), ("7 / 2", 3.5), ("7 - 9", -2),
        ("torch.bfloat16", "bfloat16"), ("2**62", "unread"), ("2 ** 3", "unread"),
        ("1 // 0", "unread"),
        ("3 / 0", "unread"), ("2 * 4611686018427387904", "unread"),
        ("4611686018427387904 + 4611686018427387903", 2**63 - 1),
        ("0 - 4611686018427387904 * 1", -(2**62)), ("-'x'", "unread"), ("1 + True", "unread"),
        ("'a' + 'b'", "unread"), ("name", "unread"), ("[1, name]", "unread"), ("7 % 2", "unread"),
        ("1e308 * 10", "unread"),
    ],
)  # fmt: skip
def test_values_of_expressions(value: str, read: object) -> None:
    found = of(f"c.a.b = {value}").keys["a.b"]
    if read == "unread":
        assert type(found).__name__ == "Unread"
    else:
        assert found == read and type(found) is type(read)


def test_objects_and_their_parts_become_keys() -> None:
    body = (
        "c.model = Model(7, layers=2, norm=Norm(kind='rms'))\n"
        "c.parts = [Part(a=1), 5, Part(b=2)]\n"
        "c.size = compute(3)\n"
        "c.a.size = vocabulary(3)"
    )
    found = of(body)
    assert found.not_followed == ()
    assert type(found.keys.pop("a.size")).__name__ == "Unread"  # a function's result
    assert found.keys == {
        "model": "Model", "model.0": 7, "model.layers": 2, "model.norm": "Norm",
        "model.norm.kind": "rms", "parts": ["Part", 5, "Part"], "parts.0": "Part", "parts.0.a": 1,
        "parts.2": "Part", "parts.2.b": 2, "size": "compute", "size.0": 3,
    }  # fmt: skip


def test_a_section_that_is_set_again_loses_what_it_had() -> None:
    for again in ("Other.Config(b=2)", "None"):
        keys = of(f"c.m = Model(a=1, n=Norm(k=1))\nc.mm.a = 5\nc.m = {again}").keys
        assert "m.a" not in keys and "m.n.k" not in keys and keys["mm.a"] == 5
        assert keys.get("m.b") == (2 if again != "None" else None)
    assert of("c.m = Other.Config(b=2)").keys["m"] == "Other"  # the class, not its Config
    kept = of("c.m = Model(a=1)\nc.m = 3").keys
    assert kept == {"m": 3, "m.a": 1}


def test_names_subscripts_and_constants() -> None:
    text = (
        "SIZE = 4\nWIDE: int = SIZE * 2\n"
        "def mine(n=SIZE, /, m=3, *, k=WIDE, none=None):\n"
        "    'What it is.'\n"
        "    assert n\n    import os\n    from a import b\n    pass\n"
        "    c = Trainer.Config(lr=1.5)\n"
        "    d: int = n + m\n"
        "    c.p['q'].r = d\n    c.k = k\n    c.copy = c.lr\n    c.none = none\n"
        "    return c\n    c.late = 1\n"
    )
    assert recipe(text) == Recipe(
        {"lr": 1.5, "p.q.r": 7, "k": 8, "copy": 1.5, "none": None}, ()
    )  # fmt: skip


def test_functions_of_the_file_are_followed_and_those_it_imports_are_asked_for() -> None:
    text = (
        "def base(layers, wide=2):\n    c = Trainer.Config(layers=layers)\n    c.wide = wide\n"
        "    return c\n"
        "def change(c, by=1, *, seen=False):\n    c.by = by\n    c.seen = seen\n"
        "def mine():\n    c = base(4, wide=8)\n    change(c, 5, seen=True)\n    return c\n"
        "def theirs():\n    c = shipped()\n    c.lr = 2\n    return c\n"
        "def nested():\n    return base(1)\n"
        "def endless():\n    return endless()\n"
    )
    assert recipe(text).keys == {"layers": 4, "wide": 8, "by": 5, "seen": True}
    assert recipe(text, "nested").keys == {"layers": 1, "wide": 2}
    shipped = {"lr": 1, "layers": 3}
    assert read_recipe(source(text), "theirs", lambda n: shipped if n == "shipped" else None) == (
        Recipe({"lr": 2, "layers": 3})
    )
    assert shipped == {"lr": 1, "layers": 3}
    found = recipe(text, "endless")
    assert found.keys == {} and found.not_followed == ("return endless()",)
    assert read_recipe(source(text), "missing", lambda _: None) is None


def test_calls_are_followed_to_a_depth() -> None:
    def chain(n: int) -> Recipe:
        text = "".join(f"def f{i}():\n    return f{i + 1}()\n" for i in range(n - 1))
        return recipe(text + f"def f{n - 1}():\n    return Trainer.Config(a=1)\n", "f0")

    assert chain(MAX_DEPTH).keys == {"a": 1}
    assert chain(MAX_DEPTH + 1).keys == {}


def test_what_is_not_followed_is_told_once() -> None:
    found = of(
        "for i in x:\n    c.a = i\nrun(c)\nrun(c)\nother.a = 3\nc.a.b()\na, b = 1, 2\nc += 1"
    )
    assert found.not_followed == (
        "for i in x: c.a = i", "run(c)", "other.a = 3", "c.a.b()", "a, b = (1, 2)", "c += 1",
    )  # fmt: skip
    long = of(f"call({', '.join('abcdefgh' for _ in range(9))})").not_followed[0]
    assert len(long) == 60 and long.endswith("...")
    exact = of(f"call('{'x' * 52}')").not_followed[0]
    assert len(exact) == 60 and not exact.endswith("...")


def test_names_of_the_functions_of_a_file() -> None:
    text = (
        "def a():\n    return 1\ndef _b():\n    return 1\ndef c():\n    x = 1\n"
        "def d():\n    x = 1\n    return x\nclass E:\n    def f(self):\n        return 1\n"
    )
    assert recipe_names(source(text)) == ("a", "d")


def test_what_is_no_python_is_refused_with_its_line() -> None:
    with pytest.raises(DataError, match="no Python") as refused:
        recipe_names(source("a = 1\nb = (\n"))
    assert refused.value.line == 2
    with pytest.raises(DataError, match="no Python"):
        recipe_names(source("a = 1\0"))
    assert recipe_names(source("1\n" * (3 * MAX_NODES))) == ()  # two nodes a line, and the module
    with pytest.raises(DataError, match="too long for a file of recipes"):
        recipe_names(source("1\n" * (5 * MAX_NODES)))


def test_a_recipe_has_the_keys_of_the_one_it_is_like() -> None:
    table = RecipeTable(
        name="x", title="x", source="y",
        recipes={"a": {"lr": 1, "m": 2}, "b": {"like": "a", "lr": 3}, "c": {"like": "b", "n": 4}},
    )  # fmt: skip
    assert table.keys("c") == {"lr": 3, "m": 2, "n": 4} and table.keys("d") is None
    assert table.keys("a") == {"lr": 1, "m": 2}
    assert {"torchtitan"} <= set(TABLES.names())


def test_a_pattern_says_the_keys_of_names_that_no_recipe_has() -> None:
    table = RecipeTable(
        name="t", title="T", source="s",
        recipes={"a_full_x": {"model": "own"}},
        patterns={
            r"(?P<model>.+)_(?P<how>full|lora)_(.+)": {"model": "{model}-of-{how}", "rank": 8}
        },
    )  # fmt: skip
    assert table.of_path("folder/b_lora_x.py") == {"model": "b-of-lora", "rank": 8}
    assert table.of_path("a-full-x.py") == {"model": "own"}  # a recipe of that name counts first
    assert table.of_path("b_other_x") is None


def test_names_that_a_file_gives_outside_of_functions() -> None:
    """Sums of names given before are worked out; what only a run would know is left out."""
    text = (
        "import os\n\nwidth = 4\ndepth = width * 3\nparts = dict(rate=0.5, sizes=[1, width])\n"
        "unknown = os.environ['A']\n\n\ndef f():\n    inner = 7\n    return inner\n"
    )
    found = names_given(source(text))
    assert found == {"width": 4, "depth": 12, "parts.rate": 0.5, "parts.sizes": [1, 4]}
