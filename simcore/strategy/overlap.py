"""What communication a job runs beside compute."""

from __future__ import annotations

from dataclasses import dataclass, fields

from simcore.base.errors import UnknownName


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
    """

    grads: bool = True
    params: bool = False
    tensor: bool = False
    dgrad: bool = False
    experts: bool = False

    def __str__(self) -> str:
        return ",".join(f.name for f in fields(self) if getattr(self, f.name)) or "none"


DEFAULT = Overlap()
NO_OVERLAP = Overlap(grads=False)


def parse_overlap(text: str | None) -> Overlap:
    """``none`` or a comma list such as ``grads,params,tensor``; None is the default, ``grads``.

    Raises UnknownName.
    """
    if text is None:
        return DEFAULT
    known = [f.name for f in fields(Overlap)]
    words = [w.strip().lower() for w in text.split(",") if w.strip()]
    if words == ["none"]:
        words = []
    for word in words:
        if word not in known:
            raise UnknownName("overlap", word, [*known, "none"])
    return Overlap(**{name: name in words for name in known})
