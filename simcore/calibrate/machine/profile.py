"""The profile of a machine from its raw measurements; needs neither the machine nor its devices.

A GPU of the database starts from the shipped figures (``prior``) and is checked on its measured
steps (``check``). A processor, or a GPU that the database does not know, has no shipped
figures: its own are fitted to the benchmarks alone (``fit``) and to its measured steps.
"""

from __future__ import annotations

import importlib.util
import json
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

from simcore.base.atomic import write_text
from simcore.base.errors import DataError, SimcoreError, UsageError
from simcore.base.record import dataclass
from simcore.base.units import format_seconds
from simcore.calibrate.bench.store import BadRows, RawRow, Store
from simcore.calibrate.machine.check import Checked, check_steps
from simcore.calibrate.machine.fit import fit_device, of_the_node, own_rows
from simcore.calibrate.machine.host import host_times, with_update
from simcore.calibrate.machine.one_speed import at_one_speed, drift_note, reference_of
from simcore.calibrate.machine.prior import PriorFit, fit_from_prior
from simcore.calibrate.machine.record import Machine
from simcore.calibrate.machine.row_kernels import times_kernels
from simcore.calibrate.machine.steps import fit_reference_steps
from simcore.calibrate.yaml_text import write_profile
from simcore.hardware.calibrations import Calibration, FittedBytes, MeasuredDevice
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.paths import cluster_paths
from simcore.hardware.profile import HOST_CPU, load_profile, profile_of

#: File in the folder of raw tables with the conditions of the measurement.
CONDITIONS: Final = "conditions.json"
UNKNOWN: Final = "unknown"


@dataclass(frozen=True)
class Fit:
    """A profile, and what its user should know."""

    record: Calibration
    notes: tuple[str, ...]


def write_conditions(
    raw: Path, conditions: Mapping[str, str], outside_tensors: Mapping[str, int]
) -> None:
    """Keep the conditions of a measurement, and its bytes outside tensors, with its raw tables."""
    data = {"conditions": conditions, "outside_tensors_bytes": outside_tensors}
    write_text(raw / CONDITIONS, json.dumps(data, indent=1) + "\n")


