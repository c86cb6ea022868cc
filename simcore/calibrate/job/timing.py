"""Times a job on this device: the kernels of its step, its update, and where torch can, the step.

Where torch can build the model, its very step runs and each of its operators is timed in it
(``op_timer``). Otherwise, and for kernels that did not occur, synthetic operators of the same kind,
shape and traffic run (``kernel_runs``).
"""

from __future__ import annotations

import time
from collections import Counter, defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

import numpy as np

from simcore.answer.predict import predict
from simcore.base.arrays import NDArray
from simcore.base.errors import SimcoreError, UsageError
from simcore.base.record import dataclass
from simcore.calibrate.bench.case import Case, Device, How, Run, World
from simcore.calibrate.bench.queue import measure
from simcore.calibrate.bench.timing import Typical
from simcore.calibrate.job.kernels_of_step import measured_kernels, seconds_of
from simcore.hardware.calibrations import TimedKernel, TimedUpdate
from simcore.request.resolved import Request
from simcore.step.kernel_text import kernel_texts
from simcore.step.kernels import KernelTable, joined_table, kernel_table, table_of
from simcore.timing.compute import kernel_seconds
from simcore.timing.quantities import update_name
from simcore.timing.steps import job_of
from simcore.workload.graph import Block, Workload

#: Shares of the time for the update and for the whole step; kernels take the rest.
UPDATE_FRAC, STEP_FRAC = 0.1, 0.25
#: Share of a device's memory that the tensors of an update may take.
MEMORY_FRAC: Final = 0.6
#: Most seconds for one synthetic kernel.
MOST_S: Final = 0.5
#: fp32 tensors of an update per parameter: weight, gradient, two states, a temporary.
UPDATE_TENSORS: Final = 5


@dataclass(frozen=True)
class TimedJob:
    """What was timed of a job.

    ``kernels``: distinct kernels; ``update``: the optimizer's update over its predicted time;
    ``step_s``: the whole step, None with the reason ``why``. ``in_real_step``: number of kernels
    that were timed as operators of the real step. ``disturbed_frac``: of the whole step's runs.
    """

    kernels: tuple[TimedKernel, ...]
    update: TimedUpdate | None
    step_s: float | None
    why: str
    in_real_step: int
    disturbed_frac: float
    notes: tuple[str, ...]


def time_job(
    model: str, words: Mapping[str, Any], request: Request, device: Device, budget_s: float
) -> TimedJob:
    """Time the kernels, the update and the whole step of a job within about ``budget_s``."""
    table = tables_of(request)
    until = time.perf_counter() + budget_s
    step, why = _built(model, words, request, device)
    seconds, spread = np.full(len(table.kernels), np.nan), np.zeros(len(table.kernels))
    notes: list[str] = []
    if step is not None:
        seconds, spread, why = _in_step(step, request, table, device, budget_s / 2.0)
        step = None if why else step
    # Synthetic operators come last: they flush caches and leave other memory behind.
    whole: Typical | None = None
    if step is not None and request.grad_accum == 1:
        whole = timed(step, device, STEP_FRAC * budget_s, "sequence")
    elif step is not None:
        why = "gradients accumulate over micro-steps"
    update = _update(step, request, device, UPDATE_FRAC * budget_s, notes)
    in_real_step = set(np.array(kernel_texts(table))[seconds > 0.0])
    missing = np.flatnonzero(np.isnan(seconds) & (table["launches"] > 0.0))
    if missing.size:
        notes += _synthetic(request, table, missing, seconds, spread, device, until)
    texts, precision = kernel_texts(table), request.strategy.precision.name
    kernels = {
        text: TimedKernel(kernel=text, precision=precision, batch=batch_of(request),
                          seconds=float(s), sd_log=float(sd))
        for text, s, sd in zip(texts, seconds, spread, strict=True) if s > 0.0
    }  # fmt: skip
    return TimedJob(
        tuple(kernels.values()), update, whole.seconds if whole else None, why, len(in_real_step),
        whole.disturbed_frac if whole else 0.0, tuple(notes),
    )  # fmt: skip


def batch_of(request: Request) -> float:
    """Samples of a rank's micro-batch: context ranks divide one."""
    return request.micro_batch / (request.placed.layout.cp if request.placed else 1)


def tables_of(request: Request) -> KernelTable:
    """The kernels of the job, with a pipeline of all its different stages."""
    if request.placed is None:
        return table_of(request.workload, request.strategy)
    firsts = [first for first, _ in request.placed.distinct_stages]
    stages = (request.placed.stages[first].workload for first in firsts)
    return joined_table(tuple(table_of(w, request.strategy) for w in stages))


def timed(run: Run, device: Device, budget_s: float, how: How) -> Typical:
    """The typical time of a call on the device; ``how`` as in ``bench.case``."""
    case = Case("step", "steps", {}, lambda _: run, calls=5, how=how)
    return measure(case, device, World(), budget_s)


def _first_line(err: BaseException) -> str:
    return (str(err).splitlines() or [type(err).__name__])[0][:160]


def _built(
    model: str, words: Mapping[str, Any], request: Request, device: Device
) -> tuple[Any, str]:
    """The real step on the device, or None and the reason."""
    if request.placed is not None:
        return None, "one device runs a part of the model"
    if request.compiled:
        return None, "compiled kernels are not operators"
    from simcore.calibrate.job.real_step import built_step

    inputs = tuple(words.get("inputs") or ())
    try:
        tokens = round(request.workload.tokens_per_sample)
        step = built_step(model, inputs, request.micro_batch, request.strategy, device.kind, tokens)
        step()
    except UsageError as err:
        return None, _first_line(err)
    except (RuntimeError, NotImplementedError, ValueError, TypeError, IndexError) as err:
        return None, f"the step failed: {_first_line(err)}"
    return step, ""


