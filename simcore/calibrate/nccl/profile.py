"""A calibration from runs of nccl-tests: the links of a node, and the network between nodes.

Within a node, the engine's ring is fitted (``link_fit``). Between nodes, one multiplier on the
network's bandwidth is fitted to the sizes that are bound by the network. Everything else, kernels
and the scatter of whole steps, stays as in the blind profile.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any, Final

import numpy as np

from simcore.answer.alone import collective_alone_s
from simcore.base.arrays import Array
from simcore.base.errors import InvalidConfig
from simcore.base.record import dataclass
from simcore.calibrate.curve_fits import robust_sd, solve
from simcore.calibrate.link_fit import (
    ENOUGH_FOR_RAMP,
    LEAST_SD,
    ROUNDS,
    SHAPE_SHARE,
    LinkFit,
    fit_link,
    left_out_link_mape,
    measured_link,
    small_sample,
)
from simcore.calibrate.nccl.groups import Measured, NcclGroups, beyond_rings
from simcore.hardware.calibrations import Calibration, Knob, MeasuredDevice, MeasuredLink
from simcore.hardware.paths import cluster_paths, places
from simcore.hardware.profile import Profile, load_profile
from simcore.timing.points import COLLECTIVE_BASE_S

#: The least number of sizes of a fit: two parameters and one more size to judge them.
ENOUGH_SIZES: Final = 3
#: A size is bound by the network if half the bandwidth makes it slower by more than this share.
_BINDS_FRAC: Final = 0.2


@dataclass(frozen=True)
class GroupFit:
    """The ring fitted to one group, as ``calibrate --from`` prints it."""

    measured: Measured
    link: LinkFit
    link_bytes_per_s: float
    left_out_mape_frac: float | None

    def measured_link(self) -> MeasuredLink:
        """The link of the node for its profile."""
        m = self.measured
        return measured_link(
            self.link, m.n_bytes, self.left_out_mape_frac, node=m.cluster.groups[0].node.name,
            link_bytes_per_s=self.link_bytes_per_s, note=m.op.replace("_", "-"),
        )  # fmt: skip

    def to_dict(self) -> dict[str, Any]:
        """The fit as plain data in SI units."""
        return {
            "collective": self.measured.op,
            "cluster": str(self.measured.cluster),
            "where": self.measured.where,
            "sizes": len(self.measured.n_bytes),
            "latency_s": self.link.latency_s,
            "hop_s": self.link.hop_s,
            "hop_sd_log": self.link.hop_sd_log,
            "bus_bytes_per_s": self.link.bus_bytes_per_s,
            "bus_sd_log": self.link.bus_sd_log,
            "ramp": self.link.ramp,
            "ramp_sd_log": self.link.ramp_sd_log,
            "share_of_link": self.link.bus_bytes_per_s / self.link_bytes_per_s,
            "leave_one_out_mape_frac": self.left_out_mape_frac,
        }


def fit_group(m: Measured) -> GroupFit:
    """The ring fitted to one collective in a node, with a ramp if there are enough sizes."""
    ramped, rounds = len(m.n_bytes) >= ENOUGH_FOR_RAMP, ROUNDS[m.op]

    def fit(n_bytes: Array, seconds: Array) -> LinkFit:
        bent = ramped and len(n_bytes) > ENOUGH_SIZES
        return fit_link(n_bytes, seconds, m.ranks, COLLECTIVE_BASE_S, rounds=rounds, ramped=bent)

    rate = cluster_paths(m.cluster)[0].bw_bytes_per_s
    error = left_out_link_mape(m.n_bytes, m.time_s, fit, ENOUGH_SIZES + 1)
    return GroupFit(m, fit(m.n_bytes, m.time_s), rate, error)


@dataclass(frozen=True)
class NetworkFit:
    """A multiplier on the network between nodes.

    ``n`` is the number of sizes that it is fitted to, ``mape_frac`` their mean error after the
    fit.
    """

    knob: Knob
    n: int
    mape_frac: float


def fit_network(groups: Sequence[Measured], profile: Profile) -> NetworkFit | None:
    """The multiplier on the network between nodes, fitted to ``groups`` that span several nodes.

    ``profile`` has the calibrated links within a node. Only sizes that are bound by the network
    count. None if there are none, or if after the fit they are bound by the node instead, so that
    the network's rate stays unknown.
    """
    bound: list[tuple[Callable[[float], Array], Array]] = []
    for m in groups:
        seconds = _alone(m, m.n_bytes, profile)
        mine = seconds(0.5) / seconds(1.0) - 1.0 > _BINDS_FRAC
        if mine.any():
            bound.append((_alone(m, m.n_bytes[mine], profile), m.time_s[mine]))
    if not bound:
        return None

    def residual(p: Array) -> Array:
        factor = math.exp(float(p[0]))
        return np.concatenate([np.log(price(factor) / took) for price, took in bound])

    x, sd = solve(residual, np.zeros(1), np.array([-4.0]), np.array([2.0]))
    off = residual(x)
    if float(np.median(residual(x - math.log(2.0)) - off)) < _BINDS_FRAC:
        return None
    spread = math.hypot(float(sd[0]) * small_sample(len(off), 1), SHAPE_SHARE * robust_sd(off))
    cluster = groups[0].cluster
    _, link = places(cluster)
    prior = profile.route_efficiency(cluster_paths(cluster)[1].route, link=link).sd_log
    knob = Knob(
        knob="inter", value=math.exp(float(x[0])), sd_log=min(max(LEAST_SD, spread), prior),
        link=link, prior_sd_log=prior,
    )  # fmt: skip
    return NetworkFit(knob, len(off), float(np.mean(np.abs(np.expm1(off)))))


def _alone(m: Measured, n_bytes: Array, profile: Profile) -> Callable[[float], Array]:
    """A function from the multiplier on the network to the seconds [sizes] of the collective."""

    def price(inter: float) -> Array:
        return collective_alone_s(m.cluster, profile, m.op, n_bytes, inter)  # type: ignore[arg-type]

    return price


def calibration_of_nccl(found: NcclGroups, name: str, file: str) -> tuple[Calibration, list[Any]]:
    """(calibration of the links, the fits behind it as plain data).

    ``name`` is the calibration's name, ``file`` the name of the log. Raises InvalidConfig if no
    run determines a link.
    """
    ring = [g for g in found.groups if g.op in ROUNDS]
    inside = [g for g in ring if g.cluster.n_nodes == 1 and len(g.n_bytes) >= ENOUGH_SIZES]
    # Runs that are reduced in the switches do not determine the network's rate for a ring.
    across = [g for g in ring if g.cluster.n_nodes > 1 and not beyond_rings(g)]
    fits = [fit_group(g) for g in inside]
    # The engine has one link per node. It gets the fit over the most ranks, preferably that of an
    # all-reduce, which gradients use.
    best = max(fits, key=lambda f: (f.measured.ranks, f.measured.op == "all_reduce"), default=None)
    gpu = best.measured.cluster.groups[0].gpu.name if best else ""
    own = MeasuredDevice(gpu=gpu, link=best.measured_link()) if best else None
    with_links = load_profile().with_knobs((), name, file, None, own)
    network = fit_network(across, with_links) if across else None
    if best is None and network is None:
        raise InvalidConfig(_why_no_fit(found, file))
    versions = [g.version for g in found.groups if g.version]
    rows = (len(best.measured.n_bytes) if best else 0) + (network.n if network else 0)
    record = Calibration(
        name=name,
        origin=f"links calibrated on {rows} sizes of nccl-tests in {file}; kernels blind",
        rows=rows,
        leave_one_out_mape_frac=best.left_out_mape_frac if best else None,
        knobs=(network.knob,) if network else (),
        measured=own,
        conditions={"nccl_version": versions[0]} if versions else {},
    )
    details: list[Any] = [f.to_dict() for f in fits]
    if network:
        details.append(_network_dict(network, across))
    return record, details


def _why_no_fit(found: NcclGroups, file: str) -> list[str]:
    """Why no run of a log determines a link."""
    ring = [g for g in found.groups if g.op in ROUNDS]
    if beyond := [note for g in ring if (note := beyond_rings(g))]:
        return beyond
    ops = ", ".join(dict.fromkeys(g.title for g in found.groups)) or "no run"
    return [f"no run of {file} determines a link ({ops}): that takes at least {ENOUGH_SIZES} sizes "
            f"of {', '.join(ROUNDS)} that the link limits"]  # fmt: skip


def _network_dict(network: NetworkFit, across: Sequence[Measured]) -> dict[str, Any]:
    return {
        "collective": ", ".join(dict.fromkeys(g.op for g in across)),
        "cluster": ", ".join(dict.fromkeys(str(g.cluster) for g in across)),
        "network": network.knob.link, "multiplier": network.knob.value,
        "sd_log": network.knob.sd_log, "prior_sd_log": network.knob.prior_sd_log,
        "sizes": network.n, "mape_frac": network.mape_frac,
    }  # fmt: skip
