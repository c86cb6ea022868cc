"""Which communication Megatron-LM hides under compute, by flags and by default.

Flags: megatron/training/arguments.py. Gradients are reduced after the last micro-batch unless
``--overlap-grad-reduce`` is given. The exchange of an input's gradient among tensor ranks always
runs at the same time as the product of the weight's gradient: the all-reduce, or with sequence
parallelism the reduce-scatter (LinearWithGradAccumulationAndAsyncCommunication in
core/tensor_parallel/layers.py; Transformer Engine's linear modules likewise).
``--no-async-tensor-model-parallel-allreduce`` turns this off for the all-reduce, without sequence
parallelism. Messages of an interleaved pipeline are sent during compute unless
``--no-overlap-p2p-communication`` is given.
"""

from __future__ import annotations

from typing import Any

from simcore.strategy.dialects.base import Job
from simcore.strategy.dialects.reading import Reading
from simcore.strategy.overlap import Overlap, parse_overlap

#: Strategies whose data-parallel traffic has flags; Megatron's FSDP always hides it.
_FLAGGED = ("ddp", "zero1")
_PARAMS, _TENSOR = "overlap-param-gather", "tp-comm-overlap"
_GRADS, _EXPERTS = "overlap-grad-reduce", "overlap-moe-expert-parallel-comm"
_LATE = "no-async-tensor-model-parallel-allreduce"
#: For pipeline messages: the flag, and the key of the YAML form.
_WAITS, _SENDS = "no-overlap-p2p-communication", "overlap-p2p-comm"
_FILLING = ("overlap-p2p-communication-warmup-flush", "overlap-p2p-comm-warmup-flush")


def read_overlap(reading: Reading, given: dict[str, Any]) -> None:
    """Read the flags; strategy, degrees and stages must have been read."""
    on = {
        name: bool(reading.flag(f"--{name}", given.pop(name, None)))
        for name in (_GRADS, _PARAMS, _TENSOR, _EXPERTS, _LATE, _WAITS)
    }
    sends = reading.flag(_SENDS, given.pop(_SENDS, None)) is not False
    for name in _FILLING:
        if reading.flag(f"--{name}", given.pop(name, None)):
            reading.approximate(f"--{name}", "is predicted with filling and emptying exposed")
    flagged = reading.said("strategy") in _FLAGGED
    cut = reading.said("tp") is not None
    tensor = on[_TENSOR] and cut
    spread = bool(reading.said("sequence_parallel"))
    found = Overlap(
        grads=on[_GRADS] or not flagged,
        params=on[_PARAMS] and reading.said("strategy") == "zero1",
        tensor=tensor,
        dgrad=cut and not tensor and (spread or not on[_LATE]),
        experts=on[_EXPERTS] and reading.said("ep") is not None,
        pipeline=reading.said("vpp") not in (None, 1) and sends and not on[_WAITS],
    )
    reading.say("overlap", str(found), f"--{_GRADS}" if on[_GRADS] else f"no --{_GRADS}")


def overlap_of(job: Job) -> Overlap:
    """What Megatron hides for a job that ``emit_overlap`` has written."""
    wanted = parse_overlap(job.overlap, job.vpp)
    flagged = job.strategy in _FLAGGED
    return Overlap(
        grads=wanted.grads or not flagged,
        params=wanted.params and job.strategy == "zero1",
        tensor=wanted.tensor and job.tp is not None,
        dgrad=job.tp is not None and not wanted.tensor and (bool(job.sequence_parallel)
                                                            or wanted.dgrad),
        experts=wanted.experts and job.ep is not None,
        pipeline=wanted.pipeline and (job.vpp or 1) > 1,
    )  # fmt: skip


def emit_overlap(job: Job) -> list[str]:
    """The flags that hide what the job hides, as far as Megatron has such flags."""
    wanted, hidden = parse_overlap(job.overlap, job.vpp), overlap_of(job)
    flagged = job.strategy in _FLAGGED
    late = job.tp is not None and not (hidden.tensor or hidden.dgrad)
    by_flag = {
        _GRADS: wanted.grads and flagged,
        _PARAMS: hidden.params,
        _TENSOR: hidden.tensor,
        _EXPERTS: hidden.experts,
        _LATE: late,
        _WAITS: (job.vpp or 1) > 1 and not hidden.pipeline,
    }
    return [f"--{name}" for name, on in by_flag.items() if on]
