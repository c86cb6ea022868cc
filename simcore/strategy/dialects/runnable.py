"""Scripts that start a job, with the configuration file of the program that trains."""

from __future__ import annotations

import re
from dataclasses import replace

from simcore.base.record import dataclass
from simcore.strategy.dialects.base import Emitted, Job
from simcore.strategy.dialects.keyed import DIALECTS
from simcore.strategy.dialects.torchrun import torchrun_line

#: Name of the script in a folder.
SCRIPT = "launch.sh"
_GROWS = "export PYTORCH_ALLOC_CONF=expandable_segments:True"
_HEAD = 'export HEAD_NODE=$(scontrol show hostnames "$SLURM_JOB_NODELIST" | head -n 1)'
_ACROSS = "--machine_rank $SLURM_NODEID --main_process_ip $HEAD_NODE --main_process_port 29500"
#: Arguments of the script: data, the learning rate, whatever else no prediction gives.
_ARGUMENTS = ' "$@"'
#: The dialect of a user's own script.
USERS = "torchrun"
#: Options that the script states.
OF_SCRIPT = ("nnodes", "nproc_per_node", "growing_segments")


@dataclass(frozen=True)
class _Start:
    """How a program is started: the file of its configuration, what torchrun runs.

    ``also``: other programs of ``--software`` that are started so.
    """

    file: str = ""
    runs: str = "train.py"
    also: tuple[str, ...] = ()


#: Dialects of programs. A script of the user is train.py, which takes DeepSpeed's own arguments
#: where it has deepspeed.add_config_arguments.
_STARTS = {
    "deepspeed": _Start("ds_config.json", "train.py --deepspeed --deepspeed_config ds_config.json"),
    "accelerate": _Start("accelerate.yaml"),
    "megatron": _Start(runs="pretrain_gpt.py", also=("megatron-lm",)),
    "torchtitan": _Start("predicted_job.py",
                         "-m torchtitan.train --module predicted_job --config predicted_job"),
    USERS: _Start(),
}  # fmt: skip


def program_of(software: str | None) -> str:
    """The dialect of the program that a job runs in; torchrun where it is the user's script."""
    family = (software or "").partition("@")[0]
    return next((d for d, s in _STARTS.items() if family in (d, *s.also)), USERS)


def writes_for(dialect: str, software: str | None) -> bool:
    """Whether a dialect may serve a job: one of a program with its own trainer serves that one."""
    start = _STARTS.get(dialect)
    users = start is None or start.runs.startswith(_Start.runs)
    return users or software is None or program_of(software) == dialect


def folder_of(dialect: str, job: Job) -> dict[str, str]:
    """Files that start a job, by their names: the script and the configuration of one program.

    ``dialect``: the program's, or "slurm" for the program of the job. Slurm starts the nodes where
    there are several. Raises InvalidConfig with everything that the program cannot express.
    """
    program = program_of(job.software) if dialect == "slurm" else dialect
    if program not in _STARTS:
        return {f"{dialect}.txt": DIALECTS[dialect].emit(job).text}
    emitted, start = DIALECTS[program].emit(job), _STARTS[program]
    script = _script(job, program, emitted, batch=dialect == "slurm" or job.nnodes > 1)
    return {SCRIPT: script} | ({start.file: emitted.text} if start.file else {})


def batch_script(job: Job) -> Emitted:
    """A script for sbatch alone, which writes the configuration file that its program reads."""
    program = program_of(job.software)
    emitted = DIALECTS[program].emit(job)
    script = _script(job, program, emitted, batch=True)
    if name := _STARTS[program].file:
        document = f"cat > {name} <<'EOF'\n{emitted.text.rstrip()}\nEOF\n"
        counts, blank, rest = script.partition("\n\n")
        script = f"{counts}{blank}{document}{rest}"
    left = tuple(word for word in emitted.left if word not in OF_SCRIPT)
    return replace(emitted, text=script, left=left)


def _script(job: Job, program: str, emitted: Emitted, *, batch: bool) -> str:
    """Counts of Slurm, variables, and the line that starts the program on every node."""
    lines = ["#!/bin/bash"]
    if batch:
        lines += [
            f"#SBATCH --job-name={re.sub(r'[^A-Za-z0-9._-]+', '-', job.model).strip('-')}",
            f"#SBATCH --nodes={job.nnodes}",
            "#SBATCH --ntasks-per-node=1",
            f"#SBATCH --gpus-per-node={job.nproc_per_node}",
        ]
    lines.append("")
    if job.growing_segments:
        lines.append(_GROWS)
    if batch and job.nnodes > 1:
        lines.append(_HEAD)
    if program == "megatron":
        lines += ["ARGS=(", *(f"  {line}" for line in emitted.text.splitlines()), ")"]
    lines.append(_command(job, program, batch=batch))
    return "\n".join(lines) + "\n"


def _command(job: Job, program: str, *, batch: bool) -> str:
    start = _STARTS[program]
    if program == "accelerate":
        line = f"accelerate launch --config_file {start.file}"
        if job.nnodes > 1:  # the rank differs from node to node
            return f"srun bash -c '{line} {_ACROSS} {start.runs}{_ARGUMENTS}' launch{_ARGUMENTS}"
        return f"{'srun ' if batch else ''}{line} {start.runs}{_ARGUMENTS}"
    line = torchrun_line(job).removesuffix("train.py") + start.runs
    if program == "megatron":
        line += ' "${ARGS[@]}"'
    return f"{'srun ' if batch else ''}{line}{_ARGUMENTS}"
