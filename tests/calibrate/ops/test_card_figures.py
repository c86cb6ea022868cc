"""Benchmarks of the project's own cards become multipliers on the figures of op tables."""

from __future__ import annotations

import csv
import math
from dataclasses import replace
from pathlib import Path

import pytest

from simcore.base.database import read_yaml, shipped_root
from simcore.base.errors import DataError
from simcore.base.units import MICRO
from simcore.calibrate.bench.store import SOURCE, TABLES
from simcore.calibrate.ops.card_figures import card_section
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS
from tests.calibrate.machine.test_prior import benchmarks, timed

CARDS = Path(__file__).parents[3] / "validate" / "cards"
#: A machine's rate of streams over the shipped one, and another's.
TWICE, EQUAL = math.log(2.0), 0.0


def write(folder: Path, gpu: str, elementwise_log: float) -> Path:
    """Raw tables of a machine on which streams run exp(``elementwise_log``) times as fast."""
    folder.mkdir()
    rows = timed(benchmarks(), {"memory.elementwise": elementwise_log})
    for table in ("gemm", "memory_bound"):
        with (folder / f"{table}.csv").open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, TABLES[table], lineterminator="\n")
            writer.writeheader()
            for r in (r for r in rows if r.table == table):
                told = {"gpu": gpu, "time_us": r.seconds / MICRO, "source": SOURCE, "sd_log": 0.01}
                writer.writerow({**r.cells, **told, "ranks_at_once": 1, "calls": 10})
    return folder


def test_machines_of_a_gpu_are_averaged(tmp_path: Path) -> None:
    folders = [write(tmp_path / n, "H100-SXM-80GB", v) for n, v in (("a", TWICE), ("b", EQUAL))]
    section = card_section(folders, load_profile())
    figure = section["memory.elementwise"]["by_gpu"]["H100-SXM-80GB"]
    assert figure["value"] == pytest.approx(math.sqrt(2.0), rel=0.06)
    assert all(set(entry) == {"by_gpu"} for entry in section.values())
    assert "beside" not in section


@pytest.mark.long
def test_the_shipped_figures_are_what_the_fit_to_the_cards_gives(tmp_path: Path) -> None:
    """To the last digit or two: least squares end a little elsewhere on another processor."""
    path, file = shipped_root() / "hardware_db/calibrations/blind.yaml", tmp_path / "blind.yaml"
    file.write_text(path.read_text().partition("\ncards:\n")[0])
    tables = replace(load_profile(), efficiency_file=file, _seen={})
    section = card_section(sorted(CARDS.glob("*/calibration*.raw")), tables)
    shipped = read_yaml(path)["cards"]
    assert section.keys() == shipped.keys()
    for key, entry in section.items():
        for gpu, figure in entry["by_gpu"].items():
            told = shipped[key]["by_gpu"][gpu]
            assert figure["value"] == pytest.approx(told["value"], rel=0.01), key
            assert figure["sd_log"] == pytest.approx(told["sd_log"], abs=0.002), key


def test_a_folder_of_two_gpus_is_refused(tmp_path: Path) -> None:
    folder = write(tmp_path / "a", "H100-SXM-80GB", EQUAL)
    table = folder / "gemm.csv"
    table.write_text(table.read_text().replace("H100-SXM-80GB", "L40S", 1))
    with pytest.raises(DataError, match="one GPU, not of 2"):
        card_section([folder], load_profile())


def test_a_figure_is_the_op_tables_times_the_cards_for_that_gpu_alone() -> None:
    text = (shipped_root() / "hardware_db" / "calibrations" / "blind.yaml").read_text()
    softmax = text.split("\n  memory.softmax:\n")[1].split("value: ")[1]
    factor = float(softmax.split(",")[0])
    assert factor < 0.9
    own = load_profile().memory_efficiency("softmax", GPUS["H200-SXM"])
    family = load_profile().memory_efficiency("softmax", GPUS["H100-SXM-80GB"])
    assert own.value == pytest.approx(factor * family.value, rel=1e-12)
    assert "(cards)" in own.source and "cards" not in family.source
