"""Statistics of batch norms over all ranks: what a step waits for, by hand."""

import numpy as np
import pytest

from simcore.api import predict
from simcore.timing.collectives import sync_norms_s
from simcore.timing.points import Points
from simcore.workload.resolve import resolve_model

#: The same network twice, at a batch that either loads in time.
SYNCED = "efficientnet-b4-autoaugment"
PLAIN = resolve_model(SYNCED).model_copy(update={"sync_norm_wait": None})
EIGHT = {"gpus": "1x8xV100-SXM2-32GB", "micro_batch": 32, "precision": "fp32"}


def step_s(model, **job):
    return predict(model=model, **job).step_time_s.value


def test_every_batch_norm_waits_twice_a_step():
    norms = resolve_model(SYNCED).build().sync_norms
    assert norms == 96
    added = step_s(SYNCED, **EIGHT) - step_s(PLAIN, **EIGHT)
    # Half a cycle of 1 ms each, and an all-reduce of a few hundred floats over NVLink.
    assert 2 * norms * 0.5e-3 < added < 2 * norms * (0.5e-3 + 60e-6)


def test_it_is_paid_in_every_micro_step_and_seen_as_communication():
    added = [
        step_s(SYNCED, grad_accum=a, **EIGHT) - step_s(PLAIN, grad_accum=a, **EIGHT) for a in (1, 2)
    ]
    assert added[1] == pytest.approx(2 * added[0], rel=0.01)
    assert predict(model=SYNCED, **EIGHT).time_s["communication_exposed"] > added[0]


def test_each_configuration_of_an_axis_waits_for_its_own_ranks():
    workload = resolve_model(SYNCED).build()
    ranks = {"n_ranks": np.array([2.0, 8.0, 32.0]), "n_nodes": np.array([1.0, 1.0, 4.0])}
    wires = {"intra_bw_bytes_per_s": 1e11, "inter_bw_bytes_per_s": 1e10,
             "intra_hop_s": 1e-5, "inter_hop_s": 1e-5}  # fmt: skip
    together = sync_norms_s(workload, Points.of({**ranks, **wires}, 3))
    alone = [
        sync_norms_s(workload, Points.of({**{k: v[i] for k, v in ranks.items()}, **wires}, 1))[0]
        for i in range(3)
    ]
    assert together == pytest.approx(alone, rel=1e-12)
    assert alone[0] < alone[1] < alone[2]


def test_one_gpu_has_nobody_to_wait_for():
    one = {**EIGHT, "gpus": "1xV100-SXM2-32GB"}
    assert step_s(SYNCED, **one) == pytest.approx(step_s(PLAIN, **one), rel=1e-9)


def test_other_models_keep_their_norms_to_themselves():
    assert PLAIN.build().sync_norms == 0
    assert PLAIN.build().n_buffers == 3 * 96
