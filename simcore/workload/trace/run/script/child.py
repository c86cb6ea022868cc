"""The process in which a script runs dry: a request on standard input, an answer in a file."""

from __future__ import annotations

import argparse
import json
import os
import runpy
import sys
import tempfile
import traceback
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Request:
    """What to run and under which limits.

    ``script``: a file, or the name of a module if ``is_module``; ``words``: its arguments;
    ``world``: fields of ``World``; ``steps``: updates after which the script ends; ``folder``:
    where the answer is written, and what the script writes.
    """

    script: str
    is_module: bool
    words: list[str]
    world: dict[str, Any]
    steps: int
    time_s: int
    memory_bytes: int
    folder: str

    @property
    def name(self) -> str:
        """The script's name, without its folder."""
        return self.script if self.is_module else Path(self.script).name


class Finished(BaseException):
    """Ends the script after its last step; a class of its own, that no script catches."""


def main() -> None:
    """Run the script of the request on standard input and end the process."""
    run(Request(**json.load(sys.stdin)))


def run(request: Request) -> None:
    """Run a script, write the answer and end the process."""
    folder = Path(request.folder)
    from simcore.workload.trace.run.script.confined import ENVIRONMENT

    os.environ.update(ENVIRONMENT, TMPDIR=str(folder))
    tempfile.tempdir = str(folder)
    answer = _answer(request)
    (folder / "answer.json").write_text(json.dumps(answer), encoding="utf-8")
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # threads of libraries and what they do at exit are of no use here


def _answer(request: Request) -> dict[str, Any]:
    from simcore.workload.trace.run.script.refusals import sentence

    try:
        return {"data": _data(request)}
    except BaseException as err:
        traceback.print_exception(err)  # shown with what the script prints
        return {"error": sentence(err, request.name)}


def _data(request: Request) -> dict[str, Any]:
    from torch.optim.optimizer import register_optimizer_step_post_hook

    from simcore.base.errors import UsageError
    from simcore.workload.trace.run.capture import World, dry_run
    from simcore.workload.trace.run.host import fake_mode
    from simcore.workload.trace.run.patches import Patches
    from simcore.workload.trace.run.script.confined import bound, confine
    from simcore.workload.trace.run.script.files import Overlay
    from simcore.workload.trace.run.script.finite import Finite
    from simcore.workload.trace.run.script.libraries import answered
    from simcore.workload.trace.run.script.refusals import ending

    world = World(**{**request.world, "capability": tuple(request.world["capability"])})
    steps: dict[int, int] = {}
    with Patches() as patches, dry_run(world, request.name) as run:

        def stepped(optimizer: Any, *_: Any) -> None:
            steps[id(optimizer)] = steps.get(id(optimizer), 0) + 1
            if min(steps.get(id(o), 0) for o in run.seen.optimizers) >= request.steps:
                raise Finished

        bound(request.time_s, request.memory_bytes, Path(request.folder, "trace.txt"))
        patches.set(argparse.ArgumentParser, "error", _wrong_arguments)
        answered(patches, world.local_rank)
        confine(Overlay(Path(request.folder)), patches)
        register_optimizer_step_post_hook(stepped)
        ended = ""
        with suppress(Finished), Finite(fake_mode()):
            try:
                _run(request)
            except SystemExit as err:
                ended = ending(err, request.name)
        if not run.seen.steps:
            raise UsageError(ended or f"{request.name} ends without a step of an optimizer: "
                             "give it the arguments with which it trains")  # fmt: skip
    return run.record()


def _wrong_arguments(_: Any, message: str) -> None:
    raise SystemExit(message)


def _run(request: Request) -> None:
    sys.argv = [request.script, *request.words]
    sys.path.insert(0, "" if request.is_module else str(Path(request.script).resolve().parent))
    if request.is_module:
        runpy.run_module(request.script, run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(request.script, run_name="__main__")
