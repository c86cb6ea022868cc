"""Training programs: mechanisms in code, facts about each program in ``programs_db``."""

from __future__ import annotations

from simcore.strategy.programs.program import PLAIN, Program, Runs
from simcore.strategy.programs.records import (
    PROGRAMS,
    ProgramRecord,
    UsualProgram,
    aliases,
    facts_of,
    modules_program,
    program_named,
    program_names,
    read_as,
    usual_loop,
    usual_of_language_models,
)

__all__ = [
    "PLAIN",
    "PROGRAMS",
    "Program",
    "ProgramRecord",
    "Runs",
    "UsualProgram",
    "aliases",
    "facts_of",
    "modules_program",
    "program_named",
    "program_names",
    "read_as",
    "usual_loop",
    "usual_of_language_models",
]
