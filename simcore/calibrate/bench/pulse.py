"""Pulses: short benchmarks that tell how fast the device runs at the moment.

The clock of a GPU falls with heat, and a virtual processor shares its core with others, which no
counter of the system shows. Two measurements compare only at one speed of the device, so each gets
a pulse beside it. On a GPU it is a product, a copy and launches by the host, each of which has a
clock of its own. On a processor it is several kernels, since a single one follows the speed of a
step badly: beside steps of four networks on two busy cores of an EPYC, which drifted by 4.7 %, the
product alone left 4.2 % of scatter, the copy alone 4.5 %, and the mean of these kernels 2.4 %.
"""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, Final

from simcore.base.units import KIB, MIB
from simcore.calibrate.bench.case import Device, Mode, Run, Sample, World, tensor_options
from simcore.calibrate.bench.timing import ENOUGH, Clock, typical

#: Seconds of a pulse by kind: ``compute``, ``memory`` and, on a GPU, ``host``.
Pulse = Mapping[str, float]
#: The calls of a pulse by kind.
Runs = Mapping[str, Sequence[Run]]
KINDS: Final = ("compute", "memory", "host")
#: Seconds of every pulse: a longer one would have a larger share of calls with warm caches. And
#: seconds after which it is too old to stand beside a benchmark: 4 % of the time.
PULSE_S, FRESH_S = 0.06, 1.5
#: Side of the product's square matrices, by kind of device: they fit a processor's caches, and fill
#: a GPU. Each call takes a processor about a millisecond, less than a turn of the scheduler (3 ms).
SIDE: Final = {"cpu": 384, "cuda": 4096}
#: Bytes of the tensor that is copied: more than a core's own cache; more than a GPU's.
COPIED_BYTES: Final = {"cpu": 16 * MIB, "cuda": 256 * MIB}
#: Bytes of a tensor in a core's cache, and sums of two such tensors in a call.
CACHED_BYTES, SUMS = 512 * KIB, 30
#: Tensors of an update, and elements of each.
UPDATED: Final = (6, 40_000)


def runs_of(device: Device) -> dict[str, tuple[Run, ...]]:
    """The calls of a pulse by kind."""
    import torch

    from simcore.calibrate.bench.convolutions import Conv, convolution
    from simcore.calibrate.bench.host import adamw
    from simcore.calibrate.bench.launch import eager

    made = tensor_options(torch, device.dtypes[-1], device)
    side = SIDE[device.kind]
    a, b = torch.randn(side, side, **made), torch.randn(side, side, **made)
    source = torch.zeros(COPIED_BYTES[device.kind], dtype=torch.uint8, device=device.kind)
    product = partial(torch.mm, a, b, out=torch.empty_like(a))
    copy = partial(torch.empty_like(source).copy_, source)
    if device.line is not None:
        return {"compute": (product,), "memory": (copy,), "host": (eager(device),)}
    x, y, total = (torch.ones(CACHED_BYTES // 4) for _ in range(3))

    def sums() -> None:
        for _ in range(SUMS):
            torch.add(x, y, out=total)

    convolved = convolution("fp32", Conv(2, 48, 48, 3, 28, 1), "fwd", "nchw", device)
    update = adamw("for-loop", *UPDATED, on_host=False, device=device)
    return {"compute": (product, convolved), "memory": (sums, copy, update)}


def take(runs: Runs, device: Device, seconds: float, clock: Clock) -> dict[str, float]:
    """A pulse of about so many ``seconds``: by kind, the geometric mean of its typical calls.

    The calls take turns, after one untimed turn.
    """
    calls = [(kind, run) for kind, several in runs.items() for run in several]
    samples: list[list[Sample]] = [[] for _ in calls]
    for _, run in calls:
        device.time(run)
    until, turns = clock() + seconds, 0
    while clock() < until or turns < ENOUGH:
        for found, (_, run) in zip(samples, calls, strict=True):
            found.append(device.time(run))
        turns += 1
    logs: dict[str, list[float]] = {kind: [] for kind in runs}
    for (kind, _), found in zip(calls, samples, strict=True):
        logs[kind].append(math.log(typical(found).seconds))
    return {kind: math.exp(sum(of) / len(of)) for kind, of in logs.items()}


def between(before: Pulse, after: Pulse) -> dict[str, float]:
    """The geometric mean of the pulses before and after a measurement."""
    return {kind: math.sqrt(s * after[kind]) for kind, s in before.items()}


class Pulses:
    """Takes the pulses of a device on one rank alone, and on all ranks at once.

    ``runs``: the calls by kind, by default those of :func:`runs_of`; tests replace ``clock`` too.
    """

    def __init__(
        self, device: Device, world: World, runs: Runs | None = None,
        clock: Clock = time.perf_counter,
    ) -> None:  # fmt: skip
        self._device, self._world, self._clock = device, world, clock
        self._runs = runs_of(device) if runs is None else runs
        self._last: dict[bool, tuple[float, dict[str, float]]] = {}

    def beside(self, mode: Mode, age_s: float = FRESH_S) -> dict[str, float]:
        """The last pulse if it is at most ``age_s`` old, else a new one.

        Every rank that measures in ``mode`` calls it. Of ranks at once it is the geometric mean.
        """
        alone = mode == "alone"
        last = self._last.get(alone)
        stale = last is None or self._clock() - last[0] > age_s
        if not alone:
            stale = self._world.share(stale)
        if last is None or stale:
            pulse = self._taken(alone)
            self._last[alone] = last = self._clock(), pulse
        return last[1]

    def _taken(self, alone: bool) -> dict[str, float]:
        if alone:
            return take(self._runs, self._device, PULSE_S, self._clock)
        self._world.barrier()
        own = take(self._runs, self._device, PULSE_S, self._clock)
        every: list[Any] = self._world.gather(own)
        return {
            kind: math.exp(sum(math.log(pulse[kind]) for pulse in every) / len(every))
            for kind in own
        }
