"""Max-min fair rates of flows that share links (progressive filling).

# F flows, L links, S parts of routes
"""

from __future__ import annotations

import numpy as np

from simcore.base.arrays import NDArray

Array = NDArray[np.float64]
Index = NDArray[np.intp]
#: Relative difference below which two links are equally narrow.
_EQUAL = 1e-9


def max_min_rates(n_flows: int, flow: Index, link: Index, frac: Array, bytes_per_s: Array) -> Array:
    """Rates [F] of flows that are fair: none can rise without taking from one that is no faster.

    ``flow``, ``link``, ``frac`` [S]: each flow sends these shares of its traffic over these links,
    whose rates are ``bytes_per_s`` [L]. All flows rise together; a link that is full stops its own
    (Bertsekas & Gallager 1992, section 6.5.2). In each round all links stop their flows that are
    the narrowest link of each of these flows. That gives the rates of stopping one link at a time,
    in a few dozen rounds. Flows without links have an infinite rate.
    """
    rates = np.full(n_flows, np.inf)
    left = bytes_per_s.astype(float)
    n_links = len(left)
    while len(flow):
        weight = np.bincount(link, frac, n_links)
        share = np.divide(left, weight, out=np.full(n_links, np.inf), where=weight > 0)
        level = share[link]
        least = np.full(n_flows, np.inf)
        np.minimum.at(least, flow, level)
        wider = level > least[flow] * (1.0 + _EQUAL)
        narrowest = np.bincount(link, wider, n_links) == 0
        stopped = np.zeros(n_flows, dtype=bool)
        stopped[flow[narrowest[link]]] = True
        rates[stopped] = least[stopped]
        done = stopped[flow]
        taken = np.bincount(link[done], frac[done] * rates[flow[done]], n_links)
        left = np.maximum(left - taken, 0.0)
        flow, link, frac = flow[~done], link[~done], frac[~done]
    return rates
