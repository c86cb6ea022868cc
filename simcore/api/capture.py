"""Dry runs of scripts as they are: each in a process of its own, with limits."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Sequence
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import Any, NamedTuple

from simcore.api.dry_run import DryRunJob, world_of
from simcore.base.errors import UsageError
from simcore.base.units import GIGA

#: Seconds for which a process may go on beyond the limit of its script: torch is loaded before.
_GRACE_S = 120
_START = "from simcore.workload.trace.run.script.child import main; main()"


class Sent(NamedTuple):
    """A collective: phase, kind, ranks of its group, bytes of the whole message."""

    phase: str
    kind: str
    group_size: int
    n_bytes: int


class _Answer:
    """What the process answers, with the interface of a dry run."""

    def __init__(self, data: dict[str, Any]) -> None:
        self._data = data

    def record(self) -> dict[str, Any]:
        return self._data

    @property
    def collectives(self) -> list[Sent]:
        lines = [line.split() for line in self._data["captured"]["collectives"].splitlines()]
        return [
            Sent(phase, kind, int(ranks), int(n_bytes))
            for phase, kind, ranks, n_bytes, times in lines
            for _ in range(int(times))
        ]


def capture(
    gpus: str,
    script: str,
    words: Sequence[str] = (),
    *,
    is_module: bool = False,
    world_size: int | None = None,
    rank: int = 0,
    steps: int = 2,
    time_s: int = 300,
    memory_bytes: int = int(8 * GIGA),
    shows_output: bool = False,
) -> DryRunJob:
    """The job of a script that runs dry as one rank of ``gpus``, until its last step.

    ``script``: a file, or with ``is_module`` the name of a module, with its arguments ``words``;
    ``steps``: updates of the optimizer after which it is ended; ``time_s``, ``memory_bytes``: its
    limits; ``shows_output``: what it prints goes to standard error. Raises UsageError with
    file, line and what to do if the script cannot run so. A pipeline is run as one rank of each of
    its stages, and joined.
    """
    if find_spec("torch") is None:
        raise UsageError("a dry run needs PyTorch: pip install '.[torch]'")
    if not is_module and not Path(script).is_file():
        raise UsageError(f"no such script: {script!r}")

    def as_rank(number: int) -> DryRunJob:
        request = {
            "script": script, "is_module": is_module, "words": list(words), "steps": steps,
            "world": world_of(gpus, world_size, number), "time_s": time_s,
            "memory_bytes": memory_bytes,
        }  # fmt: skip
        return DryRunJob(gpus, _Answer(_data(request, shows_output)))

    job = as_rank(rank)
    return job if job.stages == 1 else _of_all_stages(job, rank, as_rank)


def _of_all_stages(job: DryRunJob, rank: int, as_rank: Callable[[int], DryRunJob]) -> DryRunJob:
    """The job of a pipeline, from runs of other ranks until each stage was seen.

    Stages are the outermost or the innermost part of a rank's number. Raises UsageError.
    """
    apart = job.world_size // job.stages
    others = dict.fromkeys([*range(0, job.world_size, apart), *range(job.stages)])
    found = {job.stage: job}
    for number in others:
        if number != rank and len(found) < job.stages:
            other = as_rank(number)
            found.setdefault(other.stage, other)
    return job.joined(*(other for other in found.values() if other is not job))


def _data(request: dict[str, Any], shows_output: bool) -> dict[str, Any]:
    """What the process of a script answers. Raises UsageError."""
    with tempfile.TemporaryDirectory(prefix="simcore-capture-", ignore_cleanup_errors=True) as name:
        request["folder"] = os.path.realpath(name)
        answer = _read(Path(name), _run(request, shows_output), request)
    if "error" in answer:
        raise UsageError(answer["error"])
    return answer["data"]


def _run(request: dict[str, Any], shows_output: bool) -> int:
    """The exit code of the process that runs the script; its own children end with it."""
    out = sys.stderr.fileno() if shows_output else subprocess.DEVNULL
    process = subprocess.Popen(
        [sys.executable, "-P", "-c", _START], stdin=subprocess.PIPE, stdout=out, stderr=out,
        text=True, start_new_session=True,
    )  # fmt: skip
    try:
        process.communicate(json.dumps(request), timeout=request["time_s"] + _GRACE_S)
    except subprocess.TimeoutExpired:
        pass
    finally:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    return process.returncode


def _read(folder: Path, code: int, request: dict[str, Any]) -> dict[str, Any]:
    """What the process answered, or an error about how it ended."""
    from simcore.workload.trace.run.places import place_in_trace

    if (file := folder / "answer.json").is_file():
        return json.loads(file.read_text(encoding="utf-8"))
    file = folder / "trace.txt"
    trace = file.read_text(encoding="utf-8", errors="replace") if file.is_file() else ""
    at = place_in_trace(trace) or request["script"]
    if trace.startswith("Timeout") or code == -signal.SIGKILL:
        why = (f"the script is still here after {request['time_s']} s, its time limit: shorten "
               "what it does before its second step, or raise --time-limit")  # fmt: skip
    elif code < 0:
        why = (f"the system ended the script here ({signal.Signals(-code).name}): leave calls of "
               "other languages' code out, or raise --memory-limit")  # fmt: skip
    else:
        why = f"the script ended its process here (exit code {code}) before its second step"
    return {"error": f"{at}: {why}"}
