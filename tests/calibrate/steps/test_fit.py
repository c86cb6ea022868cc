"""The step fit gives back what made its data, and says what the data cannot tell."""

import math
from dataclasses import replace

import numpy as np
import pytest

from simcore.calibrate.steps.fit import fit_steps, leave_one_out
from simcore.calibrate.steps.model import FitRow, Parameter
from simcore.calibrate.steps.residual import Traits

PARAMETERS = [
    Parameter("compute", "compute", 0.5),
    Parameter("link", "intra", 0.5),
    Parameter("host", "host", 0.5),
]


def made(key: str, work: float, traffic: float, measured_s: float, group: int) -> FitRow:
    """A step of ``work / compute + traffic / link`` seconds."""

    def log_s(shifts: np.ndarray) -> np.ndarray:
        return np.log(work * np.exp(-shifts[0]) + traffic * np.exp(-shifts[1]))

    return FitRow(key, group, measured_s, {"compute": (0,), "link": (1,)}, 2, log_s)


def rows(truth: dict[str, float], noise: float = 0.0, seed: int = 0) -> list[FitRow]:
    """Eight rows of compute / c + traffic / l with known c and l; ``host`` touches none."""
    rng = np.random.default_rng(seed)
    found = []
    for i in range(8):
        work, traffic = 1.0 + 0.3 * (i % 4), 0.2 * i
        exact = work / truth["compute"] + traffic / truth["link"]
        found.append(
            made(f"r{i}", work, traffic, exact * float(np.exp(noise * rng.standard_normal())), i)
        )
    return found


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


def test_what_is_expected_of_a_parameter_is_left_as_far_as_the_rows_tell_otherwise() -> None:
    """One row of ln t = -0.5 x against the closed form of a Gaussian with that mean."""
    mean, sd, slope, noise, measured = -1.0, 0.6, -0.5, 0.1, 0.2

    def row(slope: float) -> FitRow:
        return FitRow("r", 0, math.exp(measured), {"link": (0,)}, 1, lambda x: slope * x[0])

    link = Parameter("link", "inter", sd, prior_mean_log=mean)
    untold = fit_steps([row(0.0)], [link], row_sd_log=noise)
    assert untold.values["link"] == pytest.approx(math.exp(mean))
    assert untold.sd_log["link"] == pytest.approx(sd)
    told = fit_steps([row(slope)], [link], row_sd_log=noise)
    # Student's t of four degrees: a row whose error is e weighs 5 / (4 + (e / noise)^2)
    error = measured - slope * math.log(told.values["link"])
    own = noise**2 * (4.0 + (error / noise) ** 2) / 5.0
    gain = sd**2 * slope / (slope**2 * sd**2 + own)
    aim = mean + gain * (measured - slope * mean)
    assert math.log(told.values["link"]) == pytest.approx(aim, abs=0.015)
    assert told.sd_log["link"] == pytest.approx(sd * math.sqrt(1.0 - gain * slope), rel=0.01)


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
    wrong = replace(data[0], measured_s=data[0].measured_s * 10)
    predicted, _ = leave_one_out([wrong, *data[1:]], PARAMETERS)["r0"]
    assert predicted == pytest.approx(data[0].measured_s, rel=0.03)


def test_rows_of_one_configuration_leave_together() -> None:
    data = rows({"compute": 0.8, "link": 1.5})
    twin = replace(data[0], key="twin")
    _, fit = leave_one_out([*data, twin], PARAMETERS)["r0"]
    assert "twin" not in fit.predicted_s


def test_one_wrong_row_of_eight_moves_little() -> None:
    data = rows({"compute": 0.8, "link": 1.5}, noise=0.02, seed=3)
    wrong = replace(data[5], measured_s=data[5].measured_s * 3)
    fit = fit_steps([*data[:5], wrong, *data[6:]], PARAMETERS)
    assert fit.values["compute"] == pytest.approx(0.8, rel=0.06)
    assert fit.values["link"] == pytest.approx(1.5, rel=0.15)


def test_a_host_that_binds_only_once_it_is_slow_is_found() -> None:
    """Its slope is zero where the fit begins: compute takes longer there."""

    def row(key: int, kernels: float) -> FitRow:
        def log_s(shifts: np.ndarray) -> np.ndarray:
            return np.log(np.maximum(1.0 * np.exp(-shifts[0]), kernels * np.exp(-shifts[1])))

        uses = {"compute": (0,), "host": (1,)}
        measured = max(1.0, kernels / 0.3)
        return FitRow(f"r{key}", key, measured, uses, 2, log_s)

    parameters = [
        Parameter("compute", "compute", 0.15), Parameter("host", "host", 0.8, may_bind=True),
    ]  # fmt: skip
    fit = fit_steps([row(0, 0.1), row(1, 0.6), row(2, 0.9)], parameters)
    assert fit.values["host"] == pytest.approx(0.3, rel=0.1)
    assert fit.values["compute"] == pytest.approx(1.0, rel=0.1)


def test_rows_of_one_program_share_their_error() -> None:
    """Two models, one 30 % slower than described: its next row is predicted so, the other's not."""

    def row(key: str, model: str, size: float, measured_s: float) -> FitRow:
        def log_s(shifts: np.ndarray) -> np.ndarray:
            return np.log(np.exp(-shifts[0])) + np.log(size)

        traits = Traits("p", model, "bf16", key, (float(np.log2(size)),))
        return FitRow(key, key, measured_s, {"compute": (0,)}, 1, log_s, shares=(0,),
                      traits=traits)  # fmt: skip

    known = [row(f"a{i}", "a", 1.0 + i, 1.3 * (1.0 + i)) for i in range(4)]
    known += [row(f"b{i}", "b", 1.0 + i, 1.0 + i) for i in range(4)]
    fit = fit_steps(known, [Parameter("compute", "compute", 0.1)], learn=True)
    slow, sound = (fit.predict(row("x", m, 2.5, 1.0)) for m in ("a", "b"))
    assert np.exp(slow.log_s) == pytest.approx(2.5 * 1.3, rel=0.05)
    assert np.exp(sound.log_s) == pytest.approx(2.5, rel=0.05)
    unseen = fit.predict(row("x", "c", 2.5, 1.0))
    assert unseen.sd_log > 1.5 * slow.sd_log
    assert unseen.by_parameters_log_s == pytest.approx(slow.by_parameters_log_s)


def test_an_interval_after_a_fit_holds_four_in_five() -> None:
    """Of many tables with errors that a model shares, 80 % of the rows left out lie inside."""
    inside = n = 0
    for seed in range(25):
        rng = np.random.default_rng(seed)
        table = []
        for model in "abcd":
            shared = 0.1 * rng.standard_normal()
            for i in range(6):
                noise = shared + 0.05 * rng.standard_normal()
                one = made(f"{model}{i}", 1.0 + i, 0.2, (1.2 + i) * float(np.exp(noise)), i)
                traits = Traits("p", model, "bf16", one.key, (float(i),))
                table.append(replace(one, traits=traits, shares=(0, 1)))
        fit = fit_steps(table[::2], PARAMETERS[:2], learn=True)
        for row in table[1::2]:
            told = fit.predict(row)
            inside += abs(np.log(row.measured_s) - told.log_s) <= 1.2816 * told.sd_log
            n += 1
    assert 0.72 <= inside / n <= 0.92
