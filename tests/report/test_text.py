"""The text answer: complete, honest about defaults, and within 30 lines of 80 columns."""

from __future__ import annotations

import re
from collections.abc import Callable

import pytest
from alike import first_of_each
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simcore import api
from simcore.answer.result import Advice, Explanation, MeasuredRow, RankClass
from simcore.base.errors import SimcoreError
from simcore.base.figures import Interval
from simcore.base.lookup import Later
from simcore.base.names import Changed
from simcore.base.units import GIB
from simcore.report.formatting import WIDTH, figure, labelled, percent, plural, wrapped
from simcore.report.terms import MEMORY
from simcore.report.text import (
    HEIGHT,
    by_influence,
    render,
    render_assumed,
    render_explanation,
)
from simcore.workload.models import MODELS

CLUSTERS: list[dict[str, object]] = [
    {"gpus": "T4"},
    {"gpus": "4x8xA6000ada"},
    {"gpus": "1250x8xH100", "network": "8xib-ndr", "steps": 1e6},
    {"gpus": "1x2xA100+1x3xT4", "network": "eth-10", "grad_accum": 4, "epochs": None},
    {"gpus": "+".join(["2x4xV100", "3x8xA100", "1x8xRTX4090", "1x2xRTX3090", "1x1xT4"] * 3),
     "network": "eth-25", "strategy": "zero3", "offload": "optimizer:cpu,params:cpu",
     "precision": "fp16", "micro_batch": 500},
]  # fmt: skip


def _within(text: str) -> None:
    lines = text.splitlines()
    run = re.search(r"^RUN (.+\n)( {12}.*\n)*", text, re.MULTILINE)  # asked for besides
    assert len(lines) - (run[0].count("\n") if run else 0) <= HEIGHT == 30
    assert max(map(len, lines)) <= WIDTH == 80
    assert "\x1b" not in text and "\0" not in text
    assert all(line == line.rstrip() for line in lines)


@pytest.mark.parametrize(
    ("model", "where"),
    first_of_each(
        [
            (model, (at + shift) % len(CLUSTERS))
            for at, model in enumerate(MODELS.names())
            for shift in ((0, 2) if at % 4 == 0 else (0,))
        ],
        kind=lambda case: (MODELS[case[0]].arch, case[1]),
        name=lambda case: f"{case[0]}-{case[1]}",
    ),
)
def test_every_model_and_cluster_is_within_bounds(model: str, where: int) -> None:
    try:
        answer = api.predict(model, **CLUSTERS[where])  # type: ignore[arg-type]
    except SimcoreError as err:
        pytest.skip(str(err))
    text = render(answer)
    _within(text)
    verdict = re.search(r"^(FITS|TIGHT|NO) ", text, re.MULTILINE)
    assert verdict is not None and (verdict[1] == "FITS") == answer.fits
    for word in ("STEP", "THROUGHPUT", "BOUND BY", "ASSUMED",
                 "where the time goes", "where the memory goes"):  # fmt: skip
        assert word in text, word


def test_figures_by_hand(fake: Callable) -> None:
    text = render(fake())
    # 120 and 160 GiB are 128.8 and 171.8 GB; a quarter is left.
    assert "FITS        129 of 172 GB a GPU (120 of 160 GiB), 25 % left" in text
    assert "7.00 GB of host memory" in text
    assert "1.10 s, 80 % between 900 ms and 1.40 s (made by hand)" in text
    assert "27.3 clips/s, 0.909 iter/s, MFU 31 %" in text
    assert "3.20 x one A100 (the fastest), 80 % scaling efficiency" in text
    assert "T4 (3 of 5): 600 ms of compute" in text and "would gain 22 %" in text
    assert "RUN         1.00 h for 3,273 steps" in text
    flat = " ".join(text.split())
    assert "data loading; x2 of it: 1.00 s (-9.1 %); x2 memory bandwidth: 1.09 s (-0.9 %)" in flat
    assert "host:" not in text  # a doubled host gains nothing
    assert "step time 1.00 s, predicted 1.10 s (+10 %), table 3" in flat
    assert "micro-batch 2 (default) x accum 3 x 5 GPUs = 30 clips a step" in text
    assert "ddp (default), tf32, adamw, no recompute, offload optimizer:cpu" in text
    _within(text)


def test_every_memory_term_is_named(fake: Callable) -> None:
    text = render(fake(later_measured=None, run_time_s=None, rank_classes=()))
    # 15 terms need more room than there is: the smallest are told together, and none is lost
    named = sum(term.label in text for term in MEMORY.values())
    more = re.search(r"(\d+) smaller terms", text)
    assert named + (int(more[1]) if more else 0) == len(fake().memory.terms)


