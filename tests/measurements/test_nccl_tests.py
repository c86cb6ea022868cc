"""nccl-tests logs of every kind, and what must not be taken for a measurement."""

from __future__ import annotations

from pathlib import Path

import pytest
from nccl_logs import H100, nccl_log, nccl_report

from simcore.base.errors import DataError
from simcore.measurements.nccl_runs import NcclRun
from simcore.measurements.nccl_tests import is_nccl_json, is_nccl_tests, read_nccl_tests

SIZES = [2**k for k in range(12, 31, 3)]
LOG = Path("log.txt")


def straight(n_bytes: int) -> float:
    return 20e-6 + n_bytes / 200e9


def only(text: str, op: str = "") -> NcclRun:
    found = read_nccl_tests(LOG, text, op)
    assert not found.problems and len(found.runs) == 1
    return found.runs[0]


@pytest.mark.parametrize(
    "op", ["all_reduce", "all_gather", "reduce_scatter", "all_to_all", "broadcast", "send_recv"]
)
def test_every_collective_gives_its_times_back(op: str) -> None:
    run = only(nccl_log(straight, SIZES, op=op, hosts=2))
    assert (run.op, run.n_ranks, run.version) == (op, 16, "2.27.3")
    assert run.ranks_by_host() == {"node-0": 8, "node-1": 8}
    assert run.gpu_names() == (H100,)
    for row, size in zip(run.rows, SIZES, strict=True):
        side = row.side(op)
        assert row.n_bytes == size and side is not None
        assert side.time_s == pytest.approx(straight(size), rel=1e-3)  # two decimals are printed


def test_gradients_are_reduced_in_place_and_parameters_gathered_out_of_place() -> None:
    for op, factor in (("all_reduce", 2.0), ("all_gather", 1.0)):
        run = only(nccl_log(straight, SIZES, op=op, in_place_factor=2.0))
        side = run.rows[-1].side(op)
        assert side is not None
        assert side.time_s == pytest.approx(factor * straight(SIZES[-1]), rel=1e-3)


def test_several_runs_labels_and_debug_lines() -> None:
    """What `srun --label` and NCCL_DEBUG=INFO make of a log."""
    text = nccl_log(straight, SIZES) + nccl_log(straight, SIZES, op="all_gather", per_host=4)
    noisy = "".join(
        f"0: {line}0: node-0:17:99 [0] NCCL INFO Channel 00/24 : 0 1 2 3 [send]\n"
        for line in text.splitlines(keepends=True)
    )
    assert is_nccl_tests(noisy)
    found = read_nccl_tests(LOG, noisy)
    assert [(r.op, r.n_ranks, len(r.rows)) for r in found.runs] == [
        ("all_reduce", 8, len(SIZES)), ("all_gather", 4, len(SIZES)),
    ]  # fmt: skip
    assert not found.problems


#: As version 2.0 printed it (NVIDIA/nccl-tests issues 44 and 107): no reduction, no root, "error".
OLD = """\
$ ./build/all_gather_perf -b 1M -e 4M -f 2 -g 2
# nThread 1 nGpus 2 minBytes 1048576 maxBytes 4194304 step: 2(factor) warmup iters: 5 iters: 20
#
# Using devices
#   Rank  0 Pid   1320 on ip-172-31 device  0 [0x01] GeForce RTX 2080 Ti
#   Rank  1 Pid   1320 on ip-172-31 device  1 [0x02] GeForce RTX 2080 Ti
#
#                                             out-of-place                    in-place
#       size         count    type     time   algbw   busbw  error     time   algbw   busbw  error
#        (B)    (elements)             (us)  (GB/s)  (GB/s)            (us)  (GB/s)  (GB/s)
     1048576        131072   float    47.38   22.13   11.06  0e+00    46.84   22.39   11.19  0e+00
     2097152        262144   float    70.44   29.77   14.89  0e+00    69.77   30.06   15.03  0e+00
     4194304        524288   float    120.1   34.92   17.46  0e+00    115.5   36.31   18.16  0e+00
"""


def test_an_old_log() -> None:
    run = only(OLD)
    assert (run.op, run.n_ranks) == ("all_gather", 2)
    assert [r.n_bytes for r in run.rows] == [2**20, 2**21, 2**22]
    assert run.rows[2].out_of_place is not None
    assert run.rows[2].out_of_place.time_s == pytest.approx(120.1e-6)


def test_an_old_log_has_differences_not_counts_of_wrong_results() -> None:
    """Sums of floats differ by rounding; the old tests allowed 1e-5 of it (DeltaMaxValue)."""
    assert len(only(OLD.replace("0e+00", "2e-07")).rows) == 3
    assert read_nccl_tests(LOG, OLD.replace("0e+00", "3e-02")).problems
    halves = OLD.replace("float", "half").replace("0e+00", "1e-03")
    assert len(only(halves).rows) == 3
    assert read_nccl_tests(LOG, OLD.replace("float", "int32").replace("0e+00", "1e+00")).problems


