"""Benchmarks of whole training steps of reference networks.

They show whether the ops add up, and effects that no single op shows. Two multipliers are fitted
to them. Each is also predicted by a fit without it: the remaining error is the one to expect of a
calibrated prediction for another network.
"""

from __future__ import annotations

from collections.abc import Iterable
from functools import partial

from simcore.calibrate.bench.case import FAMILIES, Case, Columns, Device, Run, World
from simcore.calibrate.training import NETS, REFERENCES, step_of


def _step(name: str, batch: int, kind: str, device: Device) -> Run:
    return step_of(NETS[name], batch, kind, device.kind)


@FAMILIES.register("steps")
def cases(device: Device, world: World) -> Iterable[Case]:
    """Every reference network at both batch sizes, on one rank and with DDP on all ranks."""
    for name in REFERENCES:
        for batch in NETS[name].batches[device.kind]:
            columns: Columns = {"gpu": device.name, "net": name, "batch": batch}
            alone = {**columns, "ranks": 1, "strategy": "single"}
            yield Case("steps", "steps", alone, partial(_step, name, batch, "single"),
                       seconds=0.7, how="sequence", first=True, twice=True)  # fmt: skip
            if world.size > 1:
                together = {**columns, "ranks": world.size, "strategy": "ddp"}
                yield Case("steps", "steps", together, partial(_step, name, batch, "ddp"),
                           mode="lockstep", seconds=1.0, twice=True)  # fmt: skip
