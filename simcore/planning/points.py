"""Points of a space as the engine answers them: one batch of arrays a form and kind of cluster."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import asdict, dataclass, fields, replace
from functools import lru_cache
from typing import Any

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.engine.placement import layout_of
from simcore.engine.points import Knob
from simcore.engine.predict import Request, point_values
from simcore.engine.request import make_request
from simcore.engine.stages import balanced_axis, with_stages
from simcore.engine.sweep import Axis, evaluate_axis
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.profile import Profile, load_profile
from simcore.planning.space import Form, Space
from simcore.strategy.cuts import AUTO, cut_sizes
from simcore.strategy.layout import Layout
from simcore.workload.resolve import ModelSource, resolve_model
from simcore.workload.sharding import layer_counts

Array = NDArray[np.float64]

#: Words of a form that its layout says, and those of the program that is traced.
_NAMED = ("tp", "pp", "vpp", "cp", "ep", "inputs")
#: What the wires of a model's clusters deliver, filled as it is needed.
Wires = dict[tuple[str, int], dict[str, float]]
#: Points evaluated in one call at most: bounds memory, whatever the space.
MAX_CALL = 32_768
FP32_BYTES = 4.0
NO_MEMORY = "does not fit in the GPU's memory"
NOT_A_MULTIPLE = "global-batch is not a multiple of micro-batch x replicas"
_FIGURES = re.compile(r"\d[\d,]*")
_DEGREES = re.compile(r"(?:\b(?:tp|pp|vpp|cp|ep)\d+\s?)+")
_WHAT_IS_ALLOWED = re.compile(r"(?:: allowed|; allowed|: use |, not ).*$")


@dataclass(frozen=True)
class FormWords:
    """What all points of a form share, as it is written in a table."""

    model: str
    strategy: str
    precision: str
    optimizer: str
    recompute: str
    offload: str
    seq_len: int | None
    layout: Layout
    checkpoint_bytes: float
    options: tuple[tuple[str, Any], ...]

    @property
    def more(self) -> str:
        """Words that have no name of their own here: ``main-grads fp32, shard-ranks 8``."""
        told = {*_NAMED, *(f.name for f in fields(self))}
        return ", ".join(f"{k.replace('_', '-')} {v}" for k, v in self.options if k not in told)

    def to_dict(self) -> dict[str, Any]:
        """Plain values; the layout's degrees beside the others."""
        return {**asdict(self), "options": dict(self.options)}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> FormWords:
        """What ``to_dict`` gave."""
        layout = Layout(**values["layout"])
        options = tuple(sorted(values["options"].items()))
        return cls(**{**values, "layout": layout, "options": options})


@dataclass(frozen=True)
class Batch:
    """Valid points of one unit (a form on one kind of cluster), arrays [C], and who fell out.

    A large unit comes in several pieces. ``n_points`` counts all points that the batch accounts
    for, ``invalid`` those of them that fell out. ``cluster`` indexes the space's clusters.
    """

    unit: int
    n_points: int
    invalid: dict[str, int]
    piece: int = 0
    form: FormWords | None = None
    cluster: NDArray[np.intp] | None = None
    micro_batch: Array | None = None
    grad_accum: Array | None = None
    step_time_s: Array | None = None
    samples_per_s: Array | None = None
    memory_bytes: Array | None = None
    needed_bytes: Array | None = None
    capacity_bytes: float = 0.0
    busy_frac: Array | None = None
    faster_s: Array | None = None

    def __len__(self) -> int:
        return 0 if self.step_time_s is None else len(self.step_time_s)

    @property
    def fits(self) -> NDArray[np.bool_]:
        """Whether each point's fullest device holds it."""
        assert self.needed_bytes is not None
        return self.needed_bytes <= self.capacity_bytes


def reason_of(violation: str) -> str:
    """A violation without its figures: points fall out for equal reasons, not equal numbers."""
    short = _DEGREES.sub("tp, pp, cp or ep", _WHAT_IS_ALLOWED.sub("", violation))
    return _FIGURES.sub("N", short).strip()


