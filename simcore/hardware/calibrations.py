"""Calibration records: fitted multipliers, figures measured on one device, where both are from.

What was measured on one device (``MeasuredDevice``) are efficiencies: shares of the peaks in the
device's record, so that the two files belong together. The record holds the datasheet's peaks, or
peaks that were measured with the efficiencies.

The names of devices are checked here; ``request.assumptions`` checks those of models.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import lru_cache
from pathlib import Path
from typing import Annotated, Any, Literal

from simcore.base.database import Database, fold_name, load_record, parse_shipped
from simcore.base.errors import DataError, InvalidConfig, UnknownName, UsageError
from simcore.base.figures import Part, Reads, Record, entry
from simcore.base.units import parse_quantity
from simcore.hardware.cluster import parse_network
from simcore.hardware.spec import GPUS, NODES, PeakName


def own_class(kind: str, peak: PeakName) -> str:
    """Key of a kind of kernel at a peak in ``MeasuredDevice.compute_efficiency``."""
    unit = _UNITS.get(peak, "tensor16")
    return "attention" if kind == "attention" and unit == "tensor16" else f"{kind}_{unit}"


#: Key of the rate of attention's backward pass over that of its forward pass.
ATTENTION_BACKWARD = "attention_backward"
_UNITS: dict[PeakName, str] = {
    "fp32": "simt32", "fp64": "simt32", "tf32": "tf32", "fp8": "tensor8", "int8": "tensor8",
    "fp4": "tensor4",
}  # fmt: skip


def _seconds(raw: object) -> object:
    return parse_quantity(raw, "seconds", positive=False) if isinstance(raw, str) else raw


def _bytes(raw: object) -> object:
    return parse_quantity(raw, "bytes", positive=False) if isinstance(raw, str) else raw


class Fitted(Part):
    """A fitted figure and the measurements behind it.

    ``sd_log``: standard deviation of the value's logarithm; ``rows``: number of measurements;
    ``valid``: the range that they span; ``leave_one_out_mape_frac``: mean absolute relative error
    of predicting each measurement from a fit without it.
    """

    value: float
    sd_log: float = entry(ge=0)
    rows: int = entry(default=0, ge=0)
    valid: str = ""
    leave_one_out_mape_frac: float | None = None
    note: str = ""


class FittedTime(Fitted):
    """A fitted time [s], in the file a text with a unit; zero where there is no such cost."""

    value: Annotated[float, Reads(_seconds)]


class FittedBytes(Fitted):
    """A fitted size [bytes], in the file a text with a unit."""

    value: Annotated[float, Reads(_bytes)]


class Contention(Part):
    """Share of its compute and memory rates that each of ``ranks`` busy ranks of a node keeps."""

    ranks: int = entry(ge=2)
    compute: Fitted
    memory: Fitted


class MeasuredLink(Part):
    """Collectives measured within one node: share of the link's payload rate, and seconds per hop.

    ``ramp``: loss at message sizes between the latency and the bandwidth regime
    (``physics.collectives.ramped_s``); None where it was not fitted.
    """

    node: str
    ranks: int
    efficiency: Fitted
    hop: FittedTime
    ramp: Fitted | None = None


class Overlap(Part):
    """Relative slowdown of kernels and of a collective while both run at once."""

    compute_slowdown: Fitted
    comm_slowdown: Fitted


class TimedKernel(Part):
    """Seconds of one kernel of a training step, measured at one batch.

    ``kernel``: phase, kind and shape (``step.kernel_text``); ``precision``: that of the step;
    ``batch``: samples; ``sd_log``: standard deviation of the logarithm of the seconds.
    """

    kernel: str
    precision: str
    batch: float = entry(gt=0)
    seconds: float = entry(gt=0)
    sd_log: float = entry(default=0.0, ge=0)


class TimedUpdate(Part):
    """Seconds of an optimizer's update of a model of ``numel`` parameters, over those by figures.

    ``optimizer``: its name and implementation.
    """

    optimizer: str
    numel: float = entry(gt=0)
    over_figures: float = entry(gt=0)
    sd_log: float = entry(default=0.0, ge=0)


class MeasuredDevice(Part):
    """Figures measured on ``gpu``; a missing one is taken from the blind profile.

    ``kernel_start``: device time of a kernel without work. Where the device is the host's own CPU
    it includes the launch, and ``host_issue`` and ``host_launch`` are 0. The keys of
    ``compute_efficiency`` and ``memory_efficiency`` are those of ``blind.yaml``. ``kernels``:
    kernels of training steps, timed by shape; ``updates``: optimizers' updates of their models;
    ``step_over_kernels``: measured seconds of the whole steps whose kernels were timed, over the
    predicted ones, with the spread to expect of further such steps.

    ``compute_over_blind``, ``memory_over_blind``, ``start_over_blind``: measured rate (of the
    start: time) over that of the blind profile, for devices that the blind profile covers. All its
    mechanisms then apply to the calibrated profile too. Keys of compute are those of
    :func:`own_class` and :data:`ATTENTION_BACKWARD`, keys of memory are kinds of kernel.
    """

    gpu: str
    compute_over_blind: dict[str, Fitted] = entry(default_factory=dict)
    memory_over_blind: dict[str, Fitted] = entry(default_factory=dict)
    start_over_blind: Fitted | None = None
    compute_efficiency: dict[str, Fitted] = entry(default_factory=dict)
    memory_efficiency: dict[str, Fitted] = entry(default_factory=dict)
    kernel_start: FittedTime | None = None
    host_issue: FittedTime | None = None
    host_launch: FittedTime | None = None
    sustained_over_burst: Fitted | None = None
    context: FittedBytes | None = None
    contention: tuple[Contention, ...] = ()
    link: MeasuredLink | None = None
    overlap: Overlap | None = None
    updates: tuple[TimedUpdate, ...] = ()
    step_over_kernels: Fitted | None = None
    kernels: tuple[TimedKernel, ...] = ()

    @property
    def timed_kernels(self) -> bool:
        """Whether kernels were timed, and not links alone."""
        return bool(self.compute_efficiency or self.memory_efficiency or self.kernel_start)

    @property
    def timed_attention(self) -> bool:
        """Whether attention was timed; its figures then cover forward and backward."""
        return any(key.startswith("attention") for key in self.compute_efficiency)

    def overlay(self, tables: Mapping[str, Any], source: str) -> dict[str, Any]:
        """The blind profile's tables with this device's figures in their ``by_gpu`` sections."""

        def leaf(f: Fitted) -> dict[str, Any]:
            return {"value": f.value, "sd_log": f.sd_log, "source": source}

        def merged(section: Mapping[str, Any], own: Mapping[str, Fitted]) -> dict[str, Any]:
            out = dict(section)
            for key, f in own.items():
                table = dict(out.get(key) or {})
                table["by_gpu"] = {**(table.get("by_gpu") or {}), self.gpu: leaf(f)}
                out[key] = table
            return out

        clock = self.sustained_over_burst or Fitted(value=1.0, sd_log=0.0)
        host = dict(tables["host"])
        for key, f in (
            ("kernel_start", self.kernel_start), ("host_issue", self.host_issue),
            ("host_launch", self.host_launch),
        ):  # fmt: skip
            if f is not None:
                host[key] = leaf(f)
        return {
            **tables,
            "compute_efficiency": merged(tables["compute_efficiency"], self.compute_efficiency),
            "memory_efficiency": merged(tables["memory_efficiency"], self.memory_efficiency),
            "clocks": merged(tables["clocks"], dict.fromkeys(tables["clocks"], clock)),
            "host": host,
        }

    def shared_rate(self, ranks: int) -> tuple[float, float]:
        """(compute, memory) shares of its rates that a rank keeps while ``ranks`` run on its node.

        Interpolated linearly in logarithms between the measured numbers of ranks; constant beyond
        the largest.
        """
        if ranks <= 1 or not self.contention:
            return 1.0, 1.0
        import numpy as np

        known = sorted(self.contention, key=lambda c: c.ranks)
        at = np.log([1.0, *(float(c.ranks) for c in known)])

        def share(values: list[float]) -> float:
            return float(np.exp(np.interp(np.log(ranks), at, np.log([1.0, *values]))))

        return share([c.compute.value for c in known]), share([c.memory.value for c in known])


def timed_by_shape(measured: MeasuredDevice | None) -> bool:
    """Whether kernels of training steps were timed by shape."""
    return measured is not None and bool(measured.kernels)


CalibratedKnob = Literal["compute", "memory", "host", "intra", "inter", "loader", "overlap"]

#: Largest standard deviation of a logarithm that is accepted: a factor of e**3 (20) either way says
#: nothing about a value.
MAX_SD_LOG = 3.0


class Knob(Part):
    """A fitted multiplier on a figure of the blind (uncalibrated) profile.

    ``knob``: which figure. It applies to the named ``gpu``, ``node``, ``link`` or ``workload``; an
    empty name means every one. ``sd_log``: standard deviation of the multiplier's logarithm;
    ``prior_sd_log``: the same before the fit.
    """

    knob: CalibratedKnob
    value: float = entry(ge=1e-3, le=1e3)  # a factor beyond a thousand is a mistake
    sd_log: float = entry(ge=0.0, le=MAX_SD_LOG)
    gpu: str = ""
    node: str = ""
    link: str = ""
    workload: str = ""
    prior_sd_log: float | None = entry(default=None, ge=0.0, le=MAX_SD_LOG)


class CheckedStep(Part):
    """A measured step that a calibration's fit had not seen, with both predictions of it.

    ``bound``: what limits it by the calibrated prediction.
    """

    net: str
    batch: int
    ranks: int = 1
    strategy: str = "single"
    bound: Literal["device", "host"]
    measured_s: float
    blind_s: float
    calibrated_s: float


class Calibration(Record):
    """Fitted multipliers and where they are from (``hardware_db/calibrations``).

    ``origin``: the measurements in words; ``rows``: their number. ``measured``: figures of one
    benchmarked device. ``conditions``: date, versions and clocks of those benchmarks.
    ``residual_sd_log``: scatter of the logarithms of measured step times around the fit; None where
    no step was measured, and then the scatter of uncalibrated predictions applies, times
    ``residual_over_blind``. ``checked``: steps that the fit had not seen. ``notes``: what the fit
    set aside, and why. ``pulses_s``: seconds of the pulses (``calibrate.bench.pulse``) at whose
    speed of the device the figures are stated: ranks ("alone", "together") -> kind -> seconds.
    """

    origin: str
    rows: int = entry(ge=0)
    residual_sd_log: float | None = entry(default=None, ge=0.0, le=MAX_SD_LOG)
    residual_over_blind: float = entry(default=1.0, gt=0.0, le=MAX_SD_LOG)
    leave_one_out_mape_frac: float | None = None
    checked: tuple[CheckedStep, ...] = ()
    notes: tuple[str, ...] = ()
    knobs: tuple[Knob, ...]
    measured: MeasuredDevice | None = None
    conditions: dict[str, str] = entry(default_factory=dict)
    pulses_s: dict[str, dict[str, float]] = entry(default_factory=dict)

    @property
    def errors_frac(self) -> tuple[float, float] | None:
        """Mean absolute errors (blind, calibrated) of the checked steps; None without any."""
        if not self.checked:
            return None
        n = len(self.checked)
        blind = sum(abs(s.blind_s / s.measured_s - 1.0) for s in self.checked)
        return blind / n, sum(abs(s.calibrated_s / s.measured_s - 1.0) for s in self.checked) / n

    @property
    def warning(self) -> str:
        """One sentence where predictions are worse with this calibration than without, else ""."""
        if (errors := self.errors_frac) is None or errors[1] <= errors[0]:
            return ""
        return (
            f"WORSE THAN BLIND: {len(self.checked)} steps that the fit had not seen are "
            f"{errors[1]:.1%} off with this calibration and {errors[0]:.1%} without it"
        )


CALIBRATIONS: Database[Calibration] = Database(
    "calibration", "hardware_db/calibrations", Calibration
)

#: Files of the same folder that are no calibrations: every profile is built from them.
NOT_CALIBRATIONS = ("blind", "runtime", "collectives", "experts", "linear_attention")


def read_calibration(text: str, file: str) -> Calibration:
    """The calibration in untrusted YAML text; error messages call the text ``file``.

    Raises DataError with the line.
    """
    from simcore.base.figures import check_record
    from simcore.base.untrusted import untrusted_yaml

    return check_record(untrusted_yaml(text, file), Calibration, text, file)


def calibration_names() -> list[str]:
    """Names of the shipped and the user's calibrations, as ``load_profile`` accepts them."""
    return [n for n in CALIBRATIONS.names() if n not in NOT_CALIBRATIONS]


