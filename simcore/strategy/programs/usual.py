"""Which program is assumed where a job names none: ``programs_db/usual``, in data."""

from __future__ import annotations

from collections.abc import Mapping

from pydantic import Field

from simcore.base.database import Database, Record
from simcore.strategy.programs.program import Program
from simcore.strategy.programs.records import program_named


class UsualProgram(Record):
    """``program`` of a kind of model whose layout or precision needs one.

    ``cut``: with tensor, pipeline, context or expert ranks; ``precisions``: in one of these. Not
    with ``except_strategies`` and ``except_issuers``. ``issuers``: what issues kernels where nobody
    says, by what the program would have.
    """

    meaning: str
    program: str
    cut: bool = False
    precisions: tuple[str, ...] = ()
    except_strategies: tuple[str, ...] = ()
    except_issuers: tuple[str, ...] = ()
    issuers: Mapping[str, str] = Field(default_factory=dict)
    note: str = ""

    @property
    def record(self) -> Program:
        """The program itself."""
        return program_named(self.program)


USUAL: Database[UsualProgram] = Database("usual program", "programs_db/usual", UsualProgram)


def usual_of_language_models() -> UsualProgram:
    """The rule for language models that a program writes itself."""
    return USUAL["language-models"]
