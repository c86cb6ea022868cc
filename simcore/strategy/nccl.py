"""What NCCL is held to: the words of its variables NCCL_ALGO and NCCL_PROTO.

A list of names, ``^`` before it for all but these; since NCCL 2.24 also lists of one function each,
with semicolons between: ``ring;allreduce:tree,nvls;allgather:^pat``. The first list may be of no
function: then it is of all that are not listed (NCCL's documentation of environment variables;
parseList of src/graph/tuning.cc).
"""

from __future__ import annotations

from dataclasses import dataclass

from simcore.base.errors import InvalidConfig, UnknownName

#: Names as NCCL prints them (init.cc, ncclAlgoStr, ncclProtoStr).
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
#: ``CollNet`` meant both of its kinds before NCCL 2.14.
_ALIASES = {"collnet": ("CollNetDirect", "CollNetChain")}


#: Functions as NCCL names them (ncclFuncStr), folded, and the collective each is.
FUNCTIONS = {
    "broadcast": "broadcast", "reduce": "reduce", "allgather": "all_gather",
    "reducescatter": "reduce_scatter", "allreduce": "all_reduce",
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Held:
    """Names that are left of one variable; none are: NCCL's own choice.

    ``by_function``: collective to its names, instead of ``every``.
    """

    every: tuple[str, ...] = ()
    by_function: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def __bool__(self) -> bool:
        return bool(self.every or self.by_function)

    def __str__(self) -> str:
        """As the variable has it."""
        of = {collective: function for function, collective in FUNCTIONS.items()}
        lists = [f"{of[op]}:{','.join(names)}" for op, names in self.by_function]
        return ";".join([*([",".join(self.every)] if self.every else []), *lists])


#: NCCL chooses.
FREE = Held()


def parse_algorithms(text: str | None) -> Held:
    """``Ring,Tree``, ``^NVLS`` or ``ring;allreduce:tree``; none: its own choice.

    Raises UnknownName, InvalidConfig.
    """
    return _parse(text, "nccl-algo", ALGORITHMS)


def parse_protocols(text: str | None) -> Held:
    """``Simple``, ``^LL128`` or ``allreduce:^LL``; none: NCCL's own choice.

    Raises UnknownName, InvalidConfig.
    """
    return _parse(text, "nccl-proto", PROTOCOLS)


def _parse(text: str | None, what: str, known: tuple[str, ...]) -> Held:
    every: tuple[str, ...] = ()
    found: dict[str, tuple[str, ...]] = {}
    for i, part in enumerate((text or "").split(";")):
        function, colon, names = part.rpartition(":")
        if not colon and i == 0:
            every = _names(names, what, known)
            continue
        if not colon:
            raise InvalidConfig(
                [f"{what} {text!r}: only the first list may be of no function: ring;allreduce:tree"]
            )
        folded = function.strip().lower()
        if folded not in FUNCTIONS:
            raise UnknownName(f"function of {what}", function.strip(), list(FUNCTIONS))
        if not (named := _names(names, what, known)):
            raise InvalidConfig([f"{what} {text!r} names nothing for {folded}"])
        found[FUNCTIONS[folded]] = named
    return Held(every, tuple(found.items()))


def _names(text: str, what: str, known: tuple[str, ...]) -> tuple[str, ...]:
    told = text.strip()
    but = told.startswith("^")
    folded: dict[str, tuple[str, ...]] = {name.lower(): (name,) for name in known}
    if known is ALGORITHMS:
        folded |= _ALIASES
    named: list[str] = []
    for word in filter(None, (w.strip() for w in told.removeprefix("^").split(","))):
        if word.lower() not in folded:
            raise UnknownName(what, word, known)
        named += folded[word.lower()]
    if not named:
        return ()
    return tuple(n for n in known if (n in named) != but)
