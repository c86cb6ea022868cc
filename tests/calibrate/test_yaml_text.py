"""YAML text that reads back as what was written."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcore.base.database import read_yaml
from simcore.calibrate.machine.record import node_data
from simcore.calibrate.yaml_text import write_profile, yaml_text
from simcore.hardware.calibrations import calibration_named, calibration_names
from simcore.hardware.spec import NODES


@pytest.mark.parametrize(
    "data",
    [
        {"a": "no", "b": "13.0", "c": "2026-11-26", "d": "- x", "e": "a: b", "f": 'said "x"'},
        {"a": "", "b": " x", "c": "~", "d": "1e3", "e": "12:30", "f": "2.03 us", "g": "1x8xA100"},
        {"a": {"b": {"c": 1, "d": [1, 2]}}, "e": [{"f": {"g": 0.5}}], "h": {}, "i": []},
        {"on": True, "off": False, "n": 3, "x": 0.1234, "tiny": 4.05e-07},
        *(node_data(NODES[name]) for name in ("DGX-H100", "DGX-1V")),
    ],
    ids=lambda d: next(iter(d)),
)
def test_it_reads_back(tmp_path: Path, data: dict[str, Any]) -> None:
    path = tmp_path / "a.yaml"
    path.write_text(yaml_text(data), encoding="utf-8")
    assert read_yaml(path) == data


@pytest.mark.parametrize("name", calibration_names())
def test_a_calibration_reads_back(tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.yaml"
    write_profile(path, calibration_named(name))
    assert calibration_named(str(path)).model_dump() == calibration_named(name).model_dump()
