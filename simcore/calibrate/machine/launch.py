"""Starts the ranks of a calibration on this machine, as torchrun does, and waits for them."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

from simcore.base.errors import UsageError

#: Ranks on a host's cores: the least number that shows contention between ranks.
CPU_RANKS: Final = 2
#: Seconds between two checks of the ranks.
POLL_S: Final = 0.1
#: Seconds that a terminated rank has to end before it is killed.
STOP_S: Final = 10.0


def ranks_here(device: str | None) -> tuple[str, int]:
    """("cpu" or "cuda", number of ranks) for this machine; ``device`` None prefers CUDA.

    Raises UsageError if torch or the device is missing.
    """
    from simcore.calibrate.machine.run import needed_torch

    torch = needed_torch()
    chosen = device or ("cuda" if torch.cuda.is_available() else "cpu")
    if chosen == "cuda":
        if not torch.cuda.is_available():
            raise UsageError("no CUDA device here: calibrate the processor with --device cpu")
        return chosen, int(torch.cuda.device_count())
    return chosen, min(CPU_RANKS, len(os.sched_getaffinity(0)))


def run_ranks(
    arguments: Sequence[str], device: str | None, most: int | None = None
) -> dict[str, Any]:
    """Run ``python -m simcore.calibrate`` as every rank of this machine and return rank 0's answer.

    ``most``: at most so many ranks, which share the cores of a processor. Raises UsageError with
    the last line printed by the first rank that fails. An interrupt stops all ranks.
    """
    kind, ranks = ranks_here(device)
    ranks = min(ranks, most or ranks)
    threads = max(1, len(os.sched_getaffinity(0)) // ranks) if kind == "cpu" else None
    arguments = [*arguments, "--device", kind]
    with tempfile.TemporaryDirectory() as folder:
        result = Path(folder) / "answer.json"
        port = _free_port()
        processes: list[subprocess.Popen[str]] = []
        logs = [Path(folder) / f"rank{r}.txt" for r in range(ranks)]
        with contextlib.ExitStack() as stack:
            for rank in range(ranks):
                env = {
                    **os.environ, "RANK": str(rank), "LOCAL_RANK": str(rank),
                    "WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks),
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(port),
                }  # fmt: skip
                if threads is not None:
                    env["OMP_NUM_THREADS"] = str(threads)
                more = ["--result", str(result)] if rank == 0 else ["--quiet"]
                log = stack.enter_context(logs[rank].open("w", encoding="utf-8"))
                processes.append(
                    subprocess.Popen(
                        [sys.executable, "-m", "simcore.calibrate", *arguments, *more],
                        env=env, text=True, stdout=log, stderr=None if rank == 0 else log,
                    )
                )  # fmt: skip
            failed = _wait(processes)
        if failed is not None:
            printed = logs[failed].read_text(encoding="utf-8").strip().splitlines()
            last = next((s.removeprefix("error: ") for s in reversed(printed) if s.strip()), "")
            raise UsageError(last or f"rank {failed} failed: see what it printed above")
        return json.loads(result.read_text(encoding="utf-8"))


def _wait(processes: Sequence[subprocess.Popen[str]]) -> int | None:
    """The first rank that failed, None if all succeeded; stops all ranks before it returns."""

    def stop(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, stop)
    try:
        while True:
            codes = [p.poll() for p in processes]
            bad = [i for i, code in enumerate(codes) if code]
            if bad:
                return bad[0]
            if all(code == 0 for code in codes):
                return None
            time.sleep(POLL_S)
    finally:
        signal.signal(signal.SIGTERM, before)
        for p in processes:
            if p.poll() is None:
                p.terminate()
        for p in processes:
            try:
                p.wait(STOP_S)
            except subprocess.TimeoutExpired:
                p.kill()


def _free_port() -> int:
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])
