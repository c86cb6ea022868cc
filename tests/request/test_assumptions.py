"""A calibration's knobs of a model that there is not: told, since they change nothing."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore import api
from simcore.hardware.calibrations import Calibration, Knob
from simcore.hardware.profile import load_profile, profile_of
from simcore.request.assumptions import knobs_without_effect


def _profile(workload: str):
    knob = Knob(knob="loader", value=0.5, sd_log=0.1, workload=workload)
    return profile_of(Calibration(name="mine", origin="my runs", rows=3, knobs=(knob,)))


def test_models_that_could_be_asked_are_heeded() -> None:
    assert not knobs_without_effect(load_profile(), "gpt2")
    for own in ("gpt2", "latte-xl"):  # another model's knob says nothing of this one
        assert not knobs_without_effect(_profile(own), "gpt2")
    assert not knobs_without_effect(_profile("my-net"), "my-net")  # a file of one's own


@pytest.mark.parametrize(
    ("workload", "hint"),
    [("latte-xll", " (did you mean 'latte-xl'?)"), ("resnet50", " (did you mean 'resnet-50'?)"),
     ("qqqqq", "")],
)  # fmt: skip
def test_a_misspelt_one_is_told(workload: str, hint: str) -> None:
    (said,) = knobs_without_effect(_profile(workload), "gpt2")
    assert said == f"calibration mine: a knob of workload {workload!r} changes nothing here{hint}"


def test_the_answer_says_it(tmp_path: Path) -> None:
    file = tmp_path / "mine.yaml"
    file.write_text(
        "name: mine\norigin: my runs\nrows: 3\nknobs:\n"
        "- {knob: loader, value: 0.5, sd_log: 0.1, workload: latte-xll}\n"
    )
    found = api.predict("latte-xl", "8xH100", calibration=str(file))
    assert any("'latte-xll' changes nothing" in said for said in found.assumptions)