def batches(
    space: Space,
    *,
    first: tuple[int, int] = (0, 0),
    last: int | None = None,
    profile: Profile | None = None,
    twice: Knob | None = None,
) -> Iterator[Batch]:
    """Evaluate every point, unit by unit, always in the same order, from ``first``
    (unit, piece) to the unit before ``last``.

    A unit is one form on one kind of cluster. One wrong point, form or cluster loses none of the
    others: it is counted with its reason.
    """
    kinds = space.kinds()
    shared = profile or load_profile(dict(space.fixed).get("calibration"))
    unit = -1
    wires: Wires = {}
    counts = [Counts.of(c) for c in space.clusters]
    sources: dict[str, ModelSource | SimcoreError] = {}
    for model, form in space.forms():
        for members in kinds:
            unit += 1
            if unit < first[0]:
                continue
            if last is not None and unit >= last:
                return
            if model not in sources:
                try:
                    inputs = tuple(dict(space.fixed).get("inputs") or ())
                    sources[model] = resolve_model(model, inputs=inputs)
                except SimcoreError as err:
                    sources[model] = err
            source = sources[model]
            done = first[1] if unit == first[0] else 0
            if isinstance(source, SimcoreError):
                n = len(members) * space.points_per_cluster
                found = iter([Batch(unit, n, {reason_of(str(source)): n})])
            else:
                found = _unit(
                    space, unit, source, form, members, shared, done, twice, wires, counts
                )
            yield from (b for b in found if b.piece >= done)


def _unit(
    space: Space, unit: int, source: ModelSource, form: Form, members: list[int],
    profile: Profile, done: int, twice: Knob | None, wires: Wires, counts: list[Counts],
) -> Iterator[Batch]:  # fmt: skip
    """The pieces of a unit; those before ``done`` are not evaluated."""
    each = space.points_per_cluster
    invalid: dict[str, int] = {}

    def out(reason: str, n: int) -> None:
        if n:
            invalid[reason] = invalid.get(reason, 0) + n

    first = _first_micro_batch(space)
    layout = layout_of(form)
    request: Request | None = None
    valid: list[int] = []
    n_layers = 0
    for i in members:
        cluster = space.clusters[i]
        broken: tuple[str, ...] = ()
        if request is None:
            try:
                request = make_request(
                    source, cluster, profile=profile, micro_batch=first,
                    **{k: v for k, v in form.items() if k not in ("calibration", "inputs")},
                )  # fmt: skip
            except InvalidConfig as err:
                broken = err.violations
            except SimcoreError as err:
                broken = (str(err),)
            n_layers = layer_counts(request.workload) if request is not None else 0
        else:
            broken = violations(request, layout, counts[i], n_layers)
        if broken:
            out(reason_of(broken[0]), each)
        else:
            valid.append(i)
    if request is None or not valid:
        yield Batch(unit, len(members) * each, invalid)
        return
    words = words_of(source, request, form)
    axis = _axis(space, request, layout, valid)
    out(NOT_A_MULTIPLE, len(valid) * each - len(axis))
    pending = invalid
    n_points = len(members) * each - len(axis)
    if not len(axis):
        yield Batch(unit, n_points, pending)
        return
    ranks = np.array([float(layout.data_ranks(counts[i].n_gpus)) for i in valid])
    indices = np.array(valid)
    known = [wires.setdefault((words.model, i), {}) for i in valid]
    for i, wire in zip(valid, known, strict=True):
        if not wire:
            cluster_values = point_values(space.clusters[i], profile, words.model, 1.0, 1.0)
            wire.update(cluster_values)
    pieces = (
        (cut, said, part.piece(slice(start, start + MAX_CALL)))
        for cut, said, part in cut_axes(request, words, axis)
        for start in range(0, len(part), MAX_CALL)
    )
    for number, (request, words, piece) in enumerate(pieces):
        if number < done:
            pending, n_points = {}, 0
            continue
        outcome = evaluate_axis(request, piece, twice=twice, wires=known)
        which, micro = piece.cluster, piece.micro_batch
        samples = micro * piece.grad_accum * ranks[which]
        dead = int((~outcome.fits).sum())
        told = {**pending, **({NO_MEMORY: dead} if dead else {})}
        yield Batch(
            unit=unit,
            n_points=len(piece) + n_points,
            invalid=told,
            piece=number,
            form=words,
            cluster=indices[which],
            micro_batch=micro,
            grad_accum=piece.grad_accum,
            step_time_s=outcome.step_time_s,
            samples_per_s=samples / outcome.step_time_s,
            memory_bytes=outcome.memory_bytes,
            needed_bytes=outcome.needed_bytes,
            capacity_bytes=outcome.capacity_bytes,
            busy_frac=outcome.busy_frac,
            faster_s=outcome.faster_s if twice is not None else None,
        )
        pending, n_points = {}, 0


