"""Checks the accuracy requirements of closed issues: ``python -m validate.must_hold``.

    --only WORD    only clauses whose name contains this word (may be repeated: any of the words)
    --jobs N       number of processes that share the rows of large tables (default: one per
                   processor)
    --json         print JSON

Needs ``$SIMCORE_TABLES``. Exit code 0: all clauses hold; 1: at least one does not; 2: the arguments
or the folder of tables are invalid.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence

from simcore.base.errors import SimcoreError
from simcore.validate.processes import default_jobs
from validate.must_hold import card, cases, ops, seeds, steps
from validate.must_hold.clause import Clause, Found
from validate.must_hold.tables import Tables

CLAUSES: tuple[Clause, ...] = (
    *seeds.CLAUSES, *steps.CLAUSES, *ops.CLAUSES, *card.CLAUSES, *cases.CLAUSES,
)  # fmt: skip


def chosen(words: Sequence[str]) -> tuple[Clause, ...]:
    """Clauses whose name contains at least one of the words; all clauses if there are no words."""
    folded = [w.lower() for w in words]
    return tuple(c for c in CLAUSES if not folded or any(w in c.name.lower() for w in folded))


def found_of(clause: Clause, tables: Tables) -> Found:
    """The result of a clause. A clause that cannot be computed does not hold."""
    try:
        return clause.compute(tables)
    except (SimcoreError, OSError, KeyError) as why:
        return Found(False, f"not computed: {type(why).__name__}: {why}")


def line(clause: Clause, found: Found) -> str:
    """The printed line of a clause: name, limit, yes or NO, the figure, and the issue."""
    holds = "yes" if found.holds else "NO"
    return f"{clause.name:48}{clause.asked:22}{holds:5}{found.text}  [{clause.issue}]"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--only", action="append", default=[])
    parser.add_argument("--jobs", type=int, default=default_jobs())
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args(arguments)
    clauses = chosen(options.only)
    if not clauses:
        sys.stderr.write(f"error: no clause has {' or '.join(options.only)} in its name\n")
        return 2
    try:
        tables = Tables.here(options.jobs)
    except SimcoreError as err:
        sys.stderr.write(f"error: {err}\n")
        return 2
    lines: list[dict[str, object]] = []
    n_holding = 0
    for clause in clauses:
        found = found_of(clause, tables)
        n_holding += found.holds
        lines.append({
            "name": clause.name, "asked": clause.asked, "issue": clause.issue,
            "holds": found.holds, "found": found.text, "value": found.value,
        })  # fmt: skip
        if not options.json:
            sys.stdout.write(line(clause, found) + "\n")
            sys.stdout.flush()
    if options.json:
        sys.stdout.write(json.dumps(lines, indent=1) + "\n")
    else:
        sys.stdout.write(f"{n_holding} of {len(clauses)} hold\n")
    return 0 if n_holding == len(clauses) else 1


if __name__ == "__main__":
    sys.exit(main())
