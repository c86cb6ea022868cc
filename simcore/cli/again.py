"""A job as the command that predicts it."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Mapping
from typing import Any

from simcore.cli.job import job_words
from simcore.strategy.layout import DEGREES
from simcore.strategy.options import OPTIONS, Texts
from simcore.strategy.options.values import shown

_WIDTH = 78


def command_of(model: str, gpus: str, options: Mapping[str, Any]) -> str:
    """``simcore predict …`` over lines of 80 columns; empty where an option has no flag.

    ``options`` are words of ``simcore.predict``; degrees of 1 and what is None go unsaid.
    """
    words = ["simcore predict", f"--model {shlex.quote(model)}", f"--gpus {shlex.quote(gpus)}"]
    for name, value in options.items():
        if value is None or (name in DEGREES and value == 1):
            continue
        option = OPTIONS.get(name)
        if option is None or name not in job_words():
            return ""
        values = value if isinstance(option.kind, Texts) else [value]
        words += [f"{option.typed} {shlex.quote(shown(v))}" for v in values]
    # A flag and its value stay on one line: the space between them breaks no line.
    text = " ".join(word.replace(" ", "\0") for word in words)
    lines = textwrap.wrap(text, _WIDTH, subsequent_indent="    ", break_long_words=False,
                          break_on_hyphens=False)  # fmt: skip
    return " \\\n".join(lines).replace("\0", " ")
