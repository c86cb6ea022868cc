"""What NCCL is held to: the words of its variables NCCL_ALGO and NCCL_PROTO."""

from __future__ import annotations

from simcore.base.errors import UnknownName

#: Names as NCCL prints them (init.cc, ncclAlgoStr, ncclProtoStr).
ALGORITHMS = ("Tree", "Ring", "CollNetDirect", "CollNetChain", "NVLS", "NVLSTree", "PAT")
PROTOCOLS = ("LL", "LL128", "Simple")
#: ``CollNet`` meant both of its kinds before NCCL 2.14.
_ALIASES = {"collnet": ("CollNetDirect", "CollNetChain")}


def parse_algorithms(text: str | None) -> tuple[str, ...]:
    """``Ring,Tree``, or ``^NVLS`` for all but these; empty: its own choice. Raises UnknownName."""
    return _parse(text, "nccl-algo", ALGORITHMS)


def parse_protocols(text: str | None) -> tuple[str, ...]:
    """``Simple``, or ``^LL128`` for all but these; empty: NCCL's own choice. Raises UnknownName."""
    return _parse(text, "nccl-proto", PROTOCOLS)


def _parse(text: str | None, what: str, known: tuple[str, ...]) -> tuple[str, ...]:
    told = (text or "").strip()
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
