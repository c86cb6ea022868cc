"""Settings of a model beside its architecture's: its loader, its norms, its frozen networks."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig


def step_s(model: str, **settings: object) -> float:
    found = api.predict(model, "8xA100-SXM4-80GB", settings=settings)  # type: ignore[arg-type]
    return found.step_time_s.value


def test_a_slow_loader_binds_at_its_rate() -> None:
    """128 samples of 100 ms over 16 workers: 0.8 s a step, by hand.

    The setting is the time on a core of Zen 4, as records have it: the node's EPYC 7742, Zen 2,
    takes 1.34 times as long (``by_cpu`` of runtime.yaml). The option is that on the job's cores.
    """
    slow = step_s("efficientnet-b0", sample_load="100ms", loader_workers=16)
    assert slow == pytest.approx(1.34 * 128 * 0.1 / 16, rel=0.02)
    own = api.predict(
        "efficientnet-b0", "8xA100-SXM4-80GB", sample_load="100ms", num_workers=16
    ).step_time_s.value
    assert own == pytest.approx(128 * 0.1 / 16, rel=0.02)
    assert step_s("efficientnet-b0", sample_load=0.1, loader_workers=16) == slow
    fast = step_s("efficientnet-b0", sample_load="1us", loader_workers=16)
    assert fast == pytest.approx(step_s("efficientnet-b0"), rel=0.01)


def test_host_memory_binds_what_all_ranks_of_a_node_load() -> None:
    """8 x 128 samples of 1 GB through two EPYC 7742 of 204.8 GB/s, of which 0.8 are sustained."""
    found = step_s("efficientnet-b0", sample_load="1us", sample_traffic="1GB", loader_workers=16)
    assert found == pytest.approx(8 * 128 * 1e9 / (0.8 * 2 * 204.8e9))
    # whether or not it is known how long a processor takes for a sample
    alone = step_s("efficientnet-b0", sample_traffic="1GB", loader_workers=16)
    assert alone == pytest.approx(found)


def test_norms_over_all_ranks_wait_for_each_exchange_twice() -> None:
    """Each of B0's 49 batch norms exchanges its statistics forward and its sums backward."""
    short, long = (step_s("efficientnet-b0", sync_norm_wait=t) for t in ("1ms", "2ms"))
    assert long - short == pytest.approx(2 * 49 * 1e-3, rel=0.05)
    assert short > step_s("efficientnet-b0")


def test_samples_that_are_all_alike_leave_nobody_waiting_and_no_larger_batch() -> None:
    uneven, even = (
        api.predict("mask-rcnn-r50-fpn", "8xA100-SXM4-80GB", settings=s)
        for s in ({}, {"samples_vary": False})
    )
    assert even.step_time_s.value < uneven.step_time_s.value
    assert even.memory.device_bytes < uneven.memory.device_bytes
    told = [" ".join(p.assumptions) for p in (uneven, even)]
    for sentence in (
        "samples differ in work",
        "memory is that of the largest batch in training",
    ):
        assert [sentence in text for text in told] == [True, False]


def test_a_setting_of_a_frozen_network_reaches_it() -> None:
    """Latents that were stored spare the autoencoder's forward."""
    assert step_s("dit-xl-2", stored_moments=True) < 0.9 * step_s("dit-xl-2")


@pytest.mark.parametrize(
    ("model", "settings", "said"),
    [
        ("gpt2", {"stored_moments": True}, "no setting 'stored_moments'"),
        ("gpt2", {"sample_load": "3ms"}, "no setting 'sample_load'"),  # it describes no data set
        ("efficientnet-b0", {"sample_lod": "3ms"}, "did you mean 'sample_load'"),
        ("efficientnet-b0", {"sample_load": "3 parsecs"}, "sample_load must be a time"),
        ("efficientnet-b0", {"sample_traffic": "3ms"}, "sample_traffic must be a size"),
        ("efficientnet-b0", {"sample_traffic": -1}, "sample_traffic must be a size"),
        ("efficientnet-b0", {"sample_traffic": "-1"}, "sample_traffic must be a size"),
        ("efficientnet-b0", {"sample_traffic": "nan"}, "sample_traffic must be a size"),
        ("efficientnet-b0", {"sample_traffic": "1e400"}, "sample_traffic must be a size"),
        ("efficientnet-b0", {"sample_traffic": None}, "sample_traffic must be a size"),
        ("efficientnet-b0", {"sample_traffic": True}, "sample_traffic must be a size"),
        ("efficientnet-b0", {"sample_load": "-0.1"}, "sample_load must be a time"),
        ("efficientnet-b0", {"loader_workers": "many"}, "must be a whole number"),
        ("efficientnet-b0", {"samples_vary": "sometimes"}, "must be true or false"),
    ],
)
def test_what_cannot_be_set_says_why(model: str, settings: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfig, match=said):
        step_s(model, **settings)
