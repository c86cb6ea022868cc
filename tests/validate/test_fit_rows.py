"""The response of a row to a fit's parameters against profiles that have them."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from simcore.answer.request import make_request
from simcore.calibrate.steps.model import Parameter, shifts_of
from simcore.hardware.calibrations import Knob
from simcore.hardware.profile import load_profile
from simcore.timing.steps import central_step_s
from simcore.validate.case import Case
from simcore.validate.fit_rows import hardware_row, parameters_of

#: One that waits for kernels and one that waits for its host, on two nodes of unlike GPUs.
JOBS = [("resnet-50", 64), ("bert-base", 1)]


@pytest.mark.parametrize(("model", "batch"), JOBS)
@pytest.mark.parametrize("gpus", ["1x2xA100+1x3xT4", "2x4xV100-SXM2-16GB"])
@pytest.mark.parametrize("moved", range(3))
def test_a_shift_is_what_a_profile_with_that_multiplier_says(
    model: str, batch: int, gpus: str, moved: int
) -> None:
    blind = load_profile()
    request = make_request(model, gpus, micro_batch=batch, optimizer="adamw", profile=blind)
    parameters = parameters_of({"a": request})
    rng = np.random.default_rng(moved)
    theta = {p.name: float(rng.normal(0.0, 0.3)) for p in parameters}
    case = Case(
        id="a", table="t", model=model, gpus=gpus, options={}, measured={"step_time_s": 1.0}
    )
    row = hardware_row(case, request, parameters)
    found = float(row.log_s(shifts_of(row, theta)[:, None])[0])

    def knob(p: Parameter) -> Knob:
        made = p.as_knob(float(np.exp(theta[p.name])), 0.1)
        assert made is not None
        return made

    profile = blind.with_knobs(tuple(knob(p) for p in parameters), "x", "x", 0.0)
    assert found == pytest.approx(float(np.log(central_step_s(replace(request, profile=profile)))))


def test_a_link_is_as_unknown_as_the_rows_leave_it() -> None:
    """One row that states the network is enough: what it has the others have."""

    def inter(*networks: str | None) -> Parameter:
        made = {
            str(i): make_request("gpt2", "2x8xA100-SXM-80GB", network=network)
            for i, network in enumerate(networks)
        }
        (found,) = (p for p in parameters_of(made) if p.knob == "inter")
        assert found.link == "ib-hdr"
        return found

    known, unknown = inter("8xib-hdr"), inter(None)
    assert known.prior_mean_log == 0.0
    # ln of a bandwidth between an eighth of the preset's and all of it
    assert unknown.prior_mean_log == pytest.approx(np.log(1 / 8) / 2)
    own = unknown.prior_sd_log**2 - known.prior_sd_log**2
    assert own == pytest.approx(np.log(8.0) ** 2 / 12)
    assert inter(None, "8xib-hdr") == inter("8xib-hdr", None) == known
