"""States measurements at one speed of the device, by the pulses that were taken beside them.

    stated = measured / product over kinds of (pulse beside it / pulse of the calibration)^share

The shares say how much of the measurement's time is compute, memory traffic and host. For a step on
a GPU the engine says it: by how many percent its time grows where compute slows by one percent. A
processor's cores compute, move data, launch and exchange gradients alike, so that all that runs on
them follows the mean of both kinds: if both take twice as long, so does the step.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Final

import numpy as np

from simcore.calibrate.bench.pulse import Pulse
from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.steps.model import N_AXES, axis_of, response
from simcore.hardware.calibrations import CalibratedKnob
from simcore.hardware.profile import HOST_CPU
from simcore.request.resolved import Request

#: How many ranks took a pulse ("alone" or "together") -> its seconds by kind.
Reference = Mapping[str, Pulse]
#: Drift of the speed from which on it is reported: alone it would use up the error that a selftest
#: may have (``selftest.MEDIAN_ERROR_FRAC``).
NOTABLE_FRAC: Final = 0.08
#: The shares of all that runs on a processor.
ON_HOST: Final[Mapping[str, float]] = {"compute": 0.5, "memory": 0.5}
#: Change of a multiplier's logarithm with which shares are computed.
_MOVE_LOG: Final = 0.02


def ranks_of(mode: str) -> str:
    """Whether a measurement was of one rank or of all at once: the key of a :data:`Reference`."""
    return "alone" if mode == "alone" else "together"


def reference_of(rows: Sequence[RawRow]) -> dict[str, dict[str, float]]:
    """The median pulse beside the rows; without pulses, empty."""
    found: dict[str, dict[str, list[float]]] = defaultdict(lambda: defaultdict(list))
    for r in rows:
        for kind, seconds in r.pulse.items():
            found[ranks_of(r.cells["mode"])][kind].append(seconds)
    return {
        ranks: {kind: float(np.median(seconds)) for kind, seconds in kinds.items()}
        for ranks, kinds in sorted(found.items())
    }


def slower_than(pulse: Pulse, reference: Pulse) -> dict[str, float]:
    """Kind -> how many times longer the pulse took than that of the reference."""
    return {kind: seconds / reference[kind] for kind, seconds in pulse.items() if kind in reference}


def slowdown(slower: Mapping[str, float], shares: Mapping[str, float]) -> float:
    """How many times longer a measurement took: each kind's factor to the power of its share."""
    return math.exp(sum(shares.get(kind, 0.0) * math.log(x) for kind, x in slower.items()))


def at_one_speed(rows: Sequence[RawRow]) -> list[RawRow]:
    """The rows at the speed of :func:`reference_of` them.

    Rows without a pulse stay as they are. Rows of whole steps only get ``slower``, since the
    engine knows their shares (:func:`stated_s`).
    """
    reference = reference_of(rows)
    stated = []
    for r in rows:
        slower = slower_than(r.pulse, reference.get(ranks_of(r.cells["mode"]), {}))
        factor = slowdown(slower, {} if r.table == "steps" else shares_of_row(r))
        stated.append(replace(r, seconds=r.seconds / factor, slower=slower))
    return stated


def shares_of_row(row: RawRow) -> Mapping[str, float]:
    """The shares of a benchmark's time; empty for one that no pulse follows (a drive, a link)."""
    op = row.cells.get("op", "")
    if "host" not in row.pulse:  # the device is the host
        return {} if op.startswith("disk") else ON_HOST
    if row.table in ("gemm", "conv", "attention") or op.startswith("overlap-compute"):
        return {"compute": 1.0}
    if row.table == "memory_bound" or op.startswith("adamw"):
        return {"memory": 1.0}
    return {"host": 1.0} if op.startswith("eager") else {}


def shares_of_step(request: Request) -> Mapping[str, float]:
    """Kind of pulse -> share of the step's time that follows it."""
    if request.cluster.groups[0].gpu.architecture == HOST_CPU:
        return ON_HOST
    knobs: tuple[CalibratedKnob, ...] = ("compute", "memory", "host")
    shifts = np.zeros((N_AXES, 2 * len(knobs)))
    for i, knob in enumerate(knobs):
        shifts[axis_of(knob), 2 * i : 2 * i + 2] = -_MOVE_LOG, _MOVE_LOG
    log_s = response(request)(shifts)
    slopes = (log_s[0::2] - log_s[1::2]) / (2.0 * _MOVE_LOG)
    return {knob: float(slope) for knob, slope in zip(knobs, slopes, strict=True)}


def stated_s(row: RawRow, request: Request) -> float:
    """Seconds of the row of a whole step at the speed of the reference."""
    return row.seconds / (slowdown(row.slower, shares_of_step(request)) if row.slower else 1.0)


def drift_note(rows: Sequence[RawRow]) -> str:
    """A sentence on the drift of the device's speed beside the rows; "" where it is not worth one.

    ``rows`` as :func:`at_one_speed` returns them. The drift is that of nine rows in ten.
    """
    kinds: dict[str, list[float]] = defaultdict(list)
    for r in rows:
        for kind, factor in r.slower.items():
            kinds[kind].append(factor)
    most = {k: np.quantile(v, (0.05, 0.95)) for k, v in kinds.items()}
    told = [
        f"{kind} from {low:.2f} to {high:.2f} times" for kind, (low, high) in most.items()
        if high / low > 1.0 + NOTABLE_FRAC
    ]  # fmt: skip
    if not told:
        return ""
    return (
        f"the device's speed drifted while it was measured (a pulse of {', of '.join(told)} its "
        "median time): every row is stated at the median speed"
    )
