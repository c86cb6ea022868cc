"""The ``measured`` section of a calibration: what ``simcore calibrate`` measured on one device.

Efficiencies are shares of the peaks in the device's record, so that the two files belong together.
The record holds the datasheet's peaks, or peaks that were measured with the efficiencies.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

from simcore.base.part import Part, Reads, entry
from simcore.base.units import parse_quantity
from simcore.hardware.spec import PeakName


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
    (``physics.collectives.base.ramped_s``); None where it was not fitted.
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
