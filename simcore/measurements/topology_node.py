"""A node record from the matrix of ``nvidia-smi topo -m`` and the record of its GPU.

The matrix shows which devices are connected, and how. Everything else (rates of PCIe and of NICs,
memory, drives) is assumed from the GPU's record and from that GPU's node preset, and listed.

Drivers differ in the columns after the matrix (CPU affinity, NUMA affinity, GPU NUMA ID), in the
names of NICs (``mlx5_0`` or ``NIC0`` with a legend) and in blanks or tabs. All forms are accepted.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from itertools import permutations
from pathlib import Path
from typing import Final, Literal, NamedTuple

from simcore.base.errors import DataError, InvalidConfig, UnknownName, UsageError
from simcore.base.figures import Figure
from simcore.base.record import dataclass
from simcore.base.units import GIGA
from simcore.hardware.cluster import default_node, parse_network
from simcore.hardware.spec import LINKS, MOST_GPUS, Cpu, GpuSpec, Nic, NodeSpec, Nvme

#: Kinds of PCIe path in the legend, from near to far; drivers before 2017 write SOC for SYS.
PCIE_PATHS: Final = ("PIX", "PXB", "PHB", "NODE", "SYS")
_OLD: Final = {"SOC": "SYS"}
_NVLINK: Final = re.compile(r"^NV(\d+)$")
_GPU: Final = re.compile(r"^GPU\d+$")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_MARGIN: Final = re.compile(r"^[\s#*>|]+")
#: A line of ``nvidia-smi -L``, which people often put into the same file.
_LISTED: Final = re.compile(r"^\s*GPU \d+: (\S.*?)(?:\s+\(UUID.*)?$")
_RANGES: Final = re.compile(r"^\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$")


@dataclass(frozen=True)
class TopologyMatrix:
    """The matrix: ``paths`` of each pair of different devices, as NVLinks (``NV12``) or PCIe path.

    ``cpus``, ``numa``: affinities of the GPUs as ranges ("0-47,96-143"), where printed.
    ``listed``: names of the devices, where the same text has the output of ``nvidia-smi -L``.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    paths: dict[tuple[str, str], str]
    cpus: dict[str, str]
    numa: dict[str, str]
    listed: tuple[str, ...]

    def nvlinks(self, a: str, b: str) -> int:
        """Number of NVLinks between two devices."""
        match = _NVLINK.match(self.paths.get((a, b), ""))
        return int(match[1]) if match else 0

    def near(self, a: str, b: str) -> bool:
        """Whether PCIe switches alone join two devices, without the host in between."""
        return self.paths.get((a, b)) in ("PIX", "PXB")


def n_cpus(ranges: str) -> int:
    """Number of processors in ranges such as "0-47,96-143"."""
    total = 0
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        total += int(high or low) - int(low) + 1
    return total


def read_topology(path: Path, text: str) -> TopologyMatrix:
    """The first matrix in a text. Raises DataError, with the line, for an invalid one."""
    lines = [_MARGIN.sub("", _ESCAPES.sub("", raw)) for raw in text.splitlines()]
    start = next((i for i, x in enumerate(lines) if re.match(r"GPU0\s+(?:GPU1|CPU|NIC|mlx)", x)),
                 None)  # fmt: skip
    if start is None:
        raise DataError("has no matrix of `nvidia-smi topo -m` (GPU0 GPU1 ...)", file=path)
    names = tuple(lines[start].partition("CPU Affinity")[0].split())
    gpus = tuple(n for n in names if _GPU.match(n))
    rows = _rows(path, lines, start, names)
    if missing := [n for n in gpus if n not in rows]:
        raise DataError(
            f"has no row for {', '.join(missing)}: is the output cut off?",
            file=path,
            line=start + 1,
        )
    paths = {(a, b): joint for a, row in rows.items() for b, joint in row.paths.items()}
    for (a, b), joint in paths.items():
        if paths.get((b, a), joint) != joint:
            raise DataError(
                f"{a} to {b} is {joint}, but {b} to {a} is {paths[b, a]}",
                file=path,
                line=rows[a].line,
            )
    ranges = {g: [w for w in rows[g].affinities if _RANGES.match(w)] for g in gpus}
    return TopologyMatrix(
        gpus=gpus,
        nics=tuple(n for n in names if not _GPU.match(n)),
        paths={pair: joint for pair, joint in paths.items() if joint},
        cpus={g: r[0] for g, r in ranges.items() if r},
        numa={g: r[1] for g, r in ranges.items() if len(r) > 1},
        listed=tuple(m[1] for x in lines if (m := _LISTED.match(x)) is not None),
    )