@dataclass(frozen=True, slots=True)
class Counts:
    """What rules ask of a cluster."""

    n_nodes: int
    n_gpus: int
    n_types: int

    @classmethod
    def of(cls, cluster: ClusterSpec) -> Counts:
        """Those of a cluster."""
        types = len({g.gpu.name for g in cluster.groups})
        return cls(cluster.n_nodes, cluster.n_gpus, types)


def violations(request: Request, layout: Layout, counts: Counts, n_layers: int) -> tuple[str, ...]:
    """Every rule that a form, valid on one cluster, breaks on another of the same kind."""
    found = request.strategy.violations(counts.n_nodes, counts.n_gpus, counts.n_types)
    if request.placed is None:
        return tuple(found)
    return (*found, *_of_layout(layout, counts.n_gpus, n_layers))


@lru_cache(maxsize=65_536)
def _of_layout(layout: Layout, n_gpus: int, n_layers: int) -> tuple[str, ...]:
    return tuple(layout.violations(n_gpus, n_layers))


def _first_micro_batch(space: Space) -> int | None:
    return next((b for b in space.micro_batches if b is not None), None)


def _axis(space: Space, request: Request, layout: Layout, valid: list[int]) -> Axis:
    """The product of clusters, micro-batches and accumulation, without what does not divide."""
    micro = np.array([float(request.micro_batch if b is None else b) for b in space.micro_batches])
    steps = np.array(space.global_batches or space.grad_accums, dtype=np.float64)
    specs = tuple(space.clusters[i] for i in valid)
    row_cluster = np.repeat(np.arange(len(valid)), len(micro))
    row_micro = np.tile(micro, len(valid))
    row = np.repeat(np.arange(len(row_cluster)), len(steps))
    grad_accum = np.tile(steps, len(row_cluster))
    if space.global_batches:
        ranks = np.array([float(layout.data_ranks(c.n_gpus)) for c in specs])
        grad_accum = grad_accum / (row_micro * ranks[row_cluster])[row]
        whole = grad_accum == np.floor(grad_accum)
        row, grad_accum = row[whole], grad_accum[whole]
    return Axis(specs, row_cluster, row_micro, row, grad_accum)


def cut_axes(
    request: Request, words: FormWords, axis: Axis
) -> Iterator[tuple[Request, FormWords, Axis]]:
    """The points by how their pipeline is cut: all alike, unless each is to have its best cut."""
    if words.layout.stages != AUTO:
        yield request, words, axis
        return
    cuts = balanced_axis(request, axis)
    for text in dict.fromkeys(cuts):
        points = np.flatnonzero(np.array([c == text for c in cuts]))
        sizes = cut_sizes(text, layer_counts(request.workload), words.layout.pp)
        said = replace(
            words,
            layout=replace(words.layout, stages=text),
            options=tuple((k, text if k == "stages" else v) for k, v in words.options),
        )
        yield with_stages(request, sizes), said, axis.take(points)


def checkpoint_bytes(request: Request) -> float:
    """What a checkpoint holds: weights, their fp32 masters, the optimizer's state, the EMA."""
    s = request.strategy
    each = s.precision.param_bytes + s.precision.master_bytes + s.optimizer.state_bytes
    ema = FP32_BYTES if s.ema else 0.0
    return float(request.workload.trainable_numel * (each + ema))


def words_of(source: ModelSource, request: Request, form: Form) -> FormWords:
    """The resolved words of a form."""
    seq_len = form.get("seq_len") or getattr(source, "config", {}).get("seq_len")
    return FormWords(
        model=request.workload.name,
        strategy=request.strategy.parallelism,
        precision=request.strategy.precision.name,
        optimizer=request.strategy.optimizer.name,
        recompute=request.strategy.recompute,
        offload=str(request.strategy.offload),
        seq_len=seq_len if isinstance(seq_len, int) else None,
        layout=layout_of(form),
        checkpoint_bytes=checkpoint_bytes(request),
        options=tuple(sorted((k, v) for k, v in form.items() if v is not None)),
    )
