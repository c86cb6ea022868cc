"""Every measured table that clauses are about, predicted once and kept."""

from __future__ import annotations

import csv
import os
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from simcore import api
from simcore.base.errors import UsageError
from simcore.validate.closed_loop import read_run
from simcore.validate.few_rows_dict import validated
from simcore.validate.judge import judge
from simcore.validate.select import rows_with
from simcore.validate.table import Table, read_table
from validate.plan_families import families

_HERE = Path(__file__).resolve().parents[1]
#: Op tables of which issue 4 speaks; later ones (experts, linear attention) are judged elsewhere.
_OPS = ("gemm", "attention", "memory_bound", "conv", "collectives", "end_to_end")
#: Rows of a few-row fit of vTrain, and random choices of them.
_VTRAIN_ROWS, _VTRAIN_DRAWS = 10, 20


@dataclass(frozen=True)
class Tables:
    """Verdicts in the contract of ``simcore validate --json``. ``folder``: ``$SIMCORE_TABLES``.

    ``jobs``: processes that share the rows of large tables.
    """

    folder: Path
    jobs: int = 1

    @classmethod
    def here(cls, jobs: int) -> Tables:
        """Those of ``$SIMCORE_TABLES``. Raises UsageError where it names no folder."""
        folder = os.environ.get("SIMCORE_TABLES")
        if not folder or not Path(folder).is_dir():
            raise UsageError("SIMCORE_TABLES names no folder of measured tables")
        return cls(Path(folder), jobs)

    def _steps(self, name: str) -> Path:
        return self.folder / "steps" / name

    @cached_property
    def llm(self) -> dict[str, Any]:
        """Published steps of language models and runs out of memory, blind, by source."""
        files = [self._steps("llm.csv"), self._steps("llm_fits_or_not.csv")]
        return api.validate(files, by=("source",), jobs=self.jobs)

    @cached_property
    def llm_few(self) -> dict[str, Any]:
        """Language models, fitted on five rows of each source and GPU, judged on the rest."""
        return api.validate([self._steps("llm.csv")], calibrate=5, jobs=self.jobs)

    @cached_property
    def unnamed(self) -> dict[str, Any]:
        """Language models as somebody asks who does not name the program."""
        return api.validate([self._steps("llm.csv")], unnamed=True, jobs=self.jobs)

    @cached_property
    def ddp(self) -> dict[str, Any]:
        """Published data-parallel rows, blind."""
        return api.validate([self._steps("ddp.csv")], jobs=self.jobs)

    @cached_property
    def ddp_one_gpu(self) -> dict[str, Any]:
        """Rows of several GPUs, fitted on those of one."""
        return api.validate([self._steps("ddp.csv")], calibrate="one-gpu", jobs=self.jobs)

    @cached_property
    def held_out(self) -> dict[str, Any]:
        """Published runs that set no width."""
        return api.validate([_HERE / "held_out" / "published.csv"], jobs=self.jobs)

    @cached_property
    def zero3(self) -> dict[str, Any]:
        """ZeRO-3 rows of Megatron's table 2."""
        return api.validate([_HERE / "tables" / "zero3_2021.csv"], jobs=self.jobs)

    @cached_property
    def _vtrain(self) -> Table:
        """Rows of vTrain on several nodes."""
        table = rows_with(read_table(self._steps("llm.csv")), {"source": "vtrain"})
        return replace(table, cases=tuple(c for c in table.cases if not c.gpus.startswith("1x")))

    @cached_property
    def vtrain(self) -> dict[str, Any]:
        """vTrain on several nodes, blind."""
        return judge([self._vtrain], jobs=self.jobs).to_dict()

    @cached_property
    def vtrain_few(self) -> dict[str, Any]:
        """The same, fitted on random rows: the draw of median error."""
        return validated([self._vtrain], _VTRAIN_ROWS, _VTRAIN_DRAWS, (), self.jobs)

    def ops(self, refit: str) -> dict[tuple[str, str, str], dict[str, Any]]:
        """Errors of op models by class, dtype and whose figures; ``refit``: shapes or family."""
        summary = self._ops[refit]["summary"]
        return {(s["class"], s["dtype"], s["profile"]): s for s in summary}

    @property
    def ops_models(self) -> dict[str, Any]:
        """Whole fp32 models, figures of the family left out: over rows."""
        found: dict[str, Any] = self._ops["family"]["kinds"]["model"]
        return found

    @cached_property
    def _ops(self) -> dict[str, dict[str, Any]]:
        files = [self.folder / "ops" / f"{name}.csv.gz" for name in _OPS]
        return {
            "shapes": api.validate_ops(files, refit="shapes"),
            "family": api.validate_ops(files, refit="family"),
        }

    @cached_property
    def plan_families(self) -> list[dict[str, Any]]:
        """How much slower the layout ranked first was measured to be than the best one."""
        with self._steps("llm.csv").open(encoding="utf-8", newline="") as stream:
            return families(csv.DictReader(stream), self.llm["per_row"])

    @cached_property
    def closed_loops(self) -> list[dict[str, Any]]:
        """The three newest runs of ``simcore selftest`` that are kept."""
        return [read_run(p) for p in sorted((_HERE / "selftest").glob("*.json"))[-3:]]
