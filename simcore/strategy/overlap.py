"""What communication a job runs beside compute."""

from __future__ import annotations

from dataclasses import dataclass, fields, replace

from simcore.base.errors import UnknownName, UsageError


@dataclass(frozen=True, slots=True, kw_only=True)
class Overlap:
    """Each is whether a kind of traffic is hidden where compute allows.

    grads    reduction of gradients under backward (DDP's buckets, overlap_grad_reduce)
    params   gathering of ZeRO-1/2's updated parameters under the next forward
             (Megatron-Core's overlap_param_gather)
    tensor   exchanges of tensor ranks cut into pieces beside their products (Transformer
             Engine's userbuffers, tp_comm_overlap; asynchronous tensor parallelism)
    dgrad    what tensor ranks exchange of the gradient of a product's input, beside the product
             of its weight's gradient (Korthikanti et al. 2022, 6.2; Megatron-LM's async
             tensor-parallel all-reduce; Transformer Engine); ``tensor`` covers it
    experts  all-to-all of one micro-batch under compute of another (DualPipe;
             Megatron-Core's overlap_moe_expert_parallel_comm)
    pipeline messages between stages of an interleaved pipeline, under the next chunk's compute
             while the pipeline is full (Megatron-Core's overlap_p2p_comm); nothing without chunks
    """

    grads: bool = True
    params: bool = False
    tensor: bool = False
    dgrad: bool = False
    experts: bool = False
    pipeline: bool = False

    def __str__(self) -> str:
        return ",".join(f.name for f in fields(self) if getattr(self, f.name)) or "none"


#: Kinds of traffic, and the word for none of them.
KINDS = (*(f.name for f in fields(Overlap)), "none")
DEFAULT = Overlap()
NO_OVERLAP = Overlap(grads=False)


def default_overlap(chunks: int | None = None) -> Overlap:
    """``grads``; with chunks a pipeline rank ``pipeline`` too, as the programs have it that run so.

    Megatron-Core's overlap_p2p_comm is on unless told not to; torch.distributed.pipelining waits
    for a message before the chunk that needs it (schedules.py, _wait_batch_p2p).
    """
    return replace(DEFAULT, pipeline=(chunks or 1) > 1)


def parse_overlap(text: str | None, chunks: int | None = None) -> Overlap:
    """``none`` or a comma list such as ``grads,params,tensor``; None: ``default_overlap``.

    Raises UnknownName, UsageError where ``none`` is among others.
    """
    if text is None:
        return default_overlap(chunks)
    known = [f.name for f in fields(Overlap)]
    words = [w.strip().lower() for w in text.split(",") if w.strip()]
    if "none" in words:
        if set(words) != {"none"}:
            raise UsageError(f"overlap {text!r}: none stands alone")
        words = []
    for word in words:
        if word not in known:
            raise UnknownName("overlap", word, [*known, "none"])
    return Overlap(**{name: name in words for name in known})
