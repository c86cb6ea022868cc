"""What a script that runs dry may not do: the network, processes, files, memory and time."""

from __future__ import annotations

import faulthandler
import multiprocessing.process
import os
import sys
from pathlib import Path
from typing import Any

from simcore.workload.trace.run.patches import Patches
from simcore.workload.trace.run.script.files import Overlay

#: Switches by which libraries stay off the network, do not report, and ask for no GPU.
ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1", "TRANSFORMERS_OFFLINE": "1", "HF_DATASETS_OFFLINE": "1",
    "HF_HUB_DISABLE_TELEMETRY": "1", "DO_NOT_TRACK": "1", "WANDB_MODE": "disabled",
    "COMET_MODE": "DISABLED", "CUDA_VISIBLE_DEVICES": "", "TOKENIZERS_PARALLELISM": "false",
    "PYTHONDONTWRITEBYTECODE": "1", "OMP_NUM_THREADS": "1",
}  # fmt: skip

_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.bind", "socket.sendto")
_PROCESSES = ("subprocess.Popen", "os.system", "os.fork", "os.forkpty", "os.exec", "os.posix_spawn",
              "os.spawn", "pty.spawn")  # fmt: skip
_FILES = ("os.mkdir", "os.remove", "os.rename", "os.rmdir", "os.truncate", "os.chmod", "os.chown",
          "os.link", "os.symlink", "shutil.rmtree", "shutil.move")  # fmt: skip


class Refused(PermissionError):
    """The script asks for what a dry run does not allow. Libraries that can do without go on."""


class NotThere(Refused, FileNotFoundError):
    """The script starts a program: libraries go on as on a machine that does not have it."""


def bound(time_s: float, memory_bytes: int, trace: Path) -> None:
    """Limit this process: ``time_s`` from now it ends; allocations beyond ``memory_bytes`` fail.

    ``trace`` gets the stacks of the process when it ends so, or by a fault of the system's.
    """
    file = trace.open("w", encoding="utf-8")  # stays open as long as the process lives
    faulthandler.enable(file)
    faulthandler.dump_traceback_later(time_s, exit=True, file=file)
    if sys.platform == "linux":  # elsewhere the limit does not count what mmap returns
        import resource

        resource.setrlimit(resource.RLIMIT_DATA, (memory_bytes, memory_bytes))


def _refusal(event: str, args: tuple[Any, ...], overlay: Overlay) -> str:
    """Why an event of the interpreter is refused; empty if it is not."""
    if event in _NETWORK:
        address = args[1] if event in ("socket.connect", "socket.bind") else args[0]
        if isinstance(address, str | bytes) and event != "socket.getaddrinfo":
            return ""  # a socket of this machine's file system
        host = address[0] if isinstance(address, tuple) and address else address
        return (f"uses the network ({_text(host)}), which a dry run does not: download what it "
                "needs before, or leave that out")  # fmt: skip
    if event in _PROCESSES:
        what = args[0] if args else event
        return (f"starts a process ({_text(what)}), which a dry run does not: run the training "
                "function itself in this process")  # fmt: skip
    if event == "open":
        path, mode, flags = args
        writes = bool(set(mode or "") & set("wax+")) or bool(
            isinstance(flags, int) and flags & (os.O_WRONLY | os.O_RDWR | os.O_CREAT)
        )
        if writes and not overlay.is_free(path):
            return f"writes the file {_text(path)}, which a dry run does not"
    if event in _FILES and not all(map(overlay.is_free, args[:1])):
        return f"changes {_text(args[0])} ({event}), which a dry run does not"
    return ""


def _text(value: Any) -> str:
    return os.fsdecode(value) if isinstance(value, bytes | os.PathLike) else str(value)


def confine(overlay: Overlay, patches: Patches) -> None:
    """Refuse network, processes and files outside of ``overlay`` from here on.

    Files that the script writes go to the overlay. Python's audit events, which no script can
    switch off, refuse the rest; code in other languages that asks the system itself is not seen.
    """
    overlay.redirect(patches)

    def audit(event: str, args: tuple[Any, ...]) -> None:
        if why := _refusal(event, args, overlay):
            kind = NotThere if event in _PROCESSES else Refused
            raise kind(1, f"the script {why}")

    def started(self: Any) -> None:
        what = getattr(self, "name", "a process")
        raise Refused(1, f"the script {_refusal('os.fork', (what,), overlay)}")

    patches.set(multiprocessing.process.BaseProcess, "start", started)
    sys.addaudithook(audit)
