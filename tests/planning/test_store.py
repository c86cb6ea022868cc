"""Whatever happens to an interrupted sweep, its output file is that of an undisturbed one.

Faults are drawn from seeds: each test either ends with the same bytes, or fails and says so.
"""

from __future__ import annotations

import errno
import json
import multiprocessing
import os
import random
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from simcore.base.errors import DataError, SimcoreError, UsageError
from simcore.cli.main import run
from simcore.planning import evaluator, output, parallel, store
from simcore.planning.evaluator import Evaluator
from simcore.planning.folder_lock import FolderLock
from simcore.planning.parts import UnusablePart, part_at
from simcore.planning.space import make_space
from simcore.planning.sweep import SweepResult, run_sweep
from simcore.planning.workers.dask_cluster import DaskWorkers
from simcore.planning.workers.processes import Processes

#: 3,584 points, of which some are not valid, in pieces of at most 100 and about 13 parts.
GPUS = "A6000ada:1..8x8"
WORDS: dict[str, Any] = {
    "strategy": "all", "recompute": "none,full", "micro_batch": "1..8", "grad_accum": "1..4",
}  # fmt: skip
SMALL = {(evaluator, "MAX_CALL"): 100, (store, "PART_POINTS"): 250, (output, "GROUP_ROWS"): 900,
         (parallel, "HERE_S"): 0.0, (Processes, "task_s"): 0.01}  # fmt: skip
FORMATS = ("csv", "json", "parquet")
#: What a new interpreter is told, so that the same small sweep runs there.
START = """
import sys, time
from simcore.planning import evaluator, output, parallel, store
from simcore.planning.workers.processes import Processes
evaluator.MAX_CALL, store.PART_POINTS, output.GROUP_ROWS = 100, 250, 900
parallel.HERE_S, Processes.task_s = 0.0, 0.01
plain = store.Store.add
def slow(self, batch):
    time.sleep(0.02)
    plain(self, batch)
store.Store.add = slow
from simcore.cli.main import main
main(sys.argv[1:])
"""
COMMAND = ["sweep", "--model", "latte-s", "--gpus", GPUS,
           *(w for k, v in WORDS.items() for w in (f"--{k.replace('_', '-')}", v))]  # fmt: skip


def space(gpus: str = GPUS) -> Any:
    return make_space("latte-s", gpus, **WORDS)


@dataclass
class Case:
    """An interrupted sweep in a folder of its own, with what was said of it."""

    path: Path
    whole: bytes
    said: list[str] = field(default_factory=list)

    @property
    def folder(self) -> Path:
        return self.path.with_name(self.path.name + ".parts")

    @property
    def parts(self) -> list[Path]:
        return sorted(self.folder.glob("part-*"))

    def sweep(self, resume: bool = True, **words: Any) -> SweepResult:
        return run_sweep(space(), output=self.path, resume=resume, say=self.said.append, **words)

    def ends_undisturbed(self, **words: Any) -> SweepResult:
        """The sweep resumed, which ends as one that nothing disturbed."""
        found = self.sweep(**words)
        assert found.finished
        assert found.n_done == found.n_points == len(space())
        assert self.path.read_bytes() == self.whole
        assert not self.folder.exists()
        assert [p.name for p in self.path.parent.iterdir()] == [self.path.name]
        return found


@pytest.fixture(scope="module", autouse=True)
def _small() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        for (home, name), value in SMALL.items():
            patch.setattr(home, name, value)
        yield


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """``whole.FORMAT``, the folder ``half.csv.parts``, and that of another sweep."""
    folder = tmp_path_factory.mktemp("made")
    for suffix in FORMATS:
        run_sweep(space(), output=folder / f"whole.{suffix}")
    for name, asked in (("half.csv", space()), ("other.csv", space("A6000ada:1..9x8"))):
        interrupted(asked, folder / name)
    return folder


def interrupted(asked: Any, path: Path, **words: Any) -> SweepResult:
    """The sweep stopped by Ctrl-C behind seven tenths."""

    def stop(done: int, total: int, best: object) -> None:
        if done > 0.7 * total:
            raise KeyboardInterrupt

    found = run_sweep(asked, output=path, progress=stop, **words)
    assert not found.finished and not path.exists()
    return found


@pytest.fixture(scope="module")
def n_steps(tmp_path_factory: pytest.TempPathFactory) -> int:
    """How often an undisturbed sweep puts a file or a folder on the disk."""
    never = 10**6
    full = Full(never)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "fsync", full)
        run_sweep(space(), output=tmp_path_factory.mktemp("counted") / "points.csv")
    return never - full.left


