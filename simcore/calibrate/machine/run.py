"""Calibration of the machine that this runs on: measure, fit, write the profile.

Every rank of a node runs ``calibrate_rank``; rank 0 decides what runs, fits and writes. ``simcore
calibrate`` starts the ranks (``calibrate.machine.launch``); torchrun can start them as well.
"""

from __future__ import annotations

import datetime
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final, Literal

from simcore.base.errors import UnknownName, UsageError
from simcore.base.record import dataclass
from simcore.calibrate.bench import load_families
from simcore.calibrate.bench.case import World
from simcore.calibrate.bench.harness import Outcome, Progress, plan, run_cases
from simcore.calibrate.bench.memory_bound import from_memory_bytes
from simcore.calibrate.bench.memory_probe import probe
from simcore.calibrate.bench.pulse import Pulses
from simcore.calibrate.bench.store import BadRows, RawRow, Store
from simcore.calibrate.machine.fit import (
    best_bus_bytes_per_s,
    best_bytes_per_s,
    best_flop_per_s,
    own_rows,
)
from simcore.calibrate.machine.one_speed import at_one_speed
from simcore.calibrate.machine.profile import fit_profile, write_conditions
from simcore.calibrate.machine.record import Facts, Machine, record_of, write_record
from simcore.calibrate.yaml_text import write_profile
from simcore.hardware.calibrations import Calibration
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import Profile, profile_of
from simcore.hardware.spec import GPUS

DeviceKind = Literal["cpu", "cuda"]
THIS_MACHINE: Final = "this-machine"
#: Seconds of the time budget that are reserved for fitting and writing.
FIT_S: Final = 8.0


@dataclass(frozen=True)
class CalibrationOptions:
    """The options of a calibration. ``families``: benchmarks to run, None for all."""

    output: Path
    device: DeviceKind
    name: str = THIS_MACHINE
    minutes: float = 3.0
    resume: bool = False
    bad_rows: BadRows = "refuse"
    families: tuple[str, ...] | None = None

    @property
    def raw(self) -> Path:
        """The folder of the raw measurements."""
        return self.output.with_suffix(".raw")


@dataclass(frozen=True)
class Calibrated:
    """The result of a calibration, on rank 0."""

    record: Calibration
    machine: Machine
    outcome: Outcome
    files: tuple[Path, ...]
    notes: tuple[str, ...]

    @property
    def profile(self) -> Profile:
        """The calibrated profile for predictions."""
        return profile_of(self.record)


