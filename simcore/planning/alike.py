"""Requests and outcomes of candidates with other options, each made once for all that share it.

Candidates are alike if they have the same form, kind of cluster and micro-batch: one request serves
them all (``answer.sweep``), and one evaluation along the axis of their clusters and micro-steps.

# C candidates
"""

from __future__ import annotations

from collections.abc import Hashable
from dataclasses import fields, replace
from typing import Any

import numpy as np

from simcore.answer.sweep import Axis, Outcome, evaluate_axis
from simcore.base.arrays import NDArray
from simcore.planning.candidates import Candidates, request_of
from simcore.request.resolved import Request


class Alike:
    """Requests and outcomes of candidates, cached.

    ``c``: the candidates as they were evaluated first; later changes of their times are ignored.
    """

    def __init__(self, c: Candidates) -> None:
        self._c = c
        kind = np.zeros(len(c.space.clusters), dtype=np.intp)
        for number, members in enumerate(c.space.kinds()):
            kind[members] = number
        columns = np.stack([c.form, kind[c.cluster], c.micro_batch])
        self._group: NDArray[np.intp] = np.unique(columns, axis=1, return_inverse=True)[1].ravel()
        self._requests: dict[Hashable, Request] = {}
        self._outcomes: dict[Hashable, tuple[NDArray[np.intp], Outcome]] = {}

    def request(self, i: int, **own: Any) -> Request:
        """The job of candidate ``i``; ``own``: options that differ from its form's."""
        c, key = self._c, (int(self._group[i]), *own.items())
        if key not in self._requests:
            self._requests[key] = request_of(c, i, c.forms[int(c.form[i])], **own)
        cluster, grad_accum = c.space.clusters[int(c.cluster[i])], int(c.grad_accum[i])
        return replace(self._requests[key], cluster=cluster, grad_accum=grad_accum)

    def outcome(
        self, i: int, request: Request, change: Hashable, among: NDArray[np.bool_]
    ) -> Outcome:
        """The outcome of candidate ``i`` with this request, at the candidate's batch.

        ``change``: what distinguishes the request from others of candidates that are alike;
        ``among``: candidates that may follow with the same change [C], evaluated along with it.
        """
        key = int(self._group[i]), change
        points, found = self._outcomes.get(key, (np.array([], dtype=np.intp), None))
        if found is None or i not in points:
            chosen = among & (self._group == self._group[i])
            chosen[i] = True
            points = np.flatnonzero(chosen)
            found = evaluate_axis(request, self._axis(points), twice="inter")
            self._outcomes[key] = points, found
        at = points == i
        one = {f.name: getattr(found, f.name) for f in fields(Outcome)}
        return Outcome(**{k: np.broadcast_to(v, len(points))[at] for k, v in one.items()})

    def _axis(self, points: NDArray[np.intp]) -> Axis:
        c = self._c
        which, row = np.unique(c.cluster[points], return_inverse=True)
        clusters = tuple(c.space.clusters[k] for k in which.tolist())
        micro_batch = np.full(len(clusters), c.micro_batch[points[0]])
        return Axis(clusters, np.arange(len(clusters)), micro_batch, row, c.grad_accum[points])
