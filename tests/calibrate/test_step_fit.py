"""The step fit gives back what made its data, and says what the data cannot tell."""

import numpy as np
import pytest

from simcore.calibrate.step_fit import FitRow, Parameter, fit_steps, leave_one_out

PARAMETERS = [
    Parameter("compute", "compute", 0.5),
    Parameter("link", "intra", 0.5),
    Parameter("host", "host", 0.5),
]


def rows(truth: dict[str, float], noise: float = 0.0, seed: int = 0) -> list[FitRow]:
    """Eight rows of compute / c + traffic / l with known c and l; ``host`` touches none."""
    rng = np.random.default_rng(seed)
    made = []
    for i in range(8):
        work, traffic = 1.0 + 0.3 * (i % 4), 0.2 * i

        def predict(values, work=work, traffic=traffic):
            return work / values["compute"] + traffic / values["link"]

        measured = predict(truth) * float(np.exp(noise * rng.standard_normal()))
        made.append(FitRow(f"r{i}", i, measured, ("compute", "link"), predict))
    return made


def test_recovers_known_parameters() -> None:
    truth = {"compute": 0.8, "link": 1.5}
    fit = fit_steps(rows(truth), PARAMETERS)
    assert fit.values["compute"] == pytest.approx(0.8, rel=0.02)
    assert fit.values["link"] == pytest.approx(1.5, rel=0.05)
    assert fit.values["host"] == pytest.approx(1.0)


def test_unidentified_parameters_keep_their_prior() -> None:
    fit = fit_steps(rows({"compute": 0.8, "link": 1.5}), PARAMETERS)
    assert fit.sd_log["host"] == pytest.approx(0.5, rel=1e-3)
    assert fit.sd_log["compute"] < 0.1


def test_truth_lies_within_two_standard_deviations_nineteen_times_in_twenty() -> None:
    truth = {"compute": 0.9, "link": 1.3}
    inside = 0
    for seed in range(40):
        fit = fit_steps(rows(truth, noise=0.05, seed=seed), PARAMETERS)
        off = [abs(np.log(fit.values[k] / v)) / fit.sd_log[k] for k, v in truth.items()]
        inside += max(off) <= 2.0
    assert inside >= 38


def test_a_row_left_out_does_not_teach_its_own_prediction() -> None:
    data = rows({"compute": 0.8, "link": 1.5})
    wrong = FitRow("r0", 0, data[0].measured_s * 10, data[0].uses, data[0].predict_s)
    predicted, _ = leave_one_out([wrong, *data[1:]], PARAMETERS)["r0"]
    assert predicted == pytest.approx(data[0].measured_s, rel=0.03)


def test_rows_of_one_configuration_leave_together() -> None:
    data = rows({"compute": 0.8, "link": 1.5})
    twin = FitRow("twin", data[0].group, data[0].measured_s, data[0].uses, data[0].predict_s)
    _, fit = leave_one_out([*data, twin], PARAMETERS)["r0"]
    assert "twin" not in fit.predicted_s
