"""The measured tables that clauses are about; each is predicted once, when it is first needed."""

from __future__ import annotations

import csv
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from simcore import api
from simcore.base.database import read_yaml
from simcore.base.errors import UsageError
from simcore.validate.few_rows import validated
from simcore.validate.judge import judge
from simcore.validate.report_sections import read_run
from simcore.validate.table import Table, read_table, rows_with
from validate.plan_families import families

_HERE = Path(__file__).resolve().parents[1]
#: The op tables of issue 4. Later tables (experts, linear attention) are not part of it.
_OPS = ("gemm", "attention", "memory_bound", "conv", "collectives", "end_to_end")
#: vTrain's rows that a fit takes, and how often these rows are drawn at random.
_VTRAIN_ROWS, _VTRAIN_DRAWS = 10, 20


@dataclass(frozen=True)
class Tables:
    """Comparisons of predictions with measured tables, as in ``simcore validate --json``.

    ``folder``: the folder of the tables, ``$SIMCORE_TABLES``. ``jobs``: number of processes that
    share the rows of large tables. *Blind* means that no row of the table is used for a fit.
    """

    folder: Path
    jobs: int = 1

    @classmethod
    def here(cls, jobs: int) -> Tables:
        """The tables in ``$SIMCORE_TABLES``. Raises UsageError if that is not a folder."""
        folder = os.environ.get("SIMCORE_TABLES")
        if not folder or not Path(folder).is_dir():
            raise UsageError("SIMCORE_TABLES names no folder of measured tables")
        return cls(Path(folder), jobs)

    def _steps(self, name: str) -> Path:
        return self.folder / "steps" / name

    @cached_property
    def llm(self) -> dict[str, Any]:
        """Published steps of language models and runs out of memory, by source and by kind."""
        files = [self._steps("llm.csv"), self._steps("llm_fits_or_not.csv")]
        return api.validate(files, by=("source", "arch"), jobs=self.jobs)

    @cached_property
    def llm_few(self) -> dict[str, Any]:
        """Language models, fitted to five rows per source and GPU and compared on the others."""
        return api.validate([self._steps("llm.csv")], calibrate=5, jobs=self.jobs)

    @cached_property
    def unnamed(self) -> dict[str, Any]:
        """Language models, predicted without naming the training program."""
        return api.validate([self._steps("llm.csv")], unnamed=True, jobs=self.jobs)

    @cached_property
    def llm_by_program(self) -> dict[str, Any]:
        """Language models, predicted by the program's name and release alone."""
        return api.validate([self._steps("llm.csv")], by_program=True, jobs=self.jobs)

    @cached_property
    def ddp_by_program(self) -> dict[str, Any]:
        """Published data-parallel rows, predicted by the program's name and release alone."""
        return api.validate([self._steps("ddp.csv")], by_program=True, jobs=self.jobs)

    @cached_property
    def ddp(self) -> dict[str, Any]:
        """Published data-parallel rows, blind."""
        return api.validate([self._steps("ddp.csv")], jobs=self.jobs)

    @cached_property
    def ddp_one_gpu(self) -> dict[str, Any]:
        """Published data-parallel rows of several GPUs, fitted to the rows of one GPU."""
        return api.validate([self._steps("ddp.csv")], calibrate="one-gpu", jobs=self.jobs)

    @cached_property
    def held_out(self) -> dict[str, Any]:
        """Published runs that no figure and no width of an interval comes from."""
        return api.validate([_HERE / "held_out" / "published.csv"], jobs=self.jobs)

    @cached_property
    def zero3(self) -> dict[str, Any]:
        """The ZeRO-3 rows of table 2 of Narayanan et al. 2021."""
        return api.validate([_HERE / "tables" / "zero3_2021.csv"], jobs=self.jobs)

    @cached_property
    def _vtrain(self) -> Table:
        """The rows of the source vTrain that ran on several nodes."""
        table = rows_with(read_table(self._steps("llm.csv")), {"source": "vtrain"})
        return replace(table, cases=tuple(c for c in table.cases if not c.gpus.startswith("1x")))

    @cached_property
    def vtrain(self) -> dict[str, Any]:
        """vTrain on several nodes, blind."""
        return judge([self._vtrain], jobs=self.jobs).to_dict()

    @cached_property
    def vtrain_few(self) -> dict[str, Any]:
        """vTrain on several nodes, fitted to random rows: the draw with the median error."""
        return validated([self._vtrain], _VTRAIN_ROWS, _VTRAIN_DRAWS, (), self.jobs)

    def ops(self, refit: str) -> dict[tuple[str, str, str], dict[str, Any]]:
        """Errors of op times by class of ops, dtype and profile (``own`` or ``blind``).

        ``refit``: what each fit leaves out, "shapes" or the GPU's "family".
        """
        summary = self._ops[refit]["summary"]
        return {(s["class"], s["dtype"], s["profile"]): s for s in summary}

    @cached_property
    def linear_attention(self) -> dict[str, dict[str, Any]]:
        """Errors of linear attention's kernels: ``own`` figures on other shapes, or ``blind``."""
        return self._apart("linear_attention")

    @cached_property
    def experts(self) -> dict[str, dict[str, Any]]:
        """Errors of the kernels of expert layers: ``own`` figures on other shapes, or ``blind``."""
        return self._apart("moe")

    def _apart(self, name: str) -> dict[str, dict[str, Any]]:
        file = self.folder / "ops" / f"{name}.csv.gz"
        found = [api.validate_ops([file], refit=refit)["summary"] for refit in ("shapes", "family")]
        return {line["profile"]: line for lines in found for line in lines}

    def fresh(self, name: str) -> dict[str, Any]:
        """A small table of this year's runs, blind."""
        return api.validate([self._steps(f"{name}.csv")], jobs=self.jobs)

    @property
    def ops_models(self) -> dict[str, Any]:
        """Errors over rows of whole fp32 models, with fits that leave out the GPU's family."""
        return self._ops["family"]["kinds"]["model"]

    @cached_property
    def _ops(self) -> dict[str, dict[str, Any]]:
        files = [self.folder / "ops" / f"{name}.csv.gz" for name in _OPS]
        return {
            "shapes": api.validate_ops(files, refit="shapes"),
            "family": api.validate_ops(files, refit="family"),
        }

    @cached_property
    def plan_families(self) -> list[dict[str, Any]]:
        """By how much the layout that is predicted best was measured to be slower than the best."""
        with self._steps("llm.csv").open(encoding="utf-8", newline="") as stream:
            return families(csv.DictReader(stream), self.llm["per_row"])

    @property
    def card(self) -> Path:
        """The folder of steps and micro-benchmarks of one day on one GPU."""
        return self.folder / "gpu" / "h200-2026-11-26"

    @cached_property
    def card_blind(self) -> dict[str, Any]:
        """Steps measured on one GPU, blind, by what binds them."""
        return api.validate([self.card / "steps.csv"])

    @cached_property
    def card_refitted(self) -> dict[str, Any]:
        """The same steps with a profile fitted anew to the raw micro-benchmarks of that GPU."""
        return _refitted(self.card / "steps.csv", self.card / "calibrate_raw")

    @property
    def own_card(self) -> Path:
        """The folder of the project's own steps and calibrations on one GPU."""
        return _HERE / "cards" / "h200-2026-11-27"

    @cached_property
    def own_card_blind(self) -> dict[str, Any]:
        """The project's own steps on a GPU, blind."""
        return api.validate([self.own_card / "steps.csv"])

    @cached_property
    def own_card_calibrated(self) -> dict[str, Any]:
        """The same steps with the profile that was measured just before them."""
        return _refitted(self.own_card / "steps.csv", self.own_card / "calibration.raw")

    @cached_property
    def own_calibrations(self) -> tuple[dict[str, Any], dict[str, Any]]:
        """The profiles of two calibrations of the same kind of machine, as plain data."""
        with tempfile.TemporaryDirectory() as folder:
            first, second = (
                read_yaml(_refit(self.own_card / name, Path(folder) / f"{name}.yaml"))
                for name in ("calibration.raw", "calibration-before.raw")
            )
        return first, second

    @cached_property
    def closed_loops(self) -> list[dict[str, Any]]:
        """The three newest runs of ``simcore selftest`` in the repository."""
        return [read_run(p) for p in sorted((_HERE / "selftest").glob("*.json"))[-3:]]


def _refit(raw: Path, output: Path) -> Path:
    """The profile fitted to raw tables, by the command that users type.

    Raises UsageError with the last line of the command's errors where it fails.
    """
    command = [sys.executable, "-m", "simcore", "calibrate", "--refit", str(raw), "-o", output]
    ran = subprocess.run(command, capture_output=True, text=True, check=False)
    if ran.returncode or not output.is_file():
        told = ran.stderr.strip(" \n╯╰─").splitlines() or ["no message"]
        raise UsageError(f"simcore calibrate --refit: {told[-1].strip(' │')}")
    return output


def _refitted(steps: Path, raw: Path) -> dict[str, Any]:
    """Steps predicted with a profile fitted to raw tables."""
    with tempfile.TemporaryDirectory() as folder:
        return api.validate([steps], calibration=_refit(raw, Path(folder) / "refitted.yaml"))
