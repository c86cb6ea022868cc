"""Configurations that a sweep evaluates per second: ``python -m benchmarks.sweep --json``.

The space is a dense transformer with tensor x pipeline x data parallelism, ZeRO, recompute,
micro-batches and accumulation on up to 4,096 GPUs. One core computes time, memory and validity of
each point. Some points are then compared with ``predict``. Further measurements:

    --compare PYTHON   llm-analysis on the same model and machine; PYTHON is an interpreter that
                       has it
    --scaling          speed-up of two processes and of two Dask workers; time by number of points
    --memory           peak memory of ten million points, summarised and written as Parquet

``--json`` prints JSON. ``--points`` and ``--runs`` change the size of the last two measurements.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

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
}  # fmt: skip
MODELS = {"small": "llama3-70b", "dense": "llama3-70b", "moe": "mixtral-8x7b"}


def run(name: str, checks: int = 20, model: str | None = None) -> dict[str, object]:
    """Evaluate a space point by point; returns the figures."""
    import resource
    from random import Random

    import numpy as np

    from simcore import api
    from simcore.base.arrays import keep_freed_memory
    from simcore.planning.evaluator import batches

    model = model or MODELS[name]
    space = api.make_space(model, **{"precision": "bf16", **SPACES[name]})
    keep_freed_memory()
    rng = Random(7)
    started, cpu = time.perf_counter(), time.process_time()
    n_points = n_evaluated = n_fit = 0
    kept = []
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
