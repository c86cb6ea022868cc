"""Epochs of torch's own DataLoader, whose samples sleep, against the closed form of its queue.

Sleeping needs no processor, so that more workers than cores load at the same time. What starting
workers takes is measured with samples that load at once.
"""

from __future__ import annotations

import time
from typing import Any

import numpy as np
import pytest

from simcore.physics.loading import batch_period_s, epoch_s

data = pytest.importorskip("torch.utils.data")
ONE = np.ones(1)


class Sleeping:
    """Samples that take ``load_s`` each to load."""

    def __init__(self, samples: int, load_s: float) -> None:
        self.samples, self.load_s = samples, load_s

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> float:
        time.sleep(self.load_s)
        return float(index)


def epochs_s(samples: int, batch: int, workers: int, prefetch: int, **each: float) -> Any:
    """Seconds until the first batch, and of a whole epoch: the median of three."""
    loader = data.DataLoader(
        Sleeping(samples, each["load_s"]), batch, num_workers=workers, prefetch_factor=prefetch
    )
    found = []
    for _ in range(3):
        start, first = time.perf_counter(), 0.0
        for _ in loader:
            first = first or time.perf_counter() - start
            time.sleep(each["use_s"])
        found.append((first, time.perf_counter() - start))
    return np.median(np.array(found), axis=0)


@pytest.mark.long
@pytest.mark.filterwarnings("ignore:This DataLoader will create")
@pytest.mark.parametrize(
    ("batches", "batch", "workers", "prefetch", "load_s", "use_s"),
    [
        (88, 1, 8, 2, 0.3, 0.05),  # a queue that stays full after the first wave
        (22, 2, 8, 2, 0.3, 0.1),
        (22, 2, 8, 2, 0.3, 0.03),  # loading sets the pace
        (12, 2, 4, 4, 0.2, 0.03),
    ],
)
def test_epochs_of_a_real_loader(
    batches: int, batch: int, workers: int, prefetch: int, load_s: float, use_s: float
) -> None:
    samples = batches * batch
    start_s, _ = epochs_s(8, 1, workers, prefetch, load_s=0.0, use_s=0.0)
    _, measured_s = epochs_s(samples, batch, workers, prefetch, load_s=load_s, use_s=use_s)
    of_batch, n = ONE * batch * load_s, ONE * batches
    period = batch_period_s(of_batch, 0.0, ONE * batch, ONE, n, workers, prefetch)
    found = epoch_s(n, ONE * use_s, period, start_s + of_batch, workers)
    assert found[0] == pytest.approx(measured_s, rel=0.15)