class _Row(NamedTuple):
    """One device's line: its path to every device, and the words after the matrix."""

    line: int
    paths: dict[str, str]
    affinities: list[str]


def _rows(path: Path, lines: list[str], start: int, names: tuple[str, ...]) -> dict[str, _Row]:
    """Device name -> row, from the line after ``start``, the header, to the legend."""
    rows: dict[str, _Row] = {}
    for number, line in enumerate(lines[start + 1 :], start=start + 2):
        words = line.split()
        if not words or words[0] not in names:
            if rows and (not words or words[0].rstrip(":") in ("Legend", "NIC")):
                break
            continue
        if words[0] in rows:
            raise DataError(
                f"{words[0]} is in line {rows[words[0]].line} already", file=path, line=number
            )
        cells = [w for w in words[1 : 1 + len(names)] if not _RANGES.match(w)]
        if len(cells) < len(names):
            raise DataError(
                f"{words[0]} has {len(cells)} of {len(names)} columns: cut short?",
                file=path, line=number,
            )  # fmt: skip
        paths = {
            other: _path(cell, words[0] == other, path, number)
            for other, cell in zip(names, cells, strict=True)
        }
        rows[words[0]] = _Row(number, paths, words[1 + len(names) :])
    return rows


def _path(cell: str, same: bool, path: Path, line: int) -> str:
    """How two devices are joined according to one cell of the matrix, such as ``NV12`` or ``PIX``.

    ``same``: whether the cell is on the diagonal; the result is "" there. Raises DataError if the
    cell is no known kind of link, or if it is ``X`` anywhere but on the diagonal.
    """
    if same != (cell == "X"):
        raise DataError(f"{cell!r} on {'' if same else 'other than '}the diagonal", file=path,
                        line=line)  # fmt: skip
    if same:
        return ""
    cell = _OLD.get(cell, cell)
    if cell not in PCIE_PATHS and not _NVLINK.match(cell):
        known = ", ".join(PCIE_PATHS)
        raise DataError(f"{cell!r} is not a kind of link: write NV# or {known}", file=path,
                        line=line)  # fmt: skip
    return cell


#: Largest number of devices, those of the largest meshes: (8 - 1)! / 2 rings are tried for eight.
MOST_DEVICES: Final = 8

Links = Sequence[Sequence[int]]


def mesh_rings(links: Links) -> tuple[int, ...]:
    """Links per device that disjoint rings over the first 2, 3, … devices use.

    ``links`` [n, n]: number of links between each pair. A ring uses one link of each pair that it
    joins, so two links of each device; two devices use all links between them. Where no ring can
    visit each device once, but all devices are connected, one ring that visits some devices twice
    counts: two links. Zero where some devices are not connected.
    """
    return tuple(_links_of_rings(links, n) for n in range(2, len(links) + 1))


def _links_of_rings(links: Links, n: int) -> int:
    if n == 2:
        return links[0][1]
    rings = [
        tuple(zip(ring, (*ring[1:], 0), strict=True))
        for ring in ((0, *rest) for rest in permutations(range(1, n)))
        if ring[1] < ring[-1]
        and all(links[a][b] for a, b in zip(ring, (*ring[1:], 0), strict=True))
    ]
    left = {(a, b): links[a][b] for a in range(n) for b in range(n)}
    most = min(sum(links[a][:n]) for a in range(n)) // 2
    packed = _pack(rings, left, most)
    return 2 * packed if packed else 2 * _joined(links, n)


