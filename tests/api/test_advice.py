"""What would help, in results of many predictions: what a user would otherwise ask next."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from simcore import api
from simcore.base.errors import UsageError
from simcore.base.units import format_count
from simcore.report.formatting import days
from simcore.report.html import fragment

SLOW: dict[str, Any] = {"model": "llama3-8b", "gpus": "4x8xH100", "network": "eth-25"}


def test_a_sweep_says_what_is_faster_than_its_best_and_no_point_of_it() -> None:
    found = api.sweep(**SLOW, strategy="zero3,zero1")
    (change,) = found.faster
    said = api.predict(**SLOW, strategy="hsdp")
    assert change.change == "strategy hsdp"
    assert change.samples_per_s == pytest.approx(said.samples_per_s)
    assert change.samples_per_s > found.best[0].samples_per_s
    assert "faster than the first, and not in this sweep: strategy hsdp" in str(found)
    page = fragment(found)
    assert "not in this sweep" in page and "strategy hsdp (" in page
    assert found.to_dict()["faster"][0]["change"] == change.change


def test_a_sweep_of_everything_needs_no_advice() -> None:
    found = api.sweep(**SLOW, strategy="all")
    assert found.best[0].form.strategy == "hsdp" and not found.faster
    assert not api.sweep(**SLOW, strategy="zero1", by="memory").faster  # nobody asked for speed


@pytest.mark.parametrize("jobs", [1, 2])
def test_where_nothing_fits_the_nearest_says_what_helps(jobs: int) -> None:
    words: dict[str, Any] = {"lora_rank": 16, "seq_len": "4096,8192"}
    found = api.sweep("llama3-8b", "1xRTX4090,4xRTX4090", **words, keep=False, jobs=jobs)
    assert not found.best and found.nearest is not None
    lacking = {
        (gpus, n): (m := api.predict("llama3-8b", gpus, lora_rank=16, seq_len=n).memory).least_bytes
        - m.capacity_bytes
        for gpus in ("1x1xRTX4090", "1x4xRTX4090")
        for n in (4096, 8192)
    }
    least = min(lacking, key=lambda k: lacking[k])
    assert (found.nearest.cluster, found.nearest.form.seq_len) == least
    said = api.predict("llama3-8b", least[0], lora_rank=16, seq_len=least[1])
    assert found.fixes == said.fixes != ()
    text = " ".join(str(found).split())
    assert "No point fits." in text and said.fixes[0] in text


def test_where_nothing_fits_a_sweep_says_what_a_prediction_of_its_nearest_does() -> None:
    for model, gpus in (("llama3-8b", "1xRTX4090"), ("kimi-k2", "8x8xT4")):
        found, said = api.sweep(model, gpus), api.predict(model, gpus)
        assert (found.instead, found.why_none) == (said.instead, said.why_none)
        assert found.to_dict()["why_none"] == said.why_none
        text = " ".join(str(found).split())
        for told in filter(None, (*said.instead, said.why_none)):
            assert told in text, (model, text)


def test_torch_s_names_of_strategies_are_an_axis_too() -> None:
    found = api.sweep("gpt2", "2x8xH100", strategy="FULL_SHARD,hybrid-shard,ZeRO-1")
    assert {p.form.strategy for p in found.best} == {"zero3", "hsdp", "zero1"}


def test_nothing_is_near_where_something_fits_or_nothing_is_valid() -> None:
    assert api.sweep("llama3-8b", "1xRTX4090,8xH100").nearest is None
    assert api.sweep("llama3-8b", "8xH100", tp=16).nearest is None


def test_a_file_of_one_s_own_is_asked_by_its_path(tmp_path: Path) -> None:
    config = tmp_path / "config.json"
    config.write_text(
        '{"model_type": "llama", "hidden_size": 4096, "intermediate_size": 11008, '
        '"num_hidden_layers": 32, "num_attention_heads": 32, "vocab_size": 32000}'
    )
    found = api.sweep(str(config), "1x8xRTX4090", precision="bf16")
    assert found.fixes == api.predict(config, "1x8xRTX4090", precision="bf16").fixes != ()


def test_columns_say_what_would_be_faster_and_what_would_fit() -> None:
    found = api.compare("llama3-8b", ["1xRTX4090", "4x8xH100", "8xB200"], network="eth-25")
    small, slow, fine = found.columns
    # speed-ups are against the first that fits
    assert small.speedup is None and slow.speedup == 1.0
    assert fine.prediction is not None and slow.prediction is not None
    assert fine.speedup == pytest.approx(
        fine.prediction.samples_per_s / slow.prediction.samples_per_s
    )
    text = str(found)
    row = {line[:14].strip(): line[14:] for line in text.splitlines()}
    assert "strategy hsdp (+" in row["faster with"]
    assert small.prediction is not None and small.prediction.fixes
    assert row["fits with"].startswith(small.prediction.fixes[0].split(",")[0])
    assert row["speed-up"].split()[:2] == ["-", "1.00"]
    assert found.to_dict()["columns"][1]["faster"][0]["change"] == "strategy hsdp"
    page = fragment(found)  # the answer stands beside the pictures
    facts = page[: page.index("<svg")]
    assert "fastest" in facts and "1x8xB200-SXM: " in facts and "does not fit" in facts
    plain = str(api.compare("gpt2", ["8xH100", "8xA100"]))
    assert "faster with" not in plain and "fits with" not in plain


@pytest.mark.parametrize(
    ("model", "gpus", "cut"),
    [("kimi-k2", "8xA100", "ep"), ("wan2.1-14b", "1xRTX3090", "cp"),
     ("llama3-70b", "8xRTX4090", "tp")],
)  # fmt: skip
def test_more_gpus_alone_do_not_hold_what_each_gathers(model: str, gpus: str, cut: str) -> None:
    """The experts of a layer, a video, the products of a wide layer: they are cut as well."""
    found = api.predict(model, gpus)
    (fix,) = found.fixes
    said = re.match(rf"(\S+),.* {cut} \d+[, ]", fix)
    assert said is not None, fix
    words: dict[str, Any] = {"strategy": "zero3", "recompute": "full", "micro_batch": 1}
    assert not api.predict(model, said[1], **words).fits


def test_a_long_sequence_is_cut_over_nodes_and_within_them() -> None:
    """A million tokens fit no node's context ranks: its logits alone are more than a GPU has."""
    found = api.predict("qwen3-8b", "8xH100", strategy="zero3", seq_len=2**20)
    fix, shorter = found.fixes
    assert "cp 8, tp 8" in fix and not found.why_none and shorter.startswith("seq-len ")
    again = api.predict(
        "qwen3-8b", fix.split(",")[0], strategy="zero3", seq_len=2**20, recompute="full",
        micro_batch=1, cp=8, tp=8,
    )  # fmt: skip
    assert again.fits


