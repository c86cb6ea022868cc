"""Whole-model passes timed by the authors of op tables, compared with the engine's price.

The models use simcore's own builders and pricing, in fp32, eager, on one device. A pass is forward,
or forward and backward, as NeuSight's measure_e2e (neusight/Tracing/trace.py) times it: the loss is
computed between both and not timed, gradients are never cleared, and no optimizer runs.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from simcore.base.errors import SimcoreError
from simcore.base.record import dataclass
from simcore.base.units import MILLI
from simcore.calibrate.tables import OnBad, RowsRead, Table
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.estimates import Estimate
from simcore.hardware.profile import Profile
from simcore.hardware.spec import GPUS, GpuSpec
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import Strategy
from simcore.timing.evaluate import Job, evaluate
from simcore.timing.points import Points
from simcore.timing.rates import class_rates
from simcore.workload.archs import ARCHS, load
from simcore.workload.graph import Block, Workload
from simcore.workload.models import MODELS
from simcore.workload.ops.pointwise import grad_only

_WRITTEN_OUT: Final = {"attention": "math", "mlp": "gelu_new"}
#: NeuSight's names of models: record of models_db, and settings that differ from it. Sizes are
#: those of its scripts' configurations (heads, head dimension times heads), classes are
#: transformers': BERT classifies sequences in inference and has its masked head in training
#: (get_model). The input is one token, repeated, which goes to one expert of switchxl4 with 64
#: slots for a sequence; with dropout (training) the copies differ. SwitchTransformers of these
#: sizes, but with ffn 256 and fresh weights, serve 75 and 77 of 512 tokens a layer in inference
#: (two seeds) and 129 in training: the slots of one and of two experts.
NAMED: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "bert_large": ("bert-large", {}),
    "gpt2_large": ("gpt2-large", _WRITTEN_OUT),
    "gpt3_xl": ("gpt2-large", {"layers": 24, "hidden": 3072, "heads": 24, **_WRITTEN_OUT}),
    "gpt3_27": ("gpt2-large", {"layers": 32, "hidden": 2560, "heads": 32, **_WRITTEN_OUT}),
    "opt_13": ("opt-13b", {"layers": 24, "hidden": 2048, "heads": 32, "attention": "math",
                             "upcast_loss": False}),
    "switchxl4": ("t5-3b", {"experts": 4, "expert_capacity": 64, "busy_experts": 1}),
}  # fmt: skip
_IN_TRAINING: Final[dict[str, dict[str, Any]]] = {
    "bert_large": {"head": "masked-lm"},
    "switchxl4": {"busy_experts": 2},
}
_DROPOUT: Final = 0.1


@dataclass(frozen=True)
class ModelPass:
    """One timed pass of a model on one device."""

    gpu: str
    model: str
    batch: float
    seq: int
    train: bool
    time_s: float


class BurstProfile(Profile):
    """A profile at the clocks of a short measurement (burst clocks)."""

    def clock_ratio(self, cls: str, clock: str, gpu: GpuSpec) -> Estimate:
        """1: each time is the best of a few passes."""
        return Estimate(1.0, 0.0, "burst clocks")


def is_end_to_end_table(table: Table) -> bool:
    """Whether a table holds times of whole-model passes."""
    return {"gpu", "model", "batch", "seq", "mode", "time_ms"} <= table.columns.keys()


def model_passes(table: Table, on_bad: OnBad = "skip") -> RowsRead[ModelPass]:
    """The passes of one table. Raises DataError for bad rows if ``on_bad`` is refuse."""
    time_s = table.number("time_ms") * MILLI
    batch, seq = table.number("batch"), table.number("seq")
    n_gpus = table.number("n_gpus", 1.0) if "n_gpus" in table.columns else np.ones(len(table))
    skipped: Counter[str] = Counter()
    passes = []
    for row in np.flatnonzero(table.good):
        model, option = table.text("model")[row], table.text("option")[row]
        if model not in NAMED:
            skipped[f"model {model!r} has no builder here"] += 1
        elif n_gpus[row] != 1:
            skipped["several devices: judged by whole steps"] += 1
        elif option:
            skipped[f"option {option!r}: only eager passes are priced"] += 1
        elif table.text("dtype", "fp32")[row] not in ("", "fp32"):
            skipped["only fp32 passes are priced"] += 1
        else:
            try:
                gpu = GPUS[table.text("gpu")[row]].name
            except SimcoreError as err:
                skipped[str(err)] += 1
                continue
            train = table.text("mode")[row] == "train"
            passes.append(
                ModelPass(gpu, model, batch[row], int(seq[row]), train, float(time_s[row]))
            )
    return table.read(passes, skipped, on_bad)


@lru_cache(maxsize=64)
def _workload(model: str, seq: int, train: bool) -> Workload:
    name, changes = NAMED[model]
    record = MODELS[name]
    sizes: dict[str, Any] = {"seq_len": seq, "dropout": _DROPOUT * train}
    if record.arch != "t5":  # T5's positions are relative
        sizes["max_positions"] = max(seq, 512)
    load(record.arch)
    changes = {**changes, **(_IN_TRAINING.get(model, {}) if train else {})}
    whole = ARCHS[record.arch](name=model, **{**record.config, **changes, **sizes})
    return replace(whole, blocks=tuple(map(_as_timed, whole.blocks)))


def _as_timed(block: Block) -> Block:
    """The block as it is timed: the loss runs outside, and gradients add to earlier ones."""
    timed = (replace(op, fwd=()) if op.name == "loss" else op for op in block.ops)
    # The logits enter the loss without a shift or a copy.
    kept = tuple(op for op in timed if op.role != "all_logits")
    if not block.params:
        return replace(block, ops=kept)
    added = grad_only("accumulate", 0.0, weight=3.0 * block.numel, launches=len(block.params))
    return replace(block, ops=(*kept, added))


def pass_time_s(one: ModelPass, profile: Profile) -> float:
    """Seconds of a pass: the device's kernels, or the host's time to issue them if longer."""
    precision = PRECISIONS["fp32-ieee"]
    workload = _workload(one.model, one.seq, one.train)
    burst = BurstProfile(profile.name, profile.origin, profile.efficiency_file, profile.runtime)
    group = parse_cluster(f"1x1x{one.gpu}").groups[0]
    rates = class_rates(group, precision, burst)
    strategy = Strategy(precision=precision, optimizer=OPTIMIZERS["sgd"])
    points = Points.of({"micro_batch": one.batch}, 1)
    terms = evaluate(Job(workload, strategy, (rates,)), points).terms_s
    names = ("forward", "backward") if one.train else ("forward",)
    return float(sum(terms[n][0] for n in names))
