"""What a collective algorithm is, and the choice among them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Literal, NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.registry import Registry

Array = NDArray[np.float64]
Flags = NDArray[np.bool_]
Collective = Literal[
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "one_to_all",
    "all_to_one", "all_to_all",
]  # fmt: skip


@dataclass(frozen=True, slots=True)
class Allowed:
    """Names of algorithms and protocols that a library is held to; empty: its own choice.

    ``algorithms_of``, ``protocols_of``: those of single collectives, instead.
    """

    algorithms: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    algorithms_of: tuple[tuple[str, tuple[str, ...]], ...] = ()
    protocols_of: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def by_function(self) -> bool:
        """Whether collectives are held to different names."""
        return bool(self.algorithms_of or self.protocols_of)

    def of(self, op: Collective) -> Allowed:
        """What one collective is held to."""
        if not self.by_function:
            return self
        return Allowed(
            dict(self.algorithms_of).get(op, self.algorithms),
            dict(self.protocols_of).get(op, self.protocols),
        )


@dataclass(frozen=True, slots=True)
class Library:
    """What NCCL's choice looks at, and the network's switches; the same over an axis.

    ``generation`` of the device: 0 Volta and before, 1 Ampere and Ada, 2 Hopper, 3 Blackwell;
    below 0 another library, whose rings and trees are priced plainly. ``nvlink``: whether ranks of
    a node meet over NVLink. ``nvls_bw_bytes_per_s``: bus bandwidth of reduction in the NVLink
    switch before its share of heads (0: none). ``sharp``: whether the network's switches reduce.
    ``nic_latency_s``: on top of a NIC's usual one. Chunk ramps: as a group's, of NCCL's protocols,
    within a node and between nodes. ``allowed``: what the library is held to.

    ``channel_bw_bytes_per_s``: what one of NCCL's channels between nodes has of a node's NICs (0:
    unknown).

    Of the network: ``leaf_nodes`` on one switch, ``oversubscription`` of its uplinks, ``rails``:
    whether each switch joins NICs of equal index.
    """

    generation: int = -1
    nvlink: bool = False
    amd_host: bool = False
    nvls_bw_bytes_per_s: float = 0.0
    sharp: bool = False
    nic_latency_s: float = 0.0
    channel_bw_bytes_per_s: float = 0.0
    intra_chunk_ramp: float = 0.0
    inter_chunk_ramp: float = 0.0
    leaf_nodes: float = np.inf
    oversubscription: float = 1.0
    rails: bool = False
    allowed: Allowed = Allowed()


#: Rings and trees of one protocol, over a network without bottlenecks.
PLAIN = Library()


@dataclass(frozen=True, slots=True)
class Group:
    """The ranks of a communicator, per configuration  # C configs, all fields [C] or scalar.

    ``intra_bw_bytes_per_s``: bus bandwidth that a ring reaches within a node, of one direction;
    ``inter_bw_bytes_per_s``: between nodes, all NICs of a node together. ``base_s``: the cost of
    launching one collective. Rates already hold their efficiency. ``ramp``: how much of the
    geometric mean of latency and transfer is lost where neither rules (``ramped_s``).

    ``nvls_bw_bytes_per_s``: as ``library`` has it, with what a configuration makes of links within
    a node.
    ``node_stride``: the group's nodes are every so many of the job's, and share their leaf switch
    with those between.
    """

    n_ranks: Array
    n_nodes: Array
    intra_bw_bytes_per_s: Array
    inter_bw_bytes_per_s: Array
    intra_hop_s: Array
    inter_hop_s: Array
    base_s: Array
    ramp: Array | float = 0.0
    nvls_bw_bytes_per_s: Array | float = 0.0
    node_stride: float = 1.0
    library: Library = PLAIN
    #: ``options_of`` by collective, as far as it was asked.
    known_options: dict[Collective, list[Option]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def a_node(self) -> Array:
        """Ranks of the group in a node."""
        return np.maximum(self.n_ranks / self.n_nodes, 1.0)

    @property
    def bus_bw_bytes_per_s(self) -> Array:
        """The slowest link that a ring over all ranks crosses."""
        return self.bus(1.0)

    def bus(self, crossings: float) -> Array:
        """Bus bandwidth where the traffic of ``crossings`` nodes leaves a leaf switch at a time."""
        within = np.where(self.n_ranks > self.n_nodes, self.intra_bw_bytes_per_s, np.inf)
        between = np.where(self.n_nodes > 1, self.across(crossings), np.inf)
        return np.minimum(within, between)

    def across(self, crossings: float) -> Array:
        """What a node sends to others, where its leaf's uplinks carry that of ``crossings``."""
        uplinks = self.leaf_nodes / (self.library.oversubscription * crossings)
        if uplinks >= 1.0:
            return self.inter_bw_bytes_per_s
        found: Array = self.inter_bw_bytes_per_s * np.where(
            self.n_nodes > self.leaf_nodes, uplinks, 1.0
        )
        return found

    @property
    def leaf_nodes(self) -> float:
        """Nodes of the group on one leaf switch."""
        return max(1.0, self.library.leaf_nodes / self.node_stride)

    @property
    def chunk_ramp(self) -> Array | float:
        """What NCCL's protocols lose between latency and rate."""
        lib = self.library
        if lib.inter_chunk_ramp == lib.intra_chunk_ramp:
            return lib.intra_chunk_ramp
        return np.where(self.n_nodes > 1, lib.inter_chunk_ramp, lib.intra_chunk_ramp)


