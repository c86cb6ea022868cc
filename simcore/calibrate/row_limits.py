"""Which benchmark rows the host may have limited: they only bound the device's time from above.

A call that is timed by two events takes the longer of the device's work and the host's work for
issuing it, less what earlier work hides (calls in a queue never wait for the host, and are timed
apart). How long the host takes is seen where the device has next
to nothing to do: calls of the same kind with tiny tensors. A row that took no longer than these,
or whose calls scatter as only a host's do, says that the kernel is no slower, but not how fast.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from typing import Final, Literal

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.units import MICRO
from simcore.calibrate.bench.store import RawRow

#: How the host issues a timed call. ``plain``: operators on tensors without gradients.
#: ``recording``: forward passes that record the graph for backward. ``backward``: gradients, which
#: autograd's own thread issues.
Call = Literal["plain", "recording", "backward"]
CALLS: Final[tuple[Call, ...]] = ("plain", "recording", "backward")
_RECORDING: Final = ("ln", "bn", "bn_last")
#: The longest time that a device would need at its datasheet's rates for a call that has next to
#: nothing to do.
TINY_S: Final = 5 * MICRO
#: The cell ``timing`` of calls in a queue: the device never waited for the host between them.
QUEUED: Final = "cold_queue"
#: Quantile of the times of such calls that is taken as the host's.
HOST_QUANTILE: Final = 0.9
#: Standard deviation of ln(seconds) between calls from which on the host made them scatter: a
#: device repeats a kernel to a few percent.
UNSTEADY_SD: Final = 0.12


def call_of(row: RawRow) -> Call:
    """How the host issued the call of a row."""
    name = row.cells.get("op", "")
    if row.cells.get("pass", "fwd") not in ("", "fwd") or name.endswith("_bwd"):
        return "backward"
    if row.table in ("conv", "attention") or name in _RECORDING:
        return "recording"
    return "plain"


def host_limits(
    rows: Sequence[RawRow], at_peak_s: NDArray[np.float64]
) -> tuple[dict[Call, float], NDArray[np.bool_]]:
    """(seconds that the host takes by kind of call; whether it may limit each row).

    ``at_peak_s`` [rows]: the device's time at its datasheet's rates. Backward calls take at least
    as long as recording ones, and these as plain ones, so that kinds without tiny calls have the
    limit of the kind before them. Replayed graphs (of the table ``host``) wait for no host.
    """
    keys = [(r.cells.get("timing", ""), call_of(r)) for r in rows]
    tiny: dict[tuple[str, Call], list[float]] = defaultdict(list)
    for row, key, least_s in zip(rows, keys, at_peak_s, strict=True):
        if least_s < TINY_S and row.table != "host" and key[0] != QUEUED:
            tiny[key].append(row.seconds)
    limits: dict[tuple[str, Call], float] = {}
    longest: dict[Call, float] = {}
    for timing in dict.fromkeys(t for t, _ in keys):
        limit_s = 0.0
        for call in CALLS:
            seen = tiny.get((timing, call))
            limit_s = max(limit_s, float(np.quantile(seen, HOST_QUANTILE)) if seen else 0.0)
            limits[timing, call] = limit_s
            longest[call] = max(longest.get(call, 0.0), limit_s)
    limited = [r.table != "host" and k[0] != QUEUED
               and (r.seconds <= limits[k] or r.sd_log > UNSTEADY_SD)
               for r, k in zip(rows, keys, strict=True)]  # fmt: skip
    return longest, np.array(limited, dtype=bool)
