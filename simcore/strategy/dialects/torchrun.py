"""Launch lines: torchrun, ``python -m torch.distributed.run``, ``accelerate launch``, deepspeed.

Flags: torch/distributed/run.py of PyTorch 2.13, accelerate/commands/launch.py 1.15,
deepspeed/launcher/runner.py 0.19. Some of the script's arguments are read by
``dialects/trainer.py``.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePath
from typing import Any

from simcore.base.errors import InvalidConfig
from simcore.strategy.dialects import trainer
from simcore.strategy.dialects.base import DIALECTS, Emitted, Job, Launch, joined
from simcore.strategy.dialects.reading import NOT_YET, Reading, Table
from simcore.strategy.dialects.shell import flags, read_script
from simcore.strategy.dialects.source import Source, beside
from simcore.strategy.options import OPTIONS

_VALUED = {
    "torchrun": "nnodes nproc-per-node rdzv-backend rdzv-endpoint rdzv-id rdzv-conf max-restarts "
    "monitor-interval start-method event-log-handler role log-dir redirects tee "
    "local-ranks-filter duplicate-stdout-filters duplicate-stderr-filters node-rank master-addr "
    "master-port local-addr logs-specs numa-binding signals-to-handle shutdown-timeout r t",
    "deepspeed": "hostfile include exclude num-nodes num-gpus num-accelerators master-port "
    "master-addr node-rank launcher launcher-args enable-each-rank-log autotuning bind-core-list "
    "ssh-port venv-script log-level H i e",
}
_BARE = {
    "torchrun": "standalone module no-python run-path virtual-local-rank use-env m",
    "deepspeed": "module no-python no-local-rank no-ssh no-ssh-check force-multi save-pid "
    "bind-cores-to-rank quiet q",
    "accelerate": "quiet q cpu multi-gpu tpu enable-cpu-affinity dynamo-use-fullgraph "
    "dynamo-use-dynamic dynamo-use-regional-compilation use-deepspeed use-fsdp "
    "use-parallelism-config use-megatron-lm same-network module m no-python tpu-cluster "
    "no-tpu-cluster tpu-use-sudo downcast-bf16 fp8-use-autocast-during-eval debug",
}


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
    bare = _BARE[launcher].split()
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


class Torchrun:
    """A launch line, typed or in a script."""

    name = "torchrun"
    title = "torchrun"
    summary = "launch line: torchrun, python -m torch.distributed.run, accelerate launch, deepspeed"

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
    if line.launcher == "python":
        return
    taken = {"nnodes": "nnodes", "nproc-per-node": "nproc_per_node"}
    if line.launcher == "deepspeed":
        taken = {"num-nodes": "nnodes", "num-gpus": "nproc_per_node",
                 "num-accelerators": "nproc_per_node"}  # fmt: skip
    known = [*_VALUED[line.launcher].split(), *_BARE[line.launcher].split()]
    for name, value in line.flags.items():
        dashes = "-" if len(name) == 1 else "--"
        if name in taken:
            _count(reading, f"--{name}", value, taken[name])
        elif name in ("hostfile", "include", "exclude"):
            reading.approximate(f"--{name}", "is not followed: --gpus says the nodes")
        elif name in known:
            reading.ignore(dashes + name)
        else:
            reading.not_known(dashes + name, ["--" + k for k in known])
    if line.launcher == "torchrun":
        for word, key in (("nnodes", "--nnodes"), ("nproc_per_node", "--nproc-per-node")):
            if key[2:] not in line.flags:
                reading.say(word, 1, f"{key} (its default)")


def _count(reading: Reading, key: str, value: str, word: str) -> None:
    if word == "nnodes" and ":" in value:  # elastic: run.py, parse_min_max_nnodes
        low, _, high = value.partition(":")
        if low != high:
            reading.approximate(f"{key} {value}", f"is elastic: predicted with {high} nodes")
        value = high
    if word == "nproc_per_node" and value in ("gpu", "auto"):
        reading.approximate(f"{key} {value}", "is counted at the start: --gpus says how many")
    elif word == "nproc_per_node" and value in ("cpu", "xpu"):
        reading.refuse(f"{key} {value}", NOT_YET, word)
    elif "$" in value:
        reading.refuse(f"{key} {value}", "is not set in the text", word)
    else:
        reading.say(word, reading.whole(key, value), key)


def _script(reading: Reading, line: Line) -> Launch:
    """The options in the script's arguments, of which those of Hugging Face's Trainer are read."""
    given: dict[str, Any] = {}
    spelt: dict[str, str] = {}
    own = 0
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
        else:
            own += 1
    trainer.TRAINER.state(reading, Table(given, "--", spelt))
    if own:
        counted = "1 argument" if own == 1 else f"{own} arguments"
        reading.ignore(f"{counted} of {PurePath(line.script).name or 'the script'}")
    trainer.settle_precision(reading)
    return reading.finish()


DIALECTS.register("torchrun")(Torchrun())
