"""Times every operator of a real training step, in the order and state in which the step runs it.

Operands are where the step has them: in caches just after they were made, in memory if they were
saved long before. Imports torch: import it only to time a step.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any, Final

import numpy as np
import torch

from simcore.base.arrays import Array
from simcore.base.record import dataclass
from simcore.calibrate.bench.timing import ENOUGH, OTHERS_FRAC, busy_s, cores, others_frac
from simcore.calibrate.job.real_step import RealStep, precision_set
from simcore.workload.trace.record import KernelRecord, OpRecord
from simcore.workload.trace.recorder import Recorder

#: Steps before the first that counts, and the least and the most that count.
WARM_UP: Final = 2
LEAST, MOST = 5, 40
#: Clocks for which the device waits before each operator, so that it never waits for the host:
#: about 60 us at 1.7 GHz, more than an operator's dispatch takes.
SLEEP_CLOCKS: Final = 100_000
#: Least seconds of an operator: the resolution of the clocks.
LEAST_S: Final = 1e-9


@dataclass(frozen=True)
class TimedOp:
    """An operator of the step: its kernels, mean seconds, and the standard deviation of their log.

    ``seconds`` includes the views before it, which launch no kernel (on a GPU: no device time).
    """

    name: str
    backward: bool
    kernels: tuple[KernelRecord, ...]
    seconds: float
    sd_log: float


class _Timed:
    """An operator that times its call; otherwise as the operator itself."""

    __slots__ = ("_call", "_schema", "_timer", "is_view", "namespace")

    def __init__(self, call: Any, timer: OpTimer) -> None:
        self._call, self._timer = call, timer
        self._schema, self.is_view, self.namespace = call._schema, call.is_view, call.namespace

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        return self._timer.time(lambda: self._call(*args, **kwargs), view=self.is_view)


class OpTimer(Recorder):
    """Records the operators of one step with the seconds of each.

    ``timed``: each operator with kernels, and the seconds or the pairs of CUDA events since the
    one before.
    """

    on_processor = False

    def __init__(self, *, on_gpu: bool) -> None:
        super().__init__()
        self.timed: list[tuple[OpRecord, list[Any]]] = []
        self._on_gpu = on_gpu
        self._clock = _clock()
        self._since: list[Any] = []

    def time(self, call: Callable[[], Any], *, view: bool) -> Any:
        """The result of a call; its time is kept."""
        if not self._on_gpu:
            start = self._clock()
            result = call()
            self._since.append(self._clock() - start)
            return result
        if view:
            return call()
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda._sleep(SLEEP_CLOCKS)
        begin.record()
        result = call()
        end.record()
        self._since.append((begin, end))
        return result

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        before = len(self.ops)
        result = super().__torch_dispatch__(_Timed(func, self), types, args, kwargs)
        if len(self.ops) > before and self.ops[-1].kernels:
            self.timed.append((self.ops[-1], self._since))
            self._since = []
        return result

    def seconds(self) -> list[float]:
        """Seconds of each timed operator; waits for the device."""
        if not self._on_gpu:
            return [sum(since) for _, since in self.timed]
        torch.cuda.synchronize()
        return [sum(a.elapsed_time(b) for a, b in since) / 1e3 for _, since in self.timed]


def _one(step: RealStep, on_gpu: bool) -> OpTimer:
    timer = OpTimer(on_gpu=on_gpu)
    for p in step.module.parameters():
        timer.track(p, "parameter")
    step.optimizer.zero_grad()
    with timer:
        loss = step.loss()
        timer.forward_done = True
        loss.backward()
    return timer


def timed_ops(step: RealStep, precision: Any, on_gpu: bool, budget_s: float) -> list[TimedOp]:
    """The operators of forward and backward with the mean of their seconds in a typical step.

    A processor also takes time between operators (autograd, modules, memory that is returned):
    forward and backward as a whole less the sum of their operators, in equal parts. Raises what
    the step raises.
    """
    found: list[list[float]] = []
    others: list[float] = []
    until = time.perf_counter() + budget_s
    with precision_set(precision):
        for _ in range(WARM_UP):
            timer = _one(step, on_gpu)
        while len(found) < LEAST or (time.perf_counter() < until and len(found) < MOST):
            busy, cpu, start = busy_s(), time.process_time(), time.perf_counter()
            whole_s = 0.0 if on_gpu else _whole_s(step)
            timer = _one(step, on_gpu)
            found.append([*timer.seconds(), whole_s])
            wall, cpu = time.perf_counter() - start, time.process_time() - cpu
            others.append(others_frac(busy_s() - busy, cpu, wall, cores()))
    # A GPU is timed by its own clock, which other processes of the host do not change.
    typical = typical_steps(np.array(found), np.zeros(len(found)) if on_gpu else np.array(others))
    *mean, whole_s = typical.mean(axis=0)
    between_s = max(0.0, whole_s - sum(mean)) / len(mean)
    sd = typical.std(axis=0) / np.maximum(typical.mean(axis=0), LEAST_S) / np.sqrt(len(typical))
    return [
        TimedOp(op.name, op.phase == "backward", op.kernels, max(s + between_s, LEAST_S), float(d))
        for (op, _), s, d in zip(timer.timed, map(float, mean), sd, strict=False)
    ]


def _whole_s(step: RealStep) -> float:
    """Seconds of forward and backward as a processor runs them, without a timer of operators."""
    clock = _clock()
    start = clock()
    step.differentiate()
    return clock() - start


def _clock() -> Callable[[], float]:
    """The clock of a processor. A single thread computes all the time it is not interrupted."""
    return time.thread_time if torch.get_num_threads() == 1 else time.perf_counter


def typical_steps(seconds: Array, others: Array) -> Array:
    """The typical rows of ``seconds`` [steps, operators]: the middle half, by their sums.

    The sum of their means is the time of a typical step, which a sum of medians is not.
    ``others`` [steps]: share of the machine that other processes used. If they used it in most
    steps, the lowest quarter counts, because other processes only make a step longer.
    """
    good = seconds[others <= OTHERS_FRAC]
    if len(good) >= max(ENOUGH, len(seconds) // 2):
        order, quarter = np.argsort(good.sum(axis=1), kind="stable"), len(good) // 4
        return good[order[quarter : len(order) - quarter]]
    order = np.argsort(seconds.sum(axis=1), kind="stable")
    return seconds[order[: max(1, len(order) // 4)]]
