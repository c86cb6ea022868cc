"""A server in a process of its own ends what takes too long, and itself; others do not wait."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import random
import re
import signal
import socket
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from multiprocessing import forkserver
from pathlib import Path

import anyio
import pytest
from works import fail, fall, hoard, keep, raise_odd, refuse, sleep

from simcore.api import predict
from simcore.base.errors import DataError, UsageError
from simcore.serve.guard import SEARCH, cost_of
from simcore.serve.worker import Processes, TooBusyError

#: 250,000 forwards and backwards on 16 stages: more than is drawn within the server's bounds.
GIANT = "/api/v1/trace?model=deepseek-v3&gpus=2048x8xH100&pp=16&ep=64&micro_batch=1&grad_accum=7800"
QUICK = "/api/v1/answer?model=gpt2&gpus=8xH100"


def answer(address: str, path: str) -> tuple[int, str]:
    try:
        with urllib.request.urlopen(address + path, timeout=60) as found:
            return found.status, found.read().decode()
    except urllib.error.HTTPError as err:
        return err.code, err.read().decode()


# -- the process that computes --------------------------------------------------------------------


@contextmanager
def process(
    limit_s: float = 5.0, most_bytes: float = 2.0**27, most: int = 3
) -> Iterator[Processes]:
    worker = Processes(most, limit_s, most_bytes)
    try:
        yield worker
    finally:
        worker.close()


def test_a_process_ends_what_is_beyond_its_bounds_and_goes_on() -> None:
    async def run(worker: Processes) -> None:
        assert await worker.run(sleep, 0.0) == "awake"
        with pytest.raises(DataError, match=r"x\.yaml:3: is wrong") as caught:
            await worker.run(refuse)
        assert caught.value.line == 3
        with pytest.raises(UsageError, match="more memory than a request"):
            await worker.run(hoard, 2**28)
        with pytest.raises(UsageError, match=r"longer than the 0\.5 s"):
            await worker.run(sleep, 30.0)
        assert await worker.run(sleep, 0.0) == "awake"

    with process(limit_s=0.5) as worker:
        anyio.run(run, worker)


def test_a_request_whose_client_is_gone_ends_and_leaves_the_queue() -> None:
    async def run(worker: Processes) -> None:
        await worker.run(sleep, 0.0)
        first = worker._processes[0]._process
        with anyio.move_on_after(0.1):
            await worker.run(sleep, 0.4)  # nearly done: the process is kept
        assert await worker.run(sleep, 0.0) == "awake" and worker._processes[0]._process is first
        with anyio.move_on_after(0.1):
            await worker.run(sleep, 20.0)
        assert (
            await worker.run(sleep, 0.0) == "awake" and worker._processes[0]._process is not first
        )

    with process() as worker:
        anyio.run(run, worker)


def test_no_more_than_so_many_wait() -> None:
    async def run(worker: Processes) -> list[str]:
        found: list[str] = []

        async def one() -> None:
            try:
                found.append(await worker.run(sleep, 0.1))
            except TooBusyError:
                found.append("busy")

        async with anyio.create_task_group() as group:
            for _ in range(5):
                group.start_soon(one)
        return found

    with process(most=3) as worker:
        assert sorted(anyio.run(run, worker)) == ["awake"] * 3 + ["busy"] * 2


def test_processes_work_side_by_side_and_a_late_one_ends_alone() -> None:
    async def run(worker: Processes) -> list[str]:
        found: list[str] = []

        async def late() -> None:
            with pytest.raises(UsageError, match="longer than"):
                await worker.run(sleep, 30.0)
            found.append("late")

        async def quick() -> None:
            for _ in range(4):
                found.append(await worker.run(sleep, 0.01))

        async with anyio.create_task_group() as group:
            group.start_soon(late)
            group.start_soon(quick)
        return found

    workers = Processes(3, 2.0, 2.0**27, at_once=2)
    try:
        assert anyio.run(run, workers) == ["awake"] * 4 + ["late"]
    finally:
        workers.close()


ENDS = (-signal.SIGKILL, -signal.SIGABRT, -signal.SIGSEGV, -signal.SIGTERM, 0, 1)


@pytest.mark.parametrize("how", ENDS)
def test_a_request_whose_process_is_ended_is_computed_again(how: int, tmp_path: Path) -> None:
    async def run(worker: Processes) -> None:
        assert await worker.run(fall, str(tmp_path / "fell"), how) == "awake"
        busy = how == -signal.SIGKILL
        says = "the system ended the process" if busy else "more memory than a request"
        with pytest.raises(TooBusyError if busy else UsageError, match=says):
            await worker.run(fall, "", how)
        assert await worker.run(sleep, 0.0) == "awake"

    with process() as worker:
        anyio.run(run, worker)


def test_a_process_that_ends_before_it_reads_a_request_is_replaced(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def run(worker: Processes) -> None:
        (one,) = worker._processes
        for stopped in (True, False):  # ended after the request was sent, and just before
            await worker.run(sleep, 0.0)
            assert one._process is not None and one._process.pid is not None
            pid = one._process.pid
            os.kill(pid, signal.SIGSTOP if stopped else signal.SIGKILL)
            if stopped:
                threading.Timer(0.2, os.kill, (pid, signal.SIGKILL)).start()
            else:
                one._process.join()
                alive = iter([True, True])
                monkeypatch.setattr(one, "_alive", lambda alive=alive: next(alive, False))
            assert await worker.run(sleep, 0.0) == "awake"

    with process() as worker:
        anyio.run(run, worker)


def test_memory_that_caches_keep_is_not_a_request_s() -> None:
    async def run(worker: Processes) -> None:
        for _ in range(8):
            assert await worker.run(keep, 2**25) >= 1
        with pytest.raises(UsageError, match="more memory than a request"):
            await worker.run(bytes, 100 * 2**20)  # itself small enough, but not what pickle writes

    with process() as worker:
        anyio.run(run, worker)


@pytest.mark.parametrize("how", ["system", "told", "library"])
def test_what_fails_for_want_of_memory_says_so(how: str) -> None:
    with process() as worker, pytest.raises(UsageError, match="more memory than a request"):
        anyio.run(worker.run, fail, how)


def test_an_error_that_cannot_be_sent_is_shown() -> None:
    with process() as worker, pytest.raises(RuntimeError, match="OddError"):
        anyio.run(worker.run, raise_odd)


def test_processes_that_cannot_be_begun_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    with process() as worker:
        assert anyio.run(worker.run, sleep, 0.0) == "awake"
        server = forkserver._forkserver._forkserver_pid  # type: ignore[attr-defined]
        os.kill(server, signal.SIGKILL)
        os.waitid(os.P_PID, server, os.WEXITED | os.WNOWAIT)
        worker.close()
        assert anyio.run(worker.run, sleep, 0.0) == "awake"  # from another one
        worker.close()
        monkeypatch.setattr(
            forkserver, "connect_to_new_process", lambda _: (_ for _ in ()).throw(EOFError("gone"))
        )
        with pytest.raises(TooBusyError, match="has no process for this"):
            anyio.run(worker.run, sleep, 0.0)


def test_a_process_that_is_killed_at_random_moments_loses_no_request() -> None:
    """Each is answered or told that the system ended its process; some are killed."""
    found: Counter[str] = Counter()
    rng = random.Random(1)

    async def run(worker: Processes) -> None:
        async def kill() -> None:
            while True:
                await anyio.sleep(rng.choice([0.0, 0.01, 0.05]))
                running = worker._processes[0]._process
                if running is not None and running.pid is not None:
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(running.pid, signal.SIGKILL)
                        found["killed"] += 1

        async with anyio.create_task_group() as group:
            group.start_soon(kill)
            while found["asked"] < 60 or (found["killed"] < 5 and found["asked"] < 5_000):
                found["asked"] += 1
                try:
                    found[await worker.run(sleep, 0.001)] += 1
                except TooBusyError:
                    found["busy"] += 1
            group.cancel_scope.cancel()
        assert await worker.run(sleep, 0.0) == "awake"

    with process() as worker:
        anyio.run(run, worker)
    assert found["awake"] + found["busy"] == found["asked"] and found["killed"] >= 5


@pytest.mark.parametrize(
    ("path", "query", "cost"),
    [
        ("/api/v1/answer", "model=gpt2&gpus=8xH100", 1),
        ("/api/v1/answer", "model=gpt2&micro_batch=max", SEARCH),
        ("/api/v1/answer", "stages=auto&model=gpt2", SEARCH),
        ("/api/v1/answer", "model=timm%3Aresnet50", SEARCH),
        ("/api/v1/answer", "model=automax&gpus=8xH100", 1),
        ("/api/v1/scaling", "model=gpt2", 4),
        ("/api/v1/report", "model=gpt2", 60),
        ("/api/v1/sweep", "model=gpt2", 60),
    ],
)
def test_the_cost_of_a_request_is_known_before_it_starts(path: str, query: str, cost: int) -> None:
    assert cost_of(path, query) == cost


# -- the server -----------------------------------------------------------------------------------


@pytest.mark.long
def test_an_expensive_request_is_refused_and_others_do_not_wait_for_it(server: str) -> None:
    found: list[tuple[int, str]] = []
    hostile = threading.Thread(target=lambda: found.append(answer(server, GIANT)))
    hostile.start()
    n = 0
    while hostile.is_alive():
        assert answer(server, QUICK)[0] == 200
        n += 1
    assert n > 3  # answered while the other was computed
    status, text = found[0]
    assert status in (200, 422)
    if status == 422:
        assert "more memory" in text or "longer than" in text


def test_a_step_of_millions_of_pieces_is_told_not_drawn() -> None:
    words = {"pp": 16, "ep": 64, "micro_batch": 1, "grad_accum": 1_000_000}
    found = predict("deepseek-v3", "2048x8xH100", keep_timeline=True, **words)
    assert found.pipeline is None
    assert any("32,000,000 forwards and backwards is not drawn" in a for a in found.assumptions)


@pytest.mark.parametrize("header", [("Sec-Fetch-Site", "cross-site"), ("Origin", "http://evil"),
                                    ("Sec-Fetch-Site", "same-site")])  # fmt: skip
def test_a_page_of_another_site_makes_the_server_compute_nothing(
    server: str, header: tuple[str, str]
) -> None:
    asked = urllib.request.Request(server + QUICK, headers=dict([header]))
    with pytest.raises(urllib.error.HTTPError) as caught:
        urllib.request.urlopen(asked)
    assert caught.value.code == 403
    problems = json.loads(caught.value.read())["problems"]
    assert problems[0]["message"] == "a page of another site may not do that"
    page = urllib.request.Request(server + "/", headers=dict([header]))  # a link to it works
    assert urllib.request.urlopen(page).status == 200


@pytest.mark.long
def test_the_server_ends_when_told_while_it_computes(tmp_path: Path) -> None:
    root = Path(__file__).resolve().parents[2]
    process = subprocess.Popen(
        [sys.executable, "-m", "simcore", "serve", "--port", "0"], cwd=tmp_path, text=True,
        env=os.environ | {"PYTHONPATH": str(root)}, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert process.stderr is not None
    match = re.search(r"http://127\.0\.0\.1:(\d+)", process.stderr.readline())
    assert match is not None
    with socket.create_connection(("127.0.0.1", int(match[1]))) as client:
        client.sendall(f"GET {GIANT} HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n".encode())
        time.sleep(0.7)
        begun = time.monotonic()
        process.send_signal(signal.SIGTERM)
        process.wait(timeout=20)
    assert time.monotonic() - begun < 15.0  # the computation alone would take longer


@pytest.mark.long
@pytest.mark.parametrize("sent", [b"", b"GET / HTTP/1.1\r\nHost: 127.0.0.1\r\n", b"G"])
def test_a_connection_that_asks_for_nothing_is_closed(server: str, sent: bytes) -> None:
    host, _, port = server.removeprefix("http://").partition(":")
    with socket.create_connection((host, int(port)), timeout=30) as client:
        client.sendall(sent)
        assert client.recv(100) == b""


@pytest.mark.long
def test_a_connection_that_asks_now_and_then_is_kept(server: str) -> None:
    host, _, port = server.removeprefix("http://").partition(":")
    client = http.client.HTTPConnection(host, int(port), timeout=10)
    for _ in range(14):
        client.request("GET", "/static/app.js")
        first = client.sock
        assert client.getresponse().read()
        assert client.sock is first is not None
        time.sleep(1.0)