def _in_step(
    step: Any, request: Request, table: KernelTable, device: Device, budget_s: float
) -> tuple[NDArray[np.float64], NDArray[np.float64], str]:
    """Seconds and spread [K] of the table's kernels in the real step, and why it failed if so."""
    from simcore.calibrate.job.op_timer import timed_ops

    rates = job_of(request).classes[0].kernels
    try:
        ops = timed_ops(step, request.strategy.precision, device.kind == "cuda", budget_s)
    except (RuntimeError, NotImplementedError) as err:
        nothing = np.full(len(table.kernels), np.nan)
        return nothing, np.zeros(len(table.kernels)), f"the step failed: {_first_line(err)}"
    return *seconds_of(table, batch_of(request), measured_kernels(ops, rates)), ""


def _synthetic(
    request: Request, table: KernelTable, missing: NDArray[np.intp], seconds: Any, spread: Any,
    device: Device, until: float,
) -> list[str]:  # fmt: skip
    """Time kernels as synthetic operators into ``seconds`` and ``spread``; notes on the others.

    Operands are in memory, not in caches, as for most of a step's kernels. Kernels of most
    predicted time come first.
    """
    from simcore.calibrate.job.kernel_runs import Maker, functions_of, made, shape_of

    batch, strategy, one = batch_of(request), request.strategy, np.ones(1)
    last = not request.workload.channels_first
    make = Maker(device.kind, strategy.precision, channels_last=last)
    names = names_of(request)
    rates = job_of(request).classes[0].kernels
    predicted = kernel_seconds(table, rates, batch * one, one, one)[:, 0]
    order = missing[np.argsort(-predicted[missing], kind="stable")]
    failed: dict[str, str] = {}
    texts = kernel_texts(table)
    for n_done, row in enumerate(order):
        left_s = until - time.perf_counter()
        if left_s <= 0.0:
            failed.setdefault("no time was left for kernels", f"{len(order) - n_done} of them")
            break
        shape = shape_of(table.kernels[row], batch)
        share_s = min(MOST_S, left_s / (len(order) - n_done))
        functions = Counter(functions_of(names.get(texts[row], ())))
        sums = 0.0
        for function, count in functions.items():
            scale = 1.0

            def prepare(_: Device, s: Any = shape, f: str = function) -> Run:
                nonlocal scale
                run, scale = made(s, make, f)
                return run

            case = Case("kernel", "kernel", {}, prepare, seconds=0.0, cold=True, how="queue")
            try:
                call = measure(case, device, World(), share_s / len(functions))
            except (RuntimeError, KeyError, ValueError, TypeError, IndexError) as err:
                failed[f"not timed: {shape.group}"] = _first_line(err)
                break
            sums += count * call.seconds * scale
            spread[row] = call.sd_log
        else:
            seconds[row] = sums / functions.total()
    return [f"{what}: {why}" for what, why in failed.items()]


def names_of(request: Request) -> dict[str, list[str]]:
    """Text of a kernel -> names of the ops that run it, once for each run."""
    strategy, found = request.strategy, defaultdict[str, list[str]](list)
    workloads = [request.workload]
    if request.placed is not None:
        firsts = [first for first, _ in request.placed.distinct_stages]
        workloads = [request.placed.stages[first].workload for first in firsts]
    for block, times in (pair for w in workloads for pair in w.repeats):
        for op in block.ops:
            alone = Workload(
                name=op.name, sample_unit="", blocks=(Block(name=op.name, ops=(op,)),), order=(0,)
            )
            for text in kernel_texts(kernel_table(alone, strategy.precision)):
                found[text] += [op.name] * times
    return found


def _update(
    step: Any, request: Request, device: Device, budget_s: float, notes: list[str]
) -> TimedUpdate | None:
    """The measured time of the optimizer's update over the predicted one; None if not timed."""
    from simcore.calibrate.job.real_step import optimizer_of

    measured = request.profile.measured
    if measured is not None:  # by the figures alone
        measured = measured.model_copy(update={"updates": ()})
        request = replace(request, profile=replace(request.profile, measured=measured, _seen={}))
    predicted_s = predict(request).time_s["optimizer"]
    if request.placed is not None or request.strategy.offload or not predicted_s:
        return None
    try:
        optimizer = step.optimizer if step is not None else None
        if optimizer is None:
            import torch

            sizes: Sequence[int] = list(request.workload.tensor_sizes.elements())
            if UPDATE_TENSORS * 4 * sum(sizes) > MEMORY_FRAC * device.memory_bytes:
                notes.append("the update was not timed: its tensors do not fit this device alone")
                return None
            made = [torch.zeros(n, device=device.kind, requires_grad=True) for n in sizes]
            for p in made:
                p.grad = torch.full_like(p, 1e-3)
            optimizer = optimizer_of(request.strategy, made)
        else:
            step.differentiate()
        call = timed(optimizer.step, device, budget_s, "queue")
    except (SimcoreError, RuntimeError) as err:
        notes.append(f"the update was not timed: {_first_line(err)}")
        return None
    return TimedUpdate(
        optimizer=update_name(request.strategy), numel=float(request.workload.trainable_numel),
        over_figures=call.seconds / predicted_s, sd_log=call.sd_log,
    )  # fmt: skip
