"""Device memory that NCCL holds for the communicators of a rank.

A communicator holds one set of buffers a connection and channel, whatever the number of ranks
beyond that: for each protocol a ring of steps (NCCL, init.cc, computeBuffSizes). Within a node a
rank has its ring neighbour's and, with more than two ranks, two tree neighbours'; to the network
those that the NIC reads and writes directly, which hold no buffer for the smallest protocol
(transport/net.cc), or none where the NIC does not.

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

#: Eight steps of a protocol's buffers: NCCL_BUFFSIZE's default (NCCL user guide); 120 words of 8
#: bytes for 640 threads; 8 lines of 16 bytes for 512 threads (NCCL, device.h).
SIMPLE_BYTES = 4 * MIB
LL128_BYTES = 120 * 640 * 8 * 8
LL_BYTES = 8 * 512 * 8 * 16
#: Channels that NCCL opens: 24 on NVSwitch systems, 2 to 4 over PCIe; to the network 4, or 2 a
#: port where each device has its own.
CHANNELS_NVLINK = 24
CHANNELS_PCIE = 4
CHANNELS_NETWORK = 4
CHANNELS_OF_A_NIC = 2
#: Ring neighbour and two tree neighbours: 662 MiB on NVSwitch. Measured on four A100: 688 MB a
#: group of more than two, 544 of two (NVIDIA/nccl issue 964).
CONNECTIONS_NODE = 3
CONNECTIONS_PAIR = 2
#: To the network: sent and received along the ring and to up to three tree neighbours.
CONNECTIONS_NETWORK = 8


class Group(NamedTuple):
    """One communicator: its ranks, and how many of them are in a node."""

    n_ranks: Array
    here: Array


def communicator_bytes(group: Group, *, nvlink: bool, direct: bool) -> Array:
    """Buffers of one communicator; 0 for one rank. ``direct``: the NIC reaches device memory."""
    channels = CHANNELS_NVLINK if nvlink else CHANNELS_PCIE
    one_set = SIMPLE_BYTES + LL128_BYTES + LL_BYTES
    near = np.where(group.here > 2, CONNECTIONS_NODE, CONNECTIONS_PAIR) * (group.here > 1)
    # A channel leaves the node at one rank and enters it at one.
    leaving = np.maximum(CHANNELS_NETWORK, CHANNELS_OF_A_NIC * group.here * nvlink) / group.here
    far = CONNECTIONS_NETWORK * leaving * (SIMPLE_BYTES + LL128_BYTES) * direct
    held: Array = (channels * near * one_set + far * (group.n_ranks > group.here)) * 1.0
    return held * (group.n_ranks > 1)


def groups_of(
    layout: Layout, n_gpus: Array, gpus_per_node: Array | float, copies: int
) -> Sequence[Group]:
    """The communicators of a rank: of the whole job, and of each dimension of its layout.

    Pipeline neighbours talk in pairs. The gradient's norm is summed over the ranks of a replica.
    ``copies``: of the tensor and data groups, where a library makes its own beside those that it
    is given.
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
    """Buffers of all communicators of a rank."""
    every = Group(np.stack([g.n_ranks for g in groups]), np.stack([g.here for g in groups]))
    held: Array = communicator_bytes(every, nvlink=nvlink, direct=direct).sum(axis=0)
    return held
