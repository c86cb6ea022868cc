"""The folder of a run: each finished row is added to its tables at once, so that it resumes."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

#: Table -> its columns. Those of ``steps`` are read by ``simcore validate``.
TABLES: Final[Mapping[str, tuple[str, ...]]] = {
    "steps": ("id", "build", "batch", "seq", "prec", "opt", "step_ms", "p10_ms", "p90_ms",
              "host_ms", "issue_us", "bound", "n", "n_params", "alloc_gb", "reserved_gb",
              "device_gb", "sm_mhz", "watts", "simcore_arguments"),
    "predictions": ("id", "profile", "step_ms", "low_ms", "high_ms", "alloc_gb", "reserved_gb",
                    "device_gb", "note"),
    "skipped": ("id", "reason"),
    "batches": ("id", "batch", "fits"),
    "largest": ("id", "predicted", "trained", "failed"),
}  # fmt: skip


@dataclass(frozen=True)
class Folder:
    """A folder of results."""

    path: Path

    @property
    def models(self) -> Path:
        """The folder of the files that commands name, where ``simcore validate`` finds them."""
        return self.path / "models"

    @property
    def calibration(self) -> Path:
        """The profile of this machine."""
        return self.path / "calibration.yaml"

    def table(self, name: str) -> Path:
        """The file of a table."""
        return self.path / f"{name}.csv"

    def rows(self, name: str) -> list[dict[str, str]]:
        """The rows of a table; none if it is not there yet."""
        if not self.table(name).is_file():
            return []
        with self.table(name).open(encoding="utf-8", newline="") as file:
            return list(csv.DictReader(file))

    def ids(self, *names: str) -> set[str]:
        """The ids of all rows of tables."""
        return {row["id"] for name in names for row in self.rows(name)}

    def add(self, name: str, **cells: Any) -> None:
        """Append a row; blank cells need not be given. Raises ValueError for an unknown column."""
        columns = TABLES[name]
        if unknown := set(cells) - set(columns):
            raise ValueError(f"table {name} has no column {sorted(unknown)}")
        self.path.mkdir(parents=True, exist_ok=True)
        new = not self.table(name).is_file()
        with self.table(name).open("a", encoding="utf-8", newline="") as file:
            writer = csv.writer(file, lineterminator="\n")
            if new:
                writer.writerow(columns)
            writer.writerow([cells.get(c, "") for c in columns])

    def add_raw(self, name: str, **data: Any) -> None:
        """Append a line to ``NAME.jsonl``: one measurement with all of its steps, its kernels."""
        with (self.path / f"{name}.jsonl").open("a", encoding="utf-8") as file:
            file.write(json.dumps(data) + "\n")

    def begin(self, job_id: str) -> None:
        """Note that a job runs; "" that none does."""
        self.path.mkdir(parents=True, exist_ok=True)
        (self.path / "running.txt").write_text(job_id, encoding="utf-8")

    def interrupted(self) -> str:
        """The job that ran when an earlier run ended; "" without one."""
        file = self.path / "running.txt"
        return file.read_text(encoding="utf-8").strip() if file.is_file() else ""
