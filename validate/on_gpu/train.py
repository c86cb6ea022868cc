"""Trains one job for some steps: times, peaks of memory, and whether a batch fits.

On a GPU, events mark the ends of steps that follow each other as in a loop of training; on a
processor the clock does, and there is no memory to tell.
"""

from __future__ import annotations

import contextlib
import gc
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, Final

from validate.on_gpu.build import build, library
from validate.on_gpu.jobs import Job

#: Steps before the first that counts, seconds of measured steps, and their least and most number.
WARM_UP: Final = 5
MEASURED_S: Final = 1.5
LEAST_STEPS, MOST_STEPS = 8, 50
#: Steps issued into an empty queue, of whose times the median is the host's.
HOST_STEPS: Final = 3
#: A step is bound by the device if the host takes at most this share of it to issue, by the host if
#: it takes at least the second one; in between, or where the host waits for the device, it is
#: unclear.
HOST_FREE_FRAC, HOST_BOUND_FRAC = 0.8, 0.95
#: Tiny operators that are issued to see how fast the host is.
ISSUES: Final = 400
#: Decay of the weights' moving average, which is updated tensor by tensor.
EMA_DECAY: Final = 0.9999
#: Steps after which a batch counts as one that fits.
FIT_STEPS: Final = 3


@dataclass(frozen=True)
class Result:
    """Seconds of steps, and bytes: allocated, reserved, of the device; None on a processor.

    ``issue_s``: of the host for one tiny operator, just before the steps.
    """

    steps_s: tuple[float, ...]
    host_s: float
    bound: str
    parameters: int
    memory_bytes: tuple[int, int, int] | None
    issue_s: float


class Training:
    """A job with its tensors on the device; ``step`` runs one training step."""

    def __init__(
        self, job: Job, device: str, *, is_small: bool, inputs_there: bool = False
    ) -> None:
        import torch

        _set_precision(torch, job.precision)
        torch.manual_seed(0)
        built = build(job, device, is_small=is_small)
        module = built.module
        if job.precision == "bf16-true":
            module = module.to(torch.bfloat16)
        module = _changed(module.to(device), job)
        self._params = [p for p in module.parameters() if p.requires_grad]
        self.parameters = sum(p.numel() for p in module.parameters())
        self._loss = built.loss
        if job.compiled:
            module.compile()
        self._optimizer = _optimizer(torch, job, self._params)
        self._inputs = tuple(_laid_out(torch, t, job) for t in built.inputs)
        if inputs_there:
            self._inputs = tuple(t.to(device) for t in self._inputs)
        elif device == "cuda":
            self._inputs = tuple(t.pin_memory() for t in self._inputs)
        self._device, self._job = device, job
        half = {"amp-bf16": torch.bfloat16, "amp-fp16": torch.float16}.get(job.precision)
        self._cast: Callable[[], Any] = (
            (lambda: torch.autocast(device, half)) if half else contextlib.nullcontext
        )
        self._no_grad = torch.no_grad
        self._averages = [p.detach().clone() for p in self._params] if job.ema else []
        self._scaler = torch.amp.GradScaler(device) if half is torch.float16 else None

    @property
    def waits(self) -> bool:
        """Whether the host waits for the device within a step."""
        return self._scaler is not None or self._job.accum > 1

    def step(self) -> None:
        """One step: the copies of its inputs, forward and backward passes, the update."""
        for _ in range(self._job.accum):
            inputs = [t.to(self._device, non_blocking=True) for t in self._inputs]
            with self._cast():
                loss = self._loss(*inputs) / self._job.accum
            (self._scaler.scale(loss) if self._scaler else loss).backward()
        if self._scaler:
            self._scaler.step(self._optimizer)
            self._scaler.update()
        else:
            self._optimizer.step()
        self._optimizer.zero_grad(set_to_none=True)
        if self._averages:
            with self._no_grad():
                for mean, p in zip(self._averages, self._params, strict=True):
                    mean.mul_(EMA_DECAY).add_(p, alpha=1.0 - EMA_DECAY)


def _set_precision(torch: Any, precision: str) -> None:
    torch.backends.cuda.matmul.allow_tf32 = precision == "tf32"
    torch.backends.cudnn.allow_tf32 = precision != "fp32-ieee"


def _changed(module: Any, job: Job) -> Any:
    """The module with adapters, checkpoints and layout as the job has them. Raises UsageError."""
    import torch

    if job.lora_rank:
        peft = library("peft")
        adapters = peft.LoraConfig(
            r=job.lora_rank, lora_alpha=2 * job.lora_rank, target_modules=["q_proj", "v_proj"]
        )
        module = peft.inject_adapter_in_model(adapters, module)
    if job.recompute:
        module.gradient_checkpointing_enable({"use_reentrant": False})
    if job.channels_last:
        module = module.to(memory_format=torch.channels_last)
    return module


def _laid_out(torch: Any, tensor: Any, job: Job) -> Any:
    if job.channels_last and tensor.dim() == 4:
        tensor = tensor.contiguous(memory_format=torch.channels_last)
    half = job.precision == "bf16-true" and tensor.is_floating_point()
    return tensor.to(torch.bfloat16) if half else tensor


def _optimizer(torch: Any, job: Job, params: list[Any]) -> Any:
    how = {"fused": {"fused": True}, "for-loop": {"foreach": False}}.get(job.optimizer_impl, {})
    if job.optimizer == "sgd":
        return torch.optim.SGD(params, lr=1e-4, momentum=0.9, weight_decay=1e-4, **how)
    return torch.optim.AdamW(params, lr=1e-5, **how)


