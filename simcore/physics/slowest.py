"""The slowest of equal devices: what a synchronous step waits for."""

from __future__ import annotations

from functools import lru_cache
from statistics import NormalDist

import numpy as np

from simcore.base.arrays import Array


@lru_cache(maxsize=4096)
def expected_maximum(n: int) -> float:
    """Expected largest of ``n`` independent standard normal values.

        z((n - 0.375) / (n + 0.25)),  z the inverse of the normal distribution

    Blom 1958, within 0.5 % of the exact order statistic for n above 4; 0 for one device.
    """
    if n <= 1:
        return 0.0
    return NormalDist().inv_cdf((n - 0.375) / (n + 0.25))


def slowest_rate_frac(n: int, sd_frac: float) -> float:
    """Rate of the slowest of ``n`` devices over that of the average one, in (0, 1].

        1 / (1 + sd · E[max of n])

    ``sd_frac`` is the standard deviation of the devices' times over their mean.
    """
    return 1.0 / (1.0 + sd_frac * expected_maximum(n))


def slowest_rates(n: Array, sd_frac: float) -> Array:
    """``slowest_rate_frac`` for numbers of devices ``n`` [C], rounded to whole ones: [C]."""
    counts, index = np.unique(np.rint(np.maximum(n, 1.0)), return_inverse=True)
    rates = np.array([slowest_rate_frac(int(count), sd_frac) for count in counts])
    return rates[index.reshape(np.shape(n))]


def most_work(n_ranks: Array, samples: Array, sd_frac: float) -> Array:
    """Work of the rank with the most work, over that of the average rank [C].

        1 + sd / sqrt(samples) · E[max of n]

    ``samples``: samples of a rank between two synchronizations of all ranks. ``sd_frac``: standard
    deviation of one sample's work over its mean; for the sum of independent samples it falls with
    the square root of their number.
    """
    counts, index = np.unique(n_ranks, return_inverse=True)
    largest = np.array([expected_maximum(int(n)) for n in counts])[index]
    return 1.0 + sd_frac / np.sqrt(samples) * largest
