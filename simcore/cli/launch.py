"""``--launch`` and ``--emit``: reads and writes launch files of other programs."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.cli.output import complain, write
from simcore.strategy.dialects import DIALECTS, read_launch


def emit_problems(dialect: str, as_json: bool, explain: str | None) -> list[str]:
    """Error messages about ``--emit``."""
    found = []
    if dialect not in DIALECTS:
        found.append(str(UnknownName("dialect", dialect, DIALECTS)))
    if as_json or explain is not None:
        other = "--json" if as_json else "--explain"
        found.append(f"--emit and {other} both write standard output: drop one")
    return found


def warn_unknown(launch: str, *, strict: bool = False) -> None:
    """Warn on standard error about unknown keys of a launch file, which may be typing mistakes.

    Raises InvalidConfig with them instead if ``strict``.
    """
    unknown = read_launch(launch).unknown
    if strict and unknown:
        raise InvalidConfig(list(unknown))
    for sentence in unknown:
        complain(f"WARNING: {sentence}")


def write_launch(dialect: str, model: str, gpus: str, options: Mapping[str, Any]) -> None:
    """Print the predicted job as a launch file, and on standard error what the file leaves out.

    Raises InvalidConfig that lists everything that the format cannot express.
    """
    from simcore import api

    made = api.launch_file(dialect, model, gpus, **options)
    write(made.text)
    if made.left:
        complain(f"note: not in this file, set them when you launch: {', '.join(made.left)}")
    if made.implied:
        words = " ".join(f"--{word}" for word in made.implied)
        complain(f"note: the program that reads this file is predicted with {words}")
