"""Configurations that a sweep evaluates per second: ``python -m benchmarks.sweep --json``.

The space is a dense transformer with tensor x pipeline x data parallelism, ZeRO, recompute,
micro-batches and accumulation on up to 4,096 GPUs. One core computes time, memory and validity of
each point. Some points are then compared with ``predict``. Further measurements:

    --table            a line each, in a new interpreter: dense, mixtures, forms of 72 points, and
                       the README's plan on one type of GPU and on three
    --compare PYTHON   llm-analysis on the same model and machine; PYTHON is an interpreter that
                       has it
    --scaling          speed-up of two processes and of two Dask workers; time by number of points
    --memory           peak memory of ten million points, summarised and written as Parquet

``--json`` prints JSON. ``--runs``: how often each row, or each figure of ``--scaling``, is
measured; ``--points`` is the size of the last two measurements.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

SPACES = {
    "small": {
        "gpus": "H100:1..512*2x8", "strategy": "ddp,zero1,zero3", "recompute": "none,full",
        "tp": "1,2,4,8", "pp": "1,4", "micro_batch": "1,2,4,8", "grad_accum": "1..64",
    },
    "dense": {
        "gpus": "H100:1..512x8", "strategy": "ddp,zero1,zero2,zero3", "recompute": "none,full",
        "tp": "1,2,4,8", "pp": "1,2,4,8,16", "micro_batch": "1,2,4,8", "grad_accum": "1..64",
    },
    "moe": {
        "gpus": "H100:1..512x8", "strategy": "zero1,zero3", "recompute": "none,full",
        "tp": "1,4", "pp": "1,4", "cp": "1,2", "ep": "1,8", "micro_batch": "1,2,4",
        "grad_accum": "1..64",
    },
    "forms": {  # a plan's: 240 forms, each on 9 clusters with 4 micro-batches and 2 batches
        "gpus": "H100:2,3,4,6,8,12,16,24,32x8", "strategy": "ddp,zero1,zero3,hsdp",
        "recompute": "all", "tp": "1..8*2", "pp": "1..16*2", "micro_batch": "1..8*2",
        "global_batch": "512,768",
    },
}  # fmt: skip
MODELS = {"small": "llama3-70b", "dense": "llama3-70b", "moe": "mixtral-8x7b",
          "forms": "llama3-70b"}  # fmt: skip
#: The README's plan, and the types of GPU of its two lines of the table.
PLAN: dict[str, Any] = {"tokens": 1e12, "deadline": "30d", "budget": 3e6}
PLANNED = {"plan": "H100", "plan of 3 types": "H100,H200,B200"}
#: Rows of the table: each is a space or a plan.
ROWS = ("dense", "moe", "forms", *PLANNED)


def run(name: str, checks: int = 20, model: str | None = None) -> dict[str, object]:
    """Evaluate a space point by point; returns the figures."""
    import resource
    from random import Random

    import numpy as np

    from simcore import api
    from simcore.base.arrays import keep_freed_memory, rare_collections
    from simcore.base.lookup import one_question
    from simcore.planning.evaluator import batches

    model = model or MODELS[name]
    space = api.make_space(model, **{"precision": "bf16", **SPACES[name]})
    keep_freed_memory()
    rng = Random(7)
    started, cpu = time.perf_counter(), time.process_time()
    n_points = n_evaluated = n_fit = 0
    kept = []
    with one_question(), rare_collections():  # as in ``simcore.sweep``
        for batch in batches(space):
            n_points += batch.n_points
            n_evaluated += len(batch)
            if len(batch):
                n_fit += int(np.count_nonzero(batch.fits))
                kept.append((batch, rng.randrange(len(batch))) if rng.random() < 0.05 else None)
    cpu_s, wall_s = time.process_time() - cpu, time.perf_counter() - started
    worst = 0.0
    chosen = [k for k in kept if k is not None]
    for batch, i in rng.sample(chosen, min(checks, len(chosen))):
        assert batch.form is not None and batch.cluster is not None
        said = api.predict(
            batch.form.model, str(space.clusters[int(batch.cluster[i])]),
            micro_batch=int(batch.micro_batch[i]), grad_accum=int(batch.grad_accum[i]),
            **dict(batch.form.options),
        )  # fmt: skip
        for found, truth in (
            (batch.step_time_s[i], said.step_time_s.value),
            (batch.memory_bytes[i], said.memory.device_bytes),
        ):
            worst = max(worst, abs(found / truth - 1.0))
    return {
        "space": {"name": name, "model": model, **SPACES[name]},
        "points": n_points,
        "evaluated": n_evaluated,
        "fit": n_fit,
        "wall_s": wall_s,
        "cpu_s": cpu_s,
        "points_per_s": n_points / cpu_s,
        "strategies_per_s": n_evaluated / cpu_s,
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "checked": min(checks, len(chosen)),
        "worst_error_frac": worst,
    }


def plan(name: str) -> dict[str, object]:
    """Seconds of the README's plan in a process that has just imported what it needs."""
    from simcore import api

    started, cpu = time.perf_counter(), time.process_time()
    found = api.plan("llama3-70b", gpus=PLANNED[name].split(","), **PLAN)
    return {
        "points": found.n_points,
        "cpu_s": time.process_time() - cpu,
        "wall_s": time.perf_counter() - started,
        "best": found.best[0].cluster,
    }


