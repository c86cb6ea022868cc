"""Launch lines: torchrun, ``accelerate launch``, deepspeed, ``python``, a program's own command.

The flags of launchers are records in ``programs_db/dialects/lines``; ``dialects/lines.py`` reads
the arguments of what they start.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import field, replace
from itertools import pairwise
from pathlib import PurePath

from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.strategy.dialects.base import Emitted, Job, Launch
from simcore.strategy.dialects.keyed import DIALECTS, TableDialect
from simcore.strategy.dialects.line_choice import chosen, commands
from simcore.strategy.dialects.line_record import LINES, fold_key
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.record import RECORDS
from simcore.strategy.dialects.shell import (
    PASSED_ON,
    Script,
    allocator_grows,
    flags,
    read_script,
)
from simcore.strategy.dialects.source import Source
from simcore.strategy.options import OPTIONS

#: The words that start each launcher, and the record of its flags.
_STARTS = {
    ("torchrun",): "torchrun", ("deepspeed",): "deepspeed", ("composer",): "composer",
    ("fabric", "run"): "fabric", ("lightning", "run", "model"): "fabric",
}  # fmt: skip
_LAUNCHERS = {name: TableDialect(name, records=LINES) for name in _STARTS.values()}
#: Modules that are launchers.
_MODULES = {
    "torch.distributed.run": "torchrun", "torch.distributed.launch": "torchrun",
    "accelerate.commands.launch": "accelerate", "deepspeed.launcher.runner": "deepspeed",
}  # fmt: skip
_VISIBLE = "CUDA_VISIBLE_DEVICES"
#: Commands that start a number of processes of whatever follows, and the flags of that number.
_STARTERS, _COUNT = ("mpirun", "mpiexec", "horovodrun"), ("-np", "-n", "--np")
#: Most processes of such a command that are taken for those of one node.
_ONE_NODE = 8
#: Variables of branches that a message names.
_LISTED = 6


@dataclass(frozen=True)
class Line:
    """A launch line: launcher, its flags (dashes for underscores), script, its arguments.

    ``command``: the words that start a program by a command of its own; ``environment``: variables
    that are set for it; ``branched``: those that the script sets in branches, one after the other;
    ``processes``: how many of it MPI starts.
    """

    launcher: str
    flags: Mapping[str, str]
    script: str
    rest: tuple[str, ...]
    command: str = ""
    environment: Mapping[str, str] = field(default_factory=dict)
    branched: tuple[str, ...] = ()
    processes: str = ""


def find_line(script: Script) -> Line | None:
    """The longest command with a known launcher, which may follow ``srun`` and the like."""
    found = [
        (line, environment, words)
        for words, environment in zip(script.commands, script.environments, strict=True)
        if (line := _line(words)) is not None
    ]
    if not found:
        return None
    line, own, words = max(found, key=lambda f: len(f[0].rest) + len(f[0].flags))
    return Line(
        line.launcher, line.flags, line.script, line.rest, line.command,
        {**script.variables, **own}, script.branched, _processes(words),
    )  # fmt: skip


def _processes(words: tuple[str, ...]) -> str:
    """The number that ``mpirun -np 8`` and the like state; "" where nothing does."""
    if not words or PurePath(words[0]).name not in _STARTERS:
        return ""
    return next((n for flag, n in pairwise(words) if flag in _COUNT), "")


def _line(words: tuple[str, ...]) -> Line | None:
    own = commands()
    for i, word in enumerate(words):
        if " " in word and i and words[i - 1] in ("-c", "-lc"):  # bash -c "torchrun …"
            return _line(tuple(w for w in word.split() if w.strip('"') not in PASSED_ON))
        name, after = PurePath(word).name, words[i + 1 :]
        for start, record in own.items():
            if (name, *after)[: len(start)] == start:
                rest = after[len(start) - 1 :]
                line = _parse(record.launcher, rest) if record.launcher == "torchrun" else None
                found = line or Line(record.launcher, {}, "", rest)
                return Line(found.launcher, found.flags, found.script or " ".join(start),
                            found.rest, " ".join(start))  # fmt: skip
        for start, launcher in _STARTS.items():
            if (name, *after)[: len(start)] == start:
                return _parse(launcher, after[len(start) - 1 :])
        if name == "accelerate" and after[:1] == ("launch",):
            return _parse("accelerate", after[1:])
        if name.startswith("python"):
            while after[:1] == ("-u",):
                after = after[1:]
            if after[:1] == ("-m",) and after[1:2]:
                module, rest = after[1], after[2:]
                if module in _MODULES:
                    return _parse(_MODULES[module], rest)
                return Line("python", {}, module, rest)
            if after and not after[0].startswith("-"):
                return Line("python", {}, after[0], after[1:])
        if name.endswith(".py") and words[0] in ("uv", word):  # uv run train.py, ./train.py
            return Line("python", {}, word, after)
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
        return find_line(read_script(source)) is not None

    def read(self, source: Source) -> Launch:
        """Nodes and processes, and the options in the arguments of what is started."""
        reading = Reading(self.name, source)
        script = read_script(source)
        line = find_line(script)
        if allocator_grows(script):
            reading.say("growing_segments", True, "PYTORCH_ALLOC_CONF")
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


def torchrun_line(job: Job) -> str:
    """The command for every node. Raises InvalidConfig for DataParallel, which is one process."""
    if job.strategy == "dp":
        raise InvalidConfig(
            ["torchrun starts a process a GPU; strategy dp (DataParallel) is one: python train.py"]
        )
    if job.nnodes == 1:
        return f"torchrun --standalone --nnodes=1 --nproc-per-node={job.nproc_per_node} train.py"
    return (
        f"torchrun --nnodes={job.nnodes} --nproc-per-node={job.nproc_per_node} "
        f"--rdzv-backend=c10d --rdzv-endpoint=$HEAD_NODE:29500 --rdzv-id=train train.py"
    )


def of_a_program(source: Source) -> bool:
    """Whether a line or script starts a program whose arguments a record reads."""
    line = find_line(read_script(source))
    return (
        line is not None
        and chosen(source, line.script, line.command, line.rest, line.launcher).certain
    )


def read_line(reading: Reading, line: Line) -> Launch:
    """The launcher's counts, joined with the options in the arguments of what it starts."""
    program = chosen(reading.source, line.script, line.command, line.rest, line.launcher)
    if line.launcher == "accelerate":
        from simcore.strategy.dialects.accelerate import ACCELERATE

        if line.command:  # whose arguments stand among those of the launcher
            own = program.record.names()
            line = _parted(line, lambda name: name not in own and ACCELERATE.takes(name))
        launch = ACCELERATE.read_flags(reading, line.flags)
    else:
        read_counts(reading, line)
        if line.processes.isdigit():
            one = int(line.processes) <= _ONE_NODE
            reading.say("nproc_per_node" if one else "n_gpus", int(line.processes), _COUNT[0])
        launch = reading.finish()
    inner = Reading(program.name if program.certain else reading.dialect, reading.source)
    inner.within(launch)
    _environment(inner, program.record.environment, line)
    script = PurePath(line.script).name or "the script"
    inner.say("other.script", script, script)
    if line.branched:
        more = len(line.branched) - _LISTED
        named = ", ".join(line.branched[:_LISTED]) + (f" and {more} more" if more > 0 else "")
        how = "are set in branches (if, case) of the script: the last values are read"
        inner.approximate(named, how)
    return program.read_words(inner, line.rest, line.command or script)


def _parted(line: Line, of_launcher: Callable[[str], bool]) -> Line:
    """The line with the launcher's flags apart from the program's."""
    found: dict[str, str] = {}
    rest: list[str] = []
    for flag, values in flags(line.rest):
        name = fold_key(flag)
        if of_launcher(name):
            found[name] = values[0] if values else "true"
        else:
            rest += [flag, *values]
    return replace(line, flags={**line.flags, **found}, rest=tuple(rest))


def _environment(reading: Reading, variables: Mapping[str, str], line: Line) -> None:
    """State what variables of the environment say: counts of processes, and the visible GPUs."""
    for variable, option in variables.items():
        value = line.environment.get(variable)
        if value is not None and "$" not in value:
            reading.say(option, reading.whole(variable, value), variable)
    visible = line.environment.get(_VISIBLE, "")
    devices = [d for d in visible.split(",") if d.strip()]
    if devices and "$" not in visible and "nproc_per_node" not in reading.context:
        reading.say("nproc_per_node", len(devices), f"{_VISIBLE}={visible}")


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


DIALECTS.register("torchrun")(Torchrun("torchrun", records=LINES))
