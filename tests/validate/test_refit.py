"""Refits leave out what they predict; linear attention's kernels against the measured table."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from simcore.calibrate.experts.rows import ExpertBatch
from simcore.physics.expert_layer import ExpertWork, Tile
from simcore.validate.ops import judge_ops
from simcore.validate.refit import EXPERTS, Refit, held_out

TABLE = Path(os.environ.get("SIMCORE_TABLES", "")) / "ops" / "linear_attention.csv.gz"


@pytest.mark.skipif(not TABLE.is_file(), reason="needs $SIMCORE_TABLES with measured op tables")
@pytest.mark.parametrize(("refit", "most"), [(None, 0.10), ("shapes", 0.10), ("family", 0.18)])
def test_the_mean_error_over_gpus(refit: Refit | None, most: float) -> None:
    found = judge_ops([TABLE], refit=refit)
    assert not found["skipped"] and found["rows"] == 3960
    (line,) = found["summary"]  # type: ignore[misc]
    assert line["class"] == "linear attention" and line["gpus"] == 6
    assert line["mape_frac"] <= most


def test_a_refit_sees_neither_the_shapes_nor_the_family_that_it_predicts() -> None:
    shapes = np.arange(8.0 * 200).reshape(200, 8)
    n = len(shapes)
    work = ExpertWork(**{f: np.ones((1, n) if f == "tiles" else n)
                         for f in ExpertWork.__dataclass_fields__})  # fmt: skip
    batches = [ExpertBatch(gpu, "any", "bfloat16", work, Tile(), shapes, np.full(n, 2.0))
               for gpu in ("H100-SXM-80GB", "A100-SXM-80GB")]  # fmt: skip
    fitted: list[str] = []

    def fit(seen: Sequence[ExpertBatch], without: Collection[str]) -> dict[str, object]:
        assert len(seen) == 2 and not any(held_out(b.shape).any() for b in seen)
        fitted.append(" ".join(without))
        return {}

    judge = replace(EXPERTS, fit=fit, predict=lambda _, b: (np.full(len(b), 3.0), "own"))
    refits: tuple[tuple[Refit, list[str]], ...] = (
        ("shapes", [""]), ("family", ["Hopper", "Ampere-GA100"]),
    )  # fmt: skip
    for refit, left_out in refits:
        fitted.clear()
        found = judge.errors(batches, refit, Counter())
        assert fitted == left_out
        for batch, _, error in found:
            assert held_out(batch.shape).all() and 0.2 * n < len(batch) < 0.4 * n
            assert error == pytest.approx(0.5)
