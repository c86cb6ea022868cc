"""Calibrations as records: fitted multipliers, a device's own figures, their provenance."""

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

#: A spread of more than e**3 says nothing at all.
MAX_SD_LOG = 3.0


class Knob(Part):
    """A fitted multiplier on what the blind profile says, for what it names.

    Empty ``gpu``, ``node`` and ``link`` mean everywhere.
    """

    knob: CalibratedKnob
    value: float = Field(ge=1e-3, le=1e3)  # beyond a thousand times it is a mistake
    sd_log: float = Field(ge=0.0, le=MAX_SD_LOG)
    gpu: str = ""
    node: str = ""
    link: str = ""
    workload: str = ""
    prior_sd_log: float | None = Field(default=None, ge=0.0, le=MAX_SD_LOG)


class Calibration(Record):
    """Fitted multipliers with their provenance (``hardware_db/calibrations``).

    ``measured`` holds a device's own figures, where it was benchmarked; ``conditions`` what it was
    measured under (date, versions, clocks). ``residual_sd_log``: scatter of whole steps around the
    fit; none where no step was measured, and that of blind steps holds.
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

#: Files of the same folder that every profile is made of.
NOT_CALIBRATIONS = ("blind", "runtime", "collectives")


def read_calibration(text: str, file: str) -> Calibration:
    """A calibration from text that nobody vouches for; ``file`` is what errors name.

    Raises DataError with the line.
    """
    return check_record(untrusted_yaml(text, file), Calibration, text, file)


def calibration_names() -> list[str]:
    """Names that ``load_profile`` takes besides files."""
    return [n for n in CALIBRATIONS.names() if n not in NOT_CALIBRATIONS]


def calibration_named(name: str) -> Calibration:
    """A calibration by name or file. Raises UnknownName or DataError."""
    path = Path(name)
    if path.suffix in (".yaml", ".yml"):
        if not path.is_file():
            raise DataError("no such calibration file", file=path)
        return load_record(path, Calibration)
    known = calibration_names()
    if fold_name(name) not in map(fold_name, known):
        raise UnknownName("calibration", name, known, "(or a .yaml file)")
    return CALIBRATIONS[name]