def open_device(kind: DeviceKind, name: str, world: World) -> Any:
    """This rank's device. Raises UsageError if torch or the device is missing.

    ``name`` is the device's name in the tables if the database does not have it.
    """
    torch = needed_torch()
    from simcore.calibrate.bench.devices import CpuDevice, CudaDevice
    from simcore.calibrate.bench.ranks import local_rank

    if kind == "cuda":
        if not torch.cuda.is_available():
            raise UsageError("no CUDA device here: calibrate the processor with --device cpu")
        torch.cuda.set_device(local_rank())
        return CudaDevice(known_gpu(torch.cuda.get_device_name()) or name, local_rank())
    threads = max(1, len(os.sched_getaffinity(0)) // world.size)
    torch.set_num_threads(threads)
    return CpuDevice(name, threads, world.size)


def needed_torch() -> Any:
    """The module torch. Raises UsageError with how to install it if it is missing."""
    try:
        import torch
    except ModuleNotFoundError as err:
        if err.name != "torch":
            raise
        raise UsageError("measuring this machine needs PyTorch: pip install '.[torch]'") from None
    return torch


def known_gpu(device_name: str) -> str | None:
    """The database's name of a GPU from the name that its driver reports; None if unknown."""
    for name in (device_name, device_name.removeprefix("NVIDIA ")):
        try:
            return GPUS[name].name
        except UnknownName:
            continue
    return None


def calibrate_rank(
    options: CalibrationOptions, world: World | None = None, progress: Progress | None = None
) -> Calibrated | None:
    """Measure on every rank; on rank 0 also fit, write and return the result (None elsewhere)."""
    world = world or World()
    load_families()
    device = open_device(options.device, options.name, world)
    outside_tensors = probe(device, world)
    store = Store(options.raw)
    known: frozenset[tuple[str, ...]] = frozenset()
    notes: list[str] = []
    if world.rank == 0:
        known, notes = _earlier(store, options)
    known = world.share(known)
    outcome = run_cases(
        plan(device, world, options.families), device, world, store,
        budget_s=options.minutes * 60.0 - FIT_S, known=known, progress=progress,
        pulses=Pulses(device, world),
    )  # fmt: skip
    if world.rank != 0:
        return None
    rows, problems = store.rows(options.bad_rows)
    made = fit_and_write(options, device, world.size, at_one_speed(rows), outside_tensors)
    failures = (f"{k}: {v}" for k, v in outcome.failed.items())
    return replace(made, outcome=outcome, notes=(*notes, *problems, *failures, *made.notes))


def _earlier(
    store: Store, options: CalibrationOptions
) -> tuple[frozenset[tuple[str, ...]], list[str]]:
    """(keys of the cases measured by an earlier run, problems of its files).

    Without --resume the files of an earlier run are deleted.
    """
    if not options.resume:
        store.clear()
        return frozenset(), []
    rows, problems = store.rows(options.bad_rows)
    return frozenset(r.key for r in rows), problems


def fit_and_write(
    options: CalibrationOptions,
    device: Any,
    ranks: int,
    rows: Sequence[RawRow],
    outside_tensors: dict[str, int],
) -> Calibrated:
    """Fit and write the profile from rows at one speed, and a record if the database has none.

    ``outside_tensors``: bytes of memory as from ``memory_probe.probe``. Raises UsageError if too
    little was measured.
    """
    if not own_rows(rows, "gemm") or not own_rows(rows, "memory_bound"):
        raise UsageError(
            "too little was measured for a profile: give it more --minutes, or --resume"
        )
    conditions = {
        "date": datetime.date.today().isoformat(), "ranks": str(ranks), **device.conditions(),
    }  # fmt: skip
    write_conditions(options.raw, conditions, outside_tensors)
    machine = _found(options, device, ranks, rows, conditions)
    files: list[Path] = []
    if machine.new:
        files += write_record(machine, options.output.parent)
    made = fit_profile(rows, machine, options.output.stem, conditions, outside_tensors)
    write_profile(options.output, made.record)
    return Calibrated(
        made.record, machine, Outcome(0, 0, 0), (options.output, options.raw, *files), made.notes
    )


def _found(
    options: CalibrationOptions,
    device: Any,
    ranks: int,
    rows: Sequence[RawRow],
    conditions: dict[str, str],
) -> Machine:
    """The hardware record of this machine: the database's, else one made from measured rates."""
    from simcore.calibrate.bench.devices import host_memory_bytes, processor_name

    if device.kind == "cuda" and device.name in GPUS.names():
        group = parse_cluster(f"1x{ranks}x{device.name}").groups[0]
        return Machine(group.gpu, group.node, ranks, new=False)
    host = {r.cells["op"]: r.number("bytes") / r.seconds for r in own_rows(rows, "host")
            if r.cells["op"].startswith("disk")}  # fmt: skip
    crowd = [r.number("bytes") / r.seconds for r in own_rows(rows, "memory_bound", "together")]
    peaks = {d: p for d in device.dtypes if (p := best_flop_per_s(rows, d))}
    bandwidth = best_bytes_per_s(rows, from_memory_bytes(device))
    if not bandwidth:
        raise UsageError("no stream larger than the caches was measured: --resume with more time")
    what = conditions.get("device") or processor_name()
    count, properties = 0, None
    if device.kind == "cuda":
        import torch

        properties = torch.cuda.get_device_properties(device.index)
        count = int(properties.multi_processor_count)
    else:
        what = f"{what}, {device.threads} core{'s' if device.threads > 1 else ''} a rank"
    return record_of(
        Facts(
            name=options.name, kind=device.kind, device=what,
            source=f"best of simcore calibrate's benchmarks on {conditions['date']}, "
            f"torch {conditions['torch']}",
            ranks=ranks, cores=os.cpu_count() or 1, memory_bytes=float(device.memory_bytes),
            host_bytes=float(host_memory_bytes()), flop_per_s=peaks, bytes_per_s=bandwidth,
            host_bytes_per_s=max([bandwidth, *(ranks * c for c in crowd)]),
            bus_bytes_per_s=best_bus_bytes_per_s(rows),
            disk_read_bytes_per_s=host.get("disk-read", 0.0),
            disk_write_bytes_per_s=host.get("disk-write", 0.0),
            sm_count=count,
        )
    )  # fmt: skip