def test_a_rate_of_thousands_has_no_exponent() -> None:
    found = api.predict("mamba2-2.7b", "64x8xH100")
    assert not found.fits
    assert max(float(f.rsplit("(", 1)[1].removesuffix("/s)").replace(",", ""))
               for f in found.fixes) > 1000  # fmt: skip
    assert all("e+" not in fix for fix in found.fixes)


def test_a_run_s_time_has_the_interval_of_its_steps() -> None:
    found = api.predict("gpt2", "8xH100", steps=100_000)
    line = next(x for x in str(found).splitlines() if x.startswith("RUN"))
    low, high = (days(1e5 * s) for s in (found.step_time_s.low, found.step_time_s.high))
    assert line.endswith(f"(80 %: {low} to {high}),")


def test_a_slip_in_a_term_names_the_nearest_alone() -> None:
    with pytest.raises(UsageError, match=r"unknown term 'memry': did you mean 'memory'\?$"):
        api.explain("gpt2", "8xH100", "memry")
    with pytest.raises(UsageError, match="known are step_time"):
        api.explain("gpt2", "8xH100", "xyzzyq")


@pytest.mark.parametrize(
    ("value", "said"),
    [(999.9e6, "1 B"), (999.4e6, "999 M"), (1e3, "1 k"), (999.6, "1 k"), (7, "7")],
)
def test_a_count_is_rounded_before_its_word_is_chosen(value: float, said: str) -> None:
    assert format_count(value) == said


def test_long_sequences_are_told_of_a_loss_in_chunks() -> None:
    """Two thirds of the memory are logits of 65,536 tokens, of which a chunked loss holds few."""
    job: dict[str, Any] = {"gpus": "1x8xH100", "strategy": "zero3", "seq_len": 65_536}
    said = api.predict("qwen3-8b", recompute="full", **job)
    assert not said.fits
    assert any(fix.startswith("set loss=chunked (") for fix in said.fixes)
    assert api.predict("qwen3-8b", recompute="full", settings={"loss": "chunked"}, **job).fits
    both = api.predict("qwen3-8b", settings={"loss": "chunked"}, **job)
    assert not any("loss" in fix for fix in both.fixes)
