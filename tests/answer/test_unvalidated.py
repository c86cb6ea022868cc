"""What an interval says of devices of which no step was compared with a prediction."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS

TABLES = Path(os.environ.get("SIMCORE_TABLES", "/nowhere"))
JOB = {"strategy": "zero3", "precision": "bf16", "micro_batch": 1}
NEW = (
    "TPU-v5e", "TPU-v4", "Trainium2", "Trainium3", "VR200", "MI455X", "H200-NVL", "GH200-144GB",
    "RTX-PRO-6000-WS", "RTX-PRO-6000-MaxQ", "R9700", "Arc-B580", "MI300A", "MI308X",
    "Ascend-910C", "Ascend-950PR", "Ascend-950DT", "MTT-S5000",
)  # fmt: skip


def _origin(gpu: str) -> str:
    return str(api.predict("gpt2", f"2x{gpu}", **JOB).step_time_s.origin)


@pytest.mark.parametrize("gpu", NEW)
def test_devices_without_measured_steps_say_so(gpu: str) -> None:
    assert f"unvalidated: no measured step of {gpu}" in _origin(gpu)


def test_measured_devices_do_not() -> None:
    assert "unvalidated" not in _origin("H100") + _origin("TPU-v6e")


def test_announced_figures_widen_the_interval() -> None:
    def width(gpu: str) -> float:
        t = api.predict("gpt2", f"2x{gpu}", **JOB).step_time_s
        return float(t.high / t.low)

    assert "preliminary" in _origin("VR200")
    assert width("VR200") > 1.1 * width("GB300")


@pytest.mark.parametrize("gpu", ["TPU-v5e", "TPU-v5p", "TPU-v6e", "TPU-v7x"])
def test_tpus_refuse_half_precision(gpu: str) -> None:
    with pytest.raises(InvalidConfig, match=f"{gpu} cannot run fp16: it has peaks for bf16"):
        api.predict("gpt2", f"4x{gpu}", strategy="ddp", precision="fp16")


@pytest.mark.parametrize(("gpu", "usual"), [("TPU-v5e", "amp-bf16"), ("Gaudi3", "amp-fp16")])
def test_the_usual_precision_is_one_that_the_device_has(gpu: str, usual: str) -> None:
    """ResNet-50's own training is in amp-fp16, of which TPUs have nothing."""
    assert api.predict("resnet50", f"4x{gpu}").precision == usual


@pytest.mark.skipif(not TABLES.is_dir(), reason="SIMCORE_TABLES is not set")
def test_the_list_names_every_device_of_the_tables_of_steps() -> None:
    named = set()
    for table in TABLES.glob("steps/*.csv"):
        with table.open(encoding="utf-8", newline="") as file:
            rows = [r for r in csv.DictReader(file) if r.get("gpu_type")]
        named |= {
            r["gpu_type"] for r in rows if r.get("step_time_s") or r.get("throughput")
        }  # fmt: skip
    known = set(load_profile().runtime["steps_measured_on"])
    assert {GPUS[name].name for name in named} <= known
