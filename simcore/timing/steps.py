"""Times of a request's steps along a configuration axis: its job, its values, its steps."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from simcore.base.record import replace
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.paths import Path, cluster_paths, library_values, over_nvlink, places
from simcore.hardware.profile import Profile
from simcore.physics.collectives import Allowed, Library, slowest_rate_frac
from simcore.request.resolved import Request, rank_groups
from simcore.timing.evaluate import Job, Steps, evaluate_parts
from simcore.timing.points import Points
from simcore.timing.rates import class_rates

if TYPE_CHECKING:
    from simcore.physics.fabric_shares import FabricShares
    from simcore.timing.stage_steps import Divided


def steps_of(
    request: Request,
    points: Points,
    *,
    keep_timeline: bool = False,
    terms: Collection[str] | None = None,
) -> Steps:
    """Step times of a request along an axis, for any layout; ``terms`` as in ``evaluate``."""
    return steps_of_alike([request], points, keep_timeline=keep_timeline, terms=terms)[0]


def steps_of_alike(
    requests: Sequence[Request],
    points: Points,
    *,
    keep_timeline: bool = False,
    terms: Collection[str] | None = None,
) -> list[Steps]:
    """``steps_of`` several requests that differ in recompute alone."""
    points = with_library(requests[0], points)
    if requests[0].placed is None:
        jobs = [job_of(request) for request in requests]
        found = evaluate_parts(jobs, points, keep_timeline=keep_timeline, terms=terms)
        return [found.of_part(n) for n in range(len(jobs))]
    from simcore.timing.divided import evaluate_layouts

    alike = [divided(request) for request in requests]
    return evaluate_layouts(alike, points, keep_timeline=keep_timeline, terms=terms)


def divided(request: Request) -> Divided:
    """A divided request with the job of each kind of its stages."""
    from simcore.timing.stage_steps import Divided

    job, placed = job_of(request), request.placed
    assert placed is not None
    stages = [placed.stages[first] for first, _ in placed.distinct_stages]
    return Divided(tuple(replace(job, workload=stage.workload) for stage in stages), placed)


def with_library(request: Request, points: Points) -> Points:
    """The axis with the job's release of NCCL, restricted to what the job names."""
    s = request.strategy
    if s.nccl.release:
        points = replace(points, library=replace(points.library, release=s.nccl.release))
    if not s.nccl:
        return points
    allowed = Allowed(
        s.nccl.algorithms.every, s.nccl.protocols.every,
        s.nccl.algorithms.by_function, s.nccl.protocols.by_function,
    )  # fmt: skip
    return replace(points, library=replace(points.library, allowed=allowed))


def job_of(request: Request) -> Job:
    """The job without its configuration axis."""
    groups = rank_groups(request.cluster)
    classes = tuple(class_rates(g, request.strategy.precision, request.profile) for g in groups)
    shares = tuple(b / request.micro_batch for b in request.shares)
    return Job(request.workload, request.strategy, classes, request.loading, shares)


def point_values(
    cluster: ClusterSpec, profile: Profile, workload: str, micro_batch: float, grad_accum: float
) -> dict[str, Any]:
    """Values of one configuration of the axis: batch, ranks, and link rates and latencies."""
    return {
        "micro_batch": micro_batch,
        "grad_accum": grad_accum,
        "loader": profile.loader(workload).value,
        **_of_cluster(cluster, profile),
    }


@lru_cache(maxsize=4096)
def _of_cluster(cluster: ClusterSpec, profile: Profile) -> Mapping[str, Any]:
    """Those of ``point_values`` that depend on the cluster and the profile only."""
    intra, inter = cluster_paths(cluster)
    node, link = places(cluster)
    intra_frac = profile.route_efficiency(intra.route, node=node).value
    inter_frac = profile.route_efficiency(inter.route, link=link).value
    return {
        "n_ranks": cluster.n_gpus,
        "n_nodes": cluster.n_nodes,
        "gpus_per_node": max(g.gpus_per_node for g in cluster.groups),
        "intra_bw_bytes_per_s": intra.bw_bytes_per_s * intra_frac,
        "inter_bw_bytes_per_s": inter.bw_bytes_per_s * inter_frac,
        "intra_hop_s": profile.hop_s(node, intra.hop_s),
        "inter_hop_s": inter.hop_s,
        "intra_ramp": profile.collective_ramp(intra.route, node),
        "inter_ramp": profile.collective_ramp(inter.route),
        "library": Library(
            **library_values(cluster, profile, intra, inter), fabric=fabric_shares(cluster, inter)
        ),
        "compute": slowest_rate_frac(cluster.n_gpus, profile.device_spread.value),
    }


