"""Launch lines: torchrun, ``python -m torch.distributed.run``, ``accelerate launch``, deepspeed.

The flags of launchers are records in ``programs_db/dialects/lines``. Some of the script's arguments
are read by ``dialects/trainer.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from simcore.base.errors import InvalidConfig
from simcore.strategy.dialects import trainer
from simcore.strategy.dialects.base import Emitted, Job, Launch, joined
from simcore.strategy.dialects.keyed import DIALECTS, TableDialect
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.record import LINES, RECORDS
from simcore.strategy.dialects.shell import flags, read_script
from simcore.strategy.dialects.source import Source, beside
from simcore.strategy.options import OPTIONS

#: Launcher -> the record of its flags.
_LAUNCHERS = {name: TableDialect(name, records=LINES) for name in ("torchrun", "deepspeed")}


@dataclass(frozen=True, slots=True)
class Line:
    """A launch line: launcher, its flags (dashes for underscores), script, its arguments."""

    launcher: str
    flags: Mapping[str, str]
    script: str
    rest: tuple[str, ...]


def find_line(commands: Sequence[tuple[str, ...]]) -> Line | None:
    """The longest command with a known launcher, which may follow ``srun`` and the like."""
    found = [line for c in commands if (line := _line(c)) is not None]
    return max(found, key=lambda line: len(line.rest) + len(line.flags), default=None)


def _line(words: tuple[str, ...]) -> Line | None:
    for i, word in enumerate(words):
        if " " in word and i and words[i - 1] in ("-c", "-lc"):  # bash -c "torchrun …"
            return _line(tuple(word.split()))
        name = PurePath(word).name
        if name == "torchrun":
            return _parse("torchrun", words[i + 1 :])
        if name == "deepspeed":
            return _parse("deepspeed", words[i + 1 :])
        if name == "accelerate" and words[i + 1 : i + 2] == ("launch",):
            return _parse("accelerate", words[i + 2 :])
        if name.startswith("python"):
            after = words[i + 1 :]
            while after[:1] == ("-u",):
                after = after[1:]
            if after[:1] == ("-m",) and after[1:2]:
                module, rest = after[1], after[2:]
                if module in ("torch.distributed.run", "torch.distributed.launch"):
                    return _parse("torchrun", rest)
                if module == "accelerate.commands.launch":
                    return _parse("accelerate", rest)
                if module == "deepspeed.launcher.runner":
                    return _parse("deepspeed", rest)
                return Line("python", {}, module, rest)
            if after and not after[0].startswith("-"):
                return Line("python", {}, after[0], after[1:])
    return None


def _parse(launcher: str, words: tuple[str, ...]) -> Line:
    record = _LAUNCHERS[launcher].record if launcher in _LAUNCHERS else RECORDS[launcher]
    bare = record.bare.split()
    found: dict[str, str] = {}
    i = 0
    while i < len(words) and words[i].startswith("-") and words[i] != "--":
        name, _, value = words[i].lstrip("-").partition("=")
        name = name.replace("_", "-")
        i += 1
        if "=" not in words[i - 1] and name not in bare and i < len(words):
            value, i = words[i], i + 1
        found[name] = value or "true"
    rest = words[i + 1 :] if words[i : i + 1] == ("--",) else words[i:]
    return Line(launcher, found, rest[0] if rest else "", rest[1:])


@dataclass(frozen=True)
class Torchrun(TableDialect):
    """A launch line, typed or in a script."""

    def claims(self, source: Source) -> bool:
        """Whether the line or script contains a known launcher."""
        if source.suffix in (".json", ".toml", ".yaml", ".yml"):
            return False
        return find_line(read_script(source).commands) is not None

    def read(self, source: Source) -> Launch:
        """Nodes and processes, and from the script's arguments those of Trainer and DeepSpeed."""
        reading = Reading(self.name, source)
        line = find_line(read_script(source).commands)
        if line is None:
            reading.refuse("the text", "has no launch line: torchrun, accelerate launch, deepspeed")
            return reading.finish()
        return read_line(reading, line)

    def emit(self, job: Job) -> Emitted:
        """``torchrun`` with the numbers of nodes and GPUs; the script states everything else."""
        return Emitted(torchrun_line(job) + "\n", left_to_script())


