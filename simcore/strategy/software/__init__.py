"""Training libraries and programs, a file a family: what they hold, send, cut and run.

A new family is one file that registers its libraries in ``SOFTWARE``, and its name in ``FILES``
here; a program is a constant of its family's file.
"""

from __future__ import annotations

from importlib import import_module

from simcore.strategy.software.record import (
    PLAIN,
    RUNS,
    SOFTWARE,
    Lists,
    Program,
    Software,
    also_called,
    software_named,
)

FILES = ("megatron", "pytorch", "deepspeed", "huggingface", "labs")

for _name in FILES:
    import_module(f"simcore.strategy.software.{_name}")

__all__ = [
    "FILES",
    "PLAIN",
    "RUNS",
    "SOFTWARE",
    "Lists",
    "Program",
    "Software",
    "also_called",
    "software_named",
]
