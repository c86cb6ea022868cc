"""Clusters: the ``NODESxGPUSxTYPE`` grammar, node presets, the network between nodes."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from functools import cached_property, lru_cache
from typing import NamedTuple

from simcore.base.database import Folders
from simcore.base.errors import BadQuantity, InvalidConfig, UnknownName, UsageError
from simcore.base.figures import Figure
from simcore.base.record import dataclass
from simcore.base.units import format_si, parse_quantity
from simcore.hardware.spec import (
    FLAT,
    GPUS,
    LINKS,
    NODE_CHANGES,
    NODES,
    Fabric,
    FabricGraph,
    GpuSpec,
    LinkSpec,
    Nic,
    NodeSpec,
    changed_node,
    is_fabric_word,
    parse_fabric,
    with_graph,
)

_GROUP = re.compile(r"^\s*(?:(\d{1,18})\s*[x×*]\s*)?(?:(\d{1,18})\s*[x×*]\s*)?([^x×*+\s].*?)\s*$")
_COUNTED = re.compile(r"^\s*(\d{1,18})\s*[x×*]\s*(\S.*?)\s*$")
_NO_TYPE = re.compile(r"^\s*(?:\d+\s*[x×*]\s*)+$")
#: A network's rate in colloquial form (``10GbE``, ``10 Gb``), and link name prefixes by kind.
_RATE_ALONE = re.compile(
    r"^\s*(\d+(?:\.\d+)?)\s*g(?:be|b|bit|ige|)\s*(?:ethernet)?$", re.IGNORECASE
)
_KINDS_OF_LINKS = {"infiniband": "ib", "ib": "ib", "ethernet": "eth", "eth": "eth", "roce": "roce",
                   "efa": "efa", "slingshot": "slingshot"}  # fmt: skip
#: One count, which may be that of several full nodes.
_COUNT_ALONE = re.compile(r"^\s*\d+\s*[x×*]\s*[^\d\s]")
#: A third count where the GPU type should stand.
_MORE_COUNTS = re.compile(r"^\d+(?:\s*[x×*]|X)")
#: Counts in other notations: without x, with a capital X, or after the GPU type.
_COUNT_FIRST = re.compile(r"^(?P<counts>\d+(?:\s*[xX×*]\s*\d+)?)\s*[xX×*]?\s*(?P<name>\D.*)$")
_COUNT_LAST = re.compile(r"^(?P<name>\S.*?)\s*[xX×*:]\s*(?P<counts>\d+)$")
#: Nodes that are assumed where no preset names the GPU: with a switched fabric, else by PCIe
#: generation, that of the card's port or of the servers of its year if that is older.
GENERIC_SWITCHED = "generic-nvswitch"
GENERIC_PCIE = {3: "generic-pcie3", 4: "generic-pcie", 5: "generic-pcie5"}
#: First whole year of servers with a generation of PCIe: AMD's EPYC 7002 came in August 2019, its
#: EPYC 9004 and Intel's 4th Xeon Scalable in November 2022 and January 2023.
_SERVERS_SINCE = {2020: 4, 2023: 5}
#: Largest number of nodes, and of GPUs per node; more is taken for a typing error.
_MOST_COUNTED = 1_000_000
#: One-way latency of a network given by its rate alone: what NCCL's tuning assumes per hop (14 us,
#: protocol Simple).
_UNNAMED_LATENCY_S = 14e-6


@dataclass(frozen=True)
class NodeGroup:
    """``n_nodes`` equal nodes with ``gpus_per_node`` devices in use each."""

    n_nodes: int
    gpus_per_node: int
    gpu: GpuSpec
    node: NodeSpec

    @property
    def n_gpus(self) -> int:
        """Devices in the group."""
        return self.n_nodes * self.gpus_per_node

    def __str__(self) -> str:
        return f"{self.n_nodes}x{self.gpus_per_node}x{self.gpu.name}"


@dataclass(frozen=True)
class ClusterSpec:
    """Groups of nodes on one network, in an order that is the same however they are written.

    ``assumptions``: sentences about everything that the user did not state. ``network_stated``:
    whether the user named the network or the node; otherwise it is that of the default preset.
    ``written``: the groups as the user wrote them, as indices into ``groups``; () for the same
    order.
    """

    groups: tuple[NodeGroup, ...]
    assumptions: tuple[str, ...] = ()
    fabric: Fabric = FLAT
    network_stated: bool = True
    written: tuple[int, ...] = ()

    @cached_property
    def n_gpus(self) -> int:
        """All devices."""
        return sum(g.n_gpus for g in self.groups)

    @cached_property
    def n_nodes(self) -> int:
        """All nodes."""
        return sum(g.n_nodes for g in self.groups)

    @property
    def network(self) -> str:
        """The network as ``parse_cluster`` accepts it; empty for nodes without NICs."""
        nics = (n for g in self.groups for n in g.node.nics)
        links = (n.link if n.count == 1 else f"{n.count}x{n.link}" for n in nics)
        return " ".join(filter(None, ("+".join(dict.fromkeys(links)), str(self.fabric))))

    @property
    def as_written(self) -> tuple[NodeGroup, ...]:
        """The groups in the order in which the user wrote them, for texts."""
        return tuple(self.groups[i] for i in self.written) or self.groups

    def __str__(self) -> str:
        return "+".join(map(str, self.as_written))

    def alone(self, group: int) -> ClusterSpec:
        """The cluster of one device of one group: the baseline of a speed-up."""
        one = replace(self.groups[group], n_nodes=1, gpus_per_node=1)
        return replace(self, groups=(one,), written=())


def gpu_types(text: str) -> list[str]:
    """The GPU types in a cluster's text, spelt as in the text, one per group."""
    matches = (_GROUP.match(part) for part in text.split("+"))
    return [match[3] for match in matches if match is not None]


