"""Chooses the rows that a calibration is fitted to; the choice never depends on measured values."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence, Set

import numpy as np

from simcore.base.arrays import NDArray
from simcore.calibrate.step_model import FitRow, features_of, line_of, row_of, shifts_of
from simcore.calibrate.step_residual import PARTS, part_covariances
from simcore.calibrate.step_solver import ROW_SD_LOG
from simcore.validate.programs import Programs

Array = NDArray[np.float64]


def by_program(programs: Programs) -> dict[str, list[FitRow]]:
    """The rows of each program, in order."""
    found: dict[str, list[FitRow]] = defaultdict(list)
    for row in programs.rows:
        found[programs.program(row)].append(row)
    return dict(found)


def random_rows(programs: Programs, k: int, seed: int, doubted: Set[str]) -> set[str]:
    """Keys of ``k`` random rows of each program; ``doubted`` rows are never chosen."""
    rng = np.random.default_rng(seed)
    chosen: set[str] = set()
    for rows in by_program(programs).values():
        sound = [r.key for r in rows if r.key not in doubted]
        chosen.update(str(key) for key in rng.permutation(sound)[:k])
    return chosen


def telling_rows(programs: Programs, k: int, doubted: Set[str]) -> set[str]:
    """Keys of the ``k`` most informative rows of each program for a calibration.

    Rows are chosen greedily: each time the one whose measurement would most reduce the summed
    variance of the predicted times of the program's rows, by the sensitivities of the predictions
    to the fitted parameters and the parameters' prior variances. These are the jobs that one would
    measure first. Measured times are not used, and ``doubted`` rows are never chosen.
    """
    chosen: set[str] = set()
    for rows in by_program(programs).values():
        chosen.update(_telling(programs, rows, k, doubted))
    return chosen


def _telling(programs: Programs, rows: Sequence[FitRow], k: int, doubted: Set[str]) -> list[str]:
    parameters = programs.of_rows(rows)
    index = {p.name: i for i, p in enumerate(parameters)}
    expected = {p.name: p.prior_mean_log for p in parameters}
    lines = [line_of(r, shifts_of(r, expected)) for r in rows]
    along = np.array([row_of(r, x.slopes, index) for r, x in zip(rows, lines, strict=True)])
    prior = np.array([p.prior_sd_log**2 for p in parameters])
    features = features_of(rows, [x.slopes for x in lines])
    assert features is not None
    parts = part_covariances(features, features)
    covariance: Array = (along * prior) @ along.T + sum(
        (PARTS[name] ** 2 * c for name, c in parts.items()), np.zeros(())
    )
    sound = np.array([r.key not in doubted for r in rows])
    found: list[int] = []
    for _ in range(min(k, int(sound.sum()))):
        left = np.diag(covariance) + ROW_SD_LOG**2
        gain = np.square(covariance).sum(axis=0) / left
        gain[~sound] = gain[found] = -np.inf
        best = int(np.argmax(gain))
        found.append(best)
        covariance = covariance - np.outer(covariance[:, best], covariance[best]) / left[best]
    return [rows[i].key for i in found]
