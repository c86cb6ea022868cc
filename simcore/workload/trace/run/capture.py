"""A dry run from its start to the record of the job: watched, recognised, traced unsharded."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode

from simcore.base.errors import UsageError
from simcore.base.units import MEGA
from simcore.workload.trace.attention import attention_as
from simcore.workload.trace.autocast import cuda_policy
from simcore.workload.trace.callables import Built, record_data
from simcore.workload.trace.run.described import described
from simcore.workload.trace.run.exchanges import exchanges
from simcore.workload.trace.run.meter import Collective, Meter, Unsent
from simcore.workload.trace.run.recognise import recognised
from simcore.workload.trace.run.twin import Twins
from simcore.workload.trace.run.watch import Held, Seen, watched
from simcore.workload.trace.run.world import World, pretended
from simcore.workload.trace.units import repeated_units

__all__ = ["DryRun", "World", "dry_run"]

#: Options that the record's ``training`` section holds.
_TRAINING = ("micro_batch", "precision", "optimizer", "strategy", "recompute", "optimizer_impl",
             "grad_clip")  # fmt: skip


@dataclass(slots=True)
class DryRun:
    """What a dry run has recorded.

    ``held``: bytes that the rank holds at the last update; ``peak_bytes``: the most that was alive
    at one time, by phase in ``phase_peaks``.
    """

    world: World
    meter: Meter
    seen: Seen
    source: str = ""
    recorded: dict[str, Any] = field(default_factory=dict)

    @property
    def held(self) -> Held:
        """Bytes of parameters, gradients, optimizer state and buffers on the rank."""
        return self.seen.held

    @property
    def peak_bytes(self) -> int:
        """The most bytes that were alive at one time."""
        return self.meter.peak

    @property
    def collectives(self) -> list[Collective]:
        """Collectives of the last whole step, in the order in which they were issued."""
        start, stop = self.seen.step_collectives
        return self.meter.collectives[start:stop]

    def record(self) -> dict[str, Any]:
        """The plain data, as in a models_db file, of the job. Raises UsageError."""
        if not self.recorded:
            self.recorded = _record(self)
        return self.recorded


@contextmanager
def dry_run(world: World, source: str = "") -> Iterator[DryRun]:
    """A context in which torch runs dry as a rank of ``world``; ``source``: the script's name."""
    meter = Meter()
    run: DryRun | None = None
    seen_settings: dict[str, Any] = {}
    with pretended(world, meter, seen_settings):
        with watched(meter) as seen:
            seen.settings = seen_settings
            run = DryRun(world, meter, seen, source)
            fakes = FakeTensorMode(allow_non_fake_inputs=True)
            with cuda_policy(), attention_as("flash"), fakes, meter:
                yield run
        with Unsent():
            run.record()  # groups and meshes still exist


