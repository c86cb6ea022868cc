"""What a step waits for its samples, worked out by hand on the configuration axis."""

import numpy as np
import pytest

from simcore.physics.collectives import expected_maximum
from simcore.request.resolved import Loading
from simcore.timing.loading import Loader
from simcore.timing.points import Points

DATA = Loading(samples=704.0, sample_load_s=1.0, workers=8, persistent=False, worker_start_s=0.02)


def points(**values: float) -> Points:
    given = {"micro_batch": 2.0, "grad_accum": 1.0, "n_ranks": 16.0, "gpus_per_node": 8.0}
    return Points.of({**given, "n_nodes": 2.0, **values}, 1)


def step_s(makespan_s: float, at: Points | None = None, **changed: object) -> float:
    values = {"data": DATA, "one_process": False, "cores": 96.0, "slower": 1.0, "share": 1.0}
    loader = Loader(**{**values, **changed})  # type: ignore[arg-type]
    return float(loader.step_s(at or points(), np.array([makespan_s]))[0][0])


def test_each_epoch_waits_for_workers_and_a_first_batch() -> None:
    # 704 samples in 22 steps of 32; 8 workers start in 0.16 s, two samples take one of them 2 s.
    assert step_s(1.0) == pytest.approx(1.0 + (0.16 + 2.0) / 22)


def test_a_slow_loader_sets_the_pace() -> None:
    # Waves of 8, 8 and 6 batches; a worker has its second and third after 2 s each.
    assert step_s(0.01) == pytest.approx((0.16 + 2.0 + 2 * 2.0 + 6 * 0.01) / 22)


def test_processors_and_cores_that_are_shared() -> None:
    assert step_s(1.0, slower=2.0) == pytest.approx(1.0 + (0.32 + 2.0) / 22)
    assert step_s(1.0, cores=32.0) == pytest.approx(1.0 + (0.16 + 2 * 2.0) / 22)
    here = Loading(704.0, 1.0, 8, persistent=False, measured_here=True)
    there = Loading(704.0, 1.0, 8, persistent=False, measured_here=False)
    assert step_s(1.0, data=here, slower=2.0) == pytest.approx(1.0 + 2.0 / 22)
    assert step_s(1.0, data=there, slower=2.0) == pytest.approx(1.0 + 4.0 / 22)


def test_accumulation_loads_each_micro_batch() -> None:
    # 11 steps of two micro-batches: the same 22 batches of an epoch.
    assert step_s(2.0, points(grad_accum=2.0)) == pytest.approx(2.0 + (0.16 + 2.0) / 11)


def test_workers_that_live_on_never_wait_for_a_first_batch() -> None:
    lives = Loading(704.0, 1.0, 8, persistent=True)
    endless = Loading(None, 1.0, 8, persistent=False)
    for data in (lives, endless):
        assert step_s(1.0, data=data) == 1.0
        assert step_s(0.01, data=data) == pytest.approx(2.0 / 8)


def test_the_slowest_of_all_ranks() -> None:
    uneven = Loading(704.0, 1.0, 8, persistent=False, load_sd_frac=0.4)
    one, many = (points(n_ranks=n, n_nodes=max(n / 8, 1.0)) for n in (1.0, 32.0))
    waits = [22 * (step_s(1.0, at, data=Loading(22 * 2 * at.n_ranks[0], 1.0, 8, persistent=False,
             load_sd_frac=uneven.load_sd_frac)) - 1.0) for at in (one, many)]  # fmt: skip
    assert waits[0] == pytest.approx(2.0)
    assert 2.0 * (1 + 0.4 / 2**0.5) < waits[1] < 2.0 * (1 + 3 * 0.4 / 2**0.5)


def test_without_workers_loading_blocks_the_step() -> None:
    data = Loading(704.0, 0.01, 0, persistent=False)
    loader = Loader(data, one_process=False, cores=96.0, slower=1.0, share=1.0)
    assert loader.blocking_s(points(grad_accum=3.0)).tolist() == pytest.approx([0.06])
    assert loader.step_s(points(), np.array([1.0]))[0].tolist() == [1.0]


