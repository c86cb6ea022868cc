"""Speed-up and efficiency of one job on more and more GPUs, with intervals."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from simcore.answer.result import Prediction
from simcore.base.errors import InvalidConfig, SimcoreError, UsageError
from simcore.base.figures import Interval
from simcore.base.record import dataclass
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.request.resolved import Request


@dataclass(frozen=True, kw_only=True)
class ScalingPoint:
    """One cluster of a scaling curve, with 80 % intervals."""

    cluster: str
    n_gpus: int
    samples_per_s: Interval
    speedup: Interval
    efficiency_frac: Interval
    fits: bool


@dataclass(frozen=True, kw_only=True)
class MeasuredPoint:
    """A measurement on one of the clusters.

    ``over``: what its speed-up is relative to: the ``measured`` rate of one GPU, or the
    ``predicted`` one where there is no such measurement.
    """

    source: str
    n_gpus: int
    samples_per_s: float
    speedup: float
    over: str


@dataclass(frozen=True, kw_only=True)
class Scaling:
    """One job on more and more GPUs of one type, with a constant micro-batch."""

    model: str
    gpu: str
    strategy: str
    micro_batch: int
    sample_unit: str
    points: tuple[ScalingPoint, ...]
    measured: tuple[MeasuredPoint, ...]
    predictions: tuple[Prediction, ...]

    def __len__(self) -> int:
        return len(self.points)


def clusters_up_to(cluster: str, n_nodes: int, per_node: int) -> list[str]:
    """Clusters of a scaling curve: ``1x1xA100`` and so on.

    GPUs double up to a whole node; then comes every number of nodes up to four; then nodes double.
    ``cluster``: the largest one, as text with its counts in front; it is the last entry.
    """
    name = cluster.split("x", 2)[2]
    nodes = [*range(2, min(n_nodes, 4) + 1), *(n for n in _doubling(n_nodes) if n > 4)]
    return [f"1x{n}x{name}" for n in _doubling(per_node)] + [
        f"{n}x{per_node}x{name}" for n in nodes
    ]


def _doubling(end: int) -> list[int]:
    """1, 2, 4 … and ``end``."""
    found = [1]
    while found[-1] * 2 < end:
        found.append(found[-1] * 2)
    return found if end == 1 else [*found, end]


def check_scales(request: Request) -> None:
    """Raises InvalidConfig where "the same job on fewer GPUs" is not defined."""
    types = {(g.gpu.name, g.gpus_per_node) for g in request.cluster.groups}
    if len(types) > 1:
        raise InvalidConfig(["a scaling curve is for GPUs of one type in equal nodes"])


def check_clusters(
    clusters: Sequence[str], gpu: str, network: str | None, node: str | None
) -> None:
    """Raises InvalidConfig for unknown clusters, and for clusters of another GPU type."""
    problems: list[str] = []
    for name in clusters:
        try:
            groups = parse_cluster(name, network=network, node=node).groups
        except InvalidConfig as err:
            problems += err.violations
        except UsageError as err:
            problems.append(str(err))
        else:
            if {g.gpu.name for g in groups} != {gpu}:
                problems.append(f"a scaling curve is for GPUs of one type: {name} is not of {gpu}")
    if problems:
        raise InvalidConfig(problems)


def words_for(cluster: ClusterSpec, node: str | None, network: str | None) -> dict[str, str | None]:
    """The --node and --network with which ``str(cluster)`` is read as the same cluster again.

    ``node``, ``network``: as the user gave them. 2xp5.48xlarge prints as 2x8xH100-SXM-80GB, which
    without them is read as two DGX H100.
    """
    own = cluster.groups[0].node.name
    for words in ((node, network), (own, network), (own, cluster.network or None)):
        with suppress(SimcoreError):  # nodes of several kinds, and slices, have no one name
            found = parse_cluster(str(cluster), node=words[0], network=words[1])
            if found.groups == cluster.groups:
                return {"node": words[0], "network": words[1]}
    return {"node": node, "network": network}


def speedup_of(central: Prediction) -> Interval:
    """Speed-up over one GPU, with the relative interval of the step time as in ``validate``.

    If both rates were drawn with the same hardware figures the interval would be far narrower and
    hold 1 of 255 published DDP speed-ups (this one: 243, tests/validate/test_scaling.py), because
    the model's own error grows with the number of GPUs. The upper end is at most the sum of the
    GPUs alone.
    """
    value, step = central.speedup, central.step_time_s
    if central.n_gpus == 1:
        return Interval(1.0, 1.0, 1.0, "definition")
    ideal = value / central.scaling_efficiency_frac
    high = max(value, min(value * step.value / step.low, ideal))
    return Interval(value, value * step.value / step.high, high, step.origin)


def scaling_of(gpu: str, predictions: Sequence[Prediction]) -> Scaling:
    """The scaling curve of predictions that differ only in the number of GPUs, fewest first."""
    points = []
    for p in predictions:
        step, speedup = p.step_time_s, speedup_of(p)
        ideal = p.speedup / p.scaling_efficiency_frac
        points.append(
            ScalingPoint(
                cluster=p.cluster,
                n_gpus=p.n_gpus,
                samples_per_s=Interval(
                    p.samples_per_s, p.global_batch / step.high, p.global_batch / step.low,
                    step.origin,
                ),
                speedup=speedup,
                efficiency_frac=Interval(
                    p.scaling_efficiency_frac, speedup.low / ideal, speedup.high / ideal,
                    step.origin,
                ),
                fits=p.fits,
            )
        )  # fmt: skip
    last = predictions[-1]
    return Scaling(
        model=last.model,
        gpu=gpu,
        strategy=last.strategy,
        micro_batch=last.micro_batch,
        sample_unit=last.sample_unit,
        points=tuple(points),
        measured=_measured(predictions),
        predictions=tuple(predictions),
    )


def _measured(predictions: Sequence[Prediction]) -> tuple[MeasuredPoint, ...]:
    rates = [
        (p, row.source, p.global_batch / row.measured)
        for p in predictions
        for row in p.measured
        if row.quantity == "step_time_s"
    ]
    single = next((rate for p, _, rate in rates if p.n_gpus == 1), None)
    return tuple(
        MeasuredPoint(
            source=source,
            n_gpus=p.n_gpus,
            samples_per_s=rate,
            speedup=rate / (single or p.samples_per_s / p.speedup),
            over="measured" if single else "predicted",
        )
        for p, source, rate in rates
    )
