"""How a job is divided over ranks, and how these communicate: degrees, rows of experts, overlap.

What runs at the same time as compute, and what NCCL may choose, is here too.

Ranks are numbered tensor first, then context, data and pipeline, as in Megatron's default order
(tp-cp-ep-dp-pp): tensor ranks are neighbours in a node. Experts are divided over ranks of the data
dimension.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from typing import Final, Literal

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.base.lookup import Registry
from simcore.base.record import dataclass, replace
from simcore.workload.models import Scalar

Dispatcher = Literal["alltoall", "deepep", "hybridep"]
#: Megatron-Core's name for the last two; its default among them is DeepEP.
DISPATCHERS_CALLED: Final[Mapping[str, Dispatcher]] = {"flex": "deepep"}
#: How context ranks share attention; see ``step.parallel.context``.
CpComm = Literal["ring", "all-gather", "ulysses"]
#: The schedule of a pipeline where none is named; ``step.schedules`` has all of them.
DEFAULT_SCHEDULE = "1f1b"
#: Layers a stage where ``Layout.stages`` names none, and where ``balanced_cut`` chooses them.
EVEN, AUTO = "even", "auto"
#: The rules by which programs assign layers to stages: layers, stages and the model's settings in,
#: the layers of each stage out.
CutRule = Callable[[int, int, Mapping[str, Scalar]], tuple[int, ...]]
CUT_RULES: Registry[CutRule] = Registry(
    "cut rule", dict.fromkeys((EVEN, "parameters", "costs", "filled"), "simcore.strategy.cuts")
)
#: What counts as a layer each besides the layers: embeddings and head.
_ENDS = 2


#: Options that are degrees of parallelism; all but ``vpp`` divide a model over ranks.
DEGREES = ("tp", "pp", "vpp", "cp", "ep")


#: Largest divisor of a degree that a message proposes; a typed number may have any length.
_MOST_PROPOSED = 128


def _divisors(whole: int, most: int) -> list[int]:
    return [d for d in range(1, min(whole, most) + 1) if whole % d == 0]


@dataclass(frozen=True, kw_only=True)
class Layout:
    """Degrees of parallelism, 1 for none. ``vpp``: chunks of layers a rank (interleaved 1F1B).

    ``sequence_parallel``: norms, residual and their activations are divided over the tensor ranks
    too (Korthikanti et al. 2022). ``expert_tp``: tensor ranks of an expert; where they are fewer
    than tp, expert ranks are neighbours within the tensor ranks (Megatron-Core's parallel folding,
    Liu et al. 2025). ``dispatcher``: whether a token is sent once for each of its experts
    (alltoall), or only once to each node and rank (deepep and hybridep, from one library, which
    differ in what they send with it). ``cp_comm``: what context ranks exchange. ``stages``: layers
    of each pipeline stage as ``strategy.cuts`` writes them; "" divides them as evenly as possible.
    ``vpp_group``: micro-batches that a stage runs through a chunk in a row, at least one a stage.
    ``deferred_heads``: micro-batches whose weight gradients of the head the last stage makes when
    the pipeline empties (Megatron-Core's defer_embedding_wgrad_compute).
    """

    tp: int = 1
    pp: int = 1
    vpp: int = 1
    cp: int = 1
    ep: int = 1
    sequence_parallel: bool = True
    schedule: str = DEFAULT_SCHEDULE
    expert_tp: int = 1
    dispatcher: Dispatcher = "alltoall"
    cp_comm: CpComm = "ring"
    stages: str = ""
    vpp_group: int = 1
    deferred_heads: int = 0

    @property
    def round_micro_batches(self) -> int:
        """Micro-batches of a round of the interleaved schedule."""
        return max(self.vpp_group, self.pp)

    @property
    def model_ranks(self) -> int:
        """Number of ranks that hold one replica's dense layers."""
        return self.tp * self.pp * self.cp

    @property
    def data_ranks_of_expert(self) -> float:
        """Data ranks over which one set of experts is divided; below 1 if tensor ranks hold more.

        Expert ranks first use the tensor ranks: a set takes ep x expert_tp ranks.
        """
        return self.ep * self.expert_tp / self.tp if self.ep > 1 else 1.0

    def widest_expert_tp(self, n_gpus: int) -> int:
        """Most of the tensor ranks that can divide each expert; 1 without expert ranks.

        Fewer than all where a stage has too few ranks for a set of experts.
        """
        if self.ep <= 1:
            return 1
        ranks = n_gpus // max(self.pp, 1)
        possible = [d for d in _divisors(self.tp, ranks) if ranks % (self.ep * d) == 0]
        return max(possible, default=1)

    @property
    def sends_once(self) -> bool:
        """Whether a token goes to a rank only once, however many of its experts are there."""
        return self.dispatcher != "alltoall"

    @property
    def trivial(self) -> bool:
        """Whether a replica is one rank and nothing is divided."""
        return self.model_ranks == 1 and self.ep == 1

    def data_ranks(self, n_gpus: int) -> int:
        """Number of replicas that read different samples."""
        return n_gpus // self.model_ranks

    def __str__(self) -> str:
        parts: list[str] = []
        for name in DEGREES:
            if (value := getattr(self, name)) > 1:
                parts.append(f"{name}{value}")
                parts += [self.cp_comm] * (name == "cp" and self.cp_comm != "ring")
        if self.schedule != DEFAULT_SCHEDULE:
            parts.append(self.schedule)
        return " ".join([*parts, f"stages {self.stages}"] if self.stages else parts)

    def violations(self, n_gpus: int, n_layers: int) -> list[str]:
        """Every rule that these degrees break, for these numbers of GPUs and repeated layers.

        Those of the stages and their schedule are apart (``step.schedules.layout_violations``).
        """
        found = [
            f"{f.name} must be at least 1, not {value}"
            for f in fields(self)
            if not isinstance(value := getattr(self, f.name), bool | str)
            and value < (f.name != "deferred_heads")
        ]
        if found:
            return found
        if n_gpus % self.model_ranks:
            degrees = [name for name in ("tp", "pp", "cp") if getattr(self, name) > 1]
            found.append(
                f"{' x '.join(degrees)} = {self.model_ranks} does not divide {n_gpus} GPUs: "
                f"allowed are divisors of {n_gpus}"
            )
        elif (n_gpus // self.pp) % (self.ep * self.expert_tp):
            wide = f" x expert-tp={self.expert_tp}" if self.expert_tp > 1 else ""
            ranks, left = divmod(n_gpus // self.pp, self.expert_tp)
            hint = f": allowed are divisors of {ranks}" if not left else ""
            found.append(
                f"ep={self.ep}{wide} does not divide the {n_gpus // self.pp} ranks of a stage{hint}"
            )
        if self.tp % self.expert_tp and self.expert_tp % self.tp:
            found.append(
                f"expert-tp={self.expert_tp} neither divides tp={self.tp} nor is a multiple of it; "
                f"allowed here: {_divisors(self.tp, _MOST_PROPOSED)} and multiples of {self.tp}"
            )
        if self.pp > max(n_layers, 1):  # a model without repeated layers is one stage
            found.append(f"pp={self.pp} is more than the {n_layers} layers of the model")
        elif self.pp * self.vpp > max(n_layers, 1) + _ENDS:
            found.append(f"pp x vpp = {self.pp * self.vpp} is more than the {n_layers} layers")
        if self.vpp > 1 and self.pp == 1:
            found.append(f"vpp={self.vpp} needs pp above 1")
        if self.stages and self.pp == 1:
            found.append(f"stages {self.stages} need pp above 1")
        return found


UNDIVIDED = Layout()


@dataclass(frozen=True)
class ExpertRows:
    """Rows on the fullest rank, over the mean: those of balanced routing that drops nothing.

    That mean is tokens x top_k / experts for each expert. All ranks that share a set of experts
    wait in each layer for the one with most tokens, and that rank runs out of memory first, so a
    job is predicted for its rows.

    computed   rows that its experts compute, and save for backward
    sent       rows that limit its all-to-all: the fullest rank receives (and sends back) more than
               the others send
    permuted   rows that it sorts by expert, and weighs and sums in combine
    """

    computed: float = 1.0
    sent: float = 1.0
    permuted: float = 1.0


@dataclass(frozen=True, kw_only=True)
class Routing:
    """The routing of tokens to experts; ``imbalance``: tokens of the fullest rank over the mean.

    ``capacity``: slots of an expert over the mean; tokens beyond are dropped. None drops no tokens
    (GShard, Lepikhin et al. 2020, 3.2; Switch Transformer, Fedus et al. 2021, 2.2).
    ``padding``: empty slots are computed and sent too, as in these papers (Megatron-Core:
    moe_pad_expert_input_to_capacity); otherwise experts compute only the tokens that they have.
    """

    imbalance: float = 1.0
    capacity: float | None = None
    padding: bool = True

    def fullest(self, ep: int) -> float:
        """Imbalance limited to what ``ep`` ranks can have: no rank gets more than all tokens."""
        return float(min(self.imbalance, ep))

    def rows(self, ep: int, dispatcher: str = "alltoall") -> ExpertRows:
        """The fullest rank's rows.

        A plain all-to-all sorts rows before it sends them, on the tokens' rank, and with padding it
        sends empty slots too (token_dispatcher.py, drop_and_pad). DeepEP sends tokens and no empty
        slots, and sorts what has arrived (_DeepepManager, get_permuted_hidden_states_by_experts).
        """
        fullest = self.fullest(ep)
        kept = fullest if self.capacity is None else min(fullest, self.capacity)
        padded = self.capacity if self.capacity is not None and self.padding else None
        computed = kept if padded is None else padded
        if dispatcher != "alltoall":
            return ExpertRows(computed=computed, sent=kept, permuted=computed)
        return ExpertRows(
            computed=computed, sent=computed, permuted=1.0 if padded is None else padded
        )


BALANCED = Routing()


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
