"""Grids on the command line: ``1..8``, ``1,2,4``, ``1..64*2`` and ``A6000ada:1..64x8``.

Values    ``4`` · ``1,2,4`` · ``1..8`` (both ends included) · ``8..64:8`` (steps of 8) ·
          ``1..64*2`` (doubling); lists may mix them.
Clusters  ``TYPE:NODESxGPUS`` with such values for both numbers, or plain ``4x8xA6000ada``;
          ``+`` mixes types in one cluster, a comma separates clusters. For a type alone the
          numbers are ``--nnodes`` and ``--nproc-per-node``, which may be such values too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import product

from simcore.base.errors import InvalidConfig, Problems, UnknownName
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.request.inputs import fabric_of
from simcore.strategy.options.kinds import folded

#: Most values or clusters of one grid; more are taken to be a typing mistake.
MAX_VALUES = 100_000
_RANGE = re.compile(r"^\s*(\d+)\s*\.\.\s*(\d+)\s*(?:([:*])\s*(\d+))?\s*$")
#: Text after a comma that consists of numbers only continues the numbers before: ``H100:1,2,4x8``.
_COUNTS_ONLY = re.compile(r"^[\d.:*\s]+(?:[x×][\d.:*\s]*)?$")
_HAS_COUNTS = re.compile(r"^\s*\d+\s*[x×*]")
_SHAPES = "a number, a list (1,2,4) or a range (1..8, 8..64:8, 1..64*2)"


def whole_values(flag: str, text: str | int, *, least: int = 1) -> tuple[int, ...]:
    """The whole numbers of a grid in the given order, without repetitions. Raises InvalidConfig."""
    found: dict[int, None] = {}
    for part in str(text).split(","):
        found.update(dict.fromkeys(_range(flag, part)))
    problems = [f"{flag} must be at least {least}, not {v}" for v in found if v < least]
    if problems:
        raise InvalidConfig(problems[:1])
    return tuple(found)


def _range(flag: str, part: str) -> Iterable[int]:
    if part.strip().isdigit():
        return (int(part),)
    match = _RANGE.match(part)
    if match is None:
        raise InvalidConfig([f"{flag} {part.strip()!r} is not {_SHAPES}"])
    low, high = int(match[1]), int(match[2])
    how, by = match[3], int(match[4] or 1)
    if low > high:
        raise InvalidConfig([f"{flag} {part.strip()!r} runs backwards: write {high}..{low}"])
    if how == "*":
        if by < 2 or low < 1:
            raise InvalidConfig(
                [f"{flag} {part.strip()!r}: needs a factor of 2 or more and a start of 1 or more"]
            )
        out = [low]
        while out[-1] * by <= high:
            out.append(out[-1] * by)
        return out
    if by < 1:
        raise InvalidConfig([f"{flag} {part.strip()!r}: needs a step of 1 or more"])
    if (high - low) // by >= MAX_VALUES:
        raise InvalidConfig([f"{flag} {part.strip()!r} has more than {MAX_VALUES:,} values"])
    return range(low, high + 1, by)


def named_values(
    kind: str, text: str, known: Iterable[str], others: Mapping[str, str] | None = None
) -> tuple[str, ...]:
    """The names in a list, or all for ``all``.

    kind    name of the option, for messages
    known   the valid names
    others  synonyms, to the valid names

    Raises InvalidConfig that suggests the nearest name for each unknown one.
    """
    names = tuple(known)
    if text.strip().lower() == "all":
        return names
    known = {**(others or {}), **{folded(n): n for n in names}}
    parts = [p.strip() for p in text.split(",")]
    problems = [str(UnknownName(kind, p, [*names, "all"])) for p in parts if folded(p) not in known]
    if problems:
        raise InvalidConfig(problems)
    return tuple(dict.fromkeys(known[folded(p)] for p in parts))


def cluster_texts(text: str) -> list[str]:
    """Every cluster of a grid as plain text (``4x8xA6000ada``), without repetitions.

    Raises InvalidConfig.
    """
    found: dict[str, None] = {}
    for item in _items(text):
        groups = [list(_group(g)) for g in item.split("+")]
        count = 1
        for g in groups:
            count *= len(g)
        if count > MAX_VALUES:
            raise InvalidConfig([f"{item!r} is {count:,} clusters, more than {MAX_VALUES:,}"])
        found.update(dict.fromkeys("+".join(parts) for parts in product(*groups)))
    return list(found)


def _items(text: str) -> Iterator[str]:
    """The items of a list; a comma within numbers does not separate items."""
    pending = ""
    for part in text.split(","):
        if pending and ":" in pending.rpartition("+")[2] and _COUNTS_ONLY.match(part.split("+")[0]):
            pending += f",{part}"
            continue
        if pending:
            yield pending
        pending = part.strip()
        if not pending:
            raise InvalidConfig([f"--gpus {text!r} has an empty item: write 2x8xH100,4x8xH100"])
    yield pending


#: ``1..4x8xH100``: a range in the notation of a single cluster, which is a mistake.
_RANGE_FIRST = re.compile(r"(?P<counts>[\d.*]+[x×][\d.*]+)[x×](?P<name>.*\D.*)")


def _group(text: str) -> Iterator[str]:
    """The clusters of one type: ``A100:1..2x4,8`` is 1x4xA100, 1x8xA100, 2x4xA100, 2x8xA100."""
    name, colon, counts = text.strip().partition(":")
    if not colon:
        if (typed := _RANGE_FIRST.match(name)) and ".." in name:
            meant = f"{typed['name']}:{typed['counts']}"
            raise InvalidConfig([f"{name!r} is not a grid of clusters: did you mean {meant!r}?"])
        yield name
        return
    halves = re.split(r"[x×]", counts)
    if len(halves) != 2 or not all(h.strip() for h in halves) or not name.strip():
        raise InvalidConfig(
            [f"{text.strip()!r} is not TYPE:NODESxGPUS, such as A6000ada:1..64x8 or H100:1,2,4x8"]
        )
    nodes = whole_values(f"{name.strip()}: nodes", halves[0])
    per_node = whole_values(f"{name.strip()}: GPUs per node", halves[1])
    for n, g in product(nodes, per_node):
        yield f"{n}x{g}x{name.strip()}"


def has_counts(text: str) -> bool:
    """Whether a grid of clusters has numbers of nodes and GPUs, not only types."""
    return any(":" in group or _HAS_COUNTS.match(group) for group in re.split("[,+]", text))


def counted(
    text: str, nnodes: str | int | None = None, nproc_per_node: str | int | None = None
) -> str:
    """A grid of clusters, from a grid of types and torchrun's numbers of nodes and processes.

    The numbers may be grids. Without numbers, the text is returned as it is. Raises InvalidConfig
    where the text has numbers already.
    """
    if nnodes is None and nproc_per_node is None:
        return text
    if has_counts(text):
        raise InvalidConfig([f"{text!r} has counts already: drop --nnodes/--nproc-per-node"])
    counts = f"{1 if nnodes is None else nnodes}x{1 if nproc_per_node is None else nproc_per_node}"
    items = ["+".join(f"{t.strip()}:{counts}" for t in i.split("+")) for i in text.split(",")]
    return ",".join(items)


def clusters(
    texts: Sequence[str],
    *,
    networks: Sequence[str | None] = (None,),
    node: str | None = None,
    nnodes: str | int | None = None,
    nproc_per_node: str | int | None = None,
    fabric: str | None = None,
) -> tuple[ClusterSpec, ...]:
    """The clusters of several grids, each with every network, on one fabric.

    Raises InvalidConfig that lists everything that is wrong.
    """
    problems = Problems()
    found: list[ClusterSpec | None] = []
    graph = problems.attempt(fabric_of, fabric)
    for text in texts:
        plain = problems.attempt(_plain, text, nnodes, nproc_per_node)
        for one, network in product(plain or (), networks):
            found.append(
                problems.attempt(parse_cluster, one, network=network, node=node, fabric=graph)
            )
    if problems:
        shown = list(dict.fromkeys(problems))
        more = [f"and {len(shown) - 8} more of this kind"] if len(shown) > 8 else []
        raise InvalidConfig([*shown[:8], *more])
    if not found:
        raise InvalidConfig(["no clusters given: write --gpus TYPE:NODESxGPUS or 4x8xA6000ada"])
    return tuple(cluster for cluster in found if cluster is not None)


def _plain(text: str, *counts: str | int | None) -> list[str]:
    return cluster_texts(counted(text, *counts))
