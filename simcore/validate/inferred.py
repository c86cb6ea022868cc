"""Facts of training programs that no source of theirs states, for the validation report."""

from __future__ import annotations

from collections.abc import Iterator

from simcore.strategy.programs import PROGRAMS
from simcore.strategy.programs.records import StatedFact
from simcore.validate.markdown import markdown_table

TITLE = "Facts of programs without a source"
_HEAD = """These facts of `programs_db/` are inferred and still to be verified: the program's own
code was not at hand, or does not state them. Some were inferred from rows of the tables
above, so the errors of these rows look better than they should.
"""


def inferred_facts() -> Iterator[StatedFact]:
    """The facts that records of programs mark ``origin: inferred, to verify``, by program."""
    for record in PROGRAMS.all():
        yield from (StatedFact(record.name, fact) for fact in record.facts if fact.get("origin"))
        for name, release in record.releases.items():
            of = f"{record.name}@{name}"
            yield from (StatedFact(of, fact) for fact in release.facts if fact.get("origin"))


def inferred() -> str:
    """A table of these facts as Markdown: program, fact, what it is inferred from."""
    rows = []
    for fact in inferred_facts():
        values = ", ".join(
            f"{subject}.{key} = {_shown(value)}" if key else f"no {subject}"
            for subject, key, value in fact.values()
        )
        rows.append([fact.of, values, " ".join(str(fact.fact.get("note", "-")).split())])
    return f"{_HEAD}\n{markdown_table(['program', 'fact', 'inferred from'], rows)}"


def _shown(value: object) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{k} {_shown(v)}" for k, v in value.items())
    return {True: "yes", False: "no"}[value] if isinstance(value, bool) else str(value)
