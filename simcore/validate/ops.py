"""The op models compared with measured op tables: errors by GPU and op, own and blind apart.

simcore validate ops FILE…
"""

from __future__ import annotations

import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from simcore.answer.alone import collective_alone_s
from simcore.base.arrays import Array, NDArray
from simcore.base.errors import DataError, SimcoreError, UsageError
from simcore.base.record import dataclass
from simcore.calibrate.experts.rows import ExpertBatch, expert_rows, is_expert_table
from simcore.calibrate.linear.rows import LinearBatch, is_linear_table, linear_rows
from simcore.calibrate.ops.collective_rows import (
    AcrossRun,
    CollectiveCurve,
    collective_rows,
    is_collective_table,
)
from simcore.calibrate.ops.model import OpFigures, op_time_s
from simcore.calibrate.ops.rows import OpBatch, is_op_table, op_rows
from simcore.calibrate.pooling import family_of
from simcore.calibrate.tables import OnBad, RowsRead, T, Table, read_table
from simcore.hardware.estimates import Level
from simcore.hardware.profile import Profile, load_profile
from simcore.hardware.spec import GPUS, GpuSpec
from simcore.physics.collectives import Allowed
from simcore.timing.rates import attention_width
from simcore.validate.collectives import LARGE_MESSAGE, CollectiveProfile, load_collectives
from simcore.validate.end_to_end import (
    ModelPass,
    is_end_to_end_table,
    model_passes,
    pass_time_s,
)
from simcore.validate.metrics import summary
from simcore.validate.refit import EXPERTS, LINEAR, Refit, held_out


@dataclass(frozen=True)
class OpErrors:
    """Predicted / measured - 1 for rows of one GPU, op and dtype; arrays [rows].

    ``level``: origin of the figures that predicted them (own, family or pooled).
    """

    gpu: str
    op: str
    dtype: str
    kind: str
    level: Level
    large: NDArray[np.bool_]
    error_frac: Array


def op_figures(batch: OpBatch, gpu: GpuSpec, profile: Profile) -> tuple[OpFigures, Level]:
    """(figures, level) of a batch's class in a profile, at the clocks and start of the measurement.

    Raises KeyError where the profile has nothing for the class.
    """
    found = profile.class_figures(batch.cls, gpu)
    kernel_start_s = profile.kernel_start_s(gpu).value
    start_s = found.start_s or kernel_start_s
    floor_s = (found.floor_s or profile.eager_floor_s(gpu).value) if batch.eager else 0.0
    if batch.form == "memory":
        start_s = start_s if batch.eager else kernel_start_s  # a class's start is of eager rows
        figures = OpFigures(
            1.0, found.share.value, start_s, floor_s=floor_s, row_clocks=found.row_clocks
        )
        return figures, found.level
    clock = profile.clock_ratio(batch.cls, batch.clock, gpu).value
    back = profile.attention_backward_frac(gpu).value if batch.op == "attention_bwd" else 1.0
    figures = OpFigures(
        eff_compute=found.share.value / clock * back,
        eff_memory=found.memory,
        start_s=start_s,
        wave_frac=found.wave_frac,
        half_depth=found.half_depth,
        half_width=attention_width(gpu) if batch.form == "attention" else 0.0,
        floor_s=floor_s,
    )
    return figures, found.level


def batch_errors(batch: OpBatch, profile: Profile) -> OpErrors:
    """Errors of one batch. Raises KeyError like :func:`op_figures`."""
    gpu = GPUS[batch.gpu]
    figures, level = op_figures(batch, gpu, profile)
    error = op_time_s(batch, gpu, figures) / batch.time_s - 1.0
    return OpErrors(batch.gpu, batch.op, batch.dtype, batch.kind, level, batch.large, error)


def _unseen(batch: OpBatch) -> NDArray[np.bool_]:
    return held_out(zip(batch.m, batch.n, batch.k, batch.groups, batch.n_bytes, strict=True))


_Reader: TypeAlias = Callable[[Table, OnBad], RowsRead[Any]]
#: Test for a kind of table, and its reader.
_READERS: Final[tuple[tuple[Callable[[Table], bool], _Reader], ...]] = (
    (is_end_to_end_table, model_passes),
    (is_collective_table, collective_rows),
    (is_expert_table, expert_rows),
    (is_linear_table, linear_rows),
    (is_op_table, op_rows),
)


def _read(paths: Sequence[Path], on_bad: OnBad) -> RowsRead[Any]:
    """Batches of ops, curves and runs of collectives, and passes of models in the files."""
    found = RowsRead[Any]()
    for path in paths:
        table = read_table(path)
        read = next((read for is_one, read in _READERS if is_one(table)), None)
        if read is None:
            raise DataError(
                "is no op table: it needs gpu, time_us and an op's sizes, or a collective's, "
                "or a whole model's time_ms",
                file=path,
            )
        found += read(table, on_bad)
    return found


def _of(kind: type[T], read: RowsRead[Any]) -> list[T]:
    return [item for item in read.items if isinstance(item, kind)]


