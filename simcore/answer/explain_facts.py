"""The values that explanations show: a request's rates, work and links, computed when needed."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import cached_property

import numpy as np

from simcore.answer.result import Prediction
from simcore.base.arrays import Array
from simcore.base.figures import Figure
from simcore.base.record import dataclass
from simcore.hardware.cluster import NodeGroup
from simcore.hardware.estimates import Estimate
from simcore.hardware.paths import Path, cluster_paths, places
from simcore.hardware.spec import PeakName
from simcore.request.resolved import Request, rank_groups
from simcore.step.kernels import KernelTable, table_of
from simcore.step.parallel import PARALLELISMS
from simcore.timing.evaluate import Job
from simcore.timing.peaks import conv_peak_for, peak_for
from simcore.timing.points import Points
from simcore.timing.rates import ClassRates
from simcore.timing.steps import job_of, steps_of, values_of

_CITED = re.compile(r"\(([a-z0-9+-]+)\)")


@dataclass(frozen=True)
class Derivation:
    """Formula in plain text, inputs with their units, and source of one term."""

    formula: str
    inputs: tuple[tuple[str, str], ...]
    source: str


@dataclass(frozen=True)
class Work:
    """What one part of the step does on one device per micro-step.

    ``issues``, ``calls``: host work to issue it, in kernel issues and in CUDA's launches
    (``hardware.class_figures.HostWork``); ``awaited``: kernel issues of host work for which the
    device waits.
    """

    flop: float
    n_bytes: float
    launches: float
    issues: float
    calls: float
    awaited: float


@dataclass(frozen=True)
class Facts:
    """One request and its prediction.

    With several rank classes, values are those of the slowest.
    """

    request: Request
    result: Prediction

    @cached_property
    def job(self) -> Job:
        """The job that was priced."""
        return job_of(self.request)

    @cached_property
    def index(self) -> int:
        """Position of the slowest rank class."""
        seconds = [c.compute_s for c in self.result.rank_classes]
        return seconds.index(max(seconds))

    @cached_property
    def collectives_s(self) -> float:
        """Seconds of all collectives of a step, hidden time included."""
        points = Points.of(values_of(self.request), 1)
        return float(steps_of(self.request, points, terms=()).comm_s[0])

    @property
    def micro_batch(self) -> int:
        """Samples of one micro-batch on a rank of the slowest class."""
        return self.result.rank_classes[self.index].micro_batch

    @property
    def rates(self) -> ClassRates:
        """Sustained rates of the slowest rank class."""
        return self.job.classes[self.index]

    @property
    def group(self) -> NodeGroup:
        """Nodes of the slowest rank class."""
        return rank_groups(self.request.cluster)[self.index]

    @cached_property
    def peak(self) -> tuple[PeakName, float]:
        """Name and value [FLOP/s] of the peak that matrix products are measured against."""
        name, value, _ = peak_for(self.rates.gpu, self.request.strategy.precision)
        return name, value

    @property
    def conv_peak(self) -> tuple[PeakName, float]:
        """Name and value [FLOP/s] of the peak that convolutions are measured against."""
        return conv_peak_for(self.rates.gpu, self.request.strategy.precision)

    @cached_property
    def paths(self) -> tuple[Path, Path]:
        """The slowest link of a collective within nodes, and between them."""
        return cluster_paths(self.request.cluster)

    def route(self, path: Path) -> Estimate:
        """Share of a path's bandwidth that collectives reach."""
        node, link = places(self.request.cluster)
        return self.request.profile.route_efficiency(path.route, node=node, link=link)

    @cached_property
    def shards(self) -> float:
        """Number of ranks among which the optimizer's work is divided."""
        strategy = self.request.strategy
        ranks = np.array([float(self.request.cluster.n_gpus)])
        return float(PARALLELISMS[strategy.parallelism].shard_degree(strategy, ranks)[0])

    @cached_property
    def table(self) -> KernelTable:
        """The kernels of the workload."""
        return table_of(self.request.workload, self.request.strategy)

    def work(self, part: str) -> Work:
        """FLOP, bytes and launches of ``forward``, ``backward`` or ``frozen`` for the batch."""
        workload, t = self.request.workload, self.table
        n = len(workload.blocks)
        runs = np.bincount(np.array(workload.order), minlength=n).astype(float)
        weights = np.zeros(t.n_phases)
        if part == "frozen":
            weights[2 * n :] = 1.0
        elif part == "forward":
            weights[:n] = runs
        else:
            weights[n : 2 * n] = runs
            strategy = self.request.strategy
            if strategy.recompute == "full" and not strategy.program.recompute.stops_early:
                weights[:n] = runs * [b.recomputable for b in workload.blocks]
        batch = float(self.micro_batch)
        moved = t["n_bytes"] @ (1.0, batch)

        def total(column: Array) -> float:
            return float(weights @ np.add.reduceat(column * t["count"], t.phase_start))

        launches, issues = weights @ t.launches_per_phase, weights @ t.issues_per_phase
        issues += weights @ t.unit_issues_per_phase * (self.result.n_gpus > 1)
        awaited = weights @ t.awaited_per_phase @ (1.0, batch)
        return Work(
            total(t["flop"]) * batch, total(moved), float(launches), float(issues),
            float(weights @ t.calls_per_phase), float(awaited),
        )  # fmt: skip

    def cite(self, estimate: Estimate) -> str:
        """An estimate's source, with the full citation of its key."""
        sources = self.request.profile.sources
        keys = _CITED.findall(estimate.source) or [estimate.source]
        for key in keys:
            if key in sources and not sources[key].endswith("see the note"):
                return f"{estimate.source}: {' '.join(sources[key].split())}"
        return estimate.source

    def datasheet(self, figure: Figure | None) -> str:
        """The citation of a figure from the GPU's datasheet."""
        return self.rates.gpu.sources[figure.source] if figure is not None else "not published"


Explainer = Callable[[Facts], Derivation]
