"""Statistics of batch norms over all ranks: what a step waits for, by hand."""

import numpy as np
import pytest

from simcore.answer.request import make_request
from simcore.api import predict
from simcore.timing.collectives import norm_elems_behind_buckets, sync_norms_s
from simcore.timing.evaluate import program_of
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


# -- norms that wait for buckets under way ---------------------------------------------------------

IMAGES = {"micro_batch": 64, "precision": "amp-fp16", "layout": "nhwc", "strategy": "ddp"}


def test_channels_last_norms_wait_for_every_bucket_but_the_last() -> None:
    """ResNet-50's largest norms have 64 x 112 x 112 elements, of which backward moves five; its
    102 MB of gradients fill a bucket of 1 MiB and four of 25 MiB."""
    request = make_request("resnet-50", "1x8xA100-SXM4-80GB", **IMAGES)
    found = norm_elems_behind_buckets(request.workload, request.strategy)
    assert found == 5 * 64 * 112 * 112 * 4


@pytest.mark.parametrize(
    "other", [{"layout": "nchw"}, {"precision": "amp-bf16"}, {"precision": "fp32"}]
)
def test_norms_of_other_kernels_wait_for_nothing(other: dict[str, str]) -> None:
    request = make_request("resnet-50", "1x8xA100-SXM4-80GB", **{**IMAGES, **other})
    assert norm_elems_behind_buckets(request.workload, request.strategy) == 0.0


@pytest.mark.parametrize(("overlap", "waits"), [(None, 1), ("none", 0)])
def test_gradients_sent_after_backward_delay_no_norm(overlap: str | None, waits: int) -> None:
    request = make_request("resnet-50", "1x8xA100-SXM4-80GB", **IMAGES, overlap=overlap)
    misc = program_of(request.workload, request.strategy, 1).misc
    assert sum(quantity == "norms_behind_buckets_s" for quantity, *_ in misc) == waits


def test_waiting_norms_cost_what_they_move_twice() -> None:
    """2 x 5 x 64 x 112 x 112 x 2 bytes an image and bucket, at 1.5 to 2 TB/s, where sending four
    buckets after backward costs less than 2 ms."""
    job = {**IMAGES, "micro_batch": 256, "gpus": "1x8xA100-SXM4-80GB"}
    lost_s = step_s("resnet-50", **job) - step_s("resnet-50", **job, overlap="none")
    moved = 2 * 4 * 5 * 64 * 112 * 112 * 2 * 256
    assert moved / 2.0e12 - 2e-3 < lost_s < moved / 1.5e12
    first = {**job, "layout": "nchw"}
    assert step_s("resnet-50", **first) < step_s("resnet-50", **first, overlap="none")


@pytest.mark.parametrize("gpus", ["1x8xMI300X", "1x8xMI250X"])
def test_kernels_of_other_vendors_wait_for_nothing(gpus: str) -> None:
    """cuDNN's kernel waits; AMD's library has its own."""
    p = predict("resnet-50", gpus, **IMAGES, keep_timeline=True)
    timeline = p.timeline
    assert timeline is not None
    [task] = [i for i, t in enumerate(timeline.graph.tasks) if t.name.startswith("batch norms")]
    assert (timeline.finish_s[task] == timeline.start_s[task]).all()
