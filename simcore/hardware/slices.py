"""Slices of a torus as nodes of a cluster: from hosts, from chips, and by their cloud's names."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from functools import lru_cache

from simcore.base.errors import nearest
from simcore.hardware.spec import GPUS, NODES, GpuSpec, NodeSpec, Torus
from simcore.hardware.torus import slice_shape

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
