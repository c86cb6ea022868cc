"""Running summary of a sweep in bounded memory: counts, the best points, the Pareto front."""

from __future__ import annotations

from copy import copy

import numpy as np

from simcore.base.record import dataclass
from simcore.hardware.cluster import ClusterSpec
from simcore.planning.points import Batch
from simcore.planning.ranking import Front, Leaders, Point, point_at


@dataclass(frozen=True)
class Wanted:
    """What workers return for a range of pieces: all points (``points``), or else a summary with
    the best ``top`` points by ranking ``by``.
    """

    by: str = "throughput"
    top: int = 10
    points: bool = False


@dataclass(frozen=True)
class Summary:
    """The contents of a tally as plain values, to send between processes."""

    n_points: int
    n_evaluated: int
    n_fit: int
    invalid: dict[str, int]
    best: tuple[tuple[float, Point], ...]
    front: tuple[Point, ...]
    nearest: Point | None


class Tally:
    """Counts, best points and front of the batches and summaries that were added so far.

    ``nearest``: the point that exceeds its memory by the least, while no point fits. Summaries
    added in order give the same result as their points added one by one.

    after    the tally of earlier points: the best points and the front are those of both, of which
             ``summary`` gives the new ones
    """

    def __init__(
        self, clusters: tuple[ClusterSpec, ...], wanted: Wanted, after: Tally | None = None
    ) -> None:
        empty = Leaders(clusters, wanted.by, wanted.top)
        self.leaders: Leaders = copy(after.leaders) if after else empty
        self.front: Front = copy(after.front) if after else Front(clusters)
        self._earlier = (*self.leaders.points, *self.front.points)
        self.n_points = self.n_evaluated = self.n_fit = 0
        self.invalid: dict[str, int] = {}
        self.nearest: Point | None = None
        self._clusters = clusters

    @property
    def best(self) -> Point | None:
        """The best point so far."""
        return self.leaders.points[0][1] if self.leaders.points else None

    def add(self, part: Batch | Summary) -> None:
        """Add the next batch or summary."""
        self.n_points += part.n_points
        for reason, n in part.invalid.items():
            self.invalid[reason] = self.invalid.get(reason, 0) + n
        if isinstance(part, Summary):
            self.n_evaluated += part.n_evaluated
            self.n_fit += part.n_fit
            self.leaders.merge(part.best)
            self.front.merge(part.front)
            self._near(part.nearest)
        elif len(part):
            self.n_evaluated += len(part)
            self.n_fit += int(np.count_nonzero(part.fits))
            self.leaders.add(part)
            self.front.add(part)
            if not self.n_fit:
                lacking = part.needed_bytes - part.capacity_bytes
                self._near(point_at(part, int(np.argmin(lacking)), self._clusters))

    def _near(self, point: Point | None) -> None:
        """Update ``nearest`` with a point that does not fit."""
        held = self.nearest
        if self.n_fit:
            self.nearest = None
        elif point is not None and (held is None or point.lacking_bytes < held.lacking_bytes):
            self.nearest = point

    def summary(self) -> Summary:
        """The contents as plain values, without points of an earlier tally."""
        earlier = set(map(id, self._earlier))
        return Summary(
            n_points=self.n_points,
            n_evaluated=self.n_evaluated,
            n_fit=self.n_fit,
            invalid=self.invalid,
            best=tuple(p for p in self.leaders.points if id(p) not in earlier),
            front=tuple(p for p in self.front.points if id(p) not in earlier),
            nearest=self.nearest,
        )
