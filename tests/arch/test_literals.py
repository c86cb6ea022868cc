"""Units are converted in base/units.py alone; nothing in the repository knows a machine's paths."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from tree import ROOT, modules, parsed, text_files

UNITS = Path("simcore/base/units.py")
FORBIDDEN = {1e9, 1e12, 1e15, 2.0**10, 2.0**20, 2.0**30, 2.0**40}
#: Not units: (module, value) -> why.
ALLOWED: dict[tuple[str, float], str] = {
    ("simcore/calibrate/ops/published.py", 1024): "sides of matrices, as their sources print them",
}


def value_of(node: ast.AST) -> float | None:
    """The number that a literal, or a power or shift of two literals, stands for."""
    if isinstance(node, ast.Constant) and type(node.value) in (int, float):
        return float(node.value) if abs(node.value) < 1e30 else None
    if isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Pow, ast.LShift)):
        left, right = value_of(node.left), value_of(node.right)
        if left is not None and right is not None and 0 <= right < 64:
            return left**right if isinstance(node.op, ast.Pow) else left * 2.0**right
    return None


def conversions(tree: ast.AST) -> Iterator[tuple[int, float]]:
    for node in ast.walk(tree):
        value = value_of(node)
        if value in FORBIDDEN:
            yield node.lineno, value  # type: ignore[attr-defined]


@pytest.mark.parametrize(
    "text",
    ["x = 1e9", "x = 10**9", "x = 1_000_000_000", "f(1024)", "x / 2**30", "1 << 20", "2.0 ** 20",
     "[1e12]", "1024 ** 3"],
)  # fmt: skip
def test_the_reader_finds_every_spelling(text: str) -> None:
    assert list(conversions(ast.parse(text)))


@pytest.mark.parametrize("text", ["'1e9'", "1e-9", "2**31", "1025", "# 1024", "n * 2", "10**6"])
def test_the_reader_leaves_the_rest(text: str) -> None:
    assert not list(conversions(ast.parse(text)))


def test_unit_literals_stand_in_units_only() -> None:
    assert len({v for _, v in conversions(parsed(UNITS))}) >= 5
    wrong = [
        f"{module}:{line}: {value:g}"
        for module in modules()
        if module != UNITS
        for line, value in conversions(parsed(module))
        if (module.as_posix(), value) not in ALLOWED
    ]
    assert not wrong, "use simcore.base.units: KIB MIB GIB GIGA TERA"


#: Spelled so that this file does not hold one.
_MACHINE_PATH = re.compile(
    r"(?<![\w.}~-])/" + r"(?:home|root|Users|work|mnt|var/folders)" + r"/[\w.-]+|[A-Z]:\\Users\\"
)


def test_the_path_pattern_finds_paths() -> None:
    home = "/".join(["", "home", "someone", "simcore"])
    assert _MACHINE_PATH.search(f"see {home}")
    assert not _MACHINE_PATH.search("https://example.org/home/x, and ./work/x, or a/root/b")


def test_no_path_of_a_machine_is_in_the_repository() -> None:
    files = text_files()
    assert len(files) > 100
    wrong = [
        f"{path.relative_to(ROOT)}: {match[0]}"
        for path in files
        for match in [_MACHINE_PATH.search(path.read_text(encoding="utf-8", errors="replace"))]
        if match
    ]
    assert not wrong