def parse_cluster(
    text: str,
    *,
    network: str | None = None,
    node: str | None = None,
    nnodes: int | None = None,
    nproc_per_node: int | None = None,
    fabric: FabricGraph | None = None,
) -> ClusterSpec:
    """A cluster from text such as ``4x8xA6000ada`` or ``1x2xA100+1x3xT4``.

    ``8xH100`` is one node, ``H100`` one device; ``256xH100``, more than a node holds, are full
    nodes. ``nnodes`` and ``nproc_per_node`` (torchrun's options) supply missing counts. ``network``
    replaces the nodes' NICs: a link name, ``4xib-hdr`` or a rate per node such as ``"25 Gbit/s"``.
    Further words describe the switches between nodes: ``4:1`` oversubscribed uplinks, ``leaf=16``
    nodes per leaf switch, ``rails``, ``sharp``. ``fabric`` is a graph of the switches instead.
    ``node`` names a preset. With the suffix ``:no-p2p``, or as ``no-p2p`` alone for the default
    preset, its devices exchange data through host memory; with ``:vm`` it is a virtual machine that
    hides its sockets. Where the nodes are trays of a rack that is one NVLink domain, whole racks
    become the nodes.

    Raises InvalidConfig with every violation, UnknownName with the nearest names.
    """
    if not text or not text.strip():
        raise UsageError("no GPUs given: write NODESxGPUSxTYPE, such as 4x8xA6000ada")
    violations: list[str] = []
    assumptions: list[str] = []
    groups: list[NodeGroup] = []
    words = (network or "").split()
    switches = parse_fabric([w for w in words if is_fabric_word(w)])
    link = " ".join(w for w in words if not is_fabric_word(w))
    nics = parse_network(link) if link else None
    changed_only = node is not None and all(part in NODE_CHANGES for part in node.split(":"))
    named = bool(node) and not changed_only
    for part in text.split("+"):
        counted = _counted(part.strip(), (nnodes, nproc_per_node), violations)
        if counted is None or violations:  # go on only to collect further violations
            continue
        (n_nodes, per_node), gpu, name, own, ports = counted
        if own:
            on = f" and {ports} between nodes" if ports else ""
            assumptions.append(f"node: {name} is {per_node}x{gpu.name} on preset {own!r}{on}")
            named = True
        own = f"{own}:{node}" if own and node and changed_only else node or own
        preset, assumed = _node_for(gpu, per_node, own)
        if per_node > preset.most_gpus and _COUNT_ALONE.match(part):
            n_nodes, per_node, note = _full_nodes(gpu, per_node, own)
            preset, assumed = _node_for(gpu, per_node, own)
            assumptions += note
        if per_node > preset.most_gpus:
            usual = _node_for(gpu, 1, own)[0]
            racked = usual if usual.tray_gpus else preset
            violations.append(_too_many(racked, n_nodes, per_node, name))
            continue
        assumptions += assumed
        if nics is not None or ports:
            preset = _with_nics(preset, nics or parse_network(ports))
            link = link or ports
        group, assumed = _domains(NodeGroup(n_nodes, per_node, gpu, preset))
        assumptions += assumed
        groups.append(group)
    if violations:
        raise InvalidConfig(violations)
    assumptions += [fabric.assumed] if fabric is not None else []
    order = sorted(range(len(groups)), key=lambda i: _order_key(groups[i]))
    cluster = ClusterSpec(
        tuple(groups[i] for i in order),
        tuple(dict.fromkeys(assumptions)),
        with_graph(switches, fabric, sum(g.n_nodes for g in groups)),
        written=() if order == sorted(order) else tuple(map(order.index, range(len(order)))),
    )
    return _networked(cluster, link, node_named=named)


