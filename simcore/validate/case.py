"""A measured row as something to predict."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from simcore.engine.options import Options
from simcore.hardware.cluster import gpu_types


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One row of a table: the words of a command, and what was measured of it.

    ``model``, ``gpus`` and ``options`` are the words of ``simcore predict``; ``label`` is what the
    table calls the model, where that is another name.
    ``measured`` holds SI figures: ``step_time_s``, ``run_time_s``, ``samples_per_s``,
    ``peak_memory_bytes`` (all that the device holds), ``peak_allocated_bytes`` (the framework's
    live tensors), ``peak_reserved_bytes`` (its allocator's segments), ``peak_shown_bytes`` (what
    nvidia-smi shows of them and of what lies outside), ``peak_rank0_allocated_bytes`` (tensors of
    the first pipeline stage alone), ``speedup``, ``memory_<term>_bytes``,
    ``ran`` (0 where memory ran out). ``train_samples`` and ``eval_samples`` are those of a whole
    run, over all ranks and per rank; ``work_known`` is false where the source does not give them.
    ``reference`` names the row that a speed-up is
    against; empty: the measured ``speedup`` is the source's own, against one GPU at this batch.
    ``settings_of_program``: the model's settings say how the row's program writes its layers.
    ``flag`` says why a row is doubted.
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
    flag: str = ""
    notes: str = ""

    def cell(self, column: str) -> str:
        """A cell of the row; ``gpu`` is its GPU types, whatever the table calls them."""
        if column == "gpu" and column not in self.columns:
            return "+".join(dict.fromkeys(gpu_types(self.gpus)))
        return self.columns.get(column, "")

    @property
    def model_name(self) -> str:
        """What the row's model is called: by its table, else by the command."""
        return self.label or self.model

    @property
    def job(self) -> tuple[str, str, str]:
        """What is run: model, GPUs and options. Rows of equal job leave a fit together."""
        return self.model_name, self.gpus, str(sorted(self.options.items(), key=str))

    @property
    def configuration(self) -> tuple[str, ...]:
        """All that the row's reader makes of what was run, and whose program it was.

        Rows that differ in notes or in a version alone, and no prediction by these, are repeats.
        """
        work = f"{self.train_samples} {self.eval_samples}"
        whose = (self.cell(c) for c in ("source", "framework", "cluster_state"))
        return (self.table, *self.job, work, *whose)

    @property
    def blank(self) -> bool:
        """A row without any measurement: one to fill."""
        return not self.measured


@dataclass(frozen=True, slots=True)
class Skipped:
    """A row that cannot be predicted, with the reason."""

    id: str
    reason: str
