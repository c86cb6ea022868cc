"""How a job communicates: what runs at the same time as compute, and what NCCL may choose."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.base.record import dataclass, replace


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


#: ``CollNet`` stood for both of its kinds before NCCL 2.14.
_ALIASES = {"collnet": ("CollNetDirect", "CollNetChain")}
#: NCCL's names of functions (ncclFuncStr), in lower case, and the collective that each runs.
FUNCTIONS = {
    "broadcast": "broadcast", "reduce": "reduce", "allgather": "all_gather",
    "reducescatter": "reduce_scatter", "allreduce": "all_reduce",
}  # fmt: skip


@dataclass(frozen=True)
class Allowed:
    """Names that one variable allows; empty where NCCL chooses freely.

    ``every``: for all collectives; ``by_function``: (collective, names) that replace ``every``.
    """

    every: tuple[str, ...] = ()
    by_function: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.every or self.by_function)

    def __str__(self) -> str:
        """The text of the variable."""
        of = {collective: function for function, collective in FUNCTIONS.items()}
        lists = [f"{of[op]}:{','.join(names)}" for op, names in self.by_function]
        return ";".join([*([",".join(self.every)] if self.every else []), *lists])


#: No restriction: NCCL chooses.
FREE = Allowed()


def parse_allowed(what: str, text: str | None, known: Sequence[str]) -> Allowed:
    """Restriction from ``Ring,Tree``, ``^NVLS`` or ``ring;allreduce:tree``; None: no restriction.

    The text is a list of names, as of NCCL_ALGO and NCCL_PROTO; ``^`` in front means all but these.
    Since NCCL 2.24 there may also be lists for single functions, separated by semicolons. The first
    list may have no function: it then applies to all functions without their own list (NCCL's
    documentation of environment variables; parseList in src/graph/tuning.cc).

    ``what``: the option, for messages; ``known``: the names as NCCL prints them. Raises
    UnknownName, InvalidConfig.
    """
    every: tuple[str, ...] = ()
    found: dict[str, tuple[str, ...]] = {}
    for i, part in enumerate((text or "").split(";")):
        function, colon, names = part.rpartition(":")
        if not colon and i == 0:
            every = _names(names, what, known)
            continue
        if not colon:
            raise InvalidConfig(
                [f"{what} {text!r}: only the first list may lack a function: ring;allreduce:tree"]
            )
        folded = function.strip().lower()
        if folded not in FUNCTIONS:
            raise UnknownName(f"function of {what}", function.strip(), list(FUNCTIONS))
        if not (named := _names(names, what, known)):
            raise InvalidConfig([f"{what} {text!r} names nothing for {folded}"])
        found[FUNCTIONS[folded]] = named
    return Allowed(every, tuple(found.items()))


def _names(text: str, what: str, known: Sequence[str]) -> tuple[str, ...]:
    stripped = text.strip()
    but = stripped.startswith("^")
    folded: dict[str, tuple[str, ...]] = {name.lower(): (name,) for name in known}
    folded |= {alias: names for alias, names in _ALIASES.items() if {*names} <= {*known}}
    named: list[str] = []
    for word in filter(None, (w.strip() for w in stripped.removeprefix("^").split(","))):
        if word.lower() not in folded:
            raise UnknownName(what, word, known)
        named += folded[word.lower()]
    if not named:
        return ()
    return tuple(n for n in known if (n in named) != but)
