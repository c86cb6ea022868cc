"""What the table ``host`` of a GPU's benchmarks tells: of the host and of optimizers' updates.

The host has two figures, an issue and a launch. An update's kernels on lists of tensors
(``multi_tensor_apply``) move their bytes more slowly than elementwise kernels on one tensor; rows
of AdamW that the host limits tell of the host instead.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np

from simcore.base.arrays import Array
from simcore.base.units import FP32_BYTES
from simcore.calibrate.bench.host import ELEMENTS_MOVED
from simcore.calibrate.bench.launch import DEPTH, UNITS
from simcore.calibrate.bench.store import RawRow
from simcore.calibrate.link_fit import LEAST_SD
from simcore.hardware.calibrations import Fitted, FittedTime
from simcore.hardware.class_figures import HostWork, host_work
from simcore.hardware.profile import OF_MEMORY, Profile, load_profile
from simcore.hardware.spec import GpuSpec
from simcore.strategy.optimizers import OPTIMIZERS, TENSORS_A_LAUNCH
from simcore.timing.quantities import LISTED_ISSUES, TENSOR_ISSUES

#: Kernels (kind, of backward) of a layer of the benchmark ``eager``: product and activation; their
#: gradients, the bias's, and additions to the gradients of earlier calls.
EAGER_LAYER: Final = (
    ("gemm", False), ("elementwise", False), ("elementwise", True), ("gemm", True), ("gemm", True),
    ("reduction", True), ("elementwise", True), ("elementwise", True),
)  # fmt: skip
#: Benchmarks of one kind of operator -> its kind, and its kernels in backward.
UNIT_KINDS: Final = {
    "elementwise": ("elementwise", ("elementwise",)),
    "linear-module": ("gemm", ("gemm", "gemm", "reduction")),
    "bmm": ("bmm", ("bmm", "bmm")),
    "norm-module": ("norm", ("norm",)),
    "batch-norm-module": ("batch_norm", ("batch_norm",)),
    "conv-module": ("conv", ("conv", "conv")),
    "attention": ("attention", ("attention",)),
    "softmax": ("softmax", ("softmax",)),
    "copy": ("copy", ("copy",)),
}
#: Logarithmic scatter of single kinds around their figures (tests/step/test_host_calls_kinds.py).
KIND_SD: Final = 0.2
#: Prior standard deviation of the logarithm of either figure: hosts differ by factors, and a launch
#: in a virtual machine from one without by more than PyTorch's part.
PRIOR_SD: Final = (0.35, 0.7)
#: Standard deviation of ln(speed of a host) from one minute to the next on a machine that others
#: share: of the times of a tiny operator before each of 35 steps (column ``issue_us`` of
#: validate/cards/h200-2026-11-27/steps.csv).
DRIFT_SD: Final = 0.20
#: A step of an optimizer tells of the host where it takes this many times as long as its traffic.
HOST_BOUND: Final = 2.0


def host_times(rows: Sequence[RawRow], gpu: GpuSpec) -> dict[str, FittedTime]:
    """``host_issue`` and ``host_launch`` of a machine [s]; empty where no row tells of them.

    Least squares of logarithms, seconds = issues x issue + launches x launch, around the shipped
    figures. ``rows``: those of the table ``host``.
    """
    data = [(work, r) for r in rows if (work := _work_of(r, gpu)) is not None]
    if not data:
        return {}
    blind = load_profile()
    usual = blind.host_issue_s(gpu), blind.host_launch_s(gpu)
    works = np.array([(w.issues, w.launches) for w, _ in data])
    logs = np.log([r.seconds for _, r in data])
    weight = 1.0 / np.hypot([r.sd_log for _, r in data], KIND_SD)
    start = np.log([u.value for u in usual])
    theta, prior = start.copy(), 1.0 / np.array(PRIOR_SD)
    for _ in range(30):  # Gauss-Newton; two figures of nearly linear logarithms
        parts: Array = works * np.exp(theta)
        seconds = parts.sum(axis=1)
        slopes = np.vstack([parts / seconds[:, None] * weight[:, None], np.diag(prior)])
        off = np.concatenate([(logs - np.log(seconds)) * weight, (start - theta) * prior])
        theta += np.linalg.lstsq(slopes, off, rcond=None)[0]
    spread = np.sqrt(np.diag(np.linalg.inv(slopes.T @ slopes)))
    return {
        name: FittedTime(
            value=math.exp(at), sd_log=math.hypot(float(sd), DRIFT_SD), rows=len(data),
            note="an issue and a launch together, by kind of operator",
        )
        for name, at, sd in zip(("host_issue", "host_launch"), theta, spread, strict=True)
    }  # fmt: skip


def device_bound(row: RawRow, gpu: GpuSpec) -> bool:
    """Whether an optimizer's step tells of the device and not of the host."""
    return row.seconds < HOST_BOUND * row.number("bytes") / gpu.memory_bw.value