@pytest.fixture
def case(made: Path, tmp_path: Path) -> Callable[[str], Case]:
    """A copy of the interrupted sweep, to be disturbed."""

    def build(suffix: str = "csv") -> Case:
        new = Case(tmp_path / f"points.{suffix}", (made / f"whole.{suffix}").read_bytes())
        shutil.copytree(made / "half.csv.parts", new.folder)
        assert len(new.parts) >= 8
        return new

    return build


def others(made: Path) -> list[Path]:
    return sorted((made / "other.csv.parts").glob("part-*"))


def truncate(rng: random.Random, part: Path, made: Path) -> None:
    os.truncate(part, rng.randrange(1, max(2, part.stat().st_size)))


def empty(rng: random.Random, part: Path, made: Path) -> None:
    os.truncate(part, 0)


def remove(rng: random.Random, part: Path, made: Path) -> None:
    part.unlink()


def swap(rng: random.Random, part: Path, made: Path) -> None:
    shutil.copy(rng.choice(others(made)), part)


def flip(rng: random.Random, part: Path, made: Path) -> None:
    data = bytearray(part.read_bytes())
    for _ in range(rng.choice((1, 1, 5))):
        data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    part.write_bytes(data)


def lengthen(rng: random.Random, part: Path, made: Path) -> None:
    part.write_bytes(part.read_bytes() + rng.randbytes(rng.randrange(1, 50)))


def repeat(rng: random.Random, part: Path, made: Path) -> None:
    shutil.copy(part, part.with_name(f"part-{rng.randrange(10**6)}.part"))


def forget(rng: random.Random, part: Path, made: Path) -> None:
    (part.parent / "sweep.json").write_text(rng.choice(("", "{", "[]", '{"model": ')))


FAULTS = (truncate, empty, remove, swap, flip, lengthen, repeat, forget)


def disturbed(case: Callable[[str], Case], made: Path, seed: int, cluster: Any = None) -> None:
    """One to four faults; a folder without its sweep.json takes no foreign parts for its own."""
    rng = random.Random(seed)
    new = case(rng.choice(FORMATS))
    faults = [FAULTS[seed % len(FAULTS)], *rng.choices(FAULTS, k=rng.randrange(4))]
    for fault in faults:
        if new.parts:
            fault(rng, rng.choice(new.parts), made)
    how: dict[str, Any] = {"cluster": cluster} if cluster else {"jobs": rng.choice((1, 1, 2))}
    before = [p.read_bytes() for p in new.parts]
    if {swap, forget} <= set(faults) and any(p.read_bytes() in before for p in others(made)):
        with pytest.raises(UsageError, match="another sweep"):
            new.sweep(**how)
        assert [p.read_bytes() for p in new.parts] == before
        assert not new.path.exists()
        return
    new.ends_undisturbed(**how)
    assert new.said or set(faults) <= {remove, forget, repeat}


@pytest.mark.parametrize("seed", range(8))
def test_a_disturbed_sweep_ends_as_an_undisturbed_one(
    case: Callable[[str], Case], made: Path, seed: int
) -> None:
    disturbed(case, made, seed)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(8, 116))
def test_a_hundred_disturbed_sweeps_end_as_undisturbed_ones(
    case: Callable[[str], Case], made: Path, seed: int
) -> None:
    disturbed(case, made, seed)


@pytest.mark.parametrize(
    ("fault", "said"),
    [
        (truncate, "is truncated"),
        (empty, "is empty"),
        (swap, "belongs to another sweep"),
        (lengthen, "is corrupted (its checksum is wrong)"),
    ],
)
def test_a_wrong_part_is_said_in_one_sentence_and_computed_again(
    case: Callable[[str], Case], made: Path, fault: Any, said: str
) -> None:
    new = case()
    lost = new.parts[3]
    first, last = (int(n) for n in lost.stem.split("-")[1:])
    fault(random.Random(1), lost, made)
    new.ends_undisturbed()
    assert new.said == [
        f"points.csv.parts: {lost.name} {said}; no part holds points {first + 1:,} to {last:,} "
        "of 3,584: missing points are computed again"
    ]


