"""Slices of a torus: their shape, the links that they use, and slices as nodes of a cluster."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache

from simcore.base.errors import nearest
from simcore.hardware.spec import GPUS, NODES, GpuSpec, NodeSpec, Torus


@lru_cache(maxsize=4096)
def slice_shape(chips: int, axes: int) -> tuple[int, ...]:
    """Chips on each axis of a slice, rising: the shape whose longest axis is shortest.

    Shapes that Google offers are of this kind: 2x4, 4x8, 16x16 of v6e; 2x2x4, 4x4x8 of v5p and
    TPU7x (docs.cloud.google.com/tpu/docs/v6e, /tpu7x).

    >>> slice_shape(128, 3), slice_shape(32, 2)
    ((4, 4, 8), (4, 8))
    """
    if axes == 1:
        return (chips,)
    sides = (n for n in range(1, round(chips ** (1.0 / axes)) + 1) if chips % n == 0)
    shapes = (tuple(sorted((n, *slice_shape(chips // n, axes - 1)))) for n in sides)
    return min(shapes, key=lambda shape: (shape[-1], sum(shape)))


def is_ring(chips: int, ring_multiple: int) -> bool:
    """Whether an axis of so many chips is closed to a ring; otherwise it is a line."""
    return chips > 2 and chips % ring_multiple == 0


@lru_cache(maxsize=4096)
def links_in_use(chips: int, axes: int, ring_multiple: int) -> int:
    """Links of a chip over which it receives at the same time: two on a ring, one on a line.

    The end of a line has one neighbour, and every chip must receive what the end does.
    """
    lengths = (n for n in slice_shape(chips, axes) if n > 1)
    return sum(2 if is_ring(n, ring_multiple) else 1 for n in lengths)


@lru_cache(maxsize=4096)
def longest_way(chips: int, axes: int, ring_multiple: int) -> int:
    """Hops between the two chips of a slice that are furthest apart."""
    shape = slice_shape(chips, axes)
    return sum(n // 2 if is_ring(n, ring_multiple) else n - 1 for n in shape)


@lru_cache(maxsize=4096)
def exchange_load(chips: int, axes: int, ring_multiple: int) -> float:
    """Traffic of the busiest link in an all-to-all, in vectors of one chip.

    On a ring of s chips a vector travels s/4 links of one direction on average, and a chip has two
    links; on a line the middle link carries that of s/2 chips for s/2 others, s/4 vectors.
    """
    shape = slice_shape(chips, axes)
    return max(n / 8.0 if is_ring(n, ring_multiple) else n / 4.0 for n in shape)


#: A slice by its cloud's name: chip and number of cores or chips, or the torus's sides.
_SLICE = re.compile(r"^(?P<chip>\S*[a-zA-Z]\S*?)-(?P<count>\d+(?:x\d+){0,2})$")


def as_slices(
    node: NodeSpec, torus: Torus, count: int, each: int
) -> tuple[int, int, NodeSpec, str]:
    """(slices, chips of each, a slice as a node, an assumption): ``count`` nodes of ``each`` chips.

    Nodes of at most a host's chips are hosts, spread evenly over the fewest slices that hold them;
    larger ones are slices. A network that the user gives is that of one node as it was written.
    """
    hosts, slices = -(-each // node.max_gpus), count
    if each <= node.max_gpus:
        slices = next(n for n in range(-(-count * each // torus.max_chips), count + 1)
                      if count % n == 0)  # fmt: skip
        hosts = count // slices
    chips = count * each // slices
    given = NODES[node.name].nics != node.nics and each > node.max_gpus
    whole = _slice(node, chips, hosts, 1 if given else hosts)
    shape = "x".join(map(str, slice_shape(chips, torus.axes)))
    plural = "s" if slices > 1 else ""
    note = f"node: {slices} slice{plural} of {chips} chips, a torus of {shape}"
    return slices, chips, whole, note


@lru_cache(maxsize=4096)
def _slice(node: NodeSpec, chips: int, hosts: int, times_nics: int) -> NodeSpec:
    """A host's record as that of a slice: its sockets, memory and NICs times the hosts."""
    cpu = node.cpu.model_copy(update={
        "sockets": node.cpu.sockets * hosts,
        "dram_size": node.cpu.dram_size.model_copy(
            update={"value": node.cpu.dram_size.value * hosts}),
    })  # fmt: skip
    nics = tuple(n.model_copy(update={"count": n.count * times_nics}) for n in node.nics)
    return node.model_copy(update={"max_gpus": chips, "cpu": cpu, "nics": nics})


def near_slices(name: str) -> list[str]:
    """Slices that ``name`` may mean, where only the chip is misspelt: v5p-256 for v5q-256."""
    match = _SLICE.match(name)
    if match is None:
        return []
    on_torus = {gpu for node in NODES.all() if node.torus for gpu in node.gpu_types}
    chips = {name for gpu in on_torus for name in (gpu, *GPUS[gpu].aliases) if " " not in name}
    near = nearest(match["chip"], sorted(chips))
    return [f"{chip}-{match['count']}" for chip in near]


def named_slice(
    name: str, node_of: Callable[[GpuSpec, int], NodeSpec], violations: list[str]
) -> tuple[GpuSpec, int] | None:
    """The chip and the number of chips of a slice by its cloud's name: v5p-256, tpu7x-4x4x8.

    None for other names. ``node_of``: the default node of a device. A number counts cores or chips
    (``Torus.named_cores``), sides count chips.
    """
    match = _SLICE.match(name)
    if match is None or GPUS.path(match["chip"]) is None:
        return None
    gpu = GPUS[match["chip"]]
    host = node_of(gpu, 1)
    torus = host.torus
    if torus is None:
        return None
    sides = [int(n) for n in match["count"].split("x")]
    chips, rest = divmod(math.prod(sides), torus.named_cores if len(sides) == 1 else 1)
    shape = slice_shape(max(chips, 1), torus.axes)
    if rest or chips < 1:
        violations.append(f"{name!r}: {sides[0]} cores are no whole number of chips of {gpu.name}, "
                          f"which have {torus.named_cores}")  # fmt: skip
    elif len(sides) > 1 and tuple(sorted(sides + [1] * (torus.axes - len(sides)))) != shape:
        usual = "x".join(map(str, shape))
        violations.append(f"{name!r}: a slice of {chips} chips is taken as a torus of {usual}: "
                          f"did you mean {match['chip']}-{usual}?")  # fmt: skip
    elif chips > torus.max_chips:
        most = f"{match['chip']}-{torus.max_chips * torus.named_cores}"
        slices = math.ceil(chips / torus.max_chips)
        violations.append(f"{name!r}: a slice of {gpu.name} has at most {torus.max_chips} chips: "
                          f"did you mean {slices}x{most}?")  # fmt: skip
    elif chips > host.max_gpus and chips % host.max_gpus:
        whole = round(chips / host.max_gpus) * host.max_gpus
        cores = torus.named_cores if len(sides) == 1 else 1
        violations.append(f"{name!r}: {chips} chips are not whole hosts of {host.max_gpus}: "
                          f"did you mean {match['chip']}-{whole * cores}?")  # fmt: skip
    return gpu, max(chips, 1)
