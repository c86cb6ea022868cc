"""A measured row of a table, as a job to predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field
from functools import cached_property

from simcore.base.record import dataclass
from simcore.hardware.cluster import gpu_types
from simcore.strategy.options import Options


@dataclass(frozen=True, kw_only=True)
class Case:
    """One row of a table: the options of a command, and what was measured.

    ``model``, ``gpus`` and ``options`` are those of ``simcore predict``; ``label``: the table's
    name of the model, where it differs. ``measured`` holds SI figures: ``step_time_s``,
    ``run_time_s``, ``samples_per_s``, ``peak_memory_bytes`` (everything on the device),
    ``peak_allocated_bytes`` (the framework's live tensors), ``peak_reserved_bytes`` (its
    allocator's segments), ``peak_shown_bytes`` (nvidia-smi's figure: segments and memory outside
    the allocator), ``peak_rank0_allocated_bytes`` (tensors of the first pipeline stage only),
    ``peak_last_rank_allocated_bytes`` (of the last one),
    ``speedup``, ``memory_<term>_bytes``, ``ran`` (0 where memory ran out). ``train_samples`` and
    ``eval_samples``: samples of a whole run, over all ranks and per rank; ``work_known``: False
    where the source does not give them. ``reference``: the row that a speed-up is relative to; "":
    the measured ``speedup`` is the source's own, relative to one GPU at this batch.
    ``settings_of_program``: the model's settings describe how the row's program implements its
    layers. ``program``: the program, as ``--software`` takes it, if the table's rules name it.
    ``own``: options and settings that the row itself states, not what is known of its source;
    None: all of them. ``flag``: why the row is doubted, "" where it is not.
    """

    id: str
    table: str
    model: str
    gpus: str
    options: Options
    label: str = ""
    measured: Mapping[str, float] = field(default_factory=dict)
    columns: Mapping[str, str] = field(default_factory=dict)
    train_samples: float | None = None
    eval_samples: float = 0.0
    work_known: bool = True
    reference: str | None = None
    settings_of_program: bool = False
    program: str = ""
    own: frozenset[str] | None = None
    flag: str = ""

    def __post_init__(self) -> None:
        """Raises ValueError for a figure of nothing, and for the time of a run of no samples."""
        if zero := [k for k, v in self.measured.items() if k != "ran" and v <= 0]:
            raise ValueError(f"{zero[0]}: what was measured must be above 0")
        if "run_time_s" in self.measured and not self.train_samples:
            raise ValueError("run_time_s needs train_samples, the samples of the whole run")

    def cell(self, column: str) -> str:
        """A cell of the row; ``gpu`` gives the GPU types, whatever the table's column is called."""
        if column == "gpu" and column not in self.columns:
            return "+".join(dict.fromkeys(gpu_types(self.gpus)))
        return self.columns.get(column, "")

    @property
    def model_name(self) -> str:
        """The model's name in the table, else in the command."""
        return self.label or self.model

    @cached_property
    def job(self) -> tuple[str, str, str]:
        """(model, GPUs, options) of the run. Rows of equal job are left out of a fit together."""
        return self.model_name, self.gpus, str(sorted(self.options.items()))

    @property
    def configuration(self) -> tuple[str, ...]:
        """Everything that the table's reader knows about the run and its program.

        Rows that differ only in remarks or in a version that no prediction depends on are repeats.
        """
        work = f"{self.train_samples} {self.eval_samples}"
        origin = (self.cell(c) for c in ("source", "framework", "cluster_state"))
        return (self.table, *self.job, work, *origin)

    @property
    def blank(self) -> bool:
        """Whether the row has no measurement and is to be filled."""
        return not self.measured


@dataclass(frozen=True)
class Skipped:
    """A row that cannot be predicted, and the reason."""

    id: str
    reason: str
