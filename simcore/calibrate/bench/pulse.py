"""Pulses: short benchmarks that tell how fast the device runs at the moment.

The clock of a GPU falls with heat, and a virtual processor shares its core with others, which no
counter of the system shows. Two measurements compare only at one speed of the device, so each gets
a pulse beside it: a product, a copy and, where the host is not the device, launches.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from functools import partial
from typing import Any, Final

from simcore.base.units import GIB, MIB
from simcore.calibrate.bench.case import Device, Mode, Run, Sample, World, tensor_options
from simcore.calibrate.bench.timing import ENOUGH, Clock, typical

#: Seconds of a pulse by kind: ``compute``, ``memory`` and, on a GPU, ``host``.
Pulse = Mapping[str, float]
KINDS: Final = ("compute", "memory", "host")
#: Seconds that a pulse takes in a calibration, and after which it is too old to stand beside a
#: measurement: 3 % of the time.
BRIEF_S, FRESH_S = 0.03, 1.0
#: Side of the product's square matrices, by kind of device: they fit a processor's caches, and fill
#: a GPU. About a millisecond, so that most calls are shorter than a turn of the scheduler (3 ms).
SIDE: Final = {"cpu": 384, "cuda": 4096}
#: Bytes of the tensor that is copied: more than a core's own cache; more than a GPU's.
COPIED_BYTES: Final = {"cpu": 16 * MIB, "cuda": GIB}


def runs_of(device: Device) -> dict[str, Run]:
    """The calls of a pulse by kind."""
    import torch

    from simcore.calibrate.bench.launch import eager

    made = tensor_options(torch, device.dtypes[-1], device)
    side = SIDE[device.kind]
    a, b = torch.randn(side, side, **made), torch.randn(side, side, **made)
    source = torch.zeros(COPIED_BYTES[device.kind], dtype=torch.uint8, device=device.kind)
    target = torch.empty_like(source)
    runs: dict[str, Run] = {
        "compute": partial(torch.mm, a, b, out=torch.empty_like(a)),
        "memory": partial(target.copy_, source),
    }
    return runs if device.line is None else {**runs, "host": eager(device)}


def take(runs: Mapping[str, Run], device: Device, seconds: float, clock: Clock) -> dict[str, float]:
    """A pulse of about so many ``seconds``: the typical call of each kind, taken in turns."""
    samples: dict[str, list[Sample]] = {kind: [] for kind in runs}
    for run in runs.values():
        device.time(run)
    until, rounds = clock() + seconds, 0
    while clock() < until or rounds < ENOUGH:
        for kind, run in runs.items():
            samples[kind].append(device.time(run))
        rounds += 1
    return {kind: typical(found).seconds for kind, found in samples.items()}


def between(before: Pulse, after: Pulse) -> dict[str, float]:
    """The geometric mean of the pulses before and after a measurement."""
    return {kind: math.sqrt(s * after[kind]) for kind, s in before.items()}


class Pulses:
    """Takes the pulses of a device on one rank alone, and on all ranks at once.

    ``runs``: the calls by kind, by default those of :func:`runs_of`; tests replace ``clock`` too.
    """

    def __init__(
        self, device: Device, world: World, runs: Mapping[str, Run] | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:  # fmt: skip
        self._device, self._world, self._clock = device, world, clock
        self._runs = runs_of(device) if runs is None else runs
        self._last: dict[bool, tuple[float, dict[str, float]]] = {}

    def beside(
        self, mode: Mode, seconds: float = BRIEF_S, age_s: float = FRESH_S
    ) -> dict[str, float]:
        """The last pulse if it is at most ``age_s`` old, else a new one of ``seconds``.

        Every rank that measures in ``mode`` calls it. Of several ranks at once the slowest counts.
        """
        alone = mode == "alone"
        last = self._last.get(alone)
        stale = last is None or self._clock() - last[0] > age_s
        if not alone:
            stale = self._world.share(stale)
        if last is None or stale:
            pulse = self._taken(alone, seconds)
            self._last[alone] = last = self._clock(), pulse
        return last[1]

    def _taken(self, alone: bool, seconds: float) -> dict[str, float]:
        if alone:
            return take(self._runs, self._device, seconds, self._clock)
        self._world.barrier()
        own = take(self._runs, self._device, seconds, self._clock)
        every: list[Any] = self._world.gather(own)
        return {kind: max(pulse[kind] for pulse in every) for kind in own}