def _pack(
    rings: list[tuple[tuple[int, int], ...]], left: dict[tuple[int, int], int], most: int
) -> int:
    """Largest number of rings, up to ``most``, that use each remaining link at most once."""
    best = 0
    for i, ring in enumerate(rings):
        if best == most:
            break
        if not all(left[hop] for hop in ring):
            continue
        for a, b in ring:
            left[a, b] -= 1
            left[b, a] -= 1
        usable = [r for r in rings[i:] if all(left[hop] for hop in r)]
        best = max(best, 1 + _pack(usable, left, most - 1))
        for a, b in ring:
            left[a, b] += 1
            left[b, a] += 1
    return best


def _joined(links: Links, n: int) -> bool:
    """Whether links connect all of the first ``n`` devices, directly or through others."""
    reached, todo = {0}, [0]
    while todo:
        at = todo.pop()
        new = {b for b in range(n) if links[at][b]} - reached
        reached |= new
        todo += new
    return len(reached) == n


#: Rate of one NVLink per direction [GB/s]: NVLink 1, NVLink 2 to 4, NVLink 5, bridges of GA102.
_LINK_GBPS: Final = (20.0, 25.0, 50.0, 14.0625)
#: Largest assumed number of sockets; more NUMA domains are parts of sockets (AMD's NPS, Intel's
#: SNC).
_MOST_SOCKETS: Final = 2
_ON_HOST: Final = ("PHB", "NODE")
_PCIE_SLOT: Final = "pcie{}-x16"

Fabric = Literal["nvswitch", "nvlink-mesh", "nvlink-pairs", "pcie"]


@dataclass(frozen=True)
class TopologyNode:
    """The node, and sentences on what the matrix shows (``told``) and on what is assumed."""

    node: NodeSpec
    told: tuple[str, ...]
    assumptions: tuple[str, ...]


def node_of_topology(
    matrix: TopologyMatrix, gpu: GpuSpec, *, name: str,
    nics: str | None = None, sockets: int | None = None,
) -> TopologyNode:  # fmt: skip
    """The node of a matrix.

    ``nics``: the NICs as ``--network`` accepts them (``8xib-ndr``); ``sockets``: number of sockets.
    Where they are None, they follow from the matrix and the preset. Raises InvalidConfig where the
    matrix and the record of ``gpu`` contradict each other.
    """
    n = len(matrix.gpus)
    base = default_node(gpu, n)
    shown, assumed = [f"{n} GPUs"], [f"GPU type {gpu.name}"]
    fabric, rings, words = _fabric(matrix, gpu)
    shown.append(words)
    at_root = _gpus_a_root(matrix)
    if any(matrix.nvlinks(a, b) for a in matrix.gpus for b in matrix.gpus) and not matrix.nics:
        at_root = base.gpus_per_pcie_root
        assumed.append(
            f"{at_root} GPUs a PCIe root, as {base.name}: not shown with NVLink (see topo -mp)"
        )
    else:
        shown.append(f"{at_root} GPU{'s' if at_root > 1 else ''} a PCIe root")
    domains = len(set(matrix.numa.values() or matrix.cpus.values())) or 1
    n_sockets = sockets or min(domains, _MOST_SOCKETS)
    if sockets is None:
        shown.append(f"{domains} NUMA domain{'s' if domains > 1 else ''} with GPUs")
        assumed.append(f"{n_sockets} socket{'s' if n_sockets > 1 else ''} (--sockets)")
    link = _pcie_link(gpu, base)
    assumed.append(f"slots {link}, as the GPU's port: generation not in the matrix")
    cpu, words = _cpu(matrix, base, domains, n_sockets)
    assumed.append(words)
    network, words = _nics(matrix, base, nics)
    (shown if nics is not None else assumed).append(words)
    between = (base.socket_link or "xgmi-milan") if n_sockets > 1 else None
    if between:
        assumed.append(f"sockets joined by {between}")
    if base.nvme:
        assumed.append(f"drives as {base.name}")
    source = "assumed"
    if n > MOST_GPUS:
        raise UsageError(f"the matrix has {n} GPUs: a node has at most {MOST_GPUS}")
    node = NodeSpec(
        name=name,
        full_name=f"{n} x {gpu.full_name}, by nvidia-smi topo -m",
        sources={source: f"assumption: as preset {base.name}; nvidia-smi topo -m shows no rates"},
        max_gpus=n,
        fabric=fabric,
        mesh_rings=rings,
        pcie_link=link,
        gpus_per_pcie_root=at_root,
        socket_link=between,
        cpu=cpu,
        nics=network,
        nvme=_drives(base, source),
        notes=f"Shown by the matrix: {'; '.join(shown)}. Assumed: {'; '.join(assumed)}.",
    )
    return TopologyNode(node, tuple(shown), tuple(assumed))