def clear(device: str) -> None:
    """Free what earlier jobs held, and start peaks anew."""
    import torch

    gc.collect()
    if device == "cuda":
        torch.cuda.synchronize()
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats()


def wait(device: str) -> None:
    """Wait for the device."""
    import torch

    if device == "cuda":
        torch.cuda.synchronize()


def measure(job: Job, device: str, *, is_small: bool) -> Result:
    """Train a job and measure its steps. Raises UsageError where it cannot be built."""
    clear(device)
    training = Training(job, device, is_small=is_small)
    clear(device)  # of what was only needed to build it
    issue_s = _issue_s(device)
    for _ in range(WARM_UP):
        training.step()
    wait(device)
    begin = time.perf_counter()
    training.step()
    wait(device)
    once_s = time.perf_counter() - begin
    n = max(LEAST_STEPS, min(MOST_STEPS, int(MEASURED_S / once_s)))
    if device == "cuda":
        steps_s, memory = _on_gpu(training, n)
    else:
        steps_s, memory = _on_host(training, n), None
    hosts = []
    for _ in range(HOST_STEPS):
        wait(device)
        begin = time.perf_counter()
        training.step()
        hosts.append(time.perf_counter() - begin)
    host_s = statistics.median(hosts)
    bound = bound_by(host_s, statistics.median(steps_s), waits=training.waits)
    return Result(
        steps_s, host_s, "host" if device == "cpu" else bound, training.parameters, memory, issue_s
    )


def _issue_s(device: str) -> float:
    """Seconds of the host to issue a tiny operator into an empty queue: how fast it is just now."""
    import torch

    x = torch.zeros(8, device=device)
    for _ in range(2):
        wait(device)
        begin = time.perf_counter()
        for _ in range(ISSUES):
            x = x + 1.0
        took_s = time.perf_counter() - begin
    return took_s / ISSUES


def kernels(job: Job, *, is_small: bool) -> tuple[tuple[str, int, float], ...]:
    """The GPU's kernels and copies of one step: name, calls, seconds, the longest together first.

    A process that has profiled issues kernels more slowly ever after: measure steps before.
    """
    from torch.autograd import DeviceType
    from torch.profiler import ProfilerActivity, profile

    clear("cuda")
    training = Training(job, "cuda", is_small=is_small)
    for _ in range(FIT_STEPS):
        training.step()
    wait("cuda")
    with profile(activities=[ProfilerActivity.CUDA]) as seen:
        training.step()
        wait("cuda")
    found = [
        (e.key, int(e.count), float(e.self_device_time_total) / 1e6)
        for e in seen.key_averages() if e.device_type == DeviceType.CUDA
    ]  # fmt: skip
    return tuple(sorted(found, key=lambda kernel: -kernel[2]))


def bound_by(host_s: float, step_s: float, *, waits: bool) -> str:
    """What bounds a step: ``gpu``, ``host`` or ``unclear``.

    ``waits``: the host waits for the device within a step, so that its time is no measure of its
    work, but at most that.
    """
    if host_s <= HOST_FREE_FRAC * step_s:
        return "gpu"
    return "host" if host_s >= HOST_BOUND_FRAC * step_s and not waits else "unclear"


def _on_host(training: Training, n: int) -> tuple[float, ...]:
    found = []
    for _ in range(n):
        begin = time.perf_counter()
        training.step()
        found.append(time.perf_counter() - begin)
    return tuple(found)


def _on_gpu(training: Training, n: int) -> tuple[tuple[float, ...], tuple[int, int, int]]:
    import torch

    torch.cuda.reset_peak_memory_stats()
    marks = [torch.cuda.Event(enable_timing=True) for _ in range(n + 1)]
    marks[0].record()
    for mark in marks[1:]:
        training.step()
        mark.record()
    torch.cuda.synchronize()
    free, total = torch.cuda.mem_get_info()
    peaks = torch.cuda.max_memory_allocated(), torch.cuda.max_memory_reserved(), total - free
    steps_s = tuple(a.elapsed_time(b) / 1e3 for a, b in pairwise(marks))
    return steps_s, peaks


def fits(job: Job, batch: int, device: str, *, is_small: bool) -> bool:
    """Whether a batch trains: some steps, with its inputs on the device."""
    import torch

    clear(device)
    training: Training | None = None
    try:
        training = Training(replace(job, batch=batch), device, is_small=is_small, inputs_there=True)
        for _ in range(FIT_STEPS):
            training.step()
        wait(device)
    except torch.OutOfMemoryError:
        return False
    finally:
        del training
        clear(device)
    return True


def largest(tried: dict[int, bool], guess: int, near_frac: float = 0.003) -> int | None:
    """The batch to try next so as to find the largest that fits; None where it is found.

    ``tried``: batches and whether they fit. From ``guess`` on by steps of 2 %, then by halves,
    until the first that does not fit is within ``near_frac`` or 1 of one that does.
    """
    fit = max((b for b, good in tried.items() if good), default=0)
    failed = min((b for b, good in tried.items() if not good), default=0)
    if not tried:
        return guess
    if not failed:
        return fit + max(1, fit // 50)
    if failed - fit <= max(1, int(near_frac * fit)):
        return None
    if not fit:
        return failed - max(1, failed // 50) if failed > 1 else None
    return (fit + failed) // 2
