"""What this project's own benchmarks of a card found over the published op tables.

The benchmarks of a real card time classes that no table has (convolutions on matrix units, gathers,
copies) and other sizes of those that one has. They are fitted as ``simcore calibrate`` fits a
machine, from the figures of the op tables as prior, and ship as multipliers on these, for that GPU
alone: other machines with it are better predicted, other GPUs of its family worse
(``docs/calibration.md``).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import numpy as np

from simcore.base.errors import DataError
from simcore.calibrate.bench.store import RawRow, Store
from simcore.calibrate.machine.bench_model import OF_BENCHMARKS
from simcore.calibrate.machine.host import with_update
from simcore.calibrate.machine.one_speed import at_one_speed
from simcore.calibrate.machine.prior import fit_from_prior
from simcore.calibrate.machine.row_kernels import times_kernels
from simcore.calibrate.pooling import figure
from simcore.hardware.calibrations import Fitted
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import Profile

#: Source key of these figures.
SOURCE: Final = "cards"


def card_section(folders: Sequence[Path], tables: Profile) -> Mapping[str, Any]:
    """Class -> ``by_gpu`` -> GPU -> its multiplier; ``memory.`` before kinds of kernel.

    ``folders``: raw tables of ``simcore calibrate``, one folder a machine. ``tables``: the profile
    of op tables alone. Several machines of a GPU give the geometric mean of their figures, with the
    largest spread. Raises DataError for a folder without kernels of one GPU.
    """
    found: dict[str, dict[str, list[Fitted]]] = defaultdict(lambda: defaultdict(list))
    for folder in folders:
        gpu, rows = _rows(folder)
        group = parse_cluster(f"1x1x{gpu}").groups[0]
        fit = fit_from_prior([r for r in rows if times_kernels(r)], group, tables)
        figures = with_update(fit.figures, rows, group.gpu, tables)
        for key in figures.keys() - set(OF_BENCHMARKS):
            found[key][gpu].append(figures[key])
    return {
        key: {"by_gpu": {gpu: _joined(fits) for gpu, fits in sorted(by_gpu.items())}}
        for key, by_gpu in sorted(found.items())
    }


def _joined(fits: Sequence[Fitted]) -> dict[str, Any]:
    """The figures of several machines as one entry of the profile."""
    value = math.exp(float(np.mean([math.log(f.value) for f in fits])))
    return figure(value, max(f.sd_log for f in fits), SOURCE, sum(f.rows for f in fits))


def _rows(folder: Path) -> tuple[str, list[RawRow]]:
    """The GPU whose kernels a folder of raw tables timed, and its rows."""
    rows = at_one_speed(Store(folder).rows("refuse")[0])
    gpus = {r.cells.get("gpu", "") for r in rows if times_kernels(r)} - {""}
    if len(gpus) != 1:
        raise DataError(f"must hold kernels of one GPU, not of {len(gpus)}", file=folder)
    return gpus.pop(), rows
