"""The measured steps that predictions show beside themselves, from the tables that ship.

python -m simcore.validate.known    # writes validate/tables/measured.yaml anew
"""

from __future__ import annotations

import json
from typing import Any

from simcore.answer.request import FILE, QUANTITIES, tables_folder
from simcore.validate.formats.project import FORMAT
from simcore.validate.table import read_table

_HEAD = """\
# Steps of the tables in this folder, by model: `simcore predict` shows those of the same job.
# Written by `python -m simcore.validate.known`: change the tables, not this file.
"""


def measured_steps() -> dict[str, list[dict[str, Any]]]:
    """By model, the timed rows of the shipped tables in simcore's own format, in SI units."""
    found: dict[str, list[dict[str, Any]]] = {}
    for table in map(read_table, sorted(tables_folder().glob("*.csv"))):
        timed = [c for c in table.cases if "step_time_s" in c.measured]
        for case in timed if table.format == FORMAT.name else ():
            step = {
                "source": case.id, "gpus": case.gpus, "options": case.options, "note": case.flag,
                **{k: v for k, v in case.measured.items() if k in QUANTITIES},
            }  # fmt: skip
            found.setdefault(case.model, []).append(step)
    return found


def main() -> None:
    """Write the list, one step a line."""
    lines = [_HEAD]
    for model, steps in measured_steps().items():
        lines += [f"{model}:\n", *(f"  - {json.dumps(step)}\n" for step in steps)]
    (tables_folder() / FILE).write_text("".join(lines), encoding="utf-8")


if __name__ == "__main__":
    main()
