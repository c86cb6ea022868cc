"""The source tree as the architecture tests read it."""

from __future__ import annotations

import ast
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "simcore"


@cache
def modules() -> tuple[Path, ...]:
    """Every Python file of the package, relative to the repository."""
    return tuple(sorted(p.relative_to(ROOT) for p in PACKAGE.rglob("*.py")))


@cache
def parsed(module: Path) -> ast.Module:
    """The syntax tree of a module."""
    return ast.parse((ROOT / module).read_text(encoding="utf-8"), filename=str(module))


@cache
def imports(module: Path) -> tuple[tuple[str, int, bool], ...]:
    """(top-level package, line, inside a function) of every import statement that runs."""

    def walk(node: ast.AST, inside: bool) -> Iterator[tuple[str, int, bool]]:
        for child in ast.iter_child_nodes(node):
            if isinstance(child, ast.If) and ast.unparse(child.test) == "TYPE_CHECKING":
                continue  # for the type checker alone
            if isinstance(child, ast.Import):
                for alias in child.names:
                    yield alias.name.split(".")[0], child.lineno, inside
            elif isinstance(child, ast.ImportFrom) and child.module and not child.level:
                yield child.module.split(".")[0], child.lineno, inside
            function = isinstance(child, (ast.FunctionDef, ast.AsyncFunctionDef))
            yield from walk(child, inside or function)

    return tuple(walk(parsed(module), False))


def text_files() -> list[Path]:
    """Text files that the repository holds or would hold; all but outputs where git is missing."""
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode == 0:
        found = [ROOT / line for line in listed.stdout.splitlines()]
    else:
        found = [
            p
            for p in ROOT.rglob("*")
            if not any(
                part.startswith(".") or part in ("__pycache__", "build", "dist")
                for part in p.relative_to(ROOT).parts[:-1]
            )
        ]
    return [p for p in found if p.is_file() and b"\0" not in p.read_bytes()[:4096]]
