"""What the nodes of communication groups send each other, as flows.

# G groups, m nodes a group, F flows
"""

from __future__ import annotations

from typing import NamedTuple

import numpy as np

from simcore.base.arrays import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]
#: Most flows of an exchange of all with all; beyond, evenly chosen distances stand for all.
MOST_FLOWS = 150_000


class Flows(NamedTuple):
    """Flows from node to node [F], and the share of a node's rate that each needs [F]."""

    source: Index
    target: Index
    need: Array


def groups_of(n_nodes: int, size: int, stride: int) -> Index:
    """The nodes of all groups of ``size`` nodes ``stride`` apart, numbered within a job [G, m].

    Groups fill the job block by block, as ranks are numbered; a last block that is not full is left
    out, and a group larger than the job is the part that there is.
    """
    stride = min(stride, n_nodes)
    size = max(1, min(size, n_nodes // stride))
    blocks = max(1, n_nodes // (size * stride))
    first = np.arange(blocks)[:, None] * (size * stride) + np.arange(stride)
    return first.reshape(-1, 1) + stride * np.arange(size)


def _joined(groups: Index, one: Index, other: Index, need: Array | float) -> Flows:
    """Flows between places ``one`` and ``other`` of every group."""
    source, target = groups[:, one].ravel(), groups[:, other].ravel()
    needed = np.broadcast_to(need, (len(groups), len(one))).ravel()
    return Flows(source, target, needed.astype(float))


def ring(groups: Index) -> Flows:
    """Each node sends to the next at its whole rate."""
    at = np.arange(groups.shape[1])
    return _joined(groups, at, np.roll(at, -1), 1.0)


def tree_parents(n: int) -> Index:
    """The parent of each node but the first in NCCL's binary tree (src/graph/trees.cc) [n - 1]."""
    at = np.arange(1, n)
    low = at & -at
    up: Index = (at ^ low) | (low << 1)
    return np.where(up < n, up, at ^ low)


def tree(groups: Index) -> Flows:
    """NCCL's double binary tree: half of the vector up and down each of two trees.

    A node sends the vector twice in all (half to two children and to the parent in one tree, half
    to the parent in the other), so each of its flows needs a quarter of its rate. The second tree
    is the first one mirrored, with an odd number of nodes shifted by one.
    """
    n = groups.shape[1]
    child, parent = np.arange(1, n), tree_parents(n)
    second = [(x + 1) % n if n % 2 else n - 1 - x for x in (child, parent)]
    one, other = np.concatenate([child, second[0]]), np.concatenate([parent, second[1]])
    return _joined(groups, np.concatenate([one, other]), np.concatenate([other, one]), 0.25)


def all_to_all(groups: Index) -> Flows:
    """Each node sends to every other of its group, at equal parts of its rate.

    Where that makes more than ``MOST_FLOWS`` flows, evenly chosen distances stand for all.
    """
    n = groups.shape[1]
    most = max(1, MOST_FLOWS // groups.size)
    apart = np.arange(1, n)
    if len(apart) > most:
        apart = np.unique(np.linspace(1, n - 1, most).round().astype(np.intp))
    at = np.repeat(np.arange(n), len(apart))
    return _joined(groups, at, (at + np.tile(apart, n)) % n, 1.0 / max(1, len(apart)))


def chain(groups: Index) -> Flows:
    """Each node but the last sends to the next, as the stages of a pipeline do.

    Gradients go back over the same links in the other direction, between stages that then send no
    activations.
    """
    at = np.arange(groups.shape[1] - 1)
    return _joined(groups, at, at + 1, 1.0)


PATTERNS = {"ring": ring, "tree": tree, "all-to-all": all_to_all, "chain": chain}
