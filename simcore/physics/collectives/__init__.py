"""Cost formulas of collectives, one class per algorithm; the fastest is chosen, as NCCL does.

A collective begins with its slowest rank: how much later that is, is here too.

Message sizes are bytes per rank: the whole vector of an all-reduce, the gathered output of an
all-gather, the input of a reduce-scatter.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import field
from functools import lru_cache
from statistics import NormalDist
from typing import TYPE_CHECKING, Literal, NamedTuple

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.lookup import Registry
from simcore.base.record import dataclass

if TYPE_CHECKING:
    from simcore.hardware.fabrics.record import Pattern
    from simcore.physics.fabric_shares import FabricShares


Flags = NDArray[np.bool_]
Collective = Literal[
    "all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce", "one_to_all",
    "all_to_one", "all_to_all",
]  # fmt: skip


#: Nodes whose traffic leaves an aligned leaf switch at a time. With ranks in order a ring leaves it
#: once; in a double tree a leaf is a subtree of each tree, joined to other leaves at the subtree's
#: root and at one more node.
LEAF_CROSSINGS: Mapping[Pattern, float] = {"ring": 1.0, "tree": 2.0}


@dataclass(frozen=True)
class Allowed:
    """Algorithms and protocols that the user allows a library (NCCL_ALGO, NCCL_PROTO).

    Empty: the library chooses freely. ``algorithms_of``, ``protocols_of``: pairs of a collective
    and the names that apply to it instead.
    """

    algorithms: tuple[str, ...] = ()
    protocols: tuple[str, ...] = ()
    algorithms_of: tuple[tuple[str, tuple[str, ...]], ...] = ()
    protocols_of: tuple[tuple[str, tuple[str, ...]], ...] = ()

    @property
    def by_function(self) -> bool:
        """Whether some collectives have their own restrictions."""
        return bool(self.algorithms_of or self.protocols_of)

    def of(self, op: Collective) -> Allowed:
        """The restrictions of one collective."""
        if not self.by_function:
            return self
        return Allowed(
            dict(self.algorithms_of).get(op, self.algorithms),
            dict(self.protocols_of).get(op, self.protocols),
        )


@dataclass(frozen=True)
class Library:
    """Facts by which NCCL chooses an algorithm, and the network's switches.

    They are equal in all configurations of the axis.

    ``generation`` of the device: 0 Volta and older, 1 Ampere and Ada, 2 Hopper, 3 Blackwell;
    below 0: a library other than NCCL, priced by plain formulas for rings and trees. ``nvlink``:
    whether NVLink joins the ranks of a node. ``amd_host``: whether the host has AMD processors.
    ``nvls_bw_bytes_per_s``: bus bandwidth of reduction in the NVLink switch, before the factor
    (heads - 1) / heads (0: the switch does not reduce). ``sharp``: whether the network's switches
    reduce. ``nic_latency_s``: latency beyond that of the NIC in NCCL's tables.
    ``intra_chunk_ramp``, ``inter_chunk_ramp``: ``Group.chunk_ramp`` within a node and between
    nodes. ``allowed``: algorithms and protocols that the user allows; ``release`` of NCCL.
    ``channel_bw_bytes_per_s``: bandwidth of a node's NICs that one NCCL channel gets (0: unknown).

    ``torus``: axes of the torus that joins the ranks of a node, and the multiple of ranks at which
    an axis is a ring; empty where switches or direct links do.

    Network: ``leaf_nodes`` per leaf switch, ``oversubscription`` of its uplinks; ``rails``: whether
    each switch joins the NICs of equal index; ``fabric``: its graph, which takes the place of the
    first two. ``node_stride``: distance on the network of nodes that are neighbours to the groups.
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
    fabric: FabricShares | None = None
    node_stride: float = 1.0
    torus: tuple[int, ...] = ()
    allowed: Allowed = Allowed()
    release: tuple[int, ...] = (2, 30)


#: A library with rings and trees of one protocol, on a network without bottlenecks.
PLAIN = Library()


