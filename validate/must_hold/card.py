"""Clauses about training steps measured on one GPU: blind, with a refitted profile, and memory."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from math import comb, log
from typing import Any

from simcore import api
from simcore.base.figures import Z80
from simcore.validate.formats.row_rules import corpora_folder
from validate.must_hold.clause import Clause, Found, at_most, percent, rows
from validate.must_hold.tables import Tables

_STEP, _SHARE = "step_time", 0.8
#: The test of coverage: with fewer rows than this a binomial test decides, from here on the limits.
_MANY_ROWS, _LIMITS, _TEST_FRAC = 300, (0.77, 0.83), 0.10

#: Distance of two figures of which is said that they agree.
_AGREE = 0.05

Table = Callable[[Tables], dict[str, Any]]


def _blind(t: Tables) -> dict[str, Any]:
    return t.card_blind


def _refitted(t: Tables) -> dict[str, Any]:
    return t.card_refitted


def _own(t: Tables) -> dict[str, Any]:
    return t.own_card_calibrated


def _own_blind(t: Tables) -> dict[str, Any]:
    return t.own_card_blind


def holds_80(n_inside: int, n: int) -> bool:
    """Whether so many of ``n`` rows inside their intervals are accepted as 80 %.

    From 300 rows on 77 to 83 %; below, what a two-sided binomial test at 10 % does not refuse: each
    tail, the observed count included, has at least 5 %.
    """
    if n >= _MANY_ROWS:
        return _LIMITS[0] <= n_inside / n <= _LIMITS[1]
    chance = [comb(n, k) * _SHARE**k * (1.0 - _SHARE) ** (n - k) for k in range(n + 1)]
    return min(sum(chance[: n_inside + 1]), sum(chance[n_inside:])) >= _TEST_FRAC / 2.0


def _error(table: Table, limit_frac: float, bound: str = "") -> Callable[[Tables], Found]:
    """The mean error of the step time of all rows, or of those with this ``bound``."""

    def compute(t: Tables) -> Found:
        found = table(t)
        score = found["groups"]["bound"][bound][_STEP] if bound else found[_STEP]
        return at_most(limit_frac, score["mape_frac"], rows(score))

    return compute


def _inside(table: Table, quantity: str, counts: str = "") -> Callable[[Tables], Found]:
    """Whether the intervals of a quantity (of memory: of what ``counts``) hold."""

    def compute(t: Tables) -> Found:
        found = table(t)
        score = found["peak_memory_by_count"][counts] if counts else found[quantity]
        n, share = score["n"], score["coverage80_frac"]
        return Found(holds_80(round(share * n), n), f"{percent(share)} ({rows(score)})", share)

    return compute


def _width(t: Tables) -> Found:
    ratio = t.card_refitted[_STEP]["width80_ratio"]
    return Found(ratio <= 1.6, f"{ratio:.2f} times from low to high (median)", ratio)


def _repeats(t: Tables) -> Found:
    """Whether two calibrations agree in each figure, or the figure says their distance.

    That is 5 %, or the end of its 80 % interval.
    """
    first, second = (_figures(profile["measured"]) for profile in t.own_calibrations)
    both = first.keys() & second.keys()
    off = {k: abs(log(first[k][0] / second[k][0])) for k in both}
    bad = sorted(k for k in both if off[k] > max(_AGREE, Z80 * max(first[k][1], second[k][1])))
    worst = max(off, key=lambda k: off[k])
    text = f"{len(bad)} of {len(both)} further apart; most apart: {worst}, {percent(off[worst])}"
    return Found(not bad and first.keys() == second.keys(), text, len(bad))


def _figures(data: Mapping[str, Any], name: str = "") -> dict[str, tuple[float, float]]:
    """Name of a figure -> (value, standard deviation of its logarithm)."""
    if "value" in data and "sd_log" in data:
        return {name: (_number(data["value"]), float(data["sd_log"]))}
    found: dict[str, tuple[float, float]] = {}
    for key, value in data.items():
        if isinstance(value, Mapping):
            found |= _figures(value, f"{name} {key}".strip())
    return found


def _number(value: Any) -> float:
    """A value with or without its unit."""
    return float(str(value).split()[0])


def _memory(counts: str, limit_frac: float) -> Callable[[Tables], Found]:
    def compute(t: Tables) -> Found:
        score = t.card_blind["peak_memory_by_count"][counts]
        return at_most(limit_frac, score["mape_frac"], rows(score))

    return compute


def _largest(model: str, fits: int, **options: Any) -> Callable[[Tables], Found]:
    """``--micro-batch max`` is at most 3 % below the largest batch that trained, never above."""

    def compute(t: Tables) -> Found:
        path = {"gpt2-medium": t.card / "models" / "gpt2-medium" / "config.json"}.get(
            model, corpora_folder() / "nets" / f"{model}.yaml"
        )
        found = api.predict(
            str(path), "1xH200", micro_batch="max", recompute="none", **options
        ).micro_batch
        return Found(0.97 * fits <= found <= fits, f"{found:,} (trained: {fits:,})", found)

    return compute


CLAUSES = (
    Clause("H200: steps bound by the device, blind", "at most 12 %", "28",
           _error(_blind, 0.12, "gpu")),
    Clause("H200: all steps, blind", "at most 16 %", "28", _error(_blind, 0.16)),
    Clause("H200: steps inside 80 %, blind", "as 80 %", "28", _inside(_blind, _STEP)),
    Clause("H200: all steps, refitted profile", "at most 10 %", "28", _error(_refitted, 0.10)),
    Clause("H200: steps inside 80 %, refitted profile", "as 80 %", "28", _inside(_refitted, _STEP)),
    Clause("H200: width of intervals, refitted profile", "at most 1.6", "28", _width),
    Clause("H200: allocated memory", "at most 3 %", "28", _memory("allocated", 0.03)),
    Clause("H200: memory of the device", "at most 5 %", "28", _memory("shown", 0.05)),
    Clause("H200: allocated memory inside 80 %", "as 80 %", "28",
           _inside(_blind, "", "allocated")),
    Clause("H200: memory of the device inside 80 %", "as 80 %", "28",
           _inside(_blind, "", "shown")),
    Clause("own H200: all steps, blind", "at most 16 %", "28", _error(_own_blind, 0.16)),
    Clause("own H200: steps inside 80 %, blind", "as 80 %", "28", _inside(_own_blind, _STEP)),
    Clause("own H200: all steps, calibrated before", "at most 10 %", "28", _error(_own, 0.10)),
    Clause("own H200: steps inside 80 %, calibrated before", "as 80 %", "28",
           _inside(_own, _STEP)),
    Clause("own H200: two calibrations agree", "to 5 % or their spread", "28", _repeats),
    Clause("H200: largest batch of GPT-2 medium, amp-bf16", "49 to 50", "28",
           _largest("gpt2-medium", 50, precision="amp-bf16", optimizer="adamw", seq_len=1024)),
    Clause("H200: largest batch of ResNet-50, fp32", "1,655 to 1,706", "28",
           _largest("resnet50", 1706, precision="fp32", optimizer="sgd")),
)  # fmt: skip
