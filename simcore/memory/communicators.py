"""Device memory that NCCL allocates for the communicators of a rank.

A communicator has one set of buffers for each connection and channel. Its size does not grow with
the number of ranks: each protocol has a ring buffer of a fixed number of steps (NCCL, init.cc,
computeBuffSizes). Within a node a rank connects to its ring neighbour and, with more than two
ranks, to two tree neighbours. For the network it has buffers that the NIC reads and writes
directly; the smallest protocol (LL) needs none there (transport/net.cc), and a NIC that cannot
reach device memory needs none at all.

# C configs, all arrays [C]
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray
from simcore.base.units import MIB
from simcore.strategy.layout import Layout

Array = NDArray[np.float64]

#: Bytes of one buffer of each protocol, eight steps long: NCCL_BUFFSIZE's default (NCCL user
#: guide); 120 words of 8 bytes for 640 threads; 8 lines of 16 bytes for 512 threads (NCCL,
#: device.h).
SIMPLE_BYTES = 4 * MIB
LL128_BYTES = 120 * 640 * 8 * 8
LL_BYTES = 8 * 512 * 8 * 16
#: Channels that NCCL opens: 24 on NVSwitch systems, 2 to 4 over PCIe; to the network 4, or 2 for
#: each NIC port where every device has its own port.
CHANNELS_NVLINK = 24
CHANNELS_PCIE = 4
CHANNELS_NETWORK = 4
CHANNELS_OF_A_NIC = 2
#: Connections within a node, of more than two ranks (ring neighbour and two tree neighbours:
#: 662 MiB on NVSwitch) and of two. Measured on four A100: 688 MB for a communicator of more than
#: two ranks, 544 MB for one of two (NVIDIA/nccl issue 964).
CONNECTIONS_NODE = 3
CONNECTIONS_PAIR = 2
#: Connections to the network: send and receive along the ring and to up to three tree neighbours.
CONNECTIONS_NETWORK = 8


class Group(NamedTuple):
    """One communicator: its number of ranks, and how many of them share a node."""

    n_ranks: Array
    here: Array


def communicator_bytes(group: Group, *, nvlink: bool, direct: bool) -> Array:
    """Buffer bytes of one communicator [C]; 0 for a single rank.

    ``nvlink``: GPUs of a node are joined by NVLink. ``direct``: the NIC reaches device memory.
    """
    channels = CHANNELS_NVLINK if nvlink else CHANNELS_PCIE
    one_set = SIMPLE_BYTES + LL128_BYTES + LL_BYTES
    near = np.where(group.here > 2, CONNECTIONS_NODE, CONNECTIONS_PAIR) * (group.here > 1)
    # Each channel leaves the node at one rank and enters it at one, so ranks share the channels.
    leaving = np.maximum(CHANNELS_NETWORK, CHANNELS_OF_A_NIC * group.here * nvlink) / group.here
    far = CONNECTIONS_NETWORK * leaving * (SIMPLE_BYTES + LL128_BYTES) * direct
    held: Array = (channels * near * one_set + far * (group.n_ranks > group.here)) * 1.0
    return held * (group.n_ranks > 1)


def groups_of(
    layout: Layout, n_gpus: Array, gpus_per_node: Array | float, copies: int
) -> Sequence[Group]:
    """The communicators of a rank: one of the whole job, and those of each parallel dimension.

    Pipeline neighbours have communicators of two ranks. One of tensor times pipeline ranks sums the
    norm of the gradient over a replica. ``copies``: how many times the tensor and data
    communicators exist; above 1 where a library creates its own in addition to those it is given.
    """
    one = np.ones_like(n_gpus)

    def group(size: Array | float, stride: Array | float) -> Group:
        wide = one * size
        here = np.maximum(1.0, np.minimum(wide, np.floor(gpus_per_node / stride)))
        return Group(wide, here)

    found = [group(n_gpus, 1.0)]
    if layout.trivial:
        return found
    data = np.maximum(1.0, n_gpus / layout.model_ranks)
    dense = float(layout.tp * layout.cp)
    found += [group(layout.tp, 1.0), group(data, dense)] * copies
    found += [group(layout.cp, float(layout.tp))]
    found += [group(layout.ep, float(layout.expert_tp))]
    if layout.pp > 1:
        found += [group(2.0, dense * data)] * min(2, layout.pp - 1)
        found += [group(layout.tp * layout.pp, 1.0)] * (layout.tp > 1)
    return found


def nccl_bytes(groups: Sequence[Group], *, nvlink: bool, direct: bool) -> Array:
    """Buffer bytes of all communicators of a rank [C]."""
    every = Group(np.stack([g.n_ranks for g in groups]), np.stack([g.here for g in groups]))
    held: Array = communicator_bytes(every, nvlink=nvlink, direct=direct).sum(axis=0)
    return held