def _order_key(group: NodeGroup) -> tuple[str, str, int, int]:
    """Sort key of a cluster's groups: the order in which they were written changes nothing."""
    return group.gpu.name, group.node.name, group.gpus_per_node, group.n_nodes


class _Counted(NamedTuple):
    """(nodes, GPUs per node), the device, its name as written, and the node and network of it."""

    counts: tuple[int, int]
    gpu: GpuSpec
    name: str
    node: str | None = None
    network: str = ""


def _counted(
    part: str, given: tuple[int | None, int | None], violations: list[str]
) -> _Counted | None:
    """A part of a cluster's text; None where it is invalid.

    ``given``: the counts from torchrun's options, for a part without counts. Every problem is
    appended to ``violations``.
    """
    match = _GROUP.match(part)
    if match is None or part[:1] in "-x×*" or _NO_TYPE.match(part):
        violations.append(f"{part!r} is not NODESxGPUSxTYPE, such as 4x8xA6000ada")
        return None
    first, second, name = match.groups()
    counts = (int(first), int(second)) if second else (1, int(first or 1))
    if first is None:
        counts = (_or_one(given[0]), _or_one(given[1]))
    elif given != (None, None):
        violations.append(f"{part!r} has counts already: drop --nnodes/--nproc-per-node")
    for count, what in zip(counts, ("node count", "GPUs a node"), strict=True):
        if count < 1:
            violations.append(f"{what} of {part!r} must be at least 1")
        if count > _MOST_COUNTED:
            violations.append(f"{what} of {part!r} is above a million")
    if GPUS.path(name) is None:
        from simcore.hardware.torus import named_slice

        if (cut := named_slice(name, default_node, violations)) is not None:
            return _Counted((counts[0] * counts[1], cut[1]), cut[0], name)
        from simcore.hardware.machines import machine_named  # few clusters are named so

        if (whole := machine_named(name)) is not None:
            if not second and (first or given[1] is None):
                counts = (counts[1] if first else counts[0], whole.gpus)
            return _Counted(counts, whole.gpu, name, whole.node, whole.network)
    try:
        return _Counted(counts, GPUS[name], name)
    except UnknownName as err:
        violations.append(_unknown_gpu(part, name) or str(err))
        return None


def _or_one(count: int | None) -> int:
    return 1 if count is None else count


def _unknown_gpu(part: str, name: str) -> str:
    """How a part is misspelt, where the spelling makes its GPU unknown; else an empty text."""
    if name.isdigit():
        return f"{part!r} has no GPU type: write NODESxGPUSxTYPE"
    if "," in name:
        return f"{part!r} has a comma: join the GPUs of one cluster by +"
    from simcore.hardware.machines import near_machines
    from simcore.hardware.torus import near_slices  # only for error messages

    if near := near_slices(name) or near_machines(name):
        return f"unknown gpu {name!r}: did you mean {' or '.join(map(repr, near))}?"
    if meant := _counted_otherwise(part):
        if meant == part:  # in this grammar, but for the digits of a count
            return f"a count of {part!r} is above a million"
        return f"{part!r} is not NODESxGPUSxTYPE: did you mean {meant!r}?"
    if _MORE_COUNTS.match(name):
        return f"{part!r} has three counts: write NODESxGPUSxTYPE, such as 4x8xA6000ada"
    return ""


def _full_nodes(gpu: GpuSpec, n_gpus: int, name: str | None) -> tuple[int, int, Sequence[str]]:
    """(nodes, GPUs per node) of GPUs of which a node holds fewer, as in ``256xH100``; a note on it.

    They fill nodes, or trays of racks; as they were where they do not fill them.
    """
    node = _node_for(gpu, 1, name)[0]
    each = node.tray_gpus or node.most_gpus
    if node.torus is not None or n_gpus % each:
        return 1, n_gpus, ()
    return n_gpus // each, each, (f"node: {n_gpus} GPUs are {n_gpus // each} nodes of {each}",)