def _work_of(row: RawRow, gpu: GpuSpec) -> HostWork | None:
    """The host's work in a benchmark; None where it does not tell of the host."""
    op = row.cells["op"]
    if op == "eager":
        return _sum(EAGER_LAYER, DEPTH)
    if op in ("adamw-fused", "adamw-foreach"):
        if device_bound(row, gpu):
            return None
        kernels = 1 if op == "adamw-fused" else OPTIMIZERS["adamw"].kernels
        tensors = row.number("count")
        packed = max(1.0, tensors / TENSORS_A_LAUNCH)
        issues = TENSOR_ISSUES + LISTED_ISSUES * kernels * (kernels > 1)
        return HostWork(tensors * issues, kernels * packed)
    kind, backward = op.removeprefix("eager-").removesuffix("-backward"), op.endswith("-backward")
    if not op.startswith("eager-") or kind not in UNIT_KINDS:
        return None
    forward, gradients = UNIT_KINDS[kind]
    units = [(k, True) for k in gradients] if backward else [(forward, False)]
    return _sum(units, UNITS)


def _sum(kernels: Iterable[tuple[str, bool]], times: float) -> HostWork:
    works = [host_work(kind, backward=backward) for kind, backward in kernels]
    return HostWork(times * sum(w.issues for w in works), times * sum(w.launches for w in works))


#: Key of the multiplier, which comes on top of that of elementwise kernels.
UPDATE: Final = OF_MEMORY + "update"
#: fp32 elements that an update moves for each parameter.
_MOVED: Final = {
    "adamw-foreach": OPTIMIZERS["adamw"].traffic_elems,
    "adamw-fused": float(ELEMENTS_MOVED["fused"]),
}


def with_update(
    figures: Mapping[str, Fitted], rows: Sequence[RawRow], gpu: GpuSpec, blind: Profile
) -> dict[str, Fitted]:
    """``figures`` of a GPU's kernels and, where a row tells of it, that of the update.

    ``figures``: key -> measured rate over ``blind``; ``rows``: of any table.
    """
    timed = [r for r in rows if r.cells.get("op") in _MOVED and device_bound(r, gpu)]
    if not timed:
        return dict(figures)
    elementwise = figures.get(OF_MEMORY + "elementwise")
    known = blind.memory_efficiency("update", gpu).value * (elementwise.value if elementwise else 1)
    logs = [math.log(_bytes_per_s(r) / (known * gpu.memory_bw.value)) for r in timed]
    spread = max(LEAST_SD, float(np.std(logs)))
    found = Fitted(value=math.exp(float(np.mean(logs))), sd_log=spread, rows=len(timed))
    return {**figures, UPDATE: found}


def _bytes_per_s(row: RawRow) -> float:
    op = row.cells["op"]
    elements = row.number("bytes") / (FP32_BYTES * ELEMENTS_MOVED[op.removeprefix("adamw-")])
    return elements * _MOVED[op] * FP32_BYTES / row.seconds
