"""Which communication of a job runs at the same time as compute."""

from __future__ import annotations

from dataclasses import fields, replace

from simcore.base.errors import UnknownName, UsageError
from simcore.base.record import dataclass


@dataclass(frozen=True, kw_only=True)
class Overlap:
    """For each kind of traffic, whether it hides under compute where there is enough of it.

    grads    reduction of gradients under backward (DDP's buckets, overlap_grad_reduce)
    params   gather of parameters updated by ZeRO-1/2 under the next forward (Megatron-Core's
             overlap_param_gather)
    tensor   exchanges of tensor ranks, in pieces, under their own matrix products (Transformer
             Engine's userbuffers, tp_comm_overlap; asynchronous tensor parallelism)
    dgrad    exchange of the gradient of a product's input among tensor ranks, under the product of
             its weight's gradient (Korthikanti et al. 2022, 6.2; Megatron-LM's async
             tensor-parallel all-reduce; Transformer Engine); included in ``tensor``
    experts  all-to-all of one micro-batch under compute of another (DualPipe; Megatron-Core's
             overlap_moe_expert_parallel_comm)
    pipeline messages between stages of an interleaved pipeline under the next chunk's compute,
             while the pipeline is full (Megatron-Core's overlap_p2p_comm); no effect without chunks
    """

    grads: bool = True
    params: bool = False
    tensor: bool = False
    dgrad: bool = False
    experts: bool = False
    pipeline: bool = False

    def __str__(self) -> str:
        return ",".join(f.name for f in fields(self) if getattr(self, f.name)) or "none"


#: Names of all kinds of traffic, and the name for none of them.
KINDS = (*(f.name for f in fields(Overlap)), "none")
DEFAULT = Overlap()
NO_OVERLAP = Overlap(grads=False)


def default_overlap(chunks: int | None = None) -> Overlap:
    """``grads``, and with several chunks a pipeline rank also ``pipeline``.

    Megatron-Core's overlap_p2p_comm is on by default; torch.distributed.pipelining waits for a
    message before the chunk that needs it (schedules.py, _wait_batch_p2p).
    """
    return replace(DEFAULT, pipeline=(chunks or 1) > 1)


def parse_overlap(text: str | None, chunks: int | None = None) -> Overlap:
    """The overlap from ``none`` or a list such as ``grads,params,tensor``; None for the default.

    Raises UnknownName, and UsageError where ``none`` is combined with others.
    """
    if text is None:
        return default_overlap(chunks)
    known = [f.name for f in fields(Overlap)]
    words = [w.strip().lower() for w in text.split(",") if w.strip()]
    if "none" in words:
        if set(words) != {"none"}:
            raise UsageError(f"overlap {text!r}: none cannot be combined with others")
        words = []
    for word in words:
        if word not in known:
            raise UnknownName("overlap", word, [*known, "none"])
    return Overlap(**{name: name in words for name in known})
