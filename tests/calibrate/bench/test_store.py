"""Raw tables: what is written is read back, what is unsound is named by file and line."""

from __future__ import annotations

import csv
from dataclasses import replace
from pathlib import Path

import pytest

from simcore.base.errors import DataError, InvalidConfig
from simcore.calibrate.bench.case import Case, Columns, Measured
from simcore.calibrate.bench.store import PULSES, TABLES, Store

COLUMNS: Columns = {"gpu": "g", "dtype": "fp32", "op": "linear", "m": 8, "n": 9, "k": 10,
                    "batch": 1, "layout": "TN"}  # fmt: skip


def measured(op: str, seconds: float = 1e-3) -> Measured:
    made = Case("gemm", "gemm", {**COLUMNS, "op": op}, lambda _: lambda: None, cold=True)
    return Measured(made, seconds, 0.01, 7, 0.0)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    made = Store(tmp_path / "raw")
    for op in ("linear", "linear_dgrad", "bmm"):
        made.add(measured(op), 1)
    return made


def test_round_trip(store: Store) -> None:
    rows, problems = store.rows()
    assert not problems
    assert [r.seconds for r in rows] == [1e-3] * 3
    assert [r.key for r in rows] == [
        measured(op).case.key for op in ("linear", "linear_dgrad", "bmm")
    ]


def test_columns_begin_as_those_of_the_measured_op_tables(store: Store) -> None:
    """The first columns of the shared tables, so that ``validate ops`` reads these too."""
    header = store.path("gemm").read_text(encoding="utf-8").splitlines()[0].split(",")
    shared = [
        "gpu",
        "dtype",
        "op",
        "m",
        "n",
        "k",
        "batch",
        "layout",
        "time_us",
        "timing",
        "power_w",
        "kernel",
        "source",
    ]
    assert header[: len(shared)] == shared
    assert TABLES["memory_bound"][:9] == (
        "gpu", "dtype", "op", "rows", "cols", "elements", "bytes", "time_us", "timing",
    )  # fmt: skip


@pytest.mark.parametrize(
    ("column", "cell", "said"),
    [
        ("time_us", "nan", "time_us 'nan' must be finite"),
        ("time_us", "-3", "time_us '-3' must be finite and above zero"),
        ("time_us", "TN", "time_us 'TN' is not a number"),
        ("m", "-8", "m '-8' must be a number above zero"),
        ("mode", "cold", "mode 'cold' is not one of"),
        ("source", "7", "columns are shifted"),
    ],
)
def test_an_unsound_row_is_named_by_file_and_line(
    store: Store, column: str, cell: str, said: str
) -> None:
    path = store.path("gemm")
    with path.open(newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    rows[2][rows[0].index(column)] = cell
    with path.open("w", newline="", encoding="utf-8") as file:
        csv.writer(file).writerows(rows)
    with pytest.raises(InvalidConfig) as err:
        store.rows()
    assert f"{path}:3: " in str(err.value)
    assert said in str(err.value)
    kept, problems = store.rows("skip")
    assert len(kept) == 2
    assert len(problems) == 1


def test_a_swapped_pair_of_columns_is_seen(store: Store) -> None:
    path = store.path("gemm")
    lines = path.read_text(encoding="utf-8").splitlines()
    cells = lines[1].split(",")
    at = TABLES["gemm"].index("layout")
    cells[at], cells[at + 1] = cells[at + 1], cells[at]  # layout and time_us
    path.write_text("\n".join([lines[0], ",".join(cells), *lines[2:]]) + "\n", encoding="utf-8")
    with pytest.raises(InvalidConfig, match=r"gemm\.csv:2: time_us 'TN' is not a number"):
        store.rows()


def test_a_case_that_is_there_twice_is_named(store: Store) -> None:
    store.add(measured("bmm", 2e-3), 1)
    with pytest.raises(InvalidConfig, match=r"gemm\.csv:5: the same case as .*gemm\.csv:4"):
        store.rows()
    rows, _ = store.rows("skip")
    assert len(rows) == 3


def test_a_row_cut_short_is_named(store: Store) -> None:
    path = store.path("gemm")
    path.write_text(path.read_text(encoding="utf-8")[:-20], encoding="utf-8")
    with pytest.raises(InvalidConfig, match=r"gemm\.csv:4: "):
        store.rows()


def test_a_table_of_other_columns_is_refused(store: Store) -> None:
    store.path("conv").write_text("gpu,time_us\ng,1\n", encoding="utf-8")
    with pytest.raises(DataError, match=r"conv\.csv:1: has other columns"):
        store.rows("skip")


def test_a_table_of_convolutions_of_an_earlier_release_is_read(tmp_path: Path) -> None:
    columns: Columns = {"gpu": "g", "dtype": "fp32", "batch": 8, "cin": 3, "cout": 4,
                        "kernel_size": 1, "in_hw": 5, "stride": 1, "pad": 0,
                        "pass": "fwd"}  # fmt: skip
    made = Case("conv", "conv", columns, lambda _: lambda: None, cold=True)
    store = Store(tmp_path)
    store.add(Measured(made, 1e-3, 0.01, 7, 0.0, how="queue"), 1)
    path = store.path("conv")
    with path.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    assert rows[0]["timing"] == "cold_queue"
    before = [c for c in TABLES["conv"] if c not in ("groups", "layout")]
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.DictWriter(file, before, extrasaction="ignore")
        writer.writeheader()
        writer.writerows(rows)
    (row,), problems = store.rows()
    assert not problems and row.key == made.key and row.cells["layout"] == ""


def test_a_table_begun_by_an_earlier_release_is_read_and_goes_on(store: Store) -> None:
    """Its rows have no pulse, and a new row fits into its columns."""
    path = store.path("gemm")
    old = len(TABLES["gemm"]) - len(PULSES)
    with path.open(encoding="utf-8", newline="") as file:
        rows = [row[:old] for row in csv.reader(file)]
    with path.open("w", encoding="utf-8", newline="") as file:
        csv.writer(file, lineterminator="\n").writerows(rows)
    pulse = {PULSES["compute"]: 123.0}
    store.add(
        replace(measured("bmm"), case=replace(measured("bmm").case, cold=False), values=pulse), 1
    )
    found, problems = store.rows()
    assert not problems and len(found) == 4
    assert [r.pulse for r in found] == [{}] * 4
