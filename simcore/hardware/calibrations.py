"""Calibration records: fitted multipliers, figures measured on one device, where both are from."""

from __future__ import annotations

from pathlib import Path
from typing import Literal

from pydantic import Field

from simcore.base.database import Database, Record, check_record, fold_name, load_record
from simcore.base.errors import DataError, UnknownName
from simcore.base.figures import Part
from simcore.base.untrusted import untrusted_yaml
from simcore.hardware.measured import MeasuredDevice

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
    value: float = Field(ge=1e-3, le=1e3)  # a factor beyond a thousand is a mistake
    sd_log: float = Field(ge=0.0, le=MAX_SD_LOG)
    gpu: str = ""
    node: str = ""
    link: str = ""
    workload: str = ""
    prior_sd_log: float | None = Field(default=None, ge=0.0, le=MAX_SD_LOG)


class Calibration(Record):
    """Fitted multipliers and where they are from (``hardware_db/calibrations``).

    ``origin``: the measurements in words; ``rows``: their number. ``measured``: figures of one
    benchmarked device. ``conditions``: date, versions and clocks of those benchmarks.
    ``residual_sd_log``: scatter of the logarithms of measured step times around the fit; None where
    no step was measured, and then the scatter of uncalibrated predictions applies.
    """

    origin: str
    rows: int = Field(ge=0)
    residual_sd_log: float | None = Field(default=None, ge=0.0, le=MAX_SD_LOG)
    leave_one_out_mape_frac: float | None = None
    knobs: tuple[Knob, ...]
    measured: MeasuredDevice | None = None
    conditions: dict[str, str] = Field(default_factory=dict)


CALIBRATIONS: Database[Calibration] = Database(
    "calibration", "hardware_db/calibrations", Calibration
)

#: Files of the same folder that are no calibrations: every profile is built from them.
NOT_CALIBRATIONS = ("blind", "runtime", "collectives")


def read_calibration(text: str, file: str) -> Calibration:
    """The calibration in untrusted YAML text; error messages call the text ``file``.

    Raises DataError with the line.
    """
    return check_record(untrusted_yaml(text, file), Calibration, text, file)


def calibration_names() -> list[str]:
    """Names of the shipped and the user's calibrations, as ``load_profile`` accepts them."""
    return [n for n in CALIBRATIONS.names() if n not in NOT_CALIBRATIONS]


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