def left_to_script() -> tuple[str, ...]:
    """Options that a launch line does not state."""
    return tuple(w for w in OPTIONS.in_launch() if w not in ("nnodes", "nproc_per_node"))


def torchrun_line(job: Job, endpoint: str = "$HEAD_NODE:29500") -> str:
    """The command for every node. Raises InvalidConfig for DataParallel, which is one process."""
    if job.strategy == "dp":
        raise InvalidConfig(
            ["torchrun starts a process a GPU; strategy dp (DataParallel) is one: python train.py"]
        )
    if job.nnodes == 1:
        return f"torchrun --standalone --nnodes=1 --nproc-per-node={job.nproc_per_node} train.py"
    return (
        f"torchrun --nnodes={job.nnodes} --nproc-per-node={job.nproc_per_node} "
        f"--rdzv-backend=c10d --rdzv-endpoint={endpoint} --rdzv-id=train train.py"
    )


def read_line(reading: Reading, line: Line) -> Launch:
    """The launcher's counts, joined with the options in the script's arguments."""
    if line.launcher == "accelerate":
        from simcore.strategy.dialects.accelerate import ACCELERATE

        launch = ACCELERATE.read_flags(reading, line.flags)
    else:
        read_counts(reading, line)
        launch = reading.finish()
    return joined(_script(Reading(reading.dialect, reading.source), line), launch)


def read_counts(reading: Reading, line: Line) -> None:
    """Read nodes and processes a node of a torchrun or deepspeed line; rendezvous is ignored."""
    if line.launcher not in _LAUNCHERS:
        return
    given, nodes = dict(line.flags), line.flags.get("nnodes", "")
    if ":" in nodes:  # elastic: run.py, parse_min_max_nnodes
        low, _, given["nnodes"] = nodes.partition(":")
        if low != given["nnodes"]:
            how = f"is elastic: predicted with {given['nnodes']} nodes"
            reading.approximate(f"--nnodes {nodes}", how)
    letters = {name: f"-{name}" for name in given if len(name) == 1}
    _LAUNCHERS[line.launcher].heed(reading, Table(given, "--", letters))


def _script(reading: Reading, line: Line) -> Launch:
    """The options in the script's arguments, of which those of Hugging Face's Trainer are read."""
    given: dict[str, Any] = {}
    spelt: dict[str, str] = {}
    own: list[str] = []
    titan = any("job.config" in word for word in line.rest)
    for flag, values in flags(line.rest):
        name = flag.lstrip("-").replace("_", "-")
        if name in ("deepspeed", "deepspeed-config") and values:
            reading.inner = DIALECTS["deepspeed"].read(beside(reading.source, values[0]))
        elif name == "job.config-file" and values:
            reading.inner = DIALECTS["torchtitan"].read(beside(reading.source, values[0]))
        elif titan and "." in name:
            reading.approximate(" ".join([flag, *values]), "is not followed: the job file counts")
        elif name == "deepspeed":  # deepspeed.add_config_arguments: a switch without a file
            reading.ignore(flag)
        elif found := trainer.argument(name, values):
            given |= found
            spelt[name] = flag
        elif trainer.without_effect(name, values):
            reading.ignore(flag)
        else:
            own.append(flag)
    trainer.TRAINER.state(reading, Table(given, "--", spelt))
    if own:
        script = PurePath(line.script).name or "the script"
        reading.not_understood(f"{', '.join(dict.fromkeys(own))} of {script}")
    trainer.settle_precision(reading)
    return reading.finish()


DIALECTS.register("torchrun")(Torchrun("torchrun", records=LINES))
