"""What the options say of loading, and where the figures come from."""

from pathlib import Path

import pytest
import yaml

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.request.make import read_request

HERE = Path(__file__).parents[2]
SPEED = 1.4  # of the measured core over a server's Zen 4 core, as the records say


def test_options_come_before_the_models_data_set() -> None:
    loading = read_request("latte-l", "1x8xA6000ada").request.loading
    assert loading is not None
    assert (loading.samples, loading.workers, loading.prefetch) == (704, 8, 2)
    assert not loading.measured_here and not loading.persistent
    given = read_request(
        "latte-l", "1x8xA6000ada", num_workers=4, prefetch=3, sample_load="20ms", epoch_samples=64
    ).request.loading
    assert given is not None
    assert (given.samples, given.workers, given.prefetch) == (64, 4, 3)
    assert given.sample_load_s == pytest.approx(0.02) and given.measured_here


def test_any_model_can_be_given_a_loader() -> None:
    plain = api.predict("gpt2", "1xA100-SXM-80GB")
    assert "data loading is assumed to keep up (no data set described)" in plain.assumptions
    said = api.predict("gpt2", "1xA100-SXM-80GB", num_workers=2)
    assert said.step_time_s.value == plain.step_time_s.value
    assert any("--num-workers without effect" in text for text in said.assumptions)
    slow = api.predict("gpt2", "1xA100-SXM-80GB", num_workers=2, sample_load="10s")
    assert slow.step_time_s.value == pytest.approx(slow.micro_batch * 10.0 / 2)
    assert slow.bound_by == "data loading"


def test_a_time_without_unit_is_refused() -> None:
    with pytest.raises(InvalidConfig, match="sample-load"):
        api.predict("gpt2", "1xA100-SXM-80GB", sample_load="12")


def test_figures_are_those_of_the_benchmark() -> None:
    measured = yaml.safe_load((HERE / "validate/tables/data_loading.yaml").read_text())
    row = next(r for r in measured["workers"] if r["touched_gb"] == 4)
    both = row["start_ms_a_worker"] + row["end_ms_a_worker"]
    loading = read_request("latte-xl", "1xA6000ada").request.loading
    assert loading is not None
    assert loading.worker_start_s == pytest.approx(SPEED * both / 1e3, rel=0.05)
    clips = [r for r in measured["clips"] if r["height"] == 256]
    small, large = (r for r in (clips[0], clips[-1]))
    rate = (large["processor_s"] - small["processor_s"]) / (large["megabytes"] - small["megabytes"])
    most = small["processor_s"] + rate * (27_800 / 1004 - small["megabytes"])
    middle = SPEED * (small["processor_s"] * most) ** 0.5
    assert loading.sample_load_s == pytest.approx(middle, rel=0.1)
