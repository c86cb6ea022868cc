"""A step at half of a resource's rate is explained by half of that rate, and nothing is hidden."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.cli.main import run
from simcore.report.explain_trace import render_slower

JOB = ("latte-xl", "4x8xA6000ada")


def test_half_a_rate_is_found_where_it_is_the_cause() -> None:
    step_s, swings = api.sensitivity(*JOB)
    for swing in swings:
        if swing.half_s < 1.05 * step_s:
            continue
        found = api.slower(*JOB, measured_s=swing.half_s)
        suspect = next(s for s in found.suspects if s.resource == swing.resource)
        assert suspect.rate_frac == pytest.approx(0.5, rel=0.05)
        assert found.excess_frac == pytest.approx(swing.half_s / step_s - 1.0)


def test_suspects_are_ordered_by_how_likely_they_are() -> None:
    found = api.slower(*JOB, measured_s=1.9)
    sds = [s.sd for s in found.suspects if s.rate_frac is not None and s.sd is not None]
    assert sds == sorted(sds) and len(sds) > 2
    assert found.is_inside and "within its 80 % interval" in " ".join(render_slower(found).split())
    far = api.slower(*JOB, measured_s=1e3)
    assert not far.is_inside and any(s.rate_frac is None for s in far.suspects)
    fast = api.slower(*JOB, measured_s=1.2)
    assert fast.excess_frac < 0 and (fast.suspects[0].rate_frac or 0) > 1
    assert max(map(len, render_slower(found).splitlines())) <= 80


def test_the_command_and_what_it_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["predict", "--model", JOB[0], "--gpus", JOB[1], "--measured"]
    assert run([*words, "1900ms"]) == 0
    assert "LOOK AT     data loading" in capsys.readouterr().out
    for wrong in ("0", "fast"):
        assert run([*words, wrong]) == 2
        assert wrong in capsys.readouterr().err
    with pytest.raises(InvalidConfig, match="measured_s must be above zero"):
        api.slower(*JOB, measured_s=-1.0)