@dataclass(frozen=True)
class Group:
    """The ranks of a communicator  # C configs, all fields [C] or scalar.

    ``intra_bw_bytes_per_s``: bus bandwidth of a ring within a node, per direction;
    ``inter_bw_bytes_per_s``: between nodes, over all NICs of a node. Both include the efficiency of
    collectives. ``intra_hop_s``, ``inter_hop_s``: latency per hop. ``base_s``: time to launch one
    collective. ``ramp``: coefficient of the loss between latency and bandwidth regime
    (``ramped_s``). ``nvls_bw_bytes_per_s``: as in ``library``, scaled by the configuration's link
    rate within a node. ``node_stride``: 1 if the group's nodes are neighbours; s if it has every
    s-th node of the job, whose leaf switches also serve the nodes between.
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
    #: Cache of ``options_of`` by collective.
    known_options: dict[Collective, list[Option]] = field(
        default_factory=dict, init=False, repr=False, compare=False
    )

    @property
    def a_node(self) -> Array:
        """Ranks of the group per node."""
        return np.maximum(self.n_ranks / self.n_nodes, 1.0)

    @property
    def bus_bw_bytes_per_s(self) -> Array:
        """Bus bandwidth of a ring over all ranks: that of the slowest link that it crosses."""
        return self.bus("ring")

    def bus(self, sends: Pattern) -> Array:
        """Bus bandwidth of what is sent in a pattern: within a node and between nodes."""
        within = np.where(self.n_ranks > self.n_nodes, self.intra_bw_bytes_per_s, np.inf)
        between = np.where(self.n_nodes > 1, self.across(sends), np.inf)
        return np.minimum(within, between)

    def across(self, sends: Pattern) -> Array:
        """Bytes/s from a node to other nodes of what is sent in a pattern.

        By the flows of all groups on the fabric's graph; without one, by the nodes whose traffic
        leaves a leaf switch at a time (``LEAF_CROSSINGS``).
        """
        if (share := self.fabric_share(sends)) is not None:
            return self.inter_bw_bytes_per_s * share
        uplinks = self.leaf_nodes / (self.library.oversubscription * LEAF_CROSSINGS[sends])
        if uplinks >= 1.0:
            return self.inter_bw_bytes_per_s
        return self.inter_bw_bytes_per_s * np.where(self.n_nodes > self.leaf_nodes, uplinks, 1.0)

    def fabric_share(self, sends: Pattern) -> Array | None:
        """Share of a node's rate that a pattern gets on the fabric's graph; None without one."""
        fabric = self.library.fabric
        apart = self.library.node_stride * self.node_stride
        return None if fabric is None else fabric.share(sends, self.n_nodes, apart)

    @property
    def leaf_nodes(self) -> float:
        """Nodes of the group per leaf switch, at least 1."""
        apart = self.library.node_stride * self.node_stride
        return max(1.0, self.library.leaf_nodes / apart)

    @property
    def chunk_ramp(self) -> Array | float:
        """``ramp`` of NCCL's protocols, whose latencies are those of NCCL's own tables."""
        lib = self.library
        if lib.inter_chunk_ramp == lib.intra_chunk_ramp:
            return lib.intra_chunk_ramp
        return np.where(self.n_nodes > 1, lib.inter_chunk_ramp, lib.intra_chunk_ramp)


def ramped_s(fixed_s: Array | float, transfer_s: Array, ramp: Array | float) -> Array:
    """Seconds of a message with latency L and transfer time x: L + x + ramp · sqrt(L · x).

    The last term is the loss between latency and bandwidth regime. Short messages use protocols of
    low latency and at most half the bandwidth; long ones need many chunks before all links are
    busy. Measured curves bend like the square root.
    """
    plain: Array = fixed_s + transfer_s
    if isinstance(ramp, float) and not ramp:
        return plain
    return plain + ramp * np.sqrt(fixed_s * transfer_s)


class Option(NamedTuple):
    """One algorithm and protocol for a collective: latency [s] and seconds per byte, all [C].

    ``ok``: configurations in which the library offers it; ``everywhere``: whether that is all of
    them. ``protocol`` is empty where the algorithm has only one.
    """

    algorithm: str
    protocol: str
    fixed_s: Array | float
    s_per_byte: Array
    ramp: Array | float
    ok: Flags
    everywhere: bool

    def time_s(self, n_bytes: Array) -> Array:
        """Seconds for messages [T, 1]: [T, C]; infinite where the option is not offered."""
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
    """An ``Option`` with arrays broadcast to [C], at no cost for groups of one rank."""
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
    """One option per protocol, for an algorithm offered everywhere; arrays [protocols, C]."""
    active = group.n_ranks > 1
    if not active.all():
        fixed_s, s_per_byte = (np.where(active, x, 0.0) for x in (fixed_s, s_per_byte))
    everywhere = np.ones_like(active)
    return [
        Option(algorithm, name, fixed, per_byte, ramp, everywhere, True)
        for name, fixed, per_byte in zip(protocols, fixed_s, s_per_byte, strict=True)
    ]


class Algorithm:
    """A collective algorithm; a subclass implements ``options``.

    ``in_nccl_algo``: NCCL_ALGO has a name for it, so that ``--nccl-algo`` can allow or refuse it.
    """

    in_nccl_algo = True

    def options(self, op: Collective, group: Group) -> Sequence[Option]:
        """One option per protocol for a collective; none where the algorithm does not run it."""
        raise NotImplementedError

    def time_s(self, op: Collective, n_bytes: Array, group: Group) -> Array:
        """Seconds of its fastest protocol for messages [T, 1] on groups [C]: [T, C].

        Zero for one rank; infinite where the algorithm does not run the collective.
        """
        fastest_s = np.where(group.n_ranks > 1, np.inf, 0.0) + 0.0 * n_bytes
        for one in self.options(op, group):
            fastest_s = np.minimum(fastest_s, one.time_s(n_bytes))
        return fastest_s


#: By the name that NCCL prints (init.cc, ncclAlgoStr), each with the file that registers it.
ALGORITHMS: Registry[Algorithm] = Registry(
    "collective algorithm",
    {
        name: f"simcore.physics.collectives.{file}"
        for name, file in {
            "Tree": "nccl",
            "Ring": "nccl",
            "CollNetDirect": "in_switch",
            "CollNetChain": "in_switch",
            "NVLS": "in_switch",
            "NVLSTree": "in_switch",
            "PAT": "pat",
            "pairwise": "pairwise",
            "star": "star",
            "Torus": "torus",
        }.items()
    },
)


#: What algorithms of few collectives run; their files are not loaded for others.
_ONLY: Mapping[str, tuple[Collective, ...]] = {
    "pairwise": ("all_to_all",),
    "star": ("one_to_all", "all_to_one"),
    "PAT": ("all_gather", "reduce_scatter"),
}
#: Algorithms that reduce in switches, not loaded where none can.
_IN_SWITCHES = ("CollNetDirect", "CollNetChain", "NVLS", "NVLSTree")
#: Algorithms that run where ranks are joined by a torus, and only there.
ON_TORUS = ("Torus",)


def names_in_nccl_algo() -> tuple[str, ...]:
    """The algorithms that NCCL_ALGO can name."""
    switched = (name for name in ALGORITHMS if name not in ON_TORUS)
    return tuple(name for name in switched if ALGORITHMS[name].in_nccl_algo)


def priced_as(op: Collective) -> Collective:
    """The collective of equal cost: all-gather for reduce-scatter, which is its reverse."""
    return "all_gather" if op == "reduce_scatter" else op


def options_of(op: Collective, group: Group) -> list[Option]:
    """Every allowed algorithm and protocol for a collective on a group.

    Where the restrictions leave none (a tree for an all-gather), rings remain, as in NCCL before
    2.24. Exchanges that NCCL runs by send and receive are not restricted. No option depends on the
    message size, so the group caches them.
    """
    op = op if group.library.allowed.by_function else priced_as(op)
    if op not in group.known_options:
        here = [a for a in ALGORITHMS if _may_run(a, op, group.library)]
        every = [o for a in here for o in ALGORITHMS[a].options(op, group)]
        group.known_options[op] = _allowed(every, group.library.allowed.of(op))
    return group.known_options[op]


def _may_run(name: str, op: Collective, library: Library) -> bool:
    """Whether an algorithm may have options for a collective with this library and network."""
    if (name in ON_TORUS) != bool(library.torus) or op not in _ONLY.get(name, (op,)):
        return False
    return name not in _IN_SWITCHES or library.sharp or library.nvls_bw_bytes_per_s > 0


def _allowed(every: list[Option], allowed: Allowed) -> list[Option]:
    """The allowed options; if they do not cover all configurations: rings, else all options."""
    if not allowed.algorithms and not allowed.protocols:
        return every
    by_protocol = [o for o in every if _named(o.protocol, allowed.protocols)]
    rings = [o for o in every if o.algorithm == "Ring"]
    for options in (
        [o for o in by_protocol if _named(o.algorithm, allowed.algorithms)],
        [o for o in rings if _named(o.protocol, allowed.protocols)],
        rings,
    ):
        if _covers(options):
            return options
    return every


def _named(name: str, allowed: Sequence[str]) -> bool:
    """Whether a name is allowed; an option without a protocol name matches every restriction."""
    return not allowed or not name or name in allowed


def _covers(options: Sequence[Option]) -> bool:
    """Whether every configuration has at least one of ``options``."""
    return bool(options) and bool(np.logical_or.reduce([o.ok for o in options]).all())


def obeys(op: Collective, group: Group) -> bool:
    """Whether every option of a collective obeys the user's restrictions.

    True for exchanges that NCCL runs by send and receive, to which no restriction applies.
    """
    allowed = group.library.allowed.of(op)
    return op in ("one_to_all", "all_to_one", "all_to_all") or all(
        _named(o.algorithm, allowed.algorithms) and _named(o.protocol, allowed.protocols)
        for o in options_of(op, group)
    )


def collective_time_s(op: Collective, n_bytes: Array, group: Group) -> Array:
    """Seconds of the fastest allowed option, for messages [T, 1] on groups [C]: [T, C]."""
    fastest_s: Array | None = None
    for one in options_of(op, group):
        seconds = one.time_s(n_bytes)
        fastest_s = seconds if fastest_s is None else np.minimum(fastest_s, seconds)
    if fastest_s is None:
        return np.where(group.n_ranks > 1, np.inf, 0.0) + 0.0 * n_bytes
    return fastest_s


def ways(op: Collective, n_bytes: float, group: Group) -> list[tuple[str, str, float]]:
    """(algorithm, protocol, seconds) of a message on one group, the fastest first."""
    size = np.array([[n_bytes]])
    timed = [(o.algorithm, o.protocol, float(o.time_s(size)[0, 0])) for o in options_of(op, group)]
    return sorted((w for w in timed if np.isfinite(w[2])), key=lambda w: w[2])


@lru_cache(maxsize=4096)
def expected_maximum(n: int) -> float:
    """Expected largest of ``n`` independent standard normal values.

        z((n - 0.375) / (n + 0.25)),  z the inverse of the normal distribution

    Blom 1958, within 0.5 % of the exact order statistic for n above 4; 0 for one device.
    """
    if n <= 1:
        return 0.0
    return NormalDist().inv_cdf((n - 0.375) / (n + 0.25))


def slowest_rate_frac(n: int, sd_frac: float) -> float:
    """Rate of the slowest of ``n`` devices over that of the average one, in (0, 1].

        1 / (1 + sd · E[max of n])

    ``sd_frac`` is the standard deviation of the devices' times over their mean.
    """
    return 1.0 / (1.0 + sd_frac * expected_maximum(n))


def slowest_rates(n: Array, sd_frac: float) -> Array:
    """``slowest_rate_frac`` for numbers of devices ``n`` [C], rounded to whole ones: [C]."""
    counts, index = np.unique(np.rint(np.maximum(n, 1.0)), return_inverse=True)
    rates = np.array([slowest_rate_frac(int(count), sd_frac) for count in counts])
    return rates[index.reshape(np.shape(n))]


def most_work(n_ranks: Array, samples: Array, sd_frac: float) -> Array:
    """Work of the rank with the most work, over that of the average rank [C].

        1 + sd / sqrt(samples) · E[max of n]

    ``samples``: samples of a rank between two synchronizations of all ranks. ``sd_frac``: standard
    deviation of one sample's work over its mean; for the sum of independent samples it falls with
    the square root of their number.
    """
    counts, index = np.unique(n_ranks, return_inverse=True)
    largest = np.array([expected_maximum(int(n)) for n in counts])[index]
    return 1.0 + sd_frac / np.sqrt(samples) * largest