def table(runs: int) -> dict[str, object]:
    """The quickest of ``runs`` new interpreters for each row, in turns."""
    seen: dict[str, list[dict[str, object]]] = {row: [] for row in ROWS}
    for _ in range(runs):
        for row in ROWS:
            words = [sys.executable, "-m", "benchmarks.sweep", "--json", "--row", row]
            done = subprocess.run(words, stdout=subprocess.PIPE, text=True, check=True)
            seen[row].append(json.loads(done.stdout))
    return {row: min(each, key=lambda one: float(str(one["cpu_s"]))) for row, each in seen.items()}


def llm_analysis_rate(python: str) -> dict[str, object]:
    """The figures of ``llm_analysis_rate.py``, run by an interpreter that has llm-analysis."""
    script = Path(__file__).with_name("llm_analysis_rate.py")
    done = subprocess.run([python, str(script)], capture_output=True, text=True, check=False)
    if done.returncode:
        sys.exit(f"--compare {python}: {done.stderr.splitlines()[-1]}")
    found: dict[str, object] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--space", choices=SPACES, default="dense")
    parser.add_argument("--table", action="store_true")
    parser.add_argument("--row", choices=ROWS, help="one row of the table")
    parser.add_argument("--model", help="another model than the space's own")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--compare", metavar="PYTHON")
    parser.add_argument("--scaling", action="store_true")
    parser.add_argument("--memory", action="store_true")
    parser.add_argument("--points", type=float, default=1e7)
    parser.add_argument("--runs", type=int, default=3)
    asked = parser.parse_args()
    found: dict[str, object]
    if asked.scaling or asked.memory:
        from benchmarks import sweep_scaling

        found = sweep_scaling.scaling(int(asked.points), asked.runs) if asked.scaling else {}
        if asked.memory:
            found["memory"] = sweep_scaling.memory(int(asked.points))
    elif asked.table:
        found = table(asked.runs)
    elif asked.row:
        found = plan(asked.row) if asked.row in PLANNED else run(asked.row, checks=0)
    elif asked.compare:
        same = run(asked.space, model="llama2-70b")
        other = llm_analysis_rate(asked.compare)
        ratio = float(str(same["strategies_per_s"])) / float(str(other["strategies_per_s"]))
        found = {**same, "llm_analysis": other, "times_as_many": ratio}
    else:
        found = run(asked.space, model=asked.model)
    if asked.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        for key, value in found.items():
            sys.stdout.write(f"{key:<20}{value}\n")


if __name__ == "__main__":
    main()