def _too_many(node: NodeSpec, n_nodes: int, n_gpus: int, name: str) -> str:
    """The message for more GPUs than a node holds; proposes the nearest numbers of full nodes."""
    most, each = node.most_gpus, node.tray_gpus or node.most_gpus
    full_nodes, rest = divmod(n_nodes * n_gpus, each)
    near = [f"{n}x{each}x{name}" for n in (full_nodes, full_nodes + 1)[: 2 if rest else 1]]
    return f"node {node.name!r} holds {most} GPUs, not {n_gpus}: did you mean {' or '.join(near)}?"


def _counted_otherwise(part: str) -> str:
    """``8H100``, ``8XH100`` or ``H100x8`` in this module's grammar; empty for any other text."""
    match = _COUNT_FIRST.match(part) or _COUNT_LAST.match(part)
    if match is None or GPUS.path(match["name"]) is None:
        return ""
    return "x".join([*re.findall(r"\d+", match["counts"]), match["name"]])


def _domains(group: NodeGroup) -> tuple[NodeGroup, Sequence[str]]:
    """The group with the racks as nodes where its nodes are trays of one, and an assumption on it.

    The trays are spread evenly over the fewest racks that hold them.
    """
    node, trays, each = group.node, group.n_nodes, group.gpus_per_node
    if node.torus is not None:
        from simcore.hardware.torus import as_slices  # few clusters have a torus

        slices, chips, node, note = as_slices(node, node.torus, trays, each)
        return replace(group, n_nodes=slices, gpus_per_node=chips, node=node), (note,)
    if node.tray_gpus is None or trays == 1 or each > node.tray_gpus:
        return group, ()
    most = node.max_gpus // node.tray_gpus
    racks = next(n for n in range(-(-trays // most), trays + 1) if trays % n == 0)
    a_rack = trays // racks
    # A network that the user gives is one tray's; the preset lists the ports of a whole rack.
    own = NODES[node.name].nics == node.nics
    counts = [n.count * a_rack * each // node.max_gpus if own else n.count * a_rack
              for n in node.nics]  # fmt: skip
    nics = tuple(n.model_copy(update={"count": max(1, c)})
                 for n, c in zip(node.nics, counts, strict=True))  # fmt: skip
    joined = replace(group, n_nodes=racks, gpus_per_node=a_rack * each, node=_with_nics(node, nics))
    domains = f"{racks} NVLink domain{'s' if racks > 1 else ''}"
    return joined, (f"node: {trays} trays of {each} GPUs are {domains} of {a_rack * each}",)


@lru_cache(maxsize=4096)
def _with_nics(node: NodeSpec, nics: tuple[Nic, ...]) -> NodeSpec:
    return node.model_copy(update={"nics": nics})


def _networked(cluster: ClusterSpec, network: str, *, node_named: bool) -> ClusterSpec:
    """The cluster, with an assumption that names the network where it is the preset's.

    Raises InvalidConfig where several nodes have no network.
    """
    if cluster.n_nodes == 1:
        return cluster
    missing = [g.node.name for g in cluster.groups if not g.node.nics]
    if missing:
        raise InvalidConfig(
            [f"node {m!r} has no network: name one with --network" for m in missing]
        )
    if network:
        return cluster
    assumed = {
        f"network: {n.count} x {LINKS[n.link].full_name} a node, as preset {g.node.name!r} has it"
        for g in cluster.groups
        for n in g.node.nics
    }
    return replace(
        cluster,
        assumptions=(*cluster.assumptions, *sorted(assumed)),
        network_stated=node_named,
    )


def parse_network(text: str) -> tuple[Nic, ...]:
    """NICs of each node from ``ib-hdr``, ``8xib-ndr`` or a rate such as ``25 Gbit/s``.

    Raises InvalidConfig, UsageError, UnknownName or BadQuantity.
    """
    count, name = 1, text.strip()
    if (match := _COUNTED.match(name)) is not None:
        count, name = int(match[1]), match[2]
        if not 1 <= count <= 64:
            raise InvalidConfig([f"--network {text!r}: 1 to 64 NICs a node"])
    if LINKS.path(name) is None:
        try:
            parse_quantity(name, "bytes_per_s")
        except BadQuantity:
            if name[:1].isdigit() and ("/s" in name or "bps" in name):
                raise
            if proposed := _link_proposed(name):
                raise UsageError(f"unknown link {name!r}: did you mean {proposed}?") from None
            raise UnknownName("link", name, network_names(), "(or a rate: 25 Gbit/s)") from None
        return (Nic(link=name, count=count),)
    link = LINKS[name]
    if link.kind in ("pcie", "nvlink", "socket", "c2c"):
        raise InvalidConfig([f"--network {text!r}: {link.full_name} does not join nodes"])
    return (Nic(link=link.name, count=count),)


def _link_proposed(name: str) -> str:
    """What to type for an unknown link; empty where there is no proposal.

    The rate for ``10GbE`` and ``10 Gb``; the links of that kind for ``infiniband``.
    """
    if match := _RATE_ALONE.match(name):
        return f"'{match[1]} Gbit/s'"
    kind = _KINDS_OF_LINKS.get(name.lower())
    links = [n for n in network_names() if kind and n.startswith(f"{kind}-")]
    return f"one of {', '.join(sorted(links, key=lambda n: LINKS[n].bw.value))}" if links else ""


def network_names() -> list[str]:
    """Names of the links that join nodes, not devices inside one."""
    return [n for n in LINKS.names() if not n.startswith(("pcie", "nvlink", "xgmi", "upi", "c2c"))]


@lru_cache(maxsize=256)
def link_named(name: str) -> LinkSpec:
    """The link record of a name, or of a bare rate: RDMA-like, with all of the rate as payload."""
    try:
        return LINKS[name]
    except UnknownName:
        rate = parse_quantity(name, "bytes_per_s")
    source = "given"
    return LinkSpec(
        name=name,
        full_name=f"{format_si(rate * 8, 'bit/s')} as given",
        kind="roce",
        bw=Figure(value=rate, source=source),
        payload_frac=Figure(value=1.0, source=source),
        latency=Figure(value=_UNNAMED_LATENCY_S, source=source),
        sources={source: "rate given on the command line, taken as payload rate"},
    )


def nic_bytes_per_s(nic: Nic) -> float:
    """Payload rate per direction of all of a node's NICs of one kind together."""
    link = link_named(nic.link)
    return nic.count * link.bw.value * link.payload_frac.value


def _node_for(gpu: GpuSpec, n_gpus: int, name: str | None) -> tuple[NodeSpec, Sequence[str]]:
    """The node that ``name`` states, or the default preset, and what was assumed."""
    preset, _, last = (name or "").rpartition(":")
    if last in NODE_CHANGES:
        node, assumed = _node_for(gpu, n_gpus, preset or None)
        return changed_node(node, last), assumed
    if preset and last:
        raise UnknownName("suffix of a node", last, NODE_CHANGES)
    if name is not None:
        return NODES[name], ()
    return _default_node(gpu, n_gpus)


def default_node(gpu: GpuSpec, n_gpus: int) -> NodeSpec:
    """The smallest preset that holds ``n_gpus`` of a GPU type; a generic node where none does."""
    return _node_for(gpu, n_gpus, None)[0]


def _default_node(gpu: GpuSpec, n_gpus: int) -> tuple[NodeSpec, tuple[str, ...]]:
    names = _preset_index(NODES.folders()).get(gpu.name, ())
    presets = [NODES[n] for n in names]
    fitting = sorted((n for n in presets if n.most_gpus >= n_gpus), key=lambda n: n.most_gpus)
    if not fitting:  # more than a pod or a board holds, which the caller divides or refuses
        fitting = [n for n in presets if n.torus is not None or gpu.form_factor == "soc"]
    if fitting:
        return fitting[0], (f"node: preset {fitting[0].name!r} ({fitting[0].full_name})",)
    generic = _generic_node(gpu, n_gpus)
    return generic, (f"node: no preset for {gpu.name}; generic {generic.name!r} assumed",)


def _generic_node(gpu: GpuSpec, n_gpus: int) -> NodeSpec:
    """The generic node of a GPU's PCIe generation and year, if it holds ``n_gpus``."""
    if gpu.nvlink_bw is not None and gpu.form_factor != "pcie":
        return NODES[GENERIC_SWITCHED]
    usual = NODES[GENERIC_PCIE[4]]
    if gpu.pcie is None or gpu.released is None:
        return usual
    of_year = max((g for year, g in _SERVERS_SINCE.items() if year <= gpu.released), default=3)
    own = NODES[GENERIC_PCIE[min(gpu.pcie.generation, of_year)]]
    return own if own.max_gpus >= n_gpus else usual


@lru_cache(maxsize=16)
def _preset_index(_folders: Folders) -> dict[str, tuple[str, ...]]:
    """GPU name to names of its presets, read from the ``gpu_types`` lines without parsing YAML."""
    presets: dict[str, list[str]] = {}
    line = re.compile(r"^gpu_types:\s*\[(.*?)\]", re.MULTILINE)
    for stem, path in NODES.files().items():
        match = line.search(path.read_text(encoding="utf-8"))
        for gpu in match[1].split(",") if match else ():
            presets.setdefault(gpu.strip().strip("'\""), []).append(stem)
    return {gpu: tuple(names) for gpu, names in presets.items()}