def _record(run: DryRun) -> dict[str, Any]:
    seen = run.seen
    program = seen.last_program
    if not seen.roots or program is None:
        raise UsageError(
            "the dry run saw no training step: call the model, backward and an optimizer's step "
            "inside it"
        )
    if not seen.steps:
        raise UsageError("the dry run saw no step of an optimizer: run one whole step inside it")
    twins = Twins(seen.shapes)
    module, sample = program.module(twins.of)
    module.is_stage = bool(seen.stages)
    if not seen.stages:
        _check_whole(module, [twins.of(root) for root in seen.roots.values()])
    repeated = len(repeated_units(module))
    name = run.source or type(module).__name__
    batch = next((int(t.shape[0]) for t in sample if t.dim()), 1)
    found = recognised(seen, run.world.world_size, repeated, batch, run.collectives)
    words = {"micro_batch": batch, **found.words}
    data = described(module, sample, words)
    if data is None:
        data = record_data(Built(module, sample, None), (), name)
        if ranks := words.pop("cp", 0):
            words.pop("cp_comm")
            own = [c for c in run.collectives if c.issuer == "context"]
            found.exchanges += exchanges(own, 0, max(1, seen.micro_steps_of_step), batch)
            found.notes.append(
                f"of {ranks} context ranks each is priced with attention over its own tokens, and "
                "waiting for those of others: a model that transformers configures is priced whole"
            )
        if (ranks := words.get("tp", 1)) > 1:
            try:
                _divide(data, run, ranks, repeated, name)
            except UsageError as err:
                found.notes.append(
                    f"the part of one of {ranks} tensor ranks cannot be traced alone ({err}): "
                    "the job is priced without them"
                )
                words = {k: v for k, v in words.items() if k not in ("tp", "sequence_parallel")}
    of_stage = seen.stages[0].stage_index if seen.stages and data["arch"] == "traced" else None
    workers = seen.settings.get("num_workers")
    if workers is not None:
        words["num_workers"] = workers
    training = data["training"]
    divided = "tp" in words or "pp" in words
    strategy = {"strategy": words["strategy"]} if divided else {}  # else it would be Megatron's
    training.update({k: words.pop(k) for k in _TRAINING if k in words})
    words |= strategy
    training["source"] = f"dry run of {name}"
    data["notes"] = [n for n in data["notes"] if not n.startswith("training defaults")]
    data["notes"] += found.notes
    data["notes"] += [
        f"{kind} ({n / 1e6:.0f} M parameters) runs without gradients and is no part of the job"
        for kind, n in seen.frozen.items()
    ]
    if run.meter.read:
        data["notes"].append(
            f"values of the device are given as 1.0 at {', '.join(run.meter.read)}"
        )
    data["full_name"] = f"{_title(module)} ({name})"
    data["sources"][data["params"]["source"]] = f"dry run of {name}, torch {torch.__version__}"
    data["captured"] = {
        "options": words,
        "libraries": list(dict.fromkeys(seen.libraries)),
        "rank": run.world.rank,
        "world_size": run.world.world_size,
        "stage": of_stage,
        "bytes": {
            "parameters": run.held.parameters,
            "gradients": run.held.gradients,
            "optimizer_state": run.held.optimizer_state,
            "buffers": run.held.buffers,
            "peak": run.peak_bytes,
        },
        "collectives": _collectives_text(run.collectives),
        "exchanges": found.exchanges,
    }
    return data


#: From this part of the trained parameters on, a step's last backward stands for the whole step.
_WHOLE_FRAC = 0.98


def _check_whole(step: nn.Module, roots: list[nn.Module]) -> None:
    """Raises UsageError if the last backward leaves out models that the steps train."""
    trained = {id(p): p for root in roots for p in root.parameters() if p.requires_grad}
    reached = sum(p.numel() for p in step.parameters() if id(p) in trained)
    total = sum(p.numel() for p in trained.values())
    if reached < _WHOLE_FRAC * total:
        raise UsageError(
            f"the last backward of a step reaches {reached / MEGA:.3g} of {total / MEGA:.3g} "
            "million trained parameters: a loss in chunks, or models trained in turn, are not "
            "priced: choose a loss that is computed at once, or capture one model"
        )


def _divide(data: dict[str, Any], run: DryRun, ranks: int, layers: int, name: str) -> None:
    """Add to a traced model's record the part of it that one of ``ranks`` tensor ranks holds.

    ``layers``: number of its repeated modules. A layer's sums over ranks are counted in the run: an
    all-reduce, or with sequence parallelism a reduce-scatter and a gather.
    """
    program = run.seen.last_program
    assert program is not None
    module, sample = program.module(Twins(run.seen.shapes, ranks).of)
    part = record_data(Built(module, sample, None), (), name)["traced"]
    kinds = [c.kind for c in run.collectives if c.phase == "forward" and c.group_size == ranks]
    sums = kinds.count("all-reduce") + kinds.count("reduce-scatter")
    data["traced"] |= {"tensor_ranks": ranks, "of_rank": part}
    passes = max(1, layers * run.seen.micro_steps_of_step)
    data["config"] = {"tensor_sums": sums / passes}


def _title(step: Any) -> str:
    model = getattr(step, "model", None)
    return type(model if model is not None else step).__name__


def _collectives_text(collectives: list[Collective]) -> str:
    """One line for each kind of collective: phase, kind, ranks, bytes of each, number of times."""
    counted = Counter((c.phase, c.kind, c.group_size, c.n_bytes) for c in collectives)
    return "".join(
        f"{phase} {kind} {ranks} {n_bytes} {times}\n"
        for (phase, kind, ranks, n_bytes), times in counted.items()
    )
