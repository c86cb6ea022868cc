"""Latencies that users notice: ``python -m benchmarks.latency``.

Prints the processor time of the quickest of several calls next to the required time; nothing is
asserted. Run it on an otherwise idle machine: other programs on the same processor double the
figures. Tests assert ratios and counts instead (``tests/costs.py``).

    --only WORD    only figures whose name contains this word
    --calls N      number of calls for each figure; the quickest counts
    --json         print JSON

``benchmarks.rows`` times a prediction of each published step, ``benchmarks.page`` the web page, and
``benchmarks.sweep`` the points that a sweep evaluates per second.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass

from benchmarks import latency_calls as calls
from benchmarks import latency_files as files
from benchmarks import latency_predictions as of_jobs
from simcore.base.units import MILLI


@dataclass(frozen=True)
class Figure:
    """One latency: the required time, and ``measure(n)``, seconds of the quickest of n calls.

    ``unit``: ``times`` where the figures are how many times the quickest of some jobs the slowest
    takes.
    """

    name: str
    asked_s: float
    measure: Callable[[int], float]
    unit: str = "ms"


@dataclass(frozen=True)
class Found:
    """A measured latency; None, with the reason, if this machine cannot measure it."""

    name: str
    asked_s: float
    found_s: float | None
    why_not: str = ""
    unit: str = "ms"


FIGURES = (
    Figure("import simcore, beyond numpy", 0.1, calls.import_s),
    Figure("simcore --help", 0.5, lambda n: calls.command_s(n, "--help")),
    Figure("simcore predict --help", 0.5, lambda n: calls.command_s(n, "predict", "--help")),
    Figure("simcore predict of latte-xl on 4x8", 0.32, lambda n: calls.command_s(n, *calls.ASK)),
    Figure("simcore predict of llama3-70b, tp 8 pp 2", 0.35,
           lambda n: calls.command_s(n, *calls.DIVIDED)),
    Figure("simcore predict --micro-batch max", 0.45,
           lambda n: calls.command_s(n, *calls.ASK, "--micro-batch", "max")),
    Figure("simcore predict of a job that does not fit", 0.45,
           lambda n: calls.command_s(n, *calls.TOO_LARGE, ends=1)),
    Figure("simcore list gpus", 0.2, lambda n: calls.command_s(n, "list", "gpus")),
    Figure("simcore list models llama", 0.2, lambda n: calls.command_s(n, *calls.LIST)),
    Figure("list gpus in a clone", 0.3, lambda n: calls.in_a_clone_s(n, "list", "gpus")),
    Figure("list models llama in a clone", 0.3, lambda n: calls.in_a_clone_s(n, *calls.LIST)),
    Figure("one TAB", 0.2, calls.completion_s),
    Figure("engine prediction of latte-xl on 4x8", 2e-3, calls.engine_s),
    Figure("simcore.predict of latte-xl on 4x8", 2e-3, calls.public_s),
    Figure("predict, dense with ZeRO", 2e-3, lambda n: of_jobs.predict_s(n, of_jobs.DENSE)),
    Figure("predict, pipeline of 8", 4e-3, lambda n: of_jobs.predict_s(n, of_jobs.PIPELINE)),
    Figure("predict, 2,048 GPUs", 6e-3, lambda n: of_jobs.predict_s(n, of_jobs.EXPERTS)),
    Figure("predict, micro-batch max", 5e-3, lambda n: of_jobs.predict_s(n, of_jobs.LARGEST)),
    Figure("predict, does not fit, with advice", 40e-3, of_jobs.advice_s),
    Figure("predict and its JSON", 15e-3, of_jobs.json_s),
    Figure("predict, 8 to 131,072 GPUs", 1.5, of_jobs.over_gpus, "times"),
    Figure("predict, 12 to 200 layers", 1.5, of_jobs.over_layers, "times"),
    Figure("predict, 1 to 96 stages", 1.5, of_jobs.over_stages, "times"),
    Figure("predict, 8 to 32,768 micro-batches", 1.5, of_jobs.over_micro_batches, "times"),
    Figure("100,000 configurations in one call", 1.0, calls.configurations_s),
    Figure("10^12 parameters on 131,072 GPUs, first call", 50e-3, calls.trillion_s),
    Figure("validate llm.csv, 3 s on two processors", 6.0, lambda n: calls.table_s(n, "llm.csv")),
    Figure(
        "validate llm.csv and out-of-memory rows",
        20.0,
        lambda n: calls.table_s(n, "llm.csv", "llm_fits_or_not.csv"),
    ),
    Figure("explain-trace, 50 MB in 3 steps", 3.0, lambda n: files.explain_trace_s(n, 3)),
    Figure("explain-trace, 50 MB in 9,444 steps", 4.0, lambda n: files.explain_trace_s(n, 9444)),
    Figure("allocator, 100,000 events in segments", 1.0, lambda n: calls.allocator_s(n, False)),
    Figure("allocator, 100,000 events, expandable", 1.0, lambda n: calls.allocator_s(n, True)),
    Figure("timm:resnet50, first time", 4.0, lambda n: files.first_trace_s(n, "timm:resnet50")),
    Figure(
        "torchvision:resnet50, first time",
        4.0,
        lambda n: files.first_trace_s(n, "torchvision:resnet50"),
    ),
    Figure("trace of a 24-layer transformer", 4.0, calls.trace_s),
    Figure("model of a traced file (ResNet-50)", 0.3, calls.traced_file_s),
    Figure("a month of 10,000 jobs on 4,096 GPUs", 60.0, calls.fleet_s),
    Figure("cut of 1,000 layers into 64 stages", 1.0, calls.cut_s),
    Figure("shares of a batch of a million", 20.0, calls.shares_s),
    Figure("topology of 10,000 nodes", 1.0, calls.topology_s),
    Figure("fair shares of 100,000 flows on 8,192 nodes", 1.0, calls.flows_s),
)  # fmt: skip


def measured(figure: Figure, n: int) -> Found:
    """The latency on this machine, or the reason why it cannot be measured here."""
    try:
        return Found(figure.name, figure.asked_s, figure.measure(n), unit=figure.unit)
    except calls.NotHere as why:
        return Found(figure.name, figure.asked_s, None, str(why))


def line(found: Found) -> str:
    """``engine prediction ...   asked    2 ms   found  1.31 ms``."""
    if found.found_s is None:
        return f"{found.name:46} not measured: {found.why_not}"
    scale = MILLI if found.unit == "ms" else 1.0
    shown = (f"{x / scale:9,.2f} {found.unit}" for x in (found.asked_s, found.found_s))
    return f"{found.name:46} asked {' found '.join(shown)}"


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--only", default="")
    parser.add_argument("--calls", type=int, default=10)
    parser.add_argument("--json", action="store_true")
    asked = parser.parse_args()
    all_found = []
    for figure in FIGURES:
        if asked.only.lower() not in figure.name.lower():
            continue
        found = measured(figure, asked.calls)
        all_found.append(found)
        if not asked.json:
            sys.stdout.write(line(found) + "\n")
            sys.stdout.flush()
    if asked.json:
        sys.stdout.write(json.dumps([asdict(f) for f in all_found]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