def ramped_s(fixed_s: Array | float, transfer_s: Array, ramp: Array | float) -> Array:
    """Latency, transfer, and what filling the pipeline costs in between: L + x + ramp·sqrt(L·x).

    Short messages travel by protocols of low latency and half the rate or less, long ones in
    chunks that must be many before all links work; measured curves bend as the square root does.
    """
    plain: Array = fixed_s + transfer_s
    if isinstance(ramp, float) and not ramp:
        return plain
    result: Array = plain + ramp * np.sqrt(fixed_s * transfer_s)
    return result


class Option(NamedTuple):
    """One way to run a collective: latency [s] and seconds a byte, all [C].

    ``ok``: where a library has it; ``everywhere``: in every configuration. ``protocol`` is empty
    where the algorithm has but one.
    """

    algorithm: str
    protocol: str
    fixed_s: Array | float
    s_per_byte: Array
    ramp: Array | float
    ok: Flags
    everywhere: bool

    def time_s(self, n_bytes: Array) -> Array:
        """Seconds for messages [T, 1]: [T, C]; infinite where there is no such way."""
        seconds = ramped_s(self.fixed_s, n_bytes * self.s_per_byte, self.ramp)
        return seconds if self.everywhere else np.where(self.ok, seconds, np.inf)


def option(
    group: Group,
    algorithm: str,
    protocol: str,
    fixed_s: Array | float,
    s_per_byte: Array,
    *,
    ramp: Array | float = 0.0,
    ok: Flags | None = None,
) -> Option:
    """An option that costs one rank nothing; arrays are brought to [C]."""
    active = group.n_ranks > 1
    if ok is None and active.all():
        return Option(algorithm, protocol, fixed_s, s_per_byte, ramp, active, True)
    fixed = np.where(active, fixed_s, 0.0)
    per_byte = np.where(active, s_per_byte, 0.0)
    every = np.ones_like(active) if ok is None else ok | ~active
    return Option(algorithm, protocol, fixed, per_byte, ramp, every, bool(every.all()))


def options_by_protocol(
    group: Group,
    algorithm: str,
    protocols: Sequence[str],
    fixed_s: Array,
    s_per_byte: Array,
    *,
    ramp: Array | float,
) -> list[Option]:
    """Options of an algorithm that is everywhere, a protocol each; arrays [protocols, C]."""
    active = group.n_ranks > 1
    if not active.all():
        fixed_s, s_per_byte = (np.where(active, x, 0.0) for x in (fixed_s, s_per_byte))
    everywhere = np.ones_like(active)
    return [
        Option(algorithm, name, fixed, per_byte, ramp, everywhere, True)
        for name, fixed, per_byte in zip(protocols, fixed_s, s_per_byte, strict=True)
    ]


