"""Restrictions on NCCL's choice, in the form of its variables NCCL_ALGO and NCCL_PROTO.

The text is a list of names; ``^`` in front means all but these. Since NCCL 2.24 there may also be
lists for single functions, separated by semicolons: ``ring;allreduce:tree,nvls;allgather:^pat``.
The first list may have no function: it then applies to all functions without their own list (NCCL's
documentation of environment variables; parseList in src/graph/tuning.cc).
"""

from __future__ import annotations

from collections.abc import Sequence

from simcore.base.errors import InvalidConfig, UnknownName
from simcore.base.record import dataclass

#: ``CollNet`` stood for both of its kinds before NCCL 2.14.
_ALIASES = {"collnet": ("CollNetDirect", "CollNetChain")}


#: NCCL's names of functions (ncclFuncStr), in lower case, and the collective that each runs.
FUNCTIONS = {
    "broadcast": "broadcast", "reduce": "reduce", "allgather": "all_gather",
    "reducescatter": "reduce_scatter", "allreduce": "all_reduce",
}  # fmt: skip


@dataclass(frozen=True)
class Held:
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
FREE = Held()


def parse_held(what: str, text: str | None, known: Sequence[str]) -> Held:
    """Restriction from ``Ring,Tree``, ``^NVLS`` or ``ring;allreduce:tree``; None: no restriction.

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
    return Held(every, tuple(found.items()))


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
