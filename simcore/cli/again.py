"""A job as the command that predicts it."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from typing import Any

from simcore.cli.job import job_words
from simcore.strategy.layout import DEGREES
from simcore.strategy.options.values import command_words

_WIDTH = 78


def command_of(model: str, gpus: str, options: Mapping[str, Any]) -> str:
    """``simcore predict …`` over lines of 80 columns; empty where an option has no flag.

    ``options`` are words of ``simcore.predict``; degrees of 1 and what is None go unsaid.
    """
    kept = {k: v for k, v in options.items() if v is not None and (k not in DEGREES or v != 1)}
    if any(name not in job_words() for name in kept):
        return ""
    said = command_words({"model": model, "gpus": gpus, **kept})
    flags = zip(said[::2], said[1::2], strict=True)
    words = ["simcore predict", *(f"{flag} {shlex.quote(value)}" for flag, value in flags)]
    # A flag and its value stay on one line: the space between them breaks no line.
    text = " ".join(word.replace(" ", "\0") for word in words)
    lines = textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_long_words=False,
                          break_on_hyphens=False)  # fmt: skip
    return " \\\n".join(lines).replace("\0", " ")
