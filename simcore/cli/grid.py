"""Reads model, clusters and axes for the commands over many jobs (compare, sweep, plan)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from simcore.base.errors import Problems
from simcore.base.record import dataclass
from simcore.cli.config import subject, with_defaults
from simcore.cli.options import fixed_words, grid_options
from simcore.cli.output import complain


@dataclass(frozen=True)
class Grid:
    """A grid of jobs.

    words   keywords for ``simcore.api``
    launch  the launch file, if one is given
    notes   sentences about options that were taken from files
    """

    model: str
    gpus: list[str]
    words: dict[str, Any]
    launch: str | None
    notes: tuple[str, ...]

    def tell(self) -> None:
        """Write to standard error which options come from files, and the files' unknown keys."""
        for note in self.notes:
            complain(f"note: {note}")
        if self.launch is not None:
            from simcore.cli.launch import warn_unknown

            warn_unknown(self.launch)


def grid_of(
    given: Mapping[str, Any],
    with_: Iterable[str] | None,
    problems: Problems,
    *,
    example: str,
    sized: bool = True,
    allow_code: bool = False,
) -> Grid:
    """The grid that the arguments of a command describe.

    problems    to which error messages are added; what is missing is then empty
    example     what to write where clusters are missing, for the message
    sized       whether the clusters have numbers of GPUs (not those of a plan, which chooses them)
    allow_code  whether a model that a file of defaults names may be Python code
    """
    from simcore import api

    given, from_files = with_defaults(given, lists=("gpus",), allow_code=allow_code)
    words = grid_options(given, problems)
    launch = words["launch"]

    launched = problems.attempt(
        api.launched_words, given["model"] or "", given["gpus"] or (), words, sized=sized
    )
    words, notes = launched or ({**words, "launch": None}, ())
    words |= fixed_words(with_ or (), problems)
    model, gpus = subject(given, problems, example)
    notes = tuple(filter(None, (from_files, *notes)))
    return Grid(model or "", gpus or [], words, launch, notes)
