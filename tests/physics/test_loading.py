"""The closed form of a loader's queue against the queue itself, event by event."""

import numpy as np
import pytest

from simcore.physics.collectives import expected_maximum, most_work
from simcore.physics.loading import batch_period_s, crowding, epoch_s

RNG = np.random.default_rng(7)


def epoch_by_events(loads_s: np.ndarray, use_s: float, workers: int, prefetch: int) -> float:
    """Seconds of an epoch of ranks that use their batches together; ``loads_s`` [ranks, batches].

    As torch's DataLoader: batch i is of worker i mod workers, which begins it when it has finished
    its last one and the batch was asked for; workers · prefetch batches are asked for at the start,
    and one more whenever a batch is taken.
    """
    n = loads_s.shape[1]
    ready = np.zeros_like(loads_s)
    taken = np.zeros(n)
    for i in range(n):
        free = ready[:, i - workers] if i >= workers else 0.0
        asked = taken[i - workers * prefetch] if i >= workers * prefetch else 0.0
        ready[:, i] = np.maximum(free, asked) + loads_s[:, i]
        taken[i] = max(taken[i - 1] + use_s if i else 0.0, float(ready[:, i].max()))
    return float(taken[-1]) + use_s


def closed(
    load_s: float, sd_frac: float, samples: int, use_s: float, workers: int, prefetch: int,
    ranks: int, batches: int,
) -> float:  # fmt: skip
    one = np.ones(1)
    batch_s, n_ranks = one * load_s * samples, one * ranks
    period = batch_period_s(batch_s, sd_frac, one * samples, n_ranks, one * batches, workers,
                            prefetch)  # fmt: skip
    first = batch_s * most_work(n_ranks, one * samples, sd_frac)
    return float(epoch_s(one * batches, one * use_s, period, first, workers)[0])


@pytest.mark.parametrize("_", range(40))
def test_equal_batches_give_the_queues_own_time(_: int) -> None:
    workers, prefetch, n = (int(RNG.integers(1, top)) for top in (17, 5, 120))
    load_s, use_s = RNG.uniform(0.05, 4.0), RNG.uniform(0.1, 1.0)
    exact = epoch_by_events(np.full((1, n), load_s), use_s, workers, prefetch)
    assert closed(load_s, 0.0, 1, use_s, workers, prefetch, 1, n) == pytest.approx(exact)


@pytest.mark.parametrize(
    ("load_s", "use_s", "samples", "workers", "prefetch", "ranks", "n"),
    [
        (1.5, 0.43, 1, 8, 2, 16, 44), (1.5, 0.75, 2, 8, 2, 16, 22), (1.5, 1.0, 2, 8, 2, 32, 11),
        (1.5, 0.43, 1, 16, 2, 8, 88), (4.0, 0.3, 1, 8, 2, 8, 88), (4.0, 0.3, 1, 8, 4, 8, 88),
        (0.1, 0.3, 4, 2, 2, 1, 50), (4.0, 0.3, 1, 8, 2, 1, 88), (4.0, 0.3, 1, 8, 3, 8, 200),
        (4.0, 0.3, 2, 8, 2, 32, 40), (4.0, 0.1, 4, 4, 2, 4, 120), (4.0, 0.1, 1, 1, 2, 8, 100),
    ],
)  # fmt: skip
def test_uneven_samples_are_within_a_tenth(
    load_s: float, use_s: float, samples: int, workers: int, prefetch: int, ranks: int, n: int
) -> None:
    rng = np.random.default_rng(3)
    drawn = load_s * (0.6 + 0.4 * rng.exponential(1.0, (30, ranks, n, samples))).sum(-1)
    exact = np.mean([epoch_by_events(d, use_s, workers, prefetch) for d in drawn])
    found = closed(load_s, 0.4, samples, use_s, workers, prefetch, ranks, n)
    assert found == pytest.approx(exact, rel=0.1)


def test_workers_share_cores_beyond_their_number() -> None:
    ranks = np.array([1.0, 8.0, 8.0])
    assert crowding(np.array([8.0, 8.0, 16.0]), ranks, 96.0).tolist() == [1.0, 1.0, 128 / 96]


@pytest.mark.parametrize(
    ("prefetch", "batches", "wait"),
    [
        # all wait for the slowest of eight in each wave
        (1.0, np.inf, 0.5),
        # a lead of one batch and of three: spread^2 / 2 (lead), whatever the waves of an epoch
        (2.0, np.inf, 0.5**2 / 2), (4.0, np.inf, 0.5**2 / 6), (4.0, 2e6, 0.5**2 / 6),
        # never less than the slowest worker's excess over the 16 waves, nor more than of one wave
        (4.0, 32.0, 0.5 / 4), (4.0, 2.0, 0.5), (4.0, 1.0, 0.5),
    ],
)  # fmt: skip
def test_waits_for_the_slowest_worker_by_hand(prefetch: float, batches: float, wait: float) -> None:
    """Two workers of four ranks, batches of four samples; the slowest takes half as long more."""
    one = np.ones(1)
    n = 4.0 * min(2.0, batches)
    sd_frac = 0.5 * 2.0 / expected_maximum(int(n))
    found = batch_period_s(3.0 * one, sd_frac, 4.0 * one, 4.0 * one, batches * one, 2.0, prefetch)
    assert found[0] == pytest.approx(3.0 / 2.0 * (1.0 + wait))
