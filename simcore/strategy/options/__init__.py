"""The table of a job's options: each is declared here once, in the file of its heading.

The command line, Python's signatures, sweeps, the page, JSON, launch files and completion are all
derived from it. ``OPTIONS.register(Option(...))`` adds one.
"""

from __future__ import annotations

from simcore.strategy.options import (
    cluster,
    expert,
    job,
    memory,
    model,
    parallelism,
)
from simcore.strategy.options.option import (
    Axis,
    Control,
    File,
    Made,
    Name,
    NameList,
    Number,
    Option,
    Pairs,
    Switch,
    Text,
    Texts,
    Whole,
)
from simcore.strategy.options.table import OPTIONS, OptionTable

for _heading in (job, model, parallelism, memory, cluster, expert):
    OPTIONS.register(*_heading.DECLARED)

__all__ = [
    "OPTIONS", "Axis", "Control", "File", "Made", "Name", "NameList", "Number", "Option",
    "OptionTable", "Pairs", "Switch", "Text", "Texts", "Whole",
]  # fmt: skip