def _errors(
    items: Iterable[T],
    errors_of: Callable[[T], OpErrors],
    n_rows: Callable[[T], int],
    skipped: Counter[str],
) -> list[OpErrors]:
    """The errors of all items that there are figures for; rows of the others are counted."""
    parts = []
    for item in items:
        try:
            parts.append(errors_of(item))
        except (SimcoreError, KeyError) as err:
            skipped[str(err.args[0]) if err.args else str(err)] += n_rows(item)
    return parts


def judge_ops(
    paths: Sequence[Path],
    profile: Profile | None = None,
    *,
    refit: Refit | None = None,
    on_bad: OnBad = "skip",
) -> dict[str, object]:
    """The contract of ``simcore validate ops --json``.

    ``groups`` (by gpu, op and dtype) and ``kinds`` (by kind) hold ``n``, ``mape_frac``,
    ``median_bias_frac`` and ``p90_abs_frac``, under ``large`` the same over large shapes, and
    ``profile``: the origin of the figures (own, family or pooled). ``summary``: for each kind and
    dtype the mean over GPUs, ``own`` and ``blind`` apart.

    ``refit`` compares figures fitted to these files: ``shapes`` fits seven tenths of the shapes and
    predicts the others; ``family`` also leaves out the family of the device that is predicted.
    ``on_bad``: rows without a valid measurement are skipped (and listed) or refused.
    """
    profile = profile or load_profile()
    tables = _read(paths, on_bad)
    skipped = tables.skipped
    collectives = load_collectives()
    batches, models = _of(OpBatch, tables), _of(ModelPass, tables)
    curves, across = _of(CollectiveCurve, tables), _of(AcrossRun, tables)
    if refit and models and not batches:
        raise UsageError(
            f"--refit {refit} fits to the given files, and these hold passes of whole models but "
            "no operators: add tables of products, attention and memory-bound ops"
        )
    profile_of: Callable[[str], Profile] = lambda _: profile  # noqa: E731
    comm_of: Callable[[str], CollectiveProfile] = lambda _: collectives  # noqa: E731
    with tempfile.TemporaryDirectory() as folder:
        if refit:
            profile_of, comm_of = _refit(batches, curves, profile, refit, Path(folder))
            batches = [unseen for b in batches if len(unseen := b.take(_unseen(b)))]
            kept = (_keep(c, _unseen_sizes(c)) for c in curves)
            curves = [c for c in kept if len(c.n_bytes)]
        parts = _errors(batches, lambda b: batch_errors(b, profile_of(b.gpu)), len, skipped)
        parts += _errors(
            curves, lambda c: _curve_errors(c, comm_of(c.gpu)), lambda c: len(c.n_bytes), skipped
        )
        parts += [
            OpErrors(b.gpu, b.cls, b.dtype, "experts", level, b.large, error)
            for b, level, error in EXPERTS.errors(_of(ExpertBatch, tables), refit, skipped)
        ]
        if refit and across:
            skipped["collectives between nodes: a refit has no figure for them"] += sum(
                len(run.n_bytes) for run in across
            )
        else:
            parts += [_across_errors(run, profile) for run in across]
        parts += _errors(
            models, lambda m: _model_errors(m, profile_of(m.gpu)), lambda _: 1, skipped
        )
        parts += [
            OpErrors(b.gpu, f"{b.kernel} {b.framework}", "bf16", "linear", level, b.large, error)
            for b, level, error in LINEAR.errors(_of(LinearBatch, tables), refit, skipped)
        ]
    return {
        "rows": tables.n_rows,
        "simulated": sum(len(p.error_frac) for p in parts),
        "refit": refit,
        "skipped": dict(skipped),
        "bad_rows": list(tables.problems),
        "summary": _summary(parts, refit),
        "groups": _by(parts, "gpu", "op", "dtype"),
        "kinds": _by(parts, "kind"),
    }


def _keep(curve: CollectiveCurve, rows: NDArray[np.bool_]) -> CollectiveCurve:
    return replace(curve, n_bytes=curve.n_bytes[rows], time_s=curve.time_s[rows])


def _unseen_sizes(curve: CollectiveCurve) -> NDArray[np.bool_]:
    return held_out((size,) for size in curve.n_bytes)


def _refit(
    batches: Sequence[OpBatch],
    curves: Sequence[CollectiveCurve],
    profile: Profile,
    refit: Refit,
    folder: Path,
) -> tuple[Callable[[str], Profile], Callable[[str], CollectiveProfile]]:
    """Profiles fitted to the shapes that are not left out; one for each family left out."""
    from simcore.calibrate.ops.fit import collective_profile, fit_ops, profile_from
    from simcore.calibrate.yaml_text import to_yaml, used_sources

    seen = [b.take(~_unseen(b)) for b in batches]
    fits = fit_ops((b for b in seen if len(b)), [_keep(c, ~_unseen_sizes(c)) for c in curves])

    def left_out(gpu: str) -> str:
        return family_of(gpu) if refit == "family" else ""

    @cache
    def profile_without(family: str) -> Profile:
        data = profile_from(fits, {family} - {""})
        file = folder / f"without-{family or 'nothing'}.yaml"
        file.write_text(to_yaml(data, used_sources(data)), encoding="utf-8")
        return Profile(
            name=f"refit {family}", origin="refit", efficiency_file=file, runtime=profile.runtime
        )

    @cache
    def collectives_without(family: str) -> CollectiveProfile:
        return CollectiveProfile(collective_profile(fits, {family} - {""}))

    return (
        lambda gpu: profile_without(left_out(gpu)),
        lambda gpu: collectives_without(left_out(gpu)),
    )


