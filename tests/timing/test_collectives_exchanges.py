"""Collectives that a captured script issues itself: their time is that of each, in sequence."""

import numpy as np
import pytest

from simcore.physics.collectives import collective_time_s
from simcore.timing.collectives import exchanges_s
from simcore.timing.points import Points
from simcore.workload.models import Exchange
from simcore.workload.resolve import resolve_model

POINTS = Points.of(
    {"n_ranks": np.array([8.0, 32.0]), "n_nodes": np.array([1.0, 4.0]),
     "micro_batch": np.array([2.0, 4.0]), "grad_accum": np.array([1.0, 3.0]),
     "intra_bw_bytes_per_s": 1e11, "inter_bw_bytes_per_s": 1e10,
     "intra_hop_s": 1e-5, "inter_hop_s": 1e-5}, 2,
)  # fmt: skip


def seconds(**exchange):
    plain = {"ranks": 0, "stride": 1, "n_bytes": 1e6, "times": 1.0, "per_sample": False}
    model = resolve_model("gpt2").build()
    e = Exchange.model_validate({"op": "all_gather", **plain, **exchange})
    return exchanges_s(model.replace(exchanges=(e,)), POINTS, 8)


def test_one_of_all_ranks_takes_as_long_as_the_collective():
    group = POINTS.group(POINTS.n_ranks, POINTS.n_nodes)
    alone = collective_time_s("all_gather", np.full((1, 2), 1e6), group)[0]
    assert seconds() == pytest.approx(alone, rel=1e-12)
    assert seconds(times=5.0) == pytest.approx(5 * alone, rel=1e-12)


def test_messages_of_activations_grow_with_the_batch_and_come_in_each_micro_step():
    group = POINTS.group(POINTS.n_ranks, POINTS.n_nodes)
    sizes = 1e6 * np.array([[2.0, 4.0]])
    alone = collective_time_s("all_gather", sizes, group)[0]
    assert seconds(per_sample=True) == pytest.approx(alone * [1.0, 3.0], rel=1e-12)


def test_neighbours_stay_within_a_node_and_distant_ranks_do_not():
    near, far = seconds(ranks=4)[1], seconds(ranks=4, stride=8)[1]
    assert near == seconds(ranks=4)[0]
    assert far > near