def test_a_removed_part_is_said_with_the_points_that_are_missing(
    case: Callable[[str], Case],
) -> None:
    """The case that lost rows in silence: a damaged part was removed, then --resume."""
    new = case("json")
    whole = interrupted_points(new)
    new.parts[1].unlink()
    found = new.ends_undisturbed()
    assert found.n_before < whole, "the rows of the removed part are not from before"
    assert len(new.said) == 1 and "no part holds points" in new.said[0]
    told = json.loads(new.path.read_text("utf-8"))
    kept = run_sweep(space(), keep=True)
    assert len(told["points"]) == found.n_evaluated == kept.n_evaluated
    assert (found.best, found.front, found.invalid) == (kept.best, kept.front, kept.invalid)


def interrupted_points(new: Case) -> int:
    ends = [[int(n) for n in p.stem.split("-")[1:]] for p in new.parts]
    return sum(last - first for first, last in ends)


def test_every_flipped_bit_of_the_head_is_seen(case: Callable[[str], Case], tmp_path: Path) -> None:
    part = case().parts[0]
    sound = part.read_bytes()
    sweep = json.loads(sound.split(b"\n")[2])["sweep"]
    assert part_at(part, sweep).points[0] == 0
    for at in [*range(200), len(sound) - 1]:
        data = bytearray(sound)
        data[at] ^= 1 << (at % 8)
        part.write_bytes(data)
        with pytest.raises(UnusablePart):
            part_at(part, sweep)
    with pytest.raises(UnusablePart, match="another sweep"):
        part.write_bytes(sound)
        part_at(part, "0" * 64)


def test_another_sweep_is_told_in_what_it_differs_and_touches_nothing(
    case: Callable[[str], Case], made: Path
) -> None:
    new = case()
    before = {p: p.read_bytes() for p in new.parts}
    with pytest.raises(UsageError, match=r"another sweep \(another gpus\)"):
        run_sweep(space("A6000ada:1..9x8"), output=new.path, resume=True)
    with pytest.raises(UsageError, match="holds an unfinished sweep: continue it with --resume"):
        new.sweep(resume=False)
    assert {p: p.read_bytes() for p in new.parts} == before


