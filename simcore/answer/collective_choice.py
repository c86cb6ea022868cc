"""Which algorithm and protocol NCCL chooses for each collective of a step, and the alternatives."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

import numpy as np

from simcore.base.names import Changed
from simcore.base.record import dataclass
from simcore.physics.collectives import Collective, Group, obeys, ways
from simcore.request.resolved import Request
from simcore.step.program import Scope
from simcore.timing.collectives import group_of, scoped
from simcore.timing.exchanges import data_points, exchange_bytes
from simcore.timing.points import Points
from simcore.timing.steps import job_of, values_of, with_library

if TYPE_CHECKING:
    from simcore.hardware.fabrics.record import Pattern


@dataclass(frozen=True)
class Chosen:
    """The largest message of one collective and the ways to run it.

    ``dimension``: the ranks that take part (data, shard, replicas, tensor, context, expert).
    ``ways``: (algorithm, protocol, seconds), fastest first. ``obeys``: False where the NCCL
    settings of the job leave no way, so that ``ways`` ignores them. ``limit``: in words the share
    of the network that a fabric leaves the fastest way, and the link; "" where that is all.
    """

    dimension: str
    op: Collective
    n_bytes: float
    n_ranks: int
    n_nodes: int
    ways: tuple[tuple[str, str, float], ...]
    obeys: bool = True
    limit: str = ""


def chosen_collectives(request: Request) -> tuple[Chosen, ...]:
    """Every kind of collective in a step, priced with the step's own formulas."""
    points = with_library(request, Points.of(values_of(request), 1))
    placed = request.placed
    found = [] if placed is None else _exchanges(request, points)
    local = points if placed is None else data_points(points, placed)
    group = local.group(local.n_ranks, local.n_nodes)
    job = job_of(request)
    if placed is not None:  # the first pipeline stage's part of the model
        job = replace(job, workload=placed.stages[0].workload)
    program = job.program
    largest: dict[tuple[Scope, Collective], float] = {}
    for cost in program.comm:
        for size in cost.sizes_bytes:
            largest[cost.scope, cost.op] = max(largest.get((cost.scope, cost.op), 0.0), size)
    for (scope, op), n_bytes in largest.items():
        on = scoped(group, scope, job.strategy)
        sharded = scope == "shard" and bool(request.strategy.shard_ranks)
        named = sharded or scope in ("replicas", "experts")
        found.append(_chosen(scope if named else "data", op, n_bytes, on))
    return tuple(c for c in found if c.n_ranks > 1 and c.ways)


def nccl_words(request: Request) -> str:
    """The NCCL algorithms and protocols that the job names, as options; "" where NCCL chooses."""
    s = request.strategy
    said = {"nccl-algo": s.nccl.algorithms, "nccl-proto": s.nccl.protocols}
    return " and ".join(f"{word} {held}" for word, held in said.items() if held)


def left_without(request: Request) -> tuple[str, ...]:
    """A warning where the job's NCCL settings allow no algorithm for one of its collectives.

    NCCL from 2.24 on ends such a job, earlier versions fall back to rings (release notes of 2.24.3:
    strict enforcement of NCCL_ALGO and NCCL_PROTO).
    """
    words = nccl_words(request)
    if not words:
        return ()
    found = [f"{c.op.replace('_', '-')} of {c.dimension} ranks"
             for c in chosen_collectives(request) if not c.obeys]  # fmt: skip
    if not found:
        return ()
    return (
        Changed(
            f"{words}: NCCL has no such algorithm or protocol for {', '.join(found)}: predicted "
            "over rings, to which NCCL before 2.24 falls back; later versions stop with an error"
        ),
    )


def _exchanges(request: Request, points: Points) -> list[Chosen]:
    placed = request.placed
    assert placed is not None
    moved = exchange_bytes(placed, points.micro_batch)

    found = []
    for ranks in placed.dimensions:
        size = np.full(1, float(ranks.ranks))
        group = group_of(points, size, ranks.stride, placed.gpus_per_node)
        for op, share in ranks.collectives.items():
            found.append(_chosen(ranks.word, op, share * float(moved[ranks.name][0]), group))
    return found


def _chosen(dimension: str, op: Collective, n_bytes: float, group: Group) -> Chosen:
    ranks, nodes = int(group.n_ranks[0]), int(group.n_nodes[0])
    timed = tuple(ways(op, n_bytes, group)) if ranks > 1 else ()
    limit = _limit(timed[0][0], group) if timed else ""
    return Chosen(dimension, op, n_bytes, ranks, nodes, timed, obeys(op, group), limit)


#: What algorithms send between nodes, where that is no ring.
_SENDS: Mapping[str, Pattern] = {"Tree": "tree", "NVLSTree": "tree", "pairwise": "all-to-all"}


def _limit(algorithm: str, group: Group) -> str:
    lib = group.library
    if lib.fabric is None or group.n_nodes[0] == 1:
        return ""
    apart = lib.node_stride * group.node_stride
    share, link = lib.fabric.bottleneck(
        _SENDS.get(algorithm, "ring"), float(group.n_nodes[0]), apart
    )
    return f"{share:.3g} of the network, {link}" if link else ""
