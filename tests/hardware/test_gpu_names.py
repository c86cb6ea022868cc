"""Names of GPUs as people and published tables write them."""

from __future__ import annotations

import csv
import os
from pathlib import Path

import pytest

from simcore.base.errors import UnknownName
from simcore.hardware.spec import GPUS

TABLES = Path(os.environ.get("SIMCORE_TABLES", "/nowhere"))
#: A name as it is written somewhere -> the record that is meant.
WRITTEN = {
    "B200-192GB": "B200-SXM", "P100-SXM2-16GB(DGX-1)": "P100-SXM-16GB",
    "H200-NVL-PCIe-141GB": "H200-NVL", "RTX PRO 6000 Server": "RTX-PRO-6000",
    "RTX PRO 6000 Workstation": "RTX-PRO-6000-WS",
    "RTX PRO 6000 Max-Q": "RTX-PRO-6000-MaxQ", "NVIDIA RTX PRO 6000 96GB": "RTX-PRO-6000",
    "TPU-v7x-192GB": "TPU-v7x", "TPU-v6e-32GB": "TPU-v6e", "TPU-v5p-95GB": "TPU-v5p",
    "TPU v5 lite": "TPU-v5e", "Trillium": "TPU-v6e", "Ironwood": "TPU-v7x",
    "V100-SXM2-16/32GB(DGX-1)": "V100-SXM-32GB", "A100(mem unspecified)": "A100-SXM-80GB",
    "A16 (per GPU of 4)": "A16", "GB300-NVL72-288GB": "GB300", "H100 SXM5 80 GB": "H100-SXM-80GB",
    "NVIDIA H100 80GB HBM3 700W": "H100-SXM-80GB", "H100-SXM-80GB-HBM3": "H100-SXM-80GB",
    "Radeon AI PRO R9700 32GB": "R9700", "Intel Arc B580 12GB": "Arc-B580",
    "AMD Instinct MI300A 128GB": "MI300A", "MI308X-192GB": "MI308X", "MI455X-432GB": "MI455X",
    "Ascend 910C 128GB": "Ascend-910C", "Ascend 950PR": "Ascend-950PR",
    "950DT-144GB": "Ascend-950DT", "MTT S5000 80GB": "MTT-S5000", "GH200-144GB-HBM3": "GH200-144GB",
    "GH200 NVL2": "GH200-144GB", "VR200 NVL72": "VR200", "AWS Trainium2 96GB": "Trainium2",
    "trn3": "Trainium3", "Tesla-P100-PCIE-16GB": "P100-PCIE-16GB", "RTX4090 24GB": "RTX4090",
    "GeForce RTX 3090 24 GB": "RTX3090", "H20-96GB": "H20",
}  # fmt: skip


@pytest.mark.parametrize("name", WRITTEN)
def test_names_that_people_write(name: str) -> None:
    assert GPUS[name].name == WRITTEN[name]


@pytest.mark.parametrize(
    "name",
    [
        "A100-60GB",  # no such memory
        "H200-NVL-SXM",  # a PCIe card
        "RTX4090-1000W", "B200-PCIe", "TPU-v9", "H100-NVL72", "(DGX-1)", "80GB", "SXM2",
    ],
)  # fmt: skip
def test_what_contradicts_the_record_is_unknown(name: str) -> None:
    with pytest.raises(UnknownName):
        GPUS[name]


def _names_of_tables() -> set[str]:
    found: set[str] = set()
    for table in [*TABLES.glob("steps/*.csv"), TABLES / "gpu_specs.csv"]:
        with table.open(encoding="utf-8", newline="") as file:
            for row in csv.DictReader(file):
                found |= {row[key] for key in ("gpu_type", "gpu") if row.get(key)}
    return found


@pytest.mark.skipif(not TABLES.is_dir(), reason="SIMCORE_TABLES is not set")
def test_every_name_of_the_measured_tables_is_understood() -> None:
    names = _names_of_tables()
    assert len(names) > 80
    unknown = []
    for name in sorted(names):
        try:
            GPUS[name]
        except UnknownName:
            unknown.append(name)
    assert unknown == []
