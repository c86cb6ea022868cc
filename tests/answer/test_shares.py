"""Uneven shares of a batch: every deal tried, and the integer programme that the search solves."""

from __future__ import annotations

from dataclasses import replace
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore import api
from simcore.answer import shares as dealing
from simcore.answer.request import make_request
from simcore.answer.shares import _deals, _reach, best_deal, ratio_of
from simcore.base.errors import InvalidConfig, UnknownName
from simcore.memory.job import memory_at
from simcore.request.resolved import Request, rank_counts
from simcore.timing.steps import central_step_s

MIXED = "1x2xA100+1x3xT4"
NET = {"network": "ib-hdr"}


def every_deal(request: Request) -> list[tuple[int, ...]]:
    """All whole samples a rank of each kind, the batch kept, that fit."""
    counts = rank_counts(request.cluster)
    total = sum(counts) * request.micro_batch
    most = total // min(counts)
    held = [memory_at(request, np.array([float(b)])).device[0] for b in range(1, most + 1)]
    found = []
    for deal in product(*(range(1, total // n + 1) for n in counts)):
        if sum(n * b for n, b in zip(counts, deal, strict=True)) != total:
            continue
        fits = zip(deal, request.kinds, strict=True)
        if all(held[b - 1] <= kind.gpu.usable_memory_bytes for b, kind in fits):
            found.append(deal)
    return found


@pytest.mark.parametrize(
    ("model", "gpus", "words"),
    [
        ("resnet-50", MIXED, {"micro_batch": 6}),
        ("resnet-50", MIXED, {"micro_batch": 3, "grad_accum": 4}),
        ("bert-base", "1x4xA6000ada+1x2xRTX3090", {"micro_batch": 5}),
        ("bert-base", "1x1xH100+1x2xA100+1x1xT4", {"micro_batch": 4, "precision": "amp-fp16"}),
        ("gpt2-small", "1x2xA100+1x2xT4", {"micro_batch": 4, "strategy": "zero2",
                                           "precision": "fp16"}),
        ("gpt2-medium", "1x2xA100+1x2xT4", {"micro_batch": 3, "strategy": "ddp",
                                            "precision": "amp-fp16"}),
    ],
)  # fmt: skip
def test_the_deal_is_the_best_of_all(model: str, gpus: str, words: dict) -> None:
    request = make_request(model, gpus, **NET, **words)
    all_deals = every_deal(request)
    found = best_deal(request)
    if not all_deals:
        assert found is None
        return
    assert found in all_deals, "every kind holds its share"
    steps = {d: central_step_s(replace(request, shares=d)) for d in all_deals}
    assert steps[found] == pytest.approx(min(steps.values()), rel=1e-9)


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_a_deal_is_found_whenever_there_is_one(data: st.DataObject) -> None:
    counts = data.draw(st.lists(st.integers(1, 6), min_size=1, max_size=4))
    allowed = [data.draw(st.lists(st.integers(1, 9), max_size=6, unique=True)) for _ in counts]
    total = data.draw(st.integers(1, 60))
    want = {
        deal for deal in product(*allowed)
        if sum(n * b for n, b in zip(counts, deal, strict=True)) == total
    }  # fmt: skip
    assert bool(_reach(allowed, counts, total)[0] >> total & 1) == bool(want)
    assert set(_deals(allowed, counts, total)) == want


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_the_search_finds_the_least_limit_of_all_deals(data: st.DataObject) -> None:
    """min T, T >= t_g(b_g), sum of n_g b_g fixed: every deal there is."""
    from simcore.answer.shares import least_limit

    counts = data.draw(st.lists(st.integers(1, 5), min_size=2, max_size=3))
    rates = [data.draw(st.floats(0.5, 4.0)) for _ in counts]
    total = sum(counts) * data.draw(st.integers(2, 5))
    seconds = [
        {b: 0.3 + r * b for b in range(1, total // n + 1)}
        for n, r in zip(counts, rates, strict=True)
    ]
    least = min(
        max(times[b] for times, b in zip(seconds, deal, strict=True))
        for deal in product(*seconds)
        if sum(n * b for n, b in zip(counts, deal, strict=True)) == total
    )
    assert least_limit(seconds, counts, total) == pytest.approx(least, rel=1e-9)


def test_a_deal_runs_through_the_engine() -> None:
    """Twice the samples a rank take what a job of twice the batch computes; the batch is kept."""
    even = api.predict("resnet-50", MIXED, micro_batch=32, **NET)
    dealt = api.predict("resnet-50", MIXED, micro_batch=32, shares="auto", **NET)
    assert dealt.global_batch == even.global_batch == 160
    a100, t4 = dealt.rank_classes
    assert 2 * a100.micro_batch + 3 * t4.micro_batch == 160
    alone = api.predict("resnet-50", "1xA100", micro_batch=a100.micro_batch)
    assert a100.compute_s == pytest.approx(alone.rank_classes[0].compute_s, rel=0.02)
    assert dealt.step_time_s.value < 0.5 * even.step_time_s.value
    (said,) = even.uneven
    assert said.step_time_s == pytest.approx(dealt.step_time_s.value, rel=1e-9)
    assert said.gain_frac == pytest.approx(
        1 - dealt.step_time_s.value / even.step_time_s.value, rel=1e-9
    )
    assert dealt.uneven == ()
    parts = {k: v for k, v in dealt.time_s.items() if k not in ("compute", "communication_hidden")}
    assert sum(parts.values()) == pytest.approx(dealt.step_time_s.value, rel=1e-6)
    assert dealt.time_s["offload"] == 0.0


def test_a_ratio_is_what_auto_writes() -> None:
    dealt = api.predict("resnet-50", MIXED, micro_batch=32, shares="auto", **NET)
    request = api.make_request("resnet-50", MIXED, micro_batch=32, shares="auto", **NET)
    ratio = ratio_of(request.shares, request)
    told = api.predict("resnet-50", MIXED, micro_batch=32, shares=ratio, **NET)
    assert told.step_time_s == dealt.step_time_s
    assert api.predict(
        "resnet-50", MIXED, micro_batch=32, shares="1:1", **NET
    ).step_time_s.value == (
        api.predict("resnet-50", MIXED, micro_batch=32, shares="equal", **NET).step_time_s.value
    )


def test_memory_is_that_of_the_fullest_kind_of_gpu() -> None:
    """9 of 10 samples on the A100s: each kind is held against its own card."""
    words = {"micro_batch": 30, "precision": "tf32", **NET}
    even = api.predict("resnet-50", "1x1xA100+1x1xT4", **words).memory
    tilted = api.predict("resnet-50", "1x1xA100+1x1xT4", shares="9:1", **words).memory
    assert even.capacity_bytes < 17e9
    one = api.predict("resnet-50", "1x1xA100", micro_batch=54, precision="tf32").memory
    few = api.predict("resnet-50", "1x1xT4", micro_batch=6, precision="tf32").memory
    alone = tilted.device_bytes - tilted.terms["nccl_buffers"]  # one GPU talks to nobody
    share = alone / tilted.capacity_bytes
    want = max(one.device_bytes / one.capacity_bytes, few.device_bytes / few.capacity_bytes)
    assert share == pytest.approx(want, abs=0.02)


@pytest.mark.parametrize(
    ("gpus", "words", "said"),
    [
        (MIXED, {"shares": "3:1:1"}, "not one for each kind of GPU here: A100-SXM-80GB, T4"),
        ("1x4xA100", {"shares": "auto"}, "need GPUs of several kinds"),
        ("1x4xA100", {"shares": "3:1"}, "need GPUs of several kinds"),
        (MIXED, {"shares": "3-1"}, "not auto, equal or a ratio of samples"),
        (MIXED, {"shares": "3:0"}, "not auto, equal or a ratio of samples"),
        (MIXED, {"shares": "4:1", "micro_batch": 32}, "try 59:14, or micro-batch 33"),
        (MIXED, {"shares": "auto", "micro_batch": "max"}, "not both"),
    ],
)
def test_what_cannot_be_is_one_sentence(gpus: str, words: dict, said: str) -> None:
    with pytest.raises(InvalidConfig) as caught:
        api.predict("resnet-50", gpus, **{**NET, **words})
    (told,) = caught.value.violations
    assert said in told


def test_the_nearest_that_is_named_works() -> None:
    for shares, batch in (("59:14", 32), ("4:1", 33)):
        found = api.predict("resnet-50", MIXED, shares=shares, micro_batch=batch, **NET)
        assert found.global_batch == 5 * batch


@pytest.mark.parametrize(
    ("gpus", "batch"), [("1x1xA100+1x1xT4", 1_000_000), ("9999x1xA100+10000x1xT4", 3000),
                        ("1x8xH100+1x1xT4", 4096)],
)  # fmt: skip
def test_a_huge_batch_is_dealt_out_in_packets(
    gpus: str, batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However large the batch, so many deals are priced; the batch is kept, no GPU goes without."""
    priced: list[int] = []
    plain = dealing.alone_s
    monkeypatch.setattr(dealing, "alone_s", lambda r, k, b: priced.append(len(b)) or plain(r, k, b))
    request = make_request("mnist-cnn", gpus, micro_batch=batch, **NET)
    deal = best_deal(request)
    assert max(priced, default=0) <= dealing._MOST_PACKETS + 1
    if deal is not None:
        counts = rank_counts(request.cluster)
        total = sum(n * b for n, b in zip(counts, deal, strict=True))
        assert total == sum(counts) * batch
        assert min(deal) >= 1


@pytest.mark.parametrize(("term", "samples"), [("memory.activations", "8"), ("forward", "68")])
def test_an_explanation_has_the_batch_of_the_kind_it_is_of(term: str, samples: str) -> None:
    """Memory is of the T4s, which are fuller; time of the A100s, which are slower."""
    told = api.explain("resnet-50", MIXED, term, micro_batch=32, shares="17:2", **NET)
    assert dict(told.inputs)["micro-batch"] == samples


def test_memory_over_the_step_is_that_of_each_kind() -> None:
    """17:2 of 32 samples on average: 68 on an A100, 8 on a T4, which is the fuller of the two."""
    asked = ("resnet-50", MIXED)
    each = {gpu: api.memory_timeline(*asked, gpu=gpu, micro_batch=32, shares="17:2", **NET)
            for gpu in ("A100", "T4")}  # fmt: skip
    fullest = api.memory_timeline(*asked, micro_batch=32, shares="17:2", **NET)
    assert fullest.peak_live_bytes == each["T4"].peak_live_bytes
    assert fullest.limit_bytes == each["T4"].limit_bytes < each["A100"].limit_bytes
    for gpu, batch in (("A100", 68), ("T4", 8)):
        alone = api.memory_timeline("resnet-50", f"5x1x{gpu}", micro_batch=batch, **NET)
        assert each[gpu].peak_allocated_bytes == alone.peak_allocated_bytes
        assert each[gpu].limit_bytes == alone.limit_bytes
    closed = api.predict(*asked, micro_batch=32, shares="17:2", **NET).memory
    # the events' live bytes are 2.2 % above the formula's here; blocks are rounded in both
    assert fullest.peak_allocated_bytes == pytest.approx(closed.allocated_bytes, rel=0.03)
    assert each["A100"].replace(gpu="T4").peak_live_bytes == each["T4"].peak_live_bytes


def test_memory_over_the_step_of_another_gpu_is_refused() -> None:
    with pytest.raises(UnknownName, match=r"'H100': known are A100-SXM-80GB, T4"):
        api.memory_timeline("resnet-50", MIXED, gpu="H100", **NET)


@pytest.mark.parametrize(
    ("gpus", "micro_batch"),
    [("1x4xA100+1x4xT4", 2), ("1x1xA100+1x1xV100+1x1xT4", 40)],
    ids=["one sample is too many for a kind", "together they hold fewer"],
)
def test_where_no_deal_fits_none_is_priced(
    gpus: str, micro_batch: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    strategy = "ddp" if micro_batch == 2 else "zero3"
    request = make_request("gpt2-xl", gpus, micro_batch=micro_batch, strategy=strategy, **NET)
    one = memory_at(request, np.array([1.0])).needed[0]
    smallest = min(k.gpu.usable_memory_bytes for k in request.kinds)
    assert (one > smallest) == (micro_batch == 2)
    assert every_deal(request) == []

    def priced(*_: object) -> np.ndarray:
        raise AssertionError("a kind was priced for nothing")

    monkeypatch.setattr("simcore.answer.shares.alone_s", priced)
    assert best_deal(request) is None


@pytest.mark.parametrize("shares", [None, "3:1:2", "auto"])
@pytest.mark.parametrize("model", ["resnet-50", "gpt2"])
def test_the_order_in_which_groups_are_written_says_nothing(model: str, shares: str | None) -> None:
    """Equal rates inside nodes, of unequal routes: peer to peer, and through host memory."""
    groups = ("2x2xRTX4090", "2x2xA6000ada", "1x4xA100")
    found = []
    for order in permutations(range(3)):
        words: dict[str, Any] = {"micro_batch": 24, "strategy": "zero2"}
        if shares is not None:
            parts = shares.split(":")
            words["shares"] = ":".join(parts[i] for i in order) if len(parts) == 3 else shares
        p = api.predict(model, "+".join(groups[i] for i in order), **words)
        assert p.cluster.split("+")[0].startswith(groups[order[0]])
        by_gpu = sorted((c.gpu, c.micro_batch, c.compute_s) for c in p.rank_classes)
        found.append((p.step_time_s, p.memory.needed_bytes, p.fits, by_gpu))
    assert all(f == found[0] for f in found)
    if shares == "3:1:2":
        assert [m for _, m, _ in found[0][3]] == [24, 12, 36]  # of A100, A6000ada and RTX4090