def calibration_file(name: str) -> Path | None:
    """The file of a calibration's name, or the ``.yaml`` file itself; None if there is none."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        return path if path.is_file() else None
    return CALIBRATIONS.path(name)


def calibration_named(name: str) -> Calibration:
    """The calibration of a name, or in a ``.yaml`` file. Raises UnknownName or DataError."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise DataError("no such calibration file", file=path)
        return load_record(path, Calibration)
    known = calibration_names()
    if fold_name(name) not in map(fold_name, known):
        raise UnknownName("calibration", name, known, "(or a .yaml file)")
    return CALIBRATIONS[name]


#: The one key that may restrict each knob ("": none may); pricing ignores every other key.
_RESTRICTED_BY = {
    "compute": "gpu", "memory": "gpu", "host": "gpu", "intra": "node", "inter": "link",
    "loader": "workload", "overlap": "",
}  # fmt: skip


def placed_knobs(record: Calibration) -> tuple[Knob, ...]:
    """The knobs of a calibration, with GPU, node and link by their canonical database names.

    Without this check a knob with a misspelt name would silently change nothing. Raises
    InvalidConfig with every unknown name. The GPU and node that the calibration itself measured
    need not be in the database.
    """
    problems: list[str] = []
    own_gpu = record.measured.gpu if record.measured else ""
    own_node = record.measured.link.node if record.measured and record.measured.link else ""

    def with_canonical_names(index: int, knob: Knob) -> Knob:
        canonical: dict[str, str] = {}
        allowed = _RESTRICTED_BY[knob.knob]
        for key in ("gpu", "node", "link", "workload"):
            if getattr(knob, key) and key != allowed:
                rule = f"may only name a {allowed}" if allowed else "applies everywhere"
                problems.append(f"{_name(record, index, knob)}: has {key!r}, but {rule}")
        try:
            if knob.gpu and knob.gpu != own_gpu:
                canonical["gpu"] = GPUS[knob.gpu].name
            if knob.node and knob.node != own_node:
                preset, colon, how = knob.node.partition(":")
                canonical["node"] = NODES[preset].name + colon + how
            if knob.link:
                canonical["link"] = parse_network(knob.link)[0].link
        except InvalidConfig as err:
            problems.extend(f"{_name(record, index, knob)}: {text}" for text in err.violations)
        except UsageError as err:
            problems.append(f"{_name(record, index, knob)}: {err}")
        return knob.model_copy(update=canonical) if canonical else knob

    knobs = tuple(with_canonical_names(index, knob) for index, knob in enumerate(record.knobs))
    if problems:
        raise InvalidConfig(problems)
    return knobs