def test_changed_figures_make_it_another_sweep(
    case: Callable[[str], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else half of the rows would be of the old figures, half of the new ones."""
    new = case()
    monkeypatch.setattr(evaluator, "_digest", lambda profile: "changed")
    with pytest.raises(UsageError, match="another calibration figures"):
        new.sweep()


def test_a_folder_with_other_files_is_left_alone(tmp_path: Path) -> None:
    letter = tmp_path / "points.csv.parts" / "letter.txt"
    letter.parent.mkdir()
    letter.write_text("dear all")
    new = Case(tmp_path / "points.csv", b"")
    with pytest.raises(UsageError, match=r"letter\.txt.*move them away"):
        new.sweep(resume=False)
    assert [p.name for p in letter.parent.iterdir()] == ["letter.txt"]


def test_a_finished_sweep_has_nothing_to_resume(case: Callable[[str], Case]) -> None:
    new = case()
    new.ends_undisturbed()
    with pytest.raises(UsageError, match="nothing to resume"):
        new.sweep()
    assert new.path.read_bytes() == new.whole
    assert not new.folder.exists()


def test_resuming_what_never_began_begins_and_says_so(made: Path, tmp_path: Path) -> None:
    new = Case(tmp_path / "points.csv", (made / "whole.csv").read_bytes())
    new.ends_undisturbed()
    assert new.said == ["points.csv.parts holds no points: the sweep starts from the beginning"]


def test_a_part_that_is_lost_while_the_sweep_runs_is_an_error(case: Callable[[str], Case]) -> None:
    new = case()

    def lose(done: int, total: int, best: object) -> None:
        if done == total:
            os.truncate(new.parts[2], 10)

    with pytest.raises(DataError, match="is truncated: --resume computes it again"):
        new.sweep(progress=lose)
    assert not new.path.exists()
    new.ends_undisturbed()


def test_points_are_counted_through_the_space() -> None:
    asked = Evaluator(space("A6000ada:1..3x8"))
    at = 0
    for number, batch in enumerate(asked.batches(0, len(asked))):
        assert asked.points_before(number) == at
        assert asked.number(batch.unit, batch.piece) == number
        at += batch.n_points
    assert asked.points_before(len(asked)) == at == len(asked.space)


# A disk that is full, and processes that end


class Full:
    """The disk is full from the n-th file on that is put on it."""

    def __init__(self, after: int) -> None:
        self.left, self.plain = after, os.fsync

    def __call__(self, handle: int) -> None:
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        self.plain(handle)


@pytest.mark.parametrize("after", [0, 1, 2, 3, 8, 21, -2])
def test_a_full_disk_is_one_sentence_and_what_was_written_goes_on(
    made: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str], n_steps: int, after: int,
) -> None:  # fmt: skip
    new = Case(tmp_path / "points.csv", (made / "whole.csv").read_bytes())
    command = [*COMMAND, "-o", str(new.path)]
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", Full(after % n_steps))
        assert run(command) == 2
    out, err = capfd.readouterr()
    assert out == ""
    assert err.count("\n") == 1 and "no space is left on the disk" in err
    assert not new.path.exists()
    assert ("--resume to continue" in err) == bool(new.parts)
    assert not list(tmp_path.rglob("*.partial"))
    resumed = len(new.parts) > 0
    assert run([*command, *(["--resume"] if resumed else [])]) == 0
    assert ("of them from before" in capfd.readouterr().out) == resumed
    assert new.path.read_bytes() == new.whole
    assert [p.name for p in tmp_path.iterdir()] == ["points.csv"]


def test_a_full_disk_leaves_an_older_output_as_it_was(
    case: Callable[[str], Case], monkeypatch: pytest.MonkeyPatch
) -> None:
    new = case("parquet")
    new.path.write_text("older")

    def full(*args: Any) -> None:
        args[0].write_bytes(b"half of it")
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(store, "write_points", full)
        with pytest.raises(DataError, match=r"no space is left.*--resume to continue"):
            new.sweep()
    assert new.path.read_text() == "older"
    assert len(new.said) == 0
    new.ends_undisturbed()


def child(path: Path, step: int, sent: signal.Signals, jobs: int) -> None:
    """A sweep that gets a signal as the step-th file or folder is put on the disk."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    plain, left = os.fsync, step

    def fsync(handle: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            os.kill(os.getpid(), sent)
        plain(handle)

    os.fsync = fsync
    try:
        found = run_sweep(space(), output=path, resume=path.with_name("points.csv.parts").exists(),
                          jobs=jobs, say=lambda _: None)  # fmt: skip
    except SimcoreError:
        os._exit(2)
    os._exit(0 if found.finished else 130)


def signalled(made: Path, tmp_path: Path, step: int, sent: signal.Signals, jobs: int) -> None:
    """A real process, gone at a step of the writing; the file is there whole, or not claimed."""
    new = Case(tmp_path / "points.csv", (made / "whole.csv").read_bytes())
    process = multiprocessing.get_context("fork").Process(
        target=child, args=(new.path, step, sent, jobs)
    )
    process.start()
    process.join(60)
    assert process.exitcode in (0, 130, -sent)
    if process.exitcode == 0 or new.path.exists():
        assert new.path.read_bytes() == new.whole
    if new.folder.exists():
        new.ends_undisturbed()
    else:
        assert new.path.exists() or sent == signal.SIGINT, "Ctrl-C before the first point"


@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize(("step", "jobs"), [(1, 1), (4, 1), (11, 2), (-3, 1), (-2, 1), (-1, 1)])
def test_a_process_that_ends_as_it_writes_loses_nothing(
    made: Path, tmp_path: Path, n_steps: int, step: int, jobs: int, sent: signal.Signals
) -> None:
    """Steps below zero count from the end: the last two put the output file on the disk."""
    signalled(made, tmp_path, step if step > 0 else n_steps + 1 + step, sent, jobs)


@pytest.mark.long
@pytest.mark.parametrize("sent", [signal.SIGKILL, signal.SIGINT])
@pytest.mark.parametrize("step", range(1, 35))
def test_a_process_that_ends_at_any_step_loses_nothing(
    made: Path, tmp_path: Path, step: int, sent: signal.Signals
) -> None:
    signalled(made, tmp_path, step, sent, 1 + step % 2)


@pytest.fixture(scope="module")
def cluster() -> Iterator[Any]:
    """A client of a Dask cluster of two processes."""
    distributed = pytest.importorskip("distributed")
    with (
        pytest.MonkeyPatch.context() as patch,
        distributed.LocalCluster(
            n_workers=2, threads_per_worker=1, dashboard_address="127.0.0.1:0", silence_logs=50
        ) as workers,
        distributed.Client(workers) as client,
    ):
        workers.adapt(minimum=2, maximum=2)  # a new worker for one that does not come back
        patch.setattr(DaskWorkers, "task_s", 0.01)
        yield client


def stopped_on_dask(made: Path, tmp_path: Path, cluster: Any, seed: int) -> None:
    """A worker that is killed, Ctrl-C, or a full disk, at a random moment of a sweep on Dask."""
    rng = random.Random(seed)
    fault = rng.choice(("kill", "interrupt", "full"))
    suffix, at_frac = rng.choice(FORMATS), rng.random()
    new = Case(tmp_path / f"points.{suffix}", (made / f"whole.{suffix}").read_bytes())
    met: list[str] = []

    def disturb(done: int, total: int, best: object) -> None:
        if met or done < at_frac * total:
            return
        met.append(fault)
        if fault == "interrupt":
            raise KeyboardInterrupt
        if fault == "kill":
            os.kill(rng.choice(list(cluster.run(os.getpid).values())), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        if fault == "full":
            patch.setattr(os, "fsync", Full(rng.randrange(30)))
        try:
            found = new.sweep(resume=False, cluster=cluster, progress=disturb)
        except SimcoreError as err:
            told = {"full": "no space is left on the disk", "kill": "has no workers left"}
            assert told[fault] in str(err)
            found = None
    if found is not None and found.finished:
        assert new.path.read_bytes() == new.whole and not new.folder.exists()
    else:
        assert not new.path.exists()
        new.ends_undisturbed(resume=new.folder.exists(), cluster=cluster)


@pytest.mark.long
@pytest.mark.parametrize("seed", range(200, 300))
def test_a_hundred_faults_on_dask_change_no_byte(
    case: Callable[[str], Case], made: Path, tmp_path: Path, cluster: Any, seed: int
) -> None:
    if seed % 2:
        disturbed(case, made, seed, cluster)
    else:
        stopped_on_dask(made, tmp_path, cluster, seed)


def begun(path: Path, *more: str) -> subprocess.Popen[str]:
    """The command in an interpreter of its own, once it has written two parts."""
    process = subprocess.Popen(
        [sys.executable, "-c", START, *COMMAND, "-o", str(path), *more],
        stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=Path(__file__).parents[2],
    )  # fmt: skip
    until = time.monotonic() + 60
    while len(list(path.parent.glob("*.parts/part-*.part"))) < 2:
        assert process.poll() is None and time.monotonic() < until, process.communicate()
        time.sleep(0.01)
    return process


def test_two_at_once_the_second_is_told_who_is_first(made: Path, tmp_path: Path) -> None:
    """And SIGTERM, which schedulers send, ends the first as Ctrl-C does."""
    new = Case(tmp_path / "points.csv", (made / "whole.csv").read_bytes())
    first = begun(new.path)
    for resume in (True, False):
        with pytest.raises(UsageError, match=rf"in use by process {first.pid} on \S+ since"):
            new.sweep(resume=resume)
    first.send_signal(signal.SIGTERM)
    out, err = first.communicate(timeout=60)
    assert first.returncode == 130
    assert "STOPPED at" in out and "--resume to continue" in out
    assert err == ""
    new.ends_undisturbed()


def test_a_killed_sweep_leaves_no_lock_and_no_processes(made: Path, tmp_path: Path) -> None:
    new = Case(tmp_path / "points.csv", (made / "whole.csv").read_bytes())
    first = begun(new.path, "--jobs", "2")
    listed = Path(f"/proc/{first.pid}/task/{first.pid}/children")
    workers = listed.read_text().split() if listed.exists() else []
    first.kill()
    first.communicate(timeout=60)
    assert (new.folder / "lock").exists(), "a stale one"
    until = time.monotonic() + 60
    while any(Path(f"/proc/{pid}").exists() for pid in workers) and time.monotonic() < until:
        time.sleep(0.05)
    assert not [pid for pid in workers if Path(f"/proc/{pid}").exists()]
    new.ends_undisturbed(jobs=2)


def test_one_process_locks_a_folder_once(tmp_path: Path) -> None:
    held = FolderLock(tmp_path / "a.parts")
    with pytest.raises(UsageError, match="in use by another sweep of this process"):
        FolderLock(tmp_path / "a.parts")
    held.release()
    held.release()
    FolderLock(tmp_path / "a.parts").release()
    assert not list((tmp_path / "a.parts").iterdir())


def test_row_groups_do_not_depend_on_interruptions(made: Path) -> None:
    import pyarrow.parquet as pq

    found = pq.ParquetFile(made / "whole.parquet").metadata
    rows = [found.row_group(i).num_rows for i in range(found.num_row_groups)]
    assert len(rows) > 2
    assert all(900 <= n < 900 + 100 for n in rows[:-1])
    assert sum(rows) == run_sweep(space()).n_evaluated
