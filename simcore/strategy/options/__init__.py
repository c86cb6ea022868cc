"""The table of a job's options: each is declared once, in the module with its heading.

The command line, Python signatures, sweeps, the web page, JSON, launch files and shell completion
are all derived from this table. ``OPTIONS.register(Option(...))`` adds an option to all of them.
"""

from __future__ import annotations

from typing import Any

from simcore.strategy.options import cluster, job, parallelism
from simcore.strategy.options.option import (
    OPTIONS,
    Axis,
    Control,
    File,
    Made,
    Name,
    NameList,
    Number,
    Option,
    OptionTable,
    Pairs,
    Switch,
    Text,
    Texts,
    Whole,
)

#: Options of a job by name; one that is missing or None takes its default. ``read_options`` checks.
Options = dict[str, Any]

for _heading in (job, parallelism, cluster):
    OPTIONS.register(*_heading.DECLARED)
OPTIONS.register(*cluster.EXPERT)

__all__ = [
    "OPTIONS", "Axis", "Control", "File", "Made", "Name", "NameList", "Number", "Option",
    "OptionTable", "Options", "Pairs", "Switch", "Text", "Texts", "Whole",
]  # fmt: skip