def test_one_process_feeds_all_devices_of_data_parallel() -> None:
    data = Loading(704.0, 1.0, 8, persistent=False)
    found = step_s(1.0, points(n_ranks=8.0, n_nodes=1.0), data=data, one_process=True)
    # 44 steps of 16 samples, which one worker of 8 loads in 16 s: waves of 8 batches.
    assert found == pytest.approx((16.0 + 5 * 16.0 + 4 * 1.0) / 44)


def test_an_epoch_has_at_least_one_batch() -> None:
    """8 samples for steps of 32: each step begins an epoch."""
    few = Loading(8.0, 1.0, 8, persistent=False, worker_start_s=0.02)
    assert step_s(1.0, data=few) == pytest.approx(1.0 + 8 * 0.02 + 2.0)


def test_the_largest_micro_batch_takes_longest_and_epochs_are_as_many_steps() -> None:
    """3 samples on the largest rank, 2 in the mean: 22 steps, of which the first waits for 3 s."""
    assert step_s(1.0, share=1.5) == pytest.approx(1.0 + (0.16 + 3.0) / 22)


def test_the_workers_of_one_process_share_its_cores_alone() -> None:
    """Eight workers on four cores: a batch of 16 samples takes one of them 32 s."""
    data = Loading(704.0, 1.0, 8, persistent=False)
    found = step_s(1.0, points(n_ranks=8.0, n_nodes=1.0), data=data, one_process=True, cores=4.0)
    assert found == pytest.approx((32.0 + 5 * 32.0 + 4 * 1.0) / 44)


def test_without_an_end_uneven_loads_wait_by_the_lead_of_workers_alone() -> None:
    """The epoch's slowest worker is not waited for: spread squared over twice the lead of one."""
    uneven = {"load_sd_frac": 0.4, "persistent": True}
    short, long, none = (Loading(n, 1.0, 8, **uneven) for n in (704.0, 704e6, None))  # type: ignore[arg-type]
    found = [step_s(0.01, data=data) for data in (short, long, none)]
    assert found[0] == found[1] == found[2]
    spread = 0.4 / 2**0.5 * expected_maximum(16 * 8)
    assert found[0] == pytest.approx(2.0 / 8 * (1 + min(spread, spread**2 / 2)))


def test_a_loader_at_twice_its_rate_halves_samples_and_starts_and_one_switched_off_takes_none() -> (
    None
):
    fast, off = points(loader=2.0, use_loader=1.0), points(loader=2.0, use_loader=0.0)
    assert step_s(1.0, fast) == pytest.approx(1.0 + (0.08 + 1.0) / 22)
    assert step_s(1.0, off) == pytest.approx(1.0)
    lives = Loading(704.0, 1.0, 8, persistent=True)
    assert step_s(0.01, fast, data=lives) == pytest.approx(1.0 / 8)


def test_each_of_a_step_s_micro_batches_takes_the_loader_s_time() -> None:
    lives = Loading(704.0, 1.0, 8, persistent=True)
    loader = Loader(lives, one_process=False, cores=96.0, slower=1.0, share=1.0)
    found, allowed = loader.step_s(points(grad_accum=3.0), np.array([0.01]))
    assert found.tolist() == allowed.tolist() == pytest.approx([3 * 2.0 / 8])


def test_the_memory_of_a_node_bounds_what_its_ranks_load() -> None:
    """Eight ranks of 2 samples of 3 GB through 100 GB/s: 0.48 s, however many workers load."""
    data = Loading(704.0, 1e-3, 64, persistent=True, sample_traffic_bytes=3e9)
    at = {"data": data, "dram_bytes_per_s": 100e9}
    assert step_s(0.1, **at) == pytest.approx(0.48)
    assert step_s(1.0, **at) == 1.0
    assert step_s(0.1, points(gpus_per_node=4.0, n_nodes=4.0), **at) == pytest.approx(0.24)
    one_process = step_s(0.1, points(n_ranks=8.0, n_nodes=1.0), one_process=True, **at)
    assert one_process == pytest.approx(0.48)
    assert step_s(0.1, points(loader=2.0, use_loader=1.0), **at) == pytest.approx(0.24)
    assert step_s(0.1, points(loader=1.0, use_loader=0.0), **at) == pytest.approx(0.1)