def test_memory_rows_add_up(fake: Callable) -> None:
    block = render(fake()).split("where the memory goes")[1].split("BOUND")[0]
    total = sum(float(x) for x in re.findall(r"([\d.]+) GB", block))
    assert total == pytest.approx(120 * GIB / 1e9, abs=0.6)


def test_what_does_not_fit_says_by_how_much(with_memory: Callable) -> None:
    text = render(with_memory(capacity_bytes=100.0 * GIB))
    assert "\nNO          needs 129 of 107 GB a GPU (120 of 100 GiB): 21.5 GB too much" in text
    assert "what makes it fit: nothing that was tried" in text
    assert "FITS" not in text


def test_a_fit_that_may_fail_is_called_tight(with_memory: Callable) -> None:
    assert "tight" in render(with_memory(capacity_bytes=121.0 * GIB))
    assert "tight" not in render(with_memory(capacity_bytes=140.0 * GIB))


def test_assumptions_are_ranked_and_counted(fake: Callable) -> None:
    ranked = by_influence(("a", "node: n", "x has no bf16 unit: fp32 taken", "network: e"))
    assert [text[0] for text in ranked] == ["x", "n", "n", "a"]
    many = tuple(f"assumption number {i} that is long enough to fill its line" for i in range(40))
    assert "39 more (--explain assumed)" in " ".join(render(fake(assumptions=many)).split())
    text = render(fake(assumptions=many, later_measured=None, run=None, rank_classes=()))
    shown = sum(f"number {i} " in " ".join(text.split()) for i in range(40))
    left = re.search(r"(\d+) more \(--explain assumed\)", " ".join(text.split()))
    assert left is not None and 0 < shown == 40 - int(left[1])
    _within(text)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    scale=st.floats(1e-6, 1e6), batch=st.integers(1, 10**6), gpus=st.integers(1, 10**6),
    notes=st.lists(st.text("ab -", max_size=200), max_size=9), rows=st.integers(0, 6),
    word=st.text("xX+1", max_size=150), fits=st.booleans(),
)  # fmt: skip
def test_bounds_hold_for_any_figures(
    fake: Callable, with_memory: Callable, scale: float, batch: int, gpus: int,
    notes: list[str], rows: int, word: str, fits: bool,
) -> None:  # fmt: skip
    p = fake(
        step_time_s=Interval(scale, scale / 2, scale * 2, "o" * 150),
        time_s={k: v * scale for k, v in fake().time_s.items()},
        micro_batch=batch, n_gpus=gpus, global_batch=batch * gpus, samples_per_s=batch / scale,
        cluster=f"{gpus}x1x{word}", model_full_name="model " + word,
        memory=with_memory(capacity_bytes=1e12 if fits else 1e9).memory,
        rank_classes=(RankClass(gpu=word, n_gpus=gpus, compute_s=scale),) * 3,
        assumptions=tuple(notes), bound_by="b" * 60, run=None,
        later_advice=Later(lambda: Advice(fixes=("a" * 60,) * 5)),
        later_measured=Later(lambda: (MeasuredRow(
            source=word, quantity="peak_memory_bytes", measured=scale * 1e9, predicted=1e9,
            note="n" * 90),) * rows),
    )  # fmt: skip
    text = render(p)
    _within(text)
    assert ("FITS" in text) is fits


def test_what_is_left_adds_up(fake: Callable, with_memory: Callable) -> None:
    """129 GB held and 30.1 GB of fragmentation leave 12.9 of 171.8 GB; its upper end needs more."""
    text = " ".join(render(with_memory(needed_bytes=148 * GIB)).split())
    assert "120 of 160 GiB) + 30.1 GB fragmentation, 7.5 % left" in text
    assert "tight" not in text
    text = " ".join(render(with_memory(needed_bytes=155 * GIB)).split())
    assert "37.6 GB fragmentation, 3.1 % left; tight: may need 173 GB (80 % interval)" in text


def test_a_sharded_job_is_compared_with_its_own_ranks(fake: Callable) -> None:
    """One device alone would hold and update everything: no rank of the job does."""

    def said(**words: str) -> str:
        return " ".join(render(fake(scaled_frac=0.9, **words)).split())

    assert "4.50 of 5 GPUs, 90 % scaling efficiency (the rest is communication" in said(
        strategy="zero3"
    )
    assert "4.50 of 5 GPUs" in said(strategy="ddp", layout="ep8")
    assert "x one" in said(strategy="ddp") and "the rest" not in said(strategy="ddp")


def test_adapters_are_told_beside_what_they_adapt(fake: Callable) -> None:
    text = render(fake(n_params=41_943_040, n_frozen_params=8_030_261_248))
    assert text.startswith("A model, 8.07 B parameters, 41.9 M of them trained, on ")
    assert render(fake()).startswith("A model, 674 M parameters, on ")


