"""One collective over all ranks of a cluster, priced with the same formulas as in a step."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from simcore.base.arrays import Array
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.profile import Profile
from simcore.physics.collectives import Allowed, Collective, collective_time_s
from simcore.timing.collectives import group_of
from simcore.timing.points import Points
from simcore.timing.steps import point_values


def collective_alone_s(
    cluster: ClusterSpec,
    profile: Profile,
    op: Collective,
    n_bytes: Array,
    inter: float = 1.0,
    allowed: Allowed = Allowed(),  # noqa: B008  frozen
) -> Array:
    """Seconds of one collective of each size [messages] while nothing else uses the links.

    ``n_bytes`` [messages]: bytes as in ``collective_time_s``. ``inter`` multiplies the bandwidth
    between nodes; ``allowed`` restricts NCCL to the algorithms and protocols that it names.
    """
    values = point_values(cluster, profile, "", 1.0, 1.0) | {"inter": inter}
    points = Points.of(values, 1)
    points = replace(points, library=replace(points.library, allowed=allowed))
    group = group_of(points, points.n_ranks, 1.0, int(values["gpus_per_node"]))
    return collective_time_s(op, np.reshape(n_bytes, (-1, 1)), group)[:, 0]
