"""Commands as a user would type them."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from typing import Any

from simcore.cli.options import job_words
from simcore.strategy.layout import DEGREES
from simcore.strategy.options.values import command_words

_WIDTH = 78


def command_of(model: str, gpus: str, options: Mapping[str, Any]) -> str:
    """The command ``simcore predict ...`` in lines of 80 columns; empty if an option has no flag.

    ``options``: keywords of ``simcore.predict``; degrees of 1 and values of None are left out.
    """
    stated = {k: v for k, v in options.items() if v is not None and (k not in DEGREES or v != 1)}
    if any(name not in job_words() for name in stated):
        return ""
    parts = command_words({"model": model, "gpus": gpus, **stated})
    flags = zip(parts[::2], parts[1::2], strict=True)
    words = ["simcore predict", *(f"{flag} {shlex.quote(value)}" for flag, value in flags)]
    # NUL replaces the space between a flag and its value, so that they stay on one line.
    text = " ".join(word.replace(" ", "\0") for word in words)
    lines = textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_long_words=False,
                          break_on_hyphens=False)  # fmt: skip
    return " \\\n".join(lines).replace("\0", " ")
