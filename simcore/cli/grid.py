"""Reads model, clusters and axes for the commands over many jobs (compare, sweep, plan)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from simcore.cli.config import with_defaults
from simcore.cli.emit import grid_launch, warn_unknown
from simcore.cli.job import grid_options
from simcore.cli.options import fixed_words
from simcore.cli.output import complain


@dataclass(frozen=True, slots=True)
class Grid:
    """A grid of jobs.

    words   keywords for ``simcore.api``
    launch  the launch file, if one is given
    notes   sentences about options that were taken from files
    """

    model: str | None
    gpus: list[str] | None
    words: dict[str, Any]
    launch: str | None
    notes: tuple[str, ...]

    def tell(self) -> None:
        """Write to standard error which options come from files, and the files' unknown keys."""
        for note in self.notes:
            complain(f"note: {note}")
        warn_unknown(self.launch)


def grid_of(
    given: Mapping[str, Any],
    with_: Iterable[str] | None,
    problems: list[str],
    *,
    example: str,
    sized: bool = True,
    allow_code: bool = False,
) -> Grid:
    """The grid that the arguments of a command describe.

    problems    list to which error messages are added
    example     what to write where clusters are missing, for the message
    sized       whether the clusters have numbers of GPUs (not those of a plan, which chooses them)
    allow_code  whether a model that a file of defaults names may be Python code
    """
    given, from_files = with_defaults(given, lists=("gpus",), allow_code=allow_code)
    model, gpus, words = given.pop("model"), given.pop("gpus"), grid_options(given, problems)
    launch = words["launch"]
    words, notes = grid_launch(model, gpus, words, problems, sized=sized)
    words |= fixed_words(with_ or (), problems)
    if model is None:
        problems.append("--model is missing: name one of `simcore list models`")
    if not gpus:
        problems.append(f"--gpus is missing: {example}")
    return Grid(model, gpus, words, launch, tuple(filter(None, (from_files, *notes))))
