"""Linear attention's kernels against the measured table, in the fit and with families left out."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from simcore.validate.ops import Refit, judge_ops

TABLE = Path(os.environ.get("SIMCORE_TABLES", "")) / "ops" / "linear_attention.csv.gz"


@pytest.mark.skipif(not TABLE.is_file(), reason="needs $SIMCORE_TABLES with measured op tables")
@pytest.mark.parametrize(("refit", "most"), [(None, 0.10), ("shapes", 0.10), ("family", 0.18)])
def test_the_mean_error_over_gpus(refit: Refit | None, most: float) -> None:
    found = judge_ops([TABLE], refit=refit)
    assert not found["skipped"] and found["rows"] == 3960
    (line,) = found["summary"]  # type: ignore[misc]
    assert line["class"] == "linear attention" and line["gpus"] == 6
    assert line["mape_frac"] <= most
