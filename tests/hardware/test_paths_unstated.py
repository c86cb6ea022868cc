"""A network that nobody stated: what is not known of it, against draws of adapters."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.hardware.calibrations import Knob
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.paths import network_assumptions, unstated_network
from simcore.hardware.profile import load_profile

BLIND = load_profile()


def test_its_moments_are_those_of_adapters_as_likely_one_as_any_to_the_logarithm() -> None:
    found = unstated_network(parse_cluster("4x8xA100-SXM-80GB"), BLIND)
    assert found is not None and found.most == 8.0
    adapters = np.exp(np.random.default_rng(1).uniform(0.0, np.log(8.0), 200_000))
    log_frac = np.log(adapters / 8.0)
    assert found.mean_log == pytest.approx(log_frac.mean(), abs=0.01)
    assert found.sd_log == pytest.approx(log_frac.std(), abs=0.01)


@pytest.mark.parametrize(
    "said", [{"network": "8xib-hdr"}, {"network": "100 Gbit/s"}, {"node": "dgx-a100"},
             {"node": "dgx-a100:no-p2p"}],
)  # fmt: skip
def test_what_somebody_states_is_known(said: dict[str, str]) -> None:
    cluster = parse_cluster("4x8xA100-SXM-80GB", **said)  # type: ignore[arg-type]
    assert cluster.network_stated and unstated_network(cluster, BLIND) is None
    assert not any("fewer" in a for a in network_assumptions(cluster, BLIND))


@pytest.mark.parametrize("said", [{"network": "leaf=2"}, {"node": "no-p2p"}])
def test_switches_and_routes_within_a_node_say_nothing_of_adapters(said: dict[str, str]) -> None:
    cluster = parse_cluster("4x8xA100-SXM-80GB", **said)  # type: ignore[arg-type]
    assert unstated_network(cluster, BLIND) is not None


@pytest.mark.parametrize(
    "gpus",
    ["1x8xA100-SXM-80GB",  # no network at all
     "4x8xA6000ada"],  # one adapter: none is left out
)  # fmt: skip
def test_where_there_is_no_adapter_to_leave_out_nothing_is_unknown(gpus: str) -> None:
    assert unstated_network(parse_cluster(gpus), BLIND) is None


def test_a_rack_has_the_adapters_of_its_trays() -> None:
    """18 trays of four GPUs with four adapters: each tray has one at least."""
    found = unstated_network(parse_cluster("2x72xGB200"), BLIND)
    assert found is not None and found.most == 4.0


def test_what_a_calibration_met_is_known_of_that_link_alone() -> None:
    def met(link: str) -> bool:
        knob = Knob(knob="inter", value=0.5, sd_log=0.1, link=link)
        profile = BLIND.with_knobs((knob,), "x", "x", 0.1)
        return unstated_network(parse_cluster("4x8xA100-SXM-80GB"), profile) is None

    assert met("ib-hdr") and met("") and not met("ib-ndr")


def test_the_assumption_says_what_to_state() -> None:
    told = network_assumptions(parse_cluster("4x8xA100-SXM-80GB"), BLIND)
    (network,) = (a for a in told if a.startswith("network: "))
    assert "8 x" in network and "fewer" in network and "--network" in network