def _fabric(matrix: TopologyMatrix, gpu: GpuSpec) -> tuple[Fabric, tuple[int, ...], str]:
    """The fabric of the GPUs, ``NodeSpec.mesh_rings``, and a sentence on both."""
    gpus = matrix.gpus
    links = [[matrix.nvlinks(a, b) if a != b else 0 for b in gpus] for a in gpus]
    counts = {x for row in links for x in row} - {0}
    if not counts:
        pcie_paths = {matrix.paths[a, b] for a in gpus for b in gpus if a != b}
        words = ", ".join(sorted(pcie_paths)) if pcie_paths else "one GPU"
        return "pcie", (), f"no NVLink: {words}"
    if gpu.nvlink_bw is None:
        raise InvalidConfig(
            [f"the matrix has NV{max(counts)}, but {gpu.name} has no NVLink in its record: "
             "another --gpu?"]
        )  # fmt: skip
    partners = [sum(x > 0 for x in row) for row in links]
    if max(partners) == 1:
        if gpu.form_factor != "pcie" and len(gpus) == 2:
            return "nvlink-mesh", (), f"NV{max(counts)} between both GPUs"
        return "nvlink-pairs", (), f"NV{max(counts)} bridges within pairs, PCIe between pairs"
    full = min(partners) == len(gpus) - 1 and len(counts) == 1
    if full and _through_switch(gpu, counts.pop(), len(gpus)):
        return "nvswitch", (), f"NV{links[0][1]} from each GPU to every other: NVSwitch"
    rings = mesh_rings(links) if len(gpus) <= MOST_DEVICES else ()
    if len(gpus) <= MOST_DEVICES and not (rings[-1] and all(rings)):
        return "nvlink-pairs", (), "NVLinks do not connect all GPUs: bridged pairs assumed"
    what = "all pairs" if full else "some pairs"
    return "nvlink-mesh", rings, f"point-to-point NVLinks of {what} ({_span(links)} a pair)"


def _span(links: list[list[int]]) -> str:
    """Smallest and largest number of links of connected pairs, as text."""
    counts = sorted({x for row in links for x in row} - {0})
    return f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"


def _through_switch(gpu: GpuSpec, count: int, n: int) -> bool:
    """Whether the ``count`` links shown per pair are all links of a GPU, as with an NVSwitch.

    Otherwise they connect this pair alone. Of the two numbers of links that a GPU then has, the one
    counts by which the GPU's rate comes closer to the known rates of one link.
    """
    assert gpu.nvlink_bw is not None
    rate = gpu.nvlink_bw.value / GIGA

    def error_frac(n_links: int) -> float:
        return min(abs(rate / n_links / known - 1.0) for known in _LINK_GBPS)

    return error_frac(count) <= error_frac(count * (n - 1))