class Algorithm:
    """A collective algorithm; ``options`` is what it is."""

    def options(self, op: Collective, group: Group) -> Sequence[Option]:
        """Its protocols for a collective on a group; none where it does not offer it."""
        raise NotImplementedError

    def time_s(self, op: Collective, n_bytes: Array, group: Group) -> Array:
        """Seconds of its quickest protocol for messages [T, 1] on groups [C]: [T, C].

        Zero for one rank; infinite where the algorithm does not offer the collective.
        """
        found = np.where(group.n_ranks > 1, np.inf, 0.0) + 0.0 * n_bytes
        for one in self.options(op, group):
            found = np.minimum(found, one.time_s(n_bytes))
        return found


ALGORITHMS: Registry[Algorithm] = Registry("collective algorithm")


def priced_as(op: Collective) -> Collective:
    """The collective whose ways an operation has: a reduce-scatter is an all-gather backwards."""
    return "all_gather" if op == "reduce_scatter" else op


def options_of(op: Collective, group: Group) -> list[Option]:
    """Every way to run a collective on a group that is allowed.

    Where what is allowed leaves nothing (a tree for an all-gather), rings stay, as in NCCL before
    2.24; of exchanges that are no collectives of NCCL's, all ways. None depends on the message: a
    group keeps them.
    """
    op = op if group.library.allowed.by_function else priced_as(op)
    if op not in group.known_options:
        every = [o for a in ALGORITHMS for o in ALGORITHMS[a].options(op, group)]
        group.known_options[op] = _allowed(every, group.library.allowed.of(op))
    return group.known_options[op]


def _allowed(every: list[Option], told: Allowed) -> list[Option]:
    if not told.algorithms and not told.protocols:
        return every
    spoken = [o for o in every if _named(o.protocol, told.protocols)]
    rings = [o for o in every if o.algorithm == "Ring"]
    for found in (
        [o for o in spoken if _named(o.algorithm, told.algorithms)],
        [o for o in rings if _named(o.protocol, told.protocols)],
        rings,
    ):
        if _covers(found):
            return found
    return every


def _named(name: str, allowed: Sequence[str]) -> bool:
    """Whether a way's name is allowed; one without protocols speaks any."""
    return not allowed or not name or name in allowed


def _covers(options: Sequence[Option]) -> bool:
    """Whether each configuration has a way."""
    return bool(options) and bool(np.logical_or.reduce([o.ok for o in options]).all())


def obeys(op: Collective, group: Group) -> bool:
    """Whether a collective of a group runs as the library is held to; what NCCL leaves to send
    and receive does.
    """
    told = group.library.allowed.of(op)
    return op in ("one_to_all", "all_to_one", "all_to_all") or all(
        _named(o.algorithm, told.algorithms) and _named(o.protocol, told.protocols)
        for o in options_of(op, group)
    )


def collective_time_s(op: Collective, n_bytes: Array, group: Group) -> Array:
    """Time of the quickest way for each message and configuration [s]."""
    found: Array | None = None
    for one in options_of(op, group):
        seconds = one.time_s(n_bytes)
        found = seconds if found is None else np.minimum(found, seconds)
    if found is None:
        return np.where(group.n_ranks > 1, np.inf, 0.0) + 0.0 * n_bytes
    return found


def ways(op: Collective, n_bytes: float, group: Group) -> list[tuple[str, str, float]]:
    """(algorithm, protocol, seconds) of a message on one group, the quickest first."""
    size = np.array([[n_bytes]])
    found = [(o.algorithm, o.protocol, float(o.time_s(size)[0, 0])) for o in options_of(op, group)]
    return sorted((w for w in found if np.isfinite(w[2])), key=lambda w: w[2])
