"""The breakdown of a step, by hand from four steps: whole, without loader, host, communication."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from simcore.answer.request import make_request
from simcore.hardware.paths import cluster_paths
from simcore.timing.evaluate import Steps
from simcore.timing.points import Points
from simcore.timing.steps import (
    breakdown,
    central_step_s,
    fabric_shares,
    job_of,
    point_values,
    values_of,
    with_library,
)

#: Seconds of the terms without communication: 3 + 5 + 2 + 10 + 1 = 21.
BARE = {"forward": 3.0, "backward": 5.0, "frozen": 2.0, "accumulation": 10.0, "optimizer": 1.0}


def told(
    step_s: tuple[float, float, float, float] = (40.0, 36.0, 30.0, 21.0),
    terms: dict[str, Any] = BARE,
    comm_s: float = 12.0,
    micro_steps: float = 2.0,
    offloads: bool = False,
) -> dict[str, float]:
    """The breakdown of steps whose columns from 2 on are those without parts; 1 is something else.

    A term is a number, or those of the columns without host and without communication.
    """
    columns = {k: np.array([99.0, 99.0, 99.0, *np.broadcast_to(v, 2)]) for k, v in terms.items()}
    whole, *without = step_s
    zero = np.zeros(5)
    steps = Steps(
        step_s=np.array([whole, 99.0, *without]), makespan_s=zero, load_period_s=zero,
        comm_s=np.array([comm_s, 99.0, 99.0, 99.0, 99.0]), comm_beside_s=zero, host_micro_s=zero,
        terms_s=columns,
    )  # fmt: skip
    return breakdown(steps, 2, micro_steps, offloads=offloads)


def adds_up(found: dict[str, float]) -> float:
    """The sum of all terms but what is hidden, and the sum of others."""
    return sum(v for k, v in found.items() if k not in ("compute", "communication_hidden"))


def test_what_each_removal_saves() -> None:
    """Loader 40 - 36, host 36 - 30, communication 30 - 21, of whose 12 s 3 are hidden.

    Of two micro-steps both have forward, backward and frozen networks: the earlier one's 10 s.
    """
    found = told()
    assert found == pytest.approx({
        "compute": 20.0, "forward": 6.0, "backward": 10.0, "frozen_networks": 4.0,
        "accumulation": 0.0, "optimizer": 1.0, "ema": 0.0, "input_copy": 0.0, "offload": 0.0,
        "communication_exposed": 9.0, "host": 6.0, "loader": 4.0, "communication_hidden": 3.0,
    })  # fmt: skip
    assert adds_up(found) == pytest.approx(40.0)


@pytest.mark.parametrize(
    ("micro_steps", "earlier", "forward", "left"),
    [
        # 10 s a micro-step: what the earlier ones take beyond is accumulation
        (2.0, 14.0, 6.0, 4.0), (3.0, 20.0, 9.0, 0.0), (3.0, 26.0, 9.0, 6.0),
        (1.0, 0.0, 3.0, 0.0),
        # earlier ones that take less than a whole one
        (2.0, 5.0, 4.5, 0.0),
    ],
)  # fmt: skip
def test_micro_steps_before_the_last(
    micro_steps: float, earlier: float, forward: float, left: float
) -> None:
    terms = {**BARE, "accumulation": earlier}
    bare = sum(terms.values())
    found = told((bare + 3, bare + 2, bare + 1, bare), terms, micro_steps=micro_steps)
    assert found["forward"] == pytest.approx(forward)
    assert found["backward"] == pytest.approx(forward * 5 / 3)
    assert found["frozen_networks"] == pytest.approx(forward * 2 / 3)
    assert found["accumulation"] == pytest.approx(left)
    assert found["compute"] == pytest.approx(bare - 1.0)


def test_nothing_repeated_leaves_accumulation_as_it_is() -> None:
    found = told((5.0, 5.0, 5.0, 5.0), {"accumulation": 5.0})
    assert found["accumulation"] == found["compute"] == 5.0 and found["forward"] == 0.0


def test_terms_that_a_step_has_not_are_nothing() -> None:
    found = told((10.0, 10.0, 10.0, 10.0), {"forward": 4.0, "backward": 6.0}, comm_s=0.0)
    assert {k: v for k, v in found.items() if v} == {"compute": 10, "forward": 4, "backward": 6}


def test_a_removal_that_lengthens_the_step_saves_nothing() -> None:
    later = told((30.0, 31.0, 30.0, 21.0))
    assert later["loader"] == 0.0 and later["host"] == 0.0
    host = told((30.0, 29.0, 33.0, 21.0))
    assert host["loader"] == 1.0 and host["host"] == 0.0
    wires = told((21.0, 21.0, 21.0, 24.0), {**BARE, "ema": 3.0})
    assert wires["communication_exposed"] == 0.0 and wires["ema"] == 3.0


@pytest.mark.parametrize("offloads", [False, True])
def test_what_no_term_explains_waits_for_offloaded_state_or_other_ranks(offloads: bool) -> None:
    found = told((40.0, 36.0, 30.0, 25.0), offloads=offloads)  # 4 s beyond the terms' 21
    assert found["offload"] == pytest.approx(4.0 if offloads else 0.0)
    assert found["communication_exposed"] == pytest.approx(5.0 if offloads else 9.0)
    assert adds_up(found) == pytest.approx(40.0)
    # rounding is no wait, nor are terms that run beside each other
    close = told((40.0, 36.0, 30.0, 21.0 * (1 + 1e-13)), offloads=True)
    assert close["offload"] == 0.0
    assert told((40.0, 36.0, 30.0, 20.0), offloads=True)["offload"] == 0.0


def test_hidden_communication_is_what_is_not_exposed_of_a_stages_own() -> None:
    assert told(comm_s=9.0)["communication_hidden"] == 0.0
    assert told(comm_s=5.0)["communication_hidden"] == 0.0  # waits may be longer than transfers
    # 4 s of the pipeline's waiting are for other stages' collectives: of 12, 9 - 4 are exposed
    staged = {**BARE, "pipeline bubble": (7.0, 3.0)}
    found = told((43.0, 39.0, 33.0, 24.0), staged)
    assert found["pipeline_bubble"] == 3.0
    assert found["communication_exposed"] == pytest.approx(9.0)
    assert found["communication_hidden"] == pytest.approx(12.0 - (9.0 - 4.0))
    many = told((43.0, 39.0, 33.0, 24.0), {**BARE, "pipeline bubble": (19.0, 3.0)})
    assert many["communication_hidden"] == pytest.approx(12.0)
    assert "pipeline_bubble" not in told()


def test_input_copies_have_a_line() -> None:
    found = told((24.0, 24.0, 24.0, 24.0), {**BARE, "input copy": 2.0, "ema": 1.0})
    assert (found["input_copy"], found["ema"]) == (2.0, 1.0)


# -- the axis --------------------------------------------------------------------------------------


def test_a_job_restricts_its_library_by_release_and_by_names() -> None:
    plain = make_request("gpt2", "1x8xH100", micro_batch=1)
    points = Points.of(values_of(plain), 1)
    assert with_library(plain, points) == points
    named = make_request("gpt2", "1x8xH100", micro_batch=1, nccl_algo="Ring", nccl_proto="LL")
    allowed = with_library(named, points).library.allowed
    assert (allowed.algorithms, allowed.protocols) == (("Ring",), ("LL",))
    newer = make_request("gpt2", "1x8xH100", micro_batch=1, nccl_version="2.32.3")
    found = with_library(newer, points).library
    assert found.release == (2, 32, 3) and found.allowed == points.library.allowed


def test_values_of_a_configuration() -> None:
    """Two kinds of nodes: ranks, nodes, the ranks of the larger one."""
    request = make_request("gpt2", "1x8xA100+1x4xA100", micro_batch=3, grad_accum=2)
    values = values_of(request)
    assert (values["n_ranks"], values["n_nodes"], values["gpus_per_node"]) == (12, 2, 8)
    assert (values["micro_batch"], values["grad_accum"]) == (3, 2)
    same = point_values(request.cluster, request.profile, request.workload.name, 3, 2)
    assert same == values
    # no ring is faster than its links
    for path, name in zip(cluster_paths(request.cluster), ("intra", "inter"), strict=True):
        assert 0.3 < values[f"{name}_bw_bytes_per_s"] / path.bw_bytes_per_s < 1.0
    assert central_step_s(request) > 0.0
    assert fabric_shares(request.cluster, None) is None  # type: ignore[arg-type]


def test_shares_of_a_batch_are_over_the_mean() -> None:
    """Three to one over two kinds of ranks, 32 samples in the mean: 48 and 16."""
    request = make_request("resnet-50", "1x2xA100+1x2xT4", micro_batch=32, shares="3:1")
    assert job_of(request).shares == (1.5, 0.5)
    assert job_of(make_request("resnet-50", "1x2xA100", micro_batch=32)).shares == ()