def _gpus_a_root(matrix: TopologyMatrix) -> int:
    """Most GPUs on one PCIe root: GPUs joined by PIX or PXB to each other or to the same NIC."""
    groups = {g: {g} for g in matrix.gpus}

    def join(a: str, b: str) -> None:
        if groups[a] is not groups[b]:
            groups[a] |= groups[b]
            for member in groups[b]:
                groups[member] = groups[a]

    for a in matrix.gpus:
        for b in matrix.gpus:
            shared = any(matrix.near(a, nic) and matrix.near(b, nic) for nic in matrix.nics)
            if a != b and (matrix.near(a, b) or shared):
                join(a, b)
    return max(len(g) for g in groups.values())


def _pcie_link(gpu: GpuSpec, base: NodeSpec) -> str:
    """The link of the slots: that of the GPU's PCIe generation, else the preset's."""
    if gpu.pcie is None:
        return base.pcie_link
    name = _PCIE_SLOT.format(gpu.pcie.generation)
    try:
        return LINKS[name].name
    except UnknownName:
        return base.pcie_link


def _cpu(
    matrix: TopologyMatrix, base: NodeSpec, domains: int, sockets: int
) -> tuple[Cpu, str]:  # fmt: skip
    """The preset's host, with cores by the CPU affinities where these cover it, and a sentence."""
    affinities = set(matrix.cpus.values())
    cores = base.cpu.cores_per_socket
    words = f"processor {base.cpu.model}, {cores} cores a socket, its memory: as {base.name}"
    if affinities and len(affinities) == domains <= sockets:
        threads = 2 if all("," in a for a in affinities) else 1  # 0-47,96-143: two per core
        cores = max(1, max(map(n_cpus, affinities)) // threads)
        words = f"memory of the host as {base.name} ({base.cpu.model})"
    figure = base.cpu.dram_bw_per_socket
    cpu = Cpu(
        model=base.cpu.model, sockets=sockets, cores_per_socket=cores,
        dram_bw_per_socket=Figure(value=figure.value, source="assumed"),
        dram_size=Figure(value=base.cpu.dram_size.value, source="assumed"),
    )  # fmt: skip
    return cpu, words


def _nics(
    matrix: TopologyMatrix, base: NodeSpec, stated: str | None
) -> tuple[tuple[Nic, ...], str]:  # fmt: skip
    """NICs that training uses, and a sentence on them.

    The stated ones; else those that share a PCIe switch with a GPU, else the nearest, with the
    link of the preset.
    """
    if stated is not None:
        return parse_network(stated), f"network {stated}, as given"
    near = [n for n in matrix.nics if any(matrix.near(g, n) for g in matrix.gpus)]
    pairs = ((g, n) for n in matrix.nics for g in matrix.gpus)
    on_host = list(dict.fromkeys(n for g, n in pairs if matrix.paths.get((g, n)) in _ON_HOST))
    used = near or on_host or list(matrix.nics)
    if not used:
        return (), "no NIC in the matrix: name a network with --network when predicting"
    n_unused = len(matrix.nics) - len(used)
    left = f" ({n_unused} further away left out)" if n_unused else ""
    ports = f"{len(used)} NIC{'s' if len(used) > 1 else ''}"
    if not base.nics:
        return (), f"{ports}{left} of unknown rate: state --nics, or --network when predicting"
    link = base.nics[0].link
    return (Nic(link=link, count=len(used)),), f"{ports}{left}, each {link} (--nics)"


def _drives(base: NodeSpec, source: str) -> Nvme | None:
    if base.nvme is None:
        return None
    return Nvme(
        read_bw=Figure(value=base.nvme.read_bw.value, source=source),
        write_bw=Figure(value=base.nvme.write_bw.value, source=source),
    )
