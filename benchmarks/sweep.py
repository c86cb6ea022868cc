"""Strategies a second: ``python -m benchmarks.sweep --json``.

Dense transformer, tensor x pipeline x data parallelism, ZeRO, recompute, micro-batch and
accumulation on up to 4,096 GPUs, on one core; time, memory and validity included. Some points are
then held against ``predict``. ``--compare`` times llm-analysis on the same model where installed.
"""

from __future__ import annotations

import argparse
import json
import os
import sys
import time

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


def run(name: str, checks: int = 20) -> dict[str, object]:
    """Evaluate a space point by point; returns the figures."""
    import resource
    from random import Random

    import numpy as np

    from simcore import api
    from simcore.base.arrays import keep_freed_memory
    from simcore.planning.evaluator import batches

    space = api.make_space(MODELS[name], **{"precision": "bf16", **SPACES[name]})
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
        "space": {"name": name, "model": MODELS[name], **SPACES[name]},
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


def llm_analysis_rate(seconds: float = 5.0) -> float | None:
    """Strategies a second of llm-analysis on the same model; None where it is not installed."""
    try:
        from llm_analysis.analysis import LLMAnalysis
        from llm_analysis.config import (
            ParallelismConfig,
            get_gpu_config_by_name,
            get_model_config_by_name,
        )
    except ImportError:
        return None
    model = get_model_config_by_name("upstage/Llama-2-70b-instruct-v2")
    gpu = get_gpu_config_by_name("h100-sxm-80gb")
    n, started = 0, time.perf_counter()
    while time.perf_counter() - started < seconds:
        for tp in (1, 2, 4, 8):
            analysis = LLMAnalysis(model, gpu, parallelism_config=ParallelismConfig(tp_size=tp))
            analysis.training(batch_size_per_gpu=1, seq_len=4096)
            n += 1
    return n / (time.perf_counter() - started)


def main() -> None:
    """The command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--space", choices=SPACES, default="dense")
    parser.add_argument("--json", action="store_true")
    parser.add_argument("--compare", action="store_true")
    asked = parser.parse_args()
    found = run(asked.space)
    if asked.compare:
        found["llm_analysis_per_s"] = llm_analysis_rate()
    if asked.json:
        sys.stdout.write(json.dumps(found, indent=2) + "\n")
    else:
        for key, value in found.items():
            sys.stdout.write(f"{key:<20}{value}\n")


if __name__ == "__main__":
    main()
