"""What the commands over grids of jobs (compare, sweep, plan) read alike: model, clusters, axes."""

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
    """A grid of jobs: ``words`` are keywords of ``simcore.api``, ``notes`` say what files added."""

    model: str | None
    gpus: list[str] | None
    words: dict[str, Any]
    launch: str | None
    notes: tuple[str, ...]

    def tell(self) -> None:
        """Write to standard error what files added, and their unknown keys."""
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
    """The grid that a command was given; what is wrong with it joins ``problems``.

    ``example``: what to write where clusters are missing; ``sized``: these say how many GPUs;
    ``allow_code``: a default of a file may be Python code.
    """
    given, told = with_defaults(given, lists=("gpus",), allow_code=allow_code)
    model, gpus, words = given.pop("model"), given.pop("gpus"), grid_options(given, problems)
    launch = words["launch"]
    words, notes = grid_launch(model, gpus, words, problems, sized=sized)
    words |= fixed_words(with_ or (), problems)
    if model is None:
        problems.append("--model is missing: name one of `simcore list models`")
    if not gpus:
        problems.append(f"--gpus is missing: {example}")
    return Grid(model, gpus, words, launch, tuple(filter(None, (told, *notes))))
