"""A collective algorithm that only this file knows: priced, explained, listed, refusable."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from simcore import api
from simcore.answer.collective_choice import chosen_collectives
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.physics.collectives import ALGORITHMS, Algorithm, Collective, Group, Option, option
from simcore.report.catalog import listing
from simcore.strategy.options import OPTIONS

JOB: dict[str, Any] = {"strategy": "ddp", "overlap": "none", "micro_batch": 1}


class Wormhole(Algorithm):
    """All-reduce in 1 us and S/(1 TB/s), whatever the links."""

    def options(self, op: Collective, group: Group) -> Sequence[Option]:
        if op != "all_reduce":
            return []
        return [option(group, "Wormhole", "Simple", 1e-6, 1e-12 + 0.0 * group.n_ranks)]


@pytest.fixture(autouse=True)
def registered() -> Iterator[None]:
    with ALGORITHMS.registered("Wormhole", Wormhole()):
        yield


def _exposed_s(**more: Any) -> float:
    return float(api.predict("gpt2-xl", "2x8xH100", **JOB, **more).time_s["communication_exposed"])


def test_it_is_priced() -> None:
    """Its formula for the largest message, of which it is the fastest way by far."""
    chosen = chosen_collectives(make_request("gpt2-xl", "2x8xH100", **JOB))[0]
    name, protocol, seconds = chosen.ways[0]
    assert (name, protocol) == ("Wormhole", "Simple")
    assert seconds == pytest.approx(1e-6 + chosen.n_bytes * 1e-12)
    assert _exposed_s() < 0.5 * _exposed_s(nccl_algo="Ring")


def test_it_is_explained() -> None:
    told = str(api.explain("gpt2-xl", "2x8xH100", "collectives", **JOB))
    assert "Wormhole" in told


def test_it_is_listed() -> None:
    found = listing("collectives")
    assert ["Wormhole", "All-reduce in 1 us and S/(1 TB/s), whatever the links."] in found.rows
    assert "Wormhole" in {entry["name"] for entry in found.data}
    assert OPTIONS["nccl_algo"].names()[-1] == "Wormhole"


def test_it_can_be_refused_and_asked_for() -> None:
    """Without it the choice is NCCL's own; alone it leaves all-gathers no way, which is told."""
    assert _exposed_s(nccl_algo="wormhole") == _exposed_s()
    without = _exposed_s(nccl_algo="^Wormhole")
    assert without > 2 * _exposed_s()
    gathers = api.predict(
        "gpt2-xl", "2x8xH100", strategy="zero1", micro_batch=1, nccl_algo="Wormhole"
    )
    assert gathers.assumptions[0].startswith(
        "nccl-algo Wormhole: NCCL has no such algorithm or protocol for "
    )
    with pytest.raises(InvalidConfig, match="did you mean 'Wormhole'"):
        api.predict("gpt2-xl", "2x8xH100", **JOB, nccl_algo="Wormhol")