def test_ranks_in_front_of_and_within_lines() -> None:
    """A launcher that tags what arrives at a time: a row is written in parts."""
    plain = nccl_log(straight, SIZES)
    tagged = "".join(
        "[0]" + line[:52] + ("[0]" if line.lstrip()[:1].isdigit() else "") + line[52:]
        for line in plain.splitlines(keepends=True)
    )
    assert is_nccl_tests(tagged)
    assert only(tagged).rows == only(plain).rows
    assert only(tagged).devices == only(plain).devices


def test_a_log_from_the_field() -> None:
    """Two HGX H100, by the author of NVIDIA/nccl-tests issue 309."""
    log = Path(__file__).parents[2] / "docs" / "examples" / "nccl-2x8xH100.txt"
    found = read_nccl_tests(log, log.read_text(encoding="utf-8"))
    (run,) = found.runs
    assert not found.problems
    assert (run.op, run.n_ranks, run.version) == ("all_reduce", 16, "2.26.2")
    assert run.ranks_by_host() == {"bm-h100-01": 8, "bm-h100-02": 8}
    last = run.rows[-1].side("all_reduce")
    assert last is not None and last.time_s == pytest.approx(68668e-6)


def test_an_all_reduce_is_known_by_its_bus_factor() -> None:
    assert only(nccl_log(straight, SIZES, named=False)).op == "all_reduce"
    assert only(nccl_log(straight, SIZES, named=False, op="reduce_scatter")).op == "reduce_scatter"
    gathered = nccl_log(straight, SIZES, named=False, op="all_gather")
    assert only(gathered).op == ""  # an all-to-all prints the same
    assert only(gathered, "all_gather").op == "all_gather"


def test_the_json_report() -> None:
    text = nccl_report(straight, SIZES)
    assert is_nccl_json(text)
    run = only(text)
    assert (run.op, run.n_ranks, run.gpu_names()) == ("all_reduce", 8, (H100,))
    assert [r.n_bytes for r in run.rows] == SIZES
    with pytest.raises(DataError, match=r"log.txt:1: is cut short"):
        read_nccl_tests(LOG, text[: len(text) // 2])


def _edited(number: int, old: str, new: str) -> str:
    lines = nccl_log(straight, SIZES).splitlines(keepends=True)
    assert old in lines[number]
    lines[number] = lines[number].replace(old, new, 1)
    return "".join(lines)


FIRST = next(
    i for i, x in enumerate(nccl_log(straight, SIZES).splitlines()) if x[:12] == f"{4096:12d}"
)
ROW_OF_LARGE = "float     sum      -1" + 2 * "  5388.71  199.26  348.70       0"
LARGE = FIRST + len(SIZES) - 1  # 2**30 B in 5389 us


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (_edited(LARGE, "5388.71", "   nan"), "time 'nan' us must be finite"),
        (_edited(LARGE, "5388.71", "-538.71"), "time '-538.71' us must be finite"),
        (_edited(LARGE, "5388.71", "199.26"), "columns shifted or swapped"),
        (_edited(LARGE, "1073741824", " 134217728"), "columns shifted or swapped"),
        (_edited(LARGE, ROW_OF_LARGE, ""), "the line is cut short"),
        (_edited(LARGE, "       0\n", "     12\n"), "12 results were wrong"),
    ],
)
def test_a_bad_row_is_named_and_the_others_kept(text: str, said: str) -> None:
    found = read_nccl_tests(LOG, text)
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"log.txt:{LARGE + 1}: ")
    assert said in found.problems[0]
    assert len(found.runs[0].rows) == len(SIZES) - 1


def test_a_size_listed_twice() -> None:
    lines = nccl_log(straight, SIZES).splitlines(keepends=True)
    lines.insert(LARGE, lines[LARGE])
    found = read_nccl_tests(LOG, "".join(lines))
    assert found.problems == (
        f"log.txt:{LARGE + 2}: size 1073741824 is listed in line {LARGE + 1} too",
    )
    assert len(found.runs[0].rows) == len(SIZES)


def test_another_collective_than_it_says() -> None:
    text = nccl_log(straight, SIZES, op="all_gather").replace("all_gather_perf", "all_reduce_perf")
    found = read_nccl_tests(LOG, text)
    assert not found.runs
    assert "busbw over algbw is 0.875; for all_reduce on 8 ranks it is 1.75" in found.problems[0]


def test_processes_that_did_not_find_each_other() -> None:
    """Built without MPI=1, every process of mpirun is a rank 0 of its own (issue 107)."""
    one = nccl_log(straight, SIZES, per_host=1)
    head, table = one.split("NCCL version", 1)
    found = read_nccl_tests(LOG, head + head + "NCCL version" + table)
    assert not found.runs and "MPI=1" in found.problems[0]


def test_no_log() -> None:
    assert not is_nccl_tests("id,model,gpus\na,b,c\n")
    with pytest.raises(DataError, match="holds no row"):
        read_nccl_tests(LOG, "# nThread 1 nGpus 8 minBytes 8 maxBytes 8\n")