def test_a_long_name_is_cut_before_what_follows_it(fake: Callable) -> None:
    name = "Wan2.1 T2V 14B, 81 frames of 720 x 1280, inputs encoded beforehand by a program"
    first = render(fake(model_full_name=name)).splitlines()[0]
    assert first.startswith("Wan2.1 T2V 14B, 81 frames of 720 x 1280, inputs")
    assert first.endswith(" ..., 674 M parameters,")


def test_colour_touches_one_word_only(fake: Callable) -> None:
    plain, painted = render(fake()), render(fake(), colour=True)
    assert re.sub(r"\x1b\[\d+m", "", painted) == plain
    assert painted.count("\x1b[0m") == 1


@pytest.mark.parametrize(
    ("value", "text"),
    [(4329.7, "4,330"), (30.12, "30.1"), (5.187, "5.19"), (0.4444, "0.444"), (0, "0.000"),
     (0.03456, "0.035"), (0.0022456, "0.00225"), (0.00028149, "0.000281"),
     (3.2e9, "3.20e+09")],
)  # fmt: skip
def test_figure(value: float, text: str) -> None:
    assert figure(value) == text


def test_words() -> None:
    assert percent(0.714) == "71 %" and percent(0.0344) == "3.4 %" and percent(0) == "0 %"
    assert percent(-0.11, signed=True) == "-11 %" and percent(0.02, signed=True) == "+2.0 %"
    assert plural("clip") == "clips" and plural("images") == "images"
    # a figure is not parted from its unit
    assert wrapped("about 431 ms in all", 10) == ["about", "431 ms in", "all"]
    assert labelled("STEP", "x y")[0] == "STEP        x y"


def test_explanation_is_under_twenty_lines() -> None:
    long = Explanation(
        term="time.x", value="1 s", formula="f " * 400,
        inputs=tuple((f"input {i}", "v " * 80) for i in range(30)), source="s " * 400,
    )  # fmt: skip
    text = render_explanation(long, ["time.y"] * 50)
    assert len(text.splitlines()) < 20
    assert max(map(len, text.splitlines())) <= WIDTH


def test_text_is_counted_in_tokens_too(fake: Callable) -> None:
    """Samples a second times the tokens of one, by hand; of images and clips nothing is said."""
    text = render(fake(sample_unit="sequence", tokens_per_sample=8192.0, samples_per_s=8.43))
    assert "8.43 sequences/s x 8,192 = 69,059 tokens/s" in text
    assert "tokens/s" not in render(fake(sample_unit="image", tokens_per_sample=197.0))
    assert "tokens/s" not in render(fake(sample_unit="sequence", tokens_per_sample=0.0))


def test_a_length_that_is_asked_for_is_told() -> None:
    short = api.predict("gpt2", "8xH100", seq_len=512)
    assert short.tokens_per_sample == 512
    assert f"x 512 = {figure(short.samples_per_s * 512)} tokens/s" in render(short)


def test_one_sample_a_gpu_is_not_dealt_out_otherwise() -> None:
    """What an uneven split would gain, where nothing can be split, says from when on."""
    words = {"strategy": "zero3", "recompute": "full", "shares": "auto"}
    one = " ".join(render(api.predict("llama3-8b", "1x8xA100+1x8xH100", **words)).split())
    assert re.search(r"an uneven split would gain \d+ % \(from micro-batch 2 on\)", one)
    two = api.predict("llama3-8b", "1x8xA100+1x8xH100", micro_batch=2, **words)
    assert "samples a GPU: A100-SXM-80GB 1, H100-SXM-80GB 3" in " ".join(render(two).split())


def test_what_was_changed_is_a_warning_and_no_assumption(fake: Callable) -> None:
    changed = Changed("V100 has no bf16 unit: predicted with fp32 peak")
    p = fake(assumptions=("a note", changed))
    assert p.warnings == (changed,)
    text = render(p)
    assert "\nWARNING     V100 has no bf16 unit" in text
    assert "ASSUMED     a note (--explain assumed)" in text
    assert render_assumed(p).startswith(
        "- V100 has no bf16 unit: predicted with fp32 peak\n- a note\n"
    )
    assert "WARNING" not in render(fake(assumptions=("a note",)))


def test_a_tpu_has_chips_and_no_library_of_gpus() -> None:
    text = render(api.predict("llama3-8b", "v5p-16", micro_batch=8))
    assert "x 8 chips = 64 sequences" in text and "GB a chip" in text
    assert not re.search(r"GPU|NCCL|cuBLAS|CUDA", text)
