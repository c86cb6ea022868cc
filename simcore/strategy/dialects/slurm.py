"""Batch scripts for Slurm: counts in ``#SBATCH`` lines, and a launch line or Megatron's flags.

Flags: slurm.schedmd.com/sbatch.html.
"""

from __future__ import annotations

import re

from simcore.base.record import dataclass
from simcore.strategy.dialects.base import Emitted, Job, Launch, joined
from simcore.strategy.dialects.keyed import DIALECTS, TableDialect
from simcore.strategy.dialects.reading import Reading
from simcore.strategy.dialects.runnable import batch_script
from simcore.strategy.dialects.shell import allocator_grows, gpus_per_node, read_script
from simcore.strategy.dialects.source import Source
from simcore.strategy.dialects.torchrun import find_line, read_line


@dataclass(frozen=True)
class Slurm(TableDialect):
    """A script for ``sbatch``, which has no record: its flags are counts."""

    title = "Slurm"
    summary = "sbatch script with a launch line"

    def claims(self, source: Source) -> bool:
        """Whether the script has ``#SBATCH`` lines."""
        return re.search(r"^#SBATCH\s", source.text, re.MULTILINE) is not None

    def read(self, source: Source) -> Launch:
        """Numbers of nodes and GPUs a node, and the options of the launch line."""
        script = read_script(source)
        reading = Reading(self.name, source)
        nodes = script.sbatch.get("--nodes")
        if nodes is not None:  # -N 2-4: a range
            reading.say("nnodes", reading.whole("--nodes", nodes.split("-")[-1]), "--nodes")
        if per_node := gpus_per_node(script.sbatch):
            reading.say("nproc_per_node", reading.whole("GPUs a node", per_node), "GPUs a node")
        elif "--gpus" in script.sbatch:
            total = script.sbatch["--gpus"].split(":")[-1]
            reading.say("n_gpus", reading.whole("--gpus", total), "--gpus")
        for key in script.sbatch:
            if key not in ("--nodes", "--gpus-per-node", "--gres", "--gpus"):
                reading.ignore(f"#SBATCH {key}")
        if allocator_grows(script):
            reading.say("growing_segments", True, "PYTORCH_ALLOC_CONF")
        batch = reading.finish()
        for name in ("torchtitan", "megatron"):  # its flags are in the script, which it may start
            if DIALECTS[name].claims(source):
                return joined(batch, DIALECTS[name].read(source))
        line = find_line(script)
        if line is None:
            return batch
        return joined(batch, read_line(Reading(self.name, source), line))

    def emit(self, job: Job) -> Emitted:
        """A script with one task a node, which starts the program of the job's ``software``."""
        return batch_script(job)


DIALECTS.register("slurm")(Slurm("slurm"))