def _curve_errors(curve: CollectiveCurve, profile: CollectiveProfile) -> OpErrors:
    """Errors of a collective inside a node. Raises KeyError where the profile has no figures."""
    time_s, level = profile.time_s(curve)
    return OpErrors(
        curve.gpu, f"{curve.op.removesuffix('_int8')} x{curve.ranks}",
        "int8" if curve.op.endswith("_int8") else "float", "collective", level,
        curve.n_bytes >= LARGE_MESSAGE, time_s / curve.time_s - 1.0,
    )  # fmt: skip


def _across_errors(run: AcrossRun, profile: Profile) -> OpErrors:
    """Errors of collectives between nodes, priced as in a step.

    The price consists of NCCL's latencies, the links' rates, and the chunk ramp between nodes
    (``runtime.yaml``).
    """
    allowed = Allowed(algorithms=(run.algorithm,) if run.algorithm else ())
    time_s = collective_alone_s(run.cluster, profile, run.op, run.n_bytes, allowed=allowed)  # type: ignore[arg-type]
    gpu, large = run.cluster.groups[0].gpu.name, run.n_bytes >= LARGE_MESSAGE
    return OpErrors(gpu, run.title, "float", "across", "own", large, time_s / run.time_s - 1.0)


def _model_errors(one: ModelPass, profile: Profile) -> OpErrors:
    """The error of a whole pass, with the level of the figures that price its products."""
    return OpErrors(
        one.gpu, f"{one.model} {'train' if one.train else 'inference'}", "fp32", "model",
        profile.class_figures("gemm_simt32", GPUS[one.gpu]).level, np.ones(1, bool),
        np.array([pass_time_s(one, profile) / one.time_s - 1.0]),
    )  # fmt: skip


def _by(parts: Sequence[OpErrors], *keys: str) -> dict[str, dict[str, object]]:
    found: dict[tuple[str, ...], list[OpErrors]] = {}
    for part in parts:
        found.setdefault(tuple(getattr(part, k) for k in keys), []).append(part)
    return {
        " ".join(values): {
            **dict(zip(keys, values, strict=True)),
            "profile": "+".join(sorted({p.level for p in mine})),
            **_scores(mine),
        }
        for values, mine in sorted(found.items())
    }


def _scores(parts: Sequence[OpErrors]) -> dict[str, object]:
    errors = np.concatenate([p.error_frac for p in parts])
    large = np.concatenate([p.large for p in parts])
    return {**summary(errors), "large": summary(errors[large])}


_NAMES: Final[Mapping[str, str]] = {
    "gemm": "products of 1 GFLOP and more", "attention": "attention of 5 GFLOP and more",
    "conv": "convolutions of 1 GFLOP and more", "elementwise": "memory-bound, 32 MB and more",
    "norm": "memory-bound, 32 MB and more", "softmax": "memory-bound, 32 MB and more",
    "experts": "expert layers of 20 GFLOP and more",
    "linear": "linear attention", "collective": "collectives inside a node",
    "across": "collectives between nodes", "model": "whole models",
}  # fmt: skip
_ALL_SIZES: Final = ("linear", "collective", "across", "model")


def _summary(parts: Sequence[OpErrors], refit: Refit | None) -> list[dict[str, object]]:
    """By class and dtype, the mean over GPUs of each GPU's error, own and blind apart."""
    found: dict[tuple[str, str, str], dict[str, list[Array]]] = {}
    for p in parts:
        blind = refit == "family" or p.level != "own"
        dtype = {"fp16": "bf16"}.get(p.dtype, p.dtype) if p.kind in ("gemm", "attention") else ""
        errors = p.error_frac if p.kind in _ALL_SIZES else p.error_frac[p.large]
        if len(errors):
            key = (_NAMES[p.kind], dtype, "blind" if blind else "own")
            found.setdefault(key, {}).setdefault(p.gpu, []).append(errors)
    lines: list[dict[str, object]] = []
    for (name, dtype, whose), gpus in sorted(found.items()):
        each = {g: np.concatenate(e) for g, e in sorted(gpus.items())}
        lines.append({
            "class": name, "dtype": dtype, "profile": whose, "gpus": len(each),
            "n": sum(map(len, each.values())),
            "mape_frac": float(np.mean([np.abs(e).mean() for e in each.values()])),
            "median_bias_frac": float(np.median([np.median(e) for e in each.values()])),
            "by_gpu": {g: float(np.abs(e).mean()) for g, e in each.items()},
        })  # fmt: skip
    return lines