def fabric_shares(cluster: ClusterSpec, inter: Path) -> FabricShares | None:
    """The shares of a cluster's groups on the graph of its fabric; None where it has none."""
    graph = cluster.fabric.graph
    if graph is None or cluster.n_nodes == 1:
        return None
    from simcore.hardware.fabrics.record import FabricRecord
    from simcore.physics.fabric_shares import shares_on  # most predictions have no graph

    assert isinstance(graph, FabricRecord)
    by_nvlink = all(map(over_nvlink, cluster.groups))  # which hands over what is for another rail
    return shares_on(graph, cluster.n_nodes, inter.bw_bytes_per_s, not by_nvlink)


def values_on(request: Request, cluster: ClusterSpec) -> dict[str, Any]:
    return point_values(
        cluster, request.profile, request.workload.name, request.micro_batch, request.grad_accum
    )


def values_of(request: Request) -> dict[str, Any]:
    """The request as the values of one configuration of the axis."""
    return values_on(request, request.cluster)


def central_step_s(request: Request) -> float:
    """The central estimate of the step time only, which a fit evaluates many times."""
    return float(steps_of(request, Points.of(values_on(request, request.cluster), 1)).step_s[0])


#: Relative rounding error of a sum of a few dozen floats.
_ROUNDING_FRAC = 1e-12
#: Terms that every micro-step repeats.
_REPEATED = ("forward", "backward", "frozen")


def breakdown(steps: Steps, first: int, micro_steps: float, *, offloads: bool) -> dict[str, float]:
    """Seconds by term; all terms but ``communication_hidden`` add up to the step time.

    ``steps``: columns 0 (the whole step) and, from ``first`` on, the step without data loading,
    then also without host time, then also without communication.

    Forward, backward and frozen networks are those of all micro-steps. What the micro-steps before
    the last take beyond that (casts of weights, sums of gradients) is accumulation.

    Loader, host and exposed communication are differences: how much shorter the step gets when each
    is removed, in that order. Hidden communication is the time of a stage's own collectives less
    the exposed time; the time that its pipeline waits for other stages' collectives is not part
    of it.
    """
    full, no_load, no_host, bare = (
        float(steps.step_s[i]) for i in (0, first, first + 1, first + 2)
    )
    # Removing a cost can lengthen a step: other work then starts earlier and delays what the step
    # waits for. Such a cost counts as zero.
    no_load = min(no_load, full)
    no_host = min(no_host, no_load)
    terms = {k: float(v[first + 2]) for k, v in steps.terms_s.items()}
    once = sum(terms.get(name, 0.0) for name in _REPEATED)
    earlier = terms.get("accumulation", 0.0)
    more = once and min(micro_steps - 1.0, earlier / once)
    terms |= {name: terms[name] * (1.0 + more) for name in _REPEATED if name in terms}
    terms["accumulation"] = earlier - more * once
    comm = float(steps.comm_s[0])
    exposed = max(no_host - bare, 0.0)
    forward, backward = terms.get("forward", 0.0), terms.get("backward", 0.0)
    out = {
        "forward": forward,
        "backward": backward,
        "frozen_networks": terms.get("frozen", 0.0),
        "accumulation": terms["accumulation"],
        "optimizer": terms.get("optimizer", 0.0),
        "ema": terms.get("ema", 0.0),
        "input_copy": terms.get("input copy", 0.0),
    }
    waited = 0.0
    if "pipeline bubble" in terms:
        out["pipeline_bubble"] = terms["pipeline bubble"]
        waited = float(steps.terms_s["pipeline bubble"][first + 1]) - out["pipeline_bubble"]
    # The remainder of the step without communication is the wait for offloaded state. Without
    # offload it is rounding, or the time that kinds of ranks which are slow at different moments
    # wait for each other in collectives.
    left = bare - sum(out.values())
    waits = left if left > _ROUNDING_FRAC * bare else 0.0
    out["offload"] = waits if offloads else 0.0
    out["communication_exposed"] = exposed + waits - out["offload"]
    out["host"] = no_load - no_host
    out["loader"] = full - no_load
    compute = sum(out[k] for k in ("forward", "backward", "frozen_networks", "accumulation"))
    return {
        "compute": compute,
        **out,
        "communication_hidden": max(comm - max(exposed - waited, 0.0), 0.0),
    }
