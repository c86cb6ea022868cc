"""Columns are predictions; cost and energy follow from them by hand."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.hardware.prices import PRICES, price_book
from simcore.hardware.spec import GPUS
from simcore.planning.run import IDLE_FRAC, TRAINING_FRAC, busy_frac

GPU_FLAGS = ("--gpus", "2x8xRTX4090", "--gpus", "1x8xA6000ada", "--gpus", "1x4xH100")


def test_columns_are_predictions_with_cost_and_energy() -> None:
    found = api.compare(
        "latte-l", ["2x8xRTX4090", "1x4xH100"], micro_batch=1, price=["RTX4090=0.5"]
    )
    ada, h100 = found.columns
    for column, gpus, usd in ((ada, "2x8xRTX4090", 0.5), (h100, "1x4xH100", None)):
        said = api.predict("latte-l", gpus, micro_batch=1)
        p = column.prediction
        assert p is not None
        assert p.step_time_s == said.step_time_s
        assert p.memory.device_bytes == said.memory.device_bytes
        hours = said.n_gpus * 1e6 / said.samples_per_s / 3600
        assert column.gpu_h_per_million == pytest.approx(hours)
        book = price_book(["RTX4090=0.5"])
        each = usd or book.of(said.single_gpu).usd_per_gpu_h  # type: ignore[union-attr]
        assert column.usd_per_million == pytest.approx(hours * each)
        busy = said.time_s["compute"] + said.time_s["optimizer"] + said.time_s["ema"]
        share = busy / said.step_time_s.value
        tdp = GPUS[said.single_gpu].tdp.value
        watts = tdp * (IDLE_FRAC + (TRAINING_FRAC - IDLE_FRAC) * share)
        assert busy_frac(said.time_s, said.step_time_s.value) == pytest.approx(share)
        assert column.kwh_per_million == pytest.approx(hours * watts / 1000)
    assert ada.speedup == 1.0
    assert h100.speedup == pytest.approx(
        h100.prediction.samples_per_s / ada.prediction.samples_per_s  # type: ignore[union-attr]
    )
    assert "(given)" in found.price_sources["RTX4090"]
    assert "2026-" in found.price_sources["H100-SXM-80GB"]


def test_what_cannot_be_is_a_column_that_says_why() -> None:
    found = api.compare("latte-l", "1x8xH100,2x8xH100", strategy="dp,ddp")
    reasons = [c.reason for c in found.columns if c.prediction is None]
    assert len(found.columns) == 4
    assert len(reasons) == 1
    assert "DataParallel" in reasons[0]
    with pytest.raises(InvalidConfig, match="DataParallel"):
        api.compare("latte-l", "2x8xH100", strategy="dp")
    with pytest.raises(InvalidConfig, match="simcore sweep"):
        api.compare("latte-l", "H100:1..64x8")


def test_predictions_of_any_jobs_stand_side_by_side() -> None:
    one = api.predict("latte-l", "2x8xRTX4090", micro_batch=1)
    both = one.compare(one.replace(gpus="1x4xH100", strategy="zero1"))
    asked = api.compare("latte-l", ["2x8xRTX4090", "1x4xH100"], micro_batch=1)
    assert both.predictions[0] == asked.predictions[0] == one
    first, second = both.columns
    assert second.words == "zero1"
    for mine, other in zip(both.columns, asked.columns, strict=True):
        assert mine.cluster == other.cluster
        assert mine.prediction is not None and mine.usd_per_million is not None
    assert first.usd_per_million == asked.columns[0].usd_per_million
    assert first.kwh_per_million == asked.columns[0].kwh_per_million
    again = both.replace(micro_batch=2)
    assert [p.micro_batch for p in again.predictions] == [2, 2]
    assert again.predictions[1].strategy == "zero1"


def test_networks_are_named_and_kept() -> None:
    found = api.compare("latte-l", "2x8xH100", network="ib-ndr,eth-25")
    assert [c.words for c in found.columns] == ["ib-ndr", "eth-25"]
    slow = found.predictions[1]
    assert slow == api.predict("latte-l", "2x8xH100", network="eth-25")
    assert slow.replace(micro_batch=1) == api.predict(
        "latte-l", "2x8xH100", network="eth-25", micro_batch=1
    )  # type: ignore[attr-defined]


def test_machines_of_the_same_gpus_are_told_apart_by_their_networks() -> None:
    found = api.compare("latte-l", ["2xp5.48xlarge", "2xa3-megagpu-8g"], micro_batch=1)
    assert [c.words for c in found.columns] == ["8xefa-400", "8xroce-200"]
    for p in found.predictions:
        assert p.replace(micro_batch=1).step_time_s == p.step_time_s  # type: ignore[attr-defined]
    found = api.compare("latte-l", ["2x8xH100", "2x8xA100"], micro_batch=1)
    assert [c.words for c in found.columns] == ["", ""]


def test_every_price_names_a_day_and_a_known_gpu() -> None:
    lists = PRICES.all()
    assert {"runpod", "lambda", "akash"} <= {p.name for p in lists}
    for known in lists:
        assert known.terms
        for name, price in known.prices.items():
            assert name in GPUS.names()
            assert 0.01 < price.value < 20
            assert 2025 <= price.date.year <= 2027
            assert price.source in known.sources


def test_prices_given_come_first_and_wrong_ones_are_all_said() -> None:
    assert price_book(["H100=2.5"]).of("H100-SXM-80GB").source == "given"  # type: ignore[union-attr]
    assert price_book([], "lambda").of("H200-SXM") is None
    with pytest.raises(InvalidConfig) as err:
        price_book(["H10=2", "A100", "T4=-1"], "lamda")
    for said in ("'H10'", "'A100' is not GPU=DOLLARS", "'T4=-1'", "did you mean 'lambda'"):
        assert said in str(err.value)


def test_the_table_has_eighty_columns(simcore_cli: Callable) -> None:
    code, out, _ = simcore_cli("compare", "--model", "latte-l", *GPU_FLAGS)
    assert code == 0
    assert max(map(len, out.splitlines())) <= 80
    for said in ("2x8xRTX4090", "1x8xA6000ada", "speed-up", "GPU-hours", "price unknown",
                 "fastest   2x8xRTX4090"):  # fmt: skip
        assert said in out
    code, out, _ = simcore_cli("compare", "--model", "latte-l", *GPU_FLAGS, "--json")
    told = json.loads(out)
    assert len(told["columns"]) == 3
    assert told["columns"][1]["usd_per_million_samples"] is None


def test_what_does_not_fit_costs_nothing() -> None:
    found = api.compare("qwen2-7b", ["4xRTX4090", "8xH100"])
    large, fits = found.columns
    assert not large.fits and large.prediction is not None and large.prediction.samples_per_s > 0
    assert large.gpu_h_per_million is large.usd_per_million is large.kwh_per_million is None
    assert fits.usd_per_million is not None
    text = str(found)
    for row in ("GPU-hours", "cost", "GPU energy"):
        line = next(x for x in text.splitlines() if x.startswith(f"  {row}"))
        assert line.split(row)[1].split()[0] == "-" and "price unknown" not in line


def test_most_that_fits_and_nothing_that_fits(simcore_cli: Callable) -> None:
    code, out, _ = simcore_cli(
        "compare", "--model", "latte-xl", "--gpus", "1x8xH100", "--gpus", "1x4xT4",
        "--micro-batch", "max",
    )  # fmt: skip
    assert code == 0
    assert "NO: too large" in out
    code, out, _ = simcore_cli("compare", "--model", "latte-xl", "--gpus", "1x4xT4")
    assert code == 1
    assert "None of them fits" in out
    code, _, err = simcore_cli("compare", "--model", "latte-x", "--gpus", "1x4xT5", "--price", "q")
    assert code == 2
    for said in ("latte-xl", "'T5'", "GPU=DOLLARS"):
        assert said in err


def test_no_sharded_job_is_more_than_its_gpus() -> None:
    """On one GPU the job would not fit: a rank without communication is the measure."""
    for column in api.compare("llama3-8b", "8xH100", strategy="zero1,zero3").columns:
        p = column.prediction
        assert p is not None and p.speedup_vs_1gpu > 8  # one alone would update all parameters
        exposed = p.time_s["communication_exposed"] / p.step_time_s.value
        assert p.scaling_efficiency_frac == pytest.approx(1.0 - exposed) and p.speedup < 8


def test_text_is_counted_in_tokens() -> None:
    """Twice as long sequences are half as many; what a million tokens cost does not double."""
    found = api.compare("gpt2", "1xH100", seq_len="512,1024", price=["H100=3.6"])
    assert found.unit == "token"
    for column, length in zip(found.columns, (512, 1024), strict=True):
        p, data = column.prediction, column.to_dict()
        assert p is not None
        assert data["tokens_per_s"] == pytest.approx(p.samples_per_s * length)
        usd = 3.6 / 3600 * 1e6 / (p.samples_per_s * length)
        assert data["usd_per_million_tokens"] == pytest.approx(usd)
        assert data["usd_per_million_samples"] == pytest.approx(usd * length)
    first, second = (c.prediction.tokens_per_s for c in found.columns)  # type: ignore[union-attr]
    assert found.columns[1].speedup == pytest.approx(second / first)  # type: ignore[operator]
    assert "a million tokens:" in str(found) and "sequences" not in str(found)
