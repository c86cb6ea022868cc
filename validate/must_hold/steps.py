"""Clauses about measured training steps: step time, ranking of layouts, memory, which jobs fit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from validate.must_hold.clause import Clause, Found, at_least, at_most, between, percent, rows
from validate.must_hold.tables import Tables
from validate.plan_families import GOOD, good

#: First words of the reason for which rows of quality C are skipped.
_LOW_QUALITY = "quality C"


def _simulated(t: Tables) -> Found:
    """The share of rows that can be predicted, among those of quality A or B and out of memory."""
    usable = t.llm["rows"] - sum(
        n for why, n in t.llm["skipped"].items() if why.startswith(_LOW_QUALITY)
    )
    return at_least(0.95, t.llm["simulated"] / usable, f"{t.llm['simulated']:,} of {usable:,}")


def _complete(t: Tables) -> Found:
    """The share of rows of ddp.csv that can be predicted, among complete rows of tier A or B."""
    unusable = sum(
        n for why, n in t.ddp["skipped"].items() if why.startswith(("tier", "incomplete"))
    )
    usable = t.ddp["rows"] - unusable
    return at_least(0.85, t.ddp["simulated"] / usable, f"{t.ddp['simulated']:,} of {usable:,}")


def _of(
    table: Callable[[Tables], dict[str, Any]], quantity: str, measure: str, limit_frac: float
) -> Callable[[Tables], Found]:
    """A clause that a measure of the error of one quantity of a table is at most the limit."""

    def compute(t: Tables) -> Found:
        score = table(t)[quantity]
        return at_most(limit_frac, score[measure], rows(score))

    return compute


def _mixtures(t: Tables) -> Found:
    score = t.llm["groups"]["arch"]["moe"][_STEP]
    return at_most(0.09, score[_MAPE], rows(score))


def _source(name: str, quantity: str, limit_frac: float) -> Callable[[Tables], Found]:
    """A clause that the mean error of one source of llm.csv is at most the limit."""

    def compute(t: Tables) -> Found:
        score = t.llm["groups"]["source"][name][quantity]
        return at_most(limit_frac, score["mape_frac"], rows(score))

    return compute


def _bias(t: Tables) -> Found:
    bias = t.llm["step_time"]["median_bias_frac"]
    return Found(abs(bias) <= 0.04, f"{percent(bias)} ({rows(t.llm['step_time'])})", bias)


def _coverage(
    table: Callable[[Tables], dict[str, Any]], quantity: str, low: float, high: float
) -> Callable[[Tables], Found]:
    def compute(t: Tables) -> Found:
        score = table(t)[quantity]
        return between(low, high, score["coverage80_frac"], rows(score))

    return compute


def _rank(t: Tables) -> Found:
    table, own = t.llm["rank_correlation"]["table_families"], t.llm["rank_correlation"]
    value = table["weighted_mean"]
    beside = f"{table['families']} families; by one model on one cluster {own['weighted_mean']:.3f}"
    return Found(value >= 0.92, f"{value:.3f} ({beside})", value)


def _zero3(t: Tables) -> Found:
    worst = max(
        (abs(r["error_frac"]) for r in t.zero3["per_row"] if r["quantity"] == "step_time"),
        default=0.0,
    )
    score = t.zero3["step_time"]
    return at_most(0.2, score["mape_frac"], f"{rows(score)}, the worst {percent(worst)}")


def _plans(regret_frac: float) -> Callable[[Tables], Found]:
    """A clause on the share of families whose first-ranked layout is so near to the best."""

    def compute(t: Tables) -> Found:
        families, n = len(t.plan_families), good(t.plan_families, regret_frac)
        return at_least(GOOD[regret_frac], n / families, f"{n} of {families} families")

    return compute


def _vtrain_coverage(t: Tables) -> Found:
    """The share of steps inside the 80 % interval, over the steps of all fits.

    Steps of one fit share its errors, so that those of a single one say little.
    """
    draws, fitted = t.vtrain_few["calibration"]["draws"], t.vtrain_few["step_time"]
    inside = draws["coverage80_frac"]
    median = percent(fitted["coverage80_frac"])
    text = (f"{draws['n']} fits, {percent(inside['least'])} to {percent(inside['most'])} each, "
            f"{median} in the one with the median error")  # fmt: skip
    return between(0.7, 0.9, inside["mean"], f"{rows(fitted)} in each of {text}")


def _oom(t: Tables) -> Found:
    fits = t.llm["fits"]
    return at_least(0.97, fits["out_of_memory_found_frac"], f"{fits['out_of_memory']} rows")


def _ran(table: Callable[[Tables], dict[str, Any]], limit_frac: float) -> Callable[[Tables], Found]:
    def compute(t: Tables) -> Found:
        fits = table(t)["fits"]
        return at_least(limit_frac, fits["fits_recall_frac"], f"{fits['ran']:,} rows")

    return compute


def _llm(t: Tables) -> dict[str, Any]:
    return t.llm


def _ddp(t: Tables) -> dict[str, Any]:
    return t.ddp


def _held_out(t: Tables) -> dict[str, Any]:
    return t.held_out


def _named_llm(t: Tables) -> dict[str, Any]:
    return t.llm_by_program


def _named_ddp(t: Tables) -> dict[str, Any]:
    return t.ddp_by_program


def _unnamed(t: Tables) -> dict[str, Any]:
    return t.unnamed


def _least(
    table: Callable[[Tables], dict[str, Any]], quantity: str, limit_frac: float
) -> Callable[[Tables], Found]:
    def compute(t: Tables) -> Found:
        score = table(t)[quantity]
        return at_least(limit_frac, score["coverage80_frac"], rows(score))

    return compute


_MAPE, _MEDIAN = "mape_frac", "median_abs_frac"
_STEP, _MEMORY = "step_time", "peak_memory"

CLAUSES = (
    Clause("llm.csv, out of memory: A and B simulated", "at least 95 %", "5", _simulated),
    Clause("llm.csv: step, mean error", "at most 7.2 %", "31", _of(_llm, _STEP, _MAPE, 0.072)),
    Clause("llm.csv: step, median error", "at most 10 %", "5", _of(_llm, _STEP, _MEDIAN, 0.10)),
    Clause("llm.csv: step, median bias", "within 4 %", "5", _bias),
    Clause("llm.csv: step, --calibrate 5", "at most 8 %", "5",
           _of(lambda t: t.llm_few, _STEP, _MAPE, 0.08)),
    Clause("llm.csv: rank within families", "at least 0.92", "31", _rank),
    Clause("Korthikanti's rows", "at most 4 %", "5",
           _source("korthikanti-recompute", _STEP, 0.04)),
    Clause("ZeRO-3 rows of Megatron's table, mean", "at most 20 %", "5", _zero3),
    Clause("llm.csv: peak memory, mean error", "at most 3.6 %", "31",
           _of(_llm, _MEMORY, _MAPE, 0.036)),
    Clause("SimuMax B200: peak memory", "at most 1 %", "5", _source("simumax-b200", _MEMORY, 0.01)),
    Clause("out-of-memory runs found", "at least 97 %", "31", _oom),
    Clause("llm.csv: what ran is said to fit", "at least 98 %", "31", _ran(_llm, 0.98)),
    Clause("ddp.csv: complete rows simulated", "at least 85 %", "3", _complete),
    Clause("ddp.csv: step, mean error", "at most 11 %", "31", _of(_ddp, _STEP, _MAPE, 0.11)),
    Clause("ddp.csv: step, fitted on one GPU", "at most 8 %", "5",
           _of(lambda t: t.ddp_one_gpu, _STEP, _MAPE, 0.08)),
    Clause("ddp.csv: speed-up, mean error", "at most 6.5 %", "31",
           _of(_ddp, "speedup", _MAPE, 0.065)),
    Clause("ddp.csv: peak memory, mean error", "at most 6 %", "31",
           _of(_ddp, _MEMORY, _MAPE, 0.06)),
    Clause("ddp.csv: what ran is said to fit", "at least 97 %", "close of 5", _ran(_ddp, 0.97)),
    Clause("vTrain on several nodes: step", "at most 14 %", "4",
           _of(lambda t: t.vtrain, _STEP, _MAPE, 0.14)),
    Clause("vTrain, 10 rows fitted, 20 draws", "at most 9 %", "4",
           _of(lambda t: t.vtrain_few, _STEP, _MAPE, 0.09)),
    Clause("vTrain, the 20 fits: inside 80 % intervals", "70 to 90 %", "4", _vtrain_coverage),
    Clause("plan: first layout within 1 % of best", "at least 60 %", "31", _plans(0.01)),
    Clause("plan: first layout within 3 % of best", "at least 80 %", "31", _plans(0.03)),
    Clause("llm.csv: mixtures, step", "at most 9 %", "31", _mixtures),
    Clause("bridge_hybrid.csv: step, mean error", "at most 8 %", "31",
           _of(lambda t: t.fresh("bridge_hybrid"), _STEP, _MAPE, 0.08)),
    Clause("mlperf_v6.csv: step, mean error", "at most 9 %", "31",
           _of(lambda t: t.fresh("mlperf_v6"), _STEP, _MAPE, 0.09)),
    Clause("tpu.csv: step, mean error", "at most 15 %", "31",
           _of(lambda t: t.fresh("tpu"), _STEP, _MAPE, 0.15)),
    Clause("megatron_memory.csv: memory, median", "at most 4 %", "31",
           _of(lambda t: t.fresh("megatron_memory"), _MEMORY, _MEDIAN, 0.04)),
    Clause("megatron_memory.csv: memory, mean error", "at most 6 %", "31",
           _of(lambda t: t.fresh("megatron_memory"), _MEMORY, _MAPE, 0.06)),
    Clause("held-out runs: step, mean error", "at most 16 %", "close of 5",
           _of(_held_out, _STEP, _MAPE, 0.16)),
    Clause("held-out runs: memory, mean error", "at most 13.7 %", "close of 5",
           _of(_held_out, _MEMORY, _MAPE, 0.137)),
    Clause("held-out runs: steps inside 80 %", "73 to 87 %", "close of 5",
           _coverage(_held_out, _STEP, 0.73, 0.87)),
    Clause("held-out runs: memory inside 80 %", "70 to 90 %", "close of 5",
           _coverage(_held_out, _MEMORY, 0.70, 0.90)),
    Clause("llm.csv: steps inside 80 %", "77 to 88 %", "close of 5",
           _coverage(_llm, _STEP, 0.77, 0.88)),
    Clause("llm.csv by program and release: step", "at most 12 %", "29",
           _of(_named_llm, _STEP, _MAPE, 0.12)),
    Clause("llm.csv by program and release: memory", "at most 8 %", "29",
           _of(_named_llm, _MEMORY, _MAPE, 0.08)),
    Clause("ddp.csv by program and release: step", "at most 13 %", "29",
           _of(_named_ddp, _STEP, _MAPE, 0.13)),
    Clause("ddp.csv by program and release: memory", "at most 8 %", "29",
           _of(_named_ddp, _MEMORY, _MAPE, 0.08)),
    Clause("llm.csv without the program: step", "at most 16 %", "29",
           _of(_unnamed, _STEP, _MAPE, 0.16)),
    Clause("llm.csv without the program: memory", "at most 20 %", "29",
           _of(_unnamed, _MEMORY, _MAPE, 0.20)),
    *(
        Clause(f"{name}: {what} inside 80 %", "at least 77 %", "29", _least(table, quantity, 0.77))
        for name, table in (
            ("llm.csv by program", _named_llm), ("ddp.csv by program", _named_ddp),
            ("llm.csv without the program", _unnamed),
        )
        for what, quantity in (("steps", _STEP), ("memory", _MEMORY))
    ),
)  # fmt: skip