def _name(record: Calibration, index: int, knob: Knob) -> str:
    return f"calibration {record.name!r}, knob {index + 1} ({knob.knob})"


#: Sections of the efficiency file that predictions read; collectives have formulas of their own.
_SECTION = re.compile(
    r"^(?:compute_efficiency|memory_efficiency|clocks|host|backward_over_forward_time|"
    r"cards):\n"
    r"(?:[ #].*\n|\n)*",
    re.MULTILINE,
)
_SOURCES = re.compile(r"^sources:\n(?:[ #].*\n|\n)*", re.MULTILINE)
#: The line of one device or family in a ``by_gpu`` or ``by_family`` table.
_ENTRY = re.compile(r"^      (\S+): \{.*\n", re.MULTILINE)


def sources_of(text: str) -> Mapping[str, Any]:
    """The ``sources`` section of a profile's text: source key -> citation."""
    return parse_shipped(_SOURCES.findall(text)[0])["sources"]


@lru_cache(maxsize=8)
def text_of(path: Path) -> str:
    """The text of a file. Raises DataError where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8")
    except OSError as err:
        raise DataError(f"cannot be read: {err.strerror}", file=path) from None


@lru_cache(maxsize=256)
def efficiencies(text: str, names: tuple[str, ...], path: Path) -> Mapping[str, Any]:
    """The efficiency tables, of devices and families only those in ``names``.

    That leaves a tenth of the file to parse. Raises DataError where the rest is no valid YAML.
    """
    wanted = "".join(_SECTION.findall(text))
    wanted = _ENTRY.sub(lambda m: m[0] if m[1].strip("'\"") in names else "", wanted)
    try:
        data = parse_shipped(wanted)
    except Exception as err:
        problem = (str(err).splitlines() or [""])[0]
        raise DataError(f"not valid YAML: {problem}", file=path) from None
    if not isinstance(data, dict):
        raise DataError("must be a mapping", file=path)
    return data