def read_conditions(raw: Path) -> tuple[dict[str, str], dict[str, int]]:
    """(conditions, bytes outside tensors) of a folder of raw tables; both empty if not kept.

    Raises DataError where the file is not what :func:`write_conditions` writes.
    """
    path = raw / CONDITIONS
    if not path.is_file():
        return {}, {}
    try:
        data: Any = json.loads(path.read_text(encoding="utf-8"))
        said = {str(k): str(v) for k, v in data["conditions"].items()}
        return said, {str(k): int(v) for k, v in data["outside_tensors_bytes"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as err:
        raise DataError(f"is not what `simcore calibrate` writes: {err}", file=path) from None


def refit(raw: Path, output: Path, bad_rows: BadRows = "refuse") -> tuple[Fit, Machine]:
    """Fit a profile again from the raw tables in ``raw`` and write it to ``output``.

    Raises UsageError if the folder has too few rows, or rows of several devices, and DataError for
    bad rows.
    """
    if not raw.is_dir():
        raise UsageError(
            f"--refit needs the folder of a calibration's raw tables, not {str(raw)!r}"
        )
    read, problems = Store(raw).rows(bad_rows)
    rows = at_one_speed(read)
    devices = sorted({r.cells.get("gpu") or r.cells.get("gpu_type", "") for r in rows} - {""})
    if len(devices) != 1 or not own_rows(rows, "gemm") or not own_rows(rows, "memory_bound"):
        raise UsageError(
            f"{raw} must hold rows of matrix products and of memory-bound kernels of one device; "
            f"it has {len(rows)} rows of {', '.join(devices) or 'none'}"
        )
    conditions, outside_tensors = read_conditions(raw)
    notes = list(problems)
    if not conditions:
        conditions = {"date": UNKNOWN, "torch": UNKNOWN}
        notes.append(f"{raw} does not say when and with which versions it was measured")
    ranks = max(int(r.cells.get("ranks_at_once") or 1) for r in rows)
    group = parse_cluster(f"1x{ranks}x{devices[0]}").groups[0]
    machine = Machine(group.gpu, group.node, ranks, new=group.gpu.architecture == "unknown")
    made = fit_profile(rows, machine, output.stem, conditions, outside_tensors)
    write_profile(output, made.record)
    return Fit(made.record, (*made.notes, *notes)), machine


def fit_profile(
    rows: Sequence[RawRow],
    machine: Machine,
    name: str,
    conditions: Mapping[str, str],
    outside_tensors: Mapping[str, int],
) -> Fit:
    """The profile of a machine that its rows, at one speed, determine."""
    date, torch = (conditions.get(key, UNKNOWN) for key in ("date", "torch"))
    when = " of an unknown date" if date == UNKNOWN else f", {date}, torch {torch}"
    origin = f"benchmarks of {'this machine' if machine.new else machine.gpu.name}{when}"
    link_bytes_per_s = cluster_paths(machine.cluster(machine.ranks))[0].bw_bytes_per_s
    on_host = machine.gpu.architecture == HOST_CPU
    node = machine.node.name
    notes: list[str] = []
    if on_host or machine.new:
        measured = fit_device(rows, machine.gpu, node=node, link_bytes_per_s=link_bytes_per_s,
                              on_host=on_host)  # fmt: skip
        measured = _with_memory(measured, outside_tensors)
        record = _with_steps(rows, machine, measured, name, origin, notes)
    else:
        kernels = [r for r in rows if times_kernels(r)]
        blind = load_profile()
        fit = fit_from_prior(kernels, machine.cluster(1).groups[0], blind)
        own = own_rows(rows, "host")
        fit = replace(fit, figures=with_update(fit.figures, own, machine.gpu, blind))
        measured = of_the_node(rows, node, link_bytes_per_s, machine.gpu.name).model_copy(
            update={**fit.sections(), **host_times(own, machine.gpu)}
        )
        measured = _with_memory(measured, outside_tensors)
        record = _with_check(rows, machine, measured, name, origin, notes)
        record = record.model_copy(update={"notes": _notes_on(fit)})
    missing = [
        what for what, known in (
            ("how ranks slow each other down", measured.contention),
            ("how compute and communication do", measured.overlap),
        ) if not known
    ]  # fmt: skip
    if machine.ranks > 1 and missing:
        notes.append(
            f"the machine was busy: the profile lacks {' and '.join(missing)}; measure again when "
            "it is quiet"
        )
    if record.warning:
        notes.insert(0, record.warning)
    if drift := drift_note(rows):
        notes.append(drift)
    record = record.model_copy(
        update={"rows": len(rows), "conditions": dict(conditions), "pulses_s": reference_of(rows)}
    )
    return Fit(record, tuple(notes))


def _with_steps(
    rows: Sequence[RawRow], machine: Machine, measured: MeasuredDevice, name: str, origin: str,
    notes: list[str],
) -> Calibration:  # fmt: skip
    """A profile whose multipliers are fitted to the measured steps; adds to ``notes``."""
    ops_only = load_profile().with_knobs((), name, origin, 0.0, measured)
    try:
        summed = fit_reference_steps(rows, machine, ops_only)
    except SimcoreError as err:
        raise UsageError(f"the reference steps cannot be predicted: {err}") from err
    notes += summed.left_out
    if not summed.steps:
        notes.append("no reference step was measured: the interval is an assumption")
    return Calibration(
        name=name, origin=origin, rows=0, residual_sd_log=summed.residual_sd_log,
        leave_one_out_mape_frac=summed.left_out_mape_frac, knobs=summed.knobs, measured=measured,
    )  # fmt: skip


def _with_check(
    rows: Sequence[RawRow], machine: Machine, measured: MeasuredDevice, name: str, origin: str,
    notes: list[str],
) -> Calibration:  # fmt: skip
    """A profile that is checked on the measured steps; adds to ``notes``."""
    record = Calibration(name=name, origin=origin, rows=0, knobs=(), measured=measured)
    traced = importlib.util.find_spec("torch") is not None
    try:
        checked: Checked = check_steps(rows, machine, profile_of(record), traced=traced)
    except SimcoreError as err:
        raise UsageError(f"the reference steps cannot be predicted: {err}") from err
    notes += checked.notes
    if not traced:
        notes.append("the measured steps were not predicted: tracing their networks needs PyTorch")
    elif not checked.steps:
        notes.append("no step was measured: whether the profile helps is not known")
    return record.model_copy(
        update={"knobs": checked.knobs, "checked": checked.steps,
                "residual_over_blind": checked.residual_over_blind}
    )  # fmt: skip


def _notes_on(fit: PriorFit) -> tuple[str, ...]:
    """What a fit from the shipped figures set aside, and which figures stayed as shipped."""
    notes = []
    for call, host_s in fit.host_s.items():
        tables = {what: n for (what, of), n in sorted(fit.limited.items()) if of == call}
        if tables:
            notes.append(
                f"{sum(tables.values())} rows of {call} calls "
                f"({', '.join(f'{what} {n}' for what, n in tables.items())}) took no longer than "
                f"such calls with next to no work ({format_seconds(host_s)}) or scatter as only "
                "the host does: they say that a kernel is no slower, and nothing else"
            )
    if fit.kept:
        notes.append(f"not determined, kept as shipped: {', '.join(fit.kept)}")
    return tuple(notes)


def _with_memory(measured: MeasuredDevice, outside_tensors: Mapping[str, int]) -> MeasuredDevice:
    """``measured`` with the context's memory, loaded kernels included, if it was measured."""
    context = outside_tensors.get("context", 0) + outside_tensors.get("kernels", 0)
    if not context:
        return measured
    return measured.model_copy(
        update={"context": FittedBytes(value=float(context), sd_log=0.1, rows=1)}
    )
