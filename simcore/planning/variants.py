"""Evaluates points that each have their own split of the pipeline or division of the batch.

Points with the same split or division are evaluated together.
"""

from __future__ import annotations

from collections.abc import Hashable, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

import numpy as np

from simcore.answer.shares import with_shares
from simcore.answer.stages import balanced_axis, with_stages
from simcore.answer.sweep import Axis, Outcome, evaluate_axis
from simcore.base.arrays import NDArray
from simcore.base.errors import InvalidConfig
from simcore.request.resolved import Request
from simcore.strategy.cuts import cut_sizes
from simcore.strategy.options import check_shares
from simcore.timing.points import Knob
from simcore.workload.sharding import layer_counts

#: Samples per rank of each kind of GPU; empty where all take equally many.
Deal = tuple[int, ...]


def deals_of(request: Request, axis: Axis, shares: str) -> list[Deal | str]:
    """How each point divides its batch over the kinds of GPU, or the reason why it cannot.

    ``shares``: text as in ``check_shares``.
    """
    text = check_shares(shares)
    found: list[Deal | str] = []
    for _, point in axis.requests(request):
        try:
            found.append(with_shares(point, text).shares if text else ())
        except InvalidConfig as err:
            found.append(err.violations[0])
    return found


def evaluate_points(
    request: Request,
    axis: Axis,
    deals: Sequence[Deal] | None,
    by_batch: Mapping[int, Request],
    *,
    own_cuts: bool,
    twice: Knob | None,
    wires: Mapping[str, Any],
    lacking: float = np.inf,
) -> Outcome:
    """The outcome of points with variants of a request.

    deals     division of the batch of each point; None where all are equal
    by_batch  requests of micro-batches whose layers run other kernels; not with deals or cuts of
              the points' own
    own_cuts  whether each point gets its own best split of the pipeline
    twice, wires, lacking   as in ``evaluate_axis``
    """
    variants: dict[Hashable, Request] = {}
    keys: list[Hashable]
    if own_cuts:
        assert request.placed is not None
        keys = list(balanced_axis(request, axis))
        n_layers, pp = layer_counts(request.workload), request.placed.layout.pp
        for cut in dict.fromkeys(keys):
            variants[cut] = with_stages(request, cut_sizes(str(cut), n_layers, pp))
    elif deals is not None:
        batches = axis.micro_batch.astype(int).tolist()
        pairs = list(zip(deals, batches, strict=True))
        keys = list(pairs)
        for deal, batch in dict.fromkeys(pairs):
            variants[deal, batch] = replace(request, shares=deal, micro_batch=batch)
    else:
        batches = axis.micro_batch.astype(int).tolist()
        keys = list(batches)
        variants.update((batch, by_batch.get(batch, request)) for batch in dict.fromkeys(batches))
    parts: list[tuple[NDArray[np.intp], Outcome]] = []
    places: dict[Hashable, list[int]] = {}
    for place, key in enumerate(keys):
        places.setdefault(key, []).append(place)
    for key, variant in variants.items():
        points = np.array(places[key])
        some = axis.take(points)
        out = evaluate_axis(variant, some, twice=twice, wires=wires, lacking=lacking)
        parts.append((points, out))
    order = np.argsort(np.concatenate([points for points, _ in parts]))

    def joined(name: str) -> NDArray[np.float64]:
        columns = [np.broadcast_to(getattr(part, name), len(points)) for points, part in parts]
        return np.concatenate(columns)[order]

    names = [f.name for f in fields(Outcome) if getattr(parts[0][1], f.name) is not None]
    return Outcome(**{name: joined(name) for name in names})
