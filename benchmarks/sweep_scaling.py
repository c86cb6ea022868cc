"""How the time and memory of sweeps grow with workers and points. ``benchmarks.sweep`` calls it.

Each figure is measured in a new interpreter with one BLAS thread, one figure at a time. Wall time
shows the scaling if nothing else runs on the machine; the processor time of this process and of its
workers shows on any machine where the time is spent.
"""

from __future__ import annotations

import json
import math
import multiprocessing
import os
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

MODEL = "llama3-70b"
#: Number of points of one form on one cluster, and number of forms of one sequence length.
_EACH, _FORMS = 4 * 64, 4 * 2 * 4
_WORDS = {
    "precision": "bf16", "strategy": "ddp,zero1,zero2,zero3", "recompute": "none,full",
    "tp": "1,2,4,8", "micro_batch": "1,2,4,8", "grad_accum": "1..64",
}  # fmt: skip
_MOST_CLUSTERS = 511  # 4,096 GPUs


def words_of(points: int) -> dict[str, str]:
    """A search space of about ``points`` points.

    The numbers of forms and of clusters both grow with the square root of ``points``.
    """
    units = max(1.0, points / (_EACH * _FORMS))
    lengths = max(1, round(math.sqrt(units) / 4), math.ceil(units / _MOST_CLUSTERS))
    clusters = max(1, round(units / lengths))
    return {
        **_WORDS,
        "gpus": f"H100:2..{clusters + 1}x8" if clusters > 1 else "2x8xH100",
        "seq_len": f"1024..{1024 * lengths}:1024" if lengths > 1 else "1024",
    }


def measure(points: int, how: str, output: str | None = None) -> dict[str, Any]:
    """The figures of one sweep started by this process.

    ``how``: ``one`` (no workers), ``processes:N`` or ``dask:N``.
    """
    from simcore import api

    kind, _, n = how.partition(":")
    given: dict[str, Any] = {}
    words = words_of(points)
    started, client, local = time.perf_counter(), None, None
    if kind == "dask":
        from distributed import Client

        from simcore.planning.workers.dask_cluster import local_cluster

        local = local_cluster(int(n))
        client = given["cluster"] = Client(local)
        client.wait_for_workers(int(n))
    elif kind == "processes":
        given["jobs"] = int(n)
    start_s = time.perf_counter() - started
    before_s = time.process_time()
    found = api.sweep(MODEL, words.pop("gpus"), keep=False, output=output, **given, **words)
    sweep_cpu_s = time.process_time() - before_s
    if client is not None and local is not None:
        client.close()
        local.close()
    for process in multiprocessing.active_children():  # their time counts once they have ended
        process.join()
    own, theirs = (
        resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)
    )
    return {
        "points": found.n_done,
        "evaluated": found.n_evaluated,
        "start_s": start_s,
        "wall_s": found.seconds,
        "sweep_cpu_s": sweep_cpu_s,
        "cpu_s": own.ru_utime + own.ru_stime,
        "workers_cpu_s": theirs.ru_utime + theirs.ru_stime,
        "peak_bytes": own.ru_maxrss * 1024,
        "front": [p.to_dict() for p in found.front],
        "best": [p.to_dict() for p in found.best],
    }


def fresh(points: int, how: str, output: str | None = None) -> dict[str, Any]:
    """The figures of ``measure`` in a new interpreter."""
    asked = json.dumps([points, how, output])
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.sweep_scaling", asked],
        env={**os.environ, "OPENBLAS_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True,
        check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def workers(points: int, runs: int) -> dict[str, Any]:
    """Speed-ups of two processes and of two Dask workers over one process, medians of ``runs``.

    The time of two processes includes their start. Dask has two speed-ups: without and with the
    start of its workers, whose time is a figure too.
    """
    hows = ("one", "processes:2", "dask:2")
    seen: dict[str, list[dict[str, Any]]] = {how: [] for how in hows}
    for _ in range(runs):  # in turns, so that other load on the machine affects all alike
        for how in hows:
            seen[how].append(fresh(points, how))

    def median(how: str, name: str) -> float:
        return statistics.median(float(r[name]) for r in seen[how])

    one = median("one", "wall_s")
    answers = {json.dumps([r["best"], r["front"]]) for rs in seen.values() for r in rs}
    return {
        "points": seen["one"][0]["points"],
        "runs": runs,
        "same_answers": len(answers) == 1,
        **{
            how: {
                name: median(how, name) for name in ("start_s", "wall_s", "cpu_s", "workers_cpu_s")
            }
            for how in hows
        },
        "speedup_two_processes": one / median("processes:2", "wall_s"),
        "speedup_two_dask_workers": one / median("dask:2", "wall_s"),
        "speedup_two_dask_workers_with_start": one
        / (median("dask:2", "wall_s") + median("dask:2", "start_s")),
    }


def growth(most: int) -> dict[str, Any]:
    """Processor seconds of one process for 10^4, 10^5 ... ``most`` points.

    ``exponent``: exponent with which the time grows from one size to the next: 1 if it is linear,
    less while the fixed time of a sweep matters.
    """
    rows: list[dict[str, Any]] = []
    size = 10**4
    while size <= most:
        found = fresh(size, "one")
        row = {name: found[name] for name in ("points", "evaluated", "cpu_s", "peak_bytes")}
        row["us_per_point"] = 1e6 * row["cpu_s"] / row["points"]
        if rows:
            before = rows[-1]
            row["exponent"] = math.log(row["cpu_s"] / before["cpu_s"]) / math.log(
                row["points"] / before["points"]
            )
        rows.append(row)
        size *= 10
    return {"sizes": rows}


def scaling(points: int, runs: int) -> dict[str, Any]:
    """The figures of ``workers`` and of ``growth``."""
    return {"workers": workers(points, runs), "growth": growth(points)}


def memory(points: int) -> dict[str, Any]:
    """Peak memory of a process that only summarises points, and of one that writes Parquet."""
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "points.parquet"
        summed, written = fresh(points, "one"), fresh(points, "one", str(file))
        return {
            "points": summed["points"],
            "summed_peak_bytes": summed["peak_bytes"],
            "parquet_peak_bytes": written["peak_bytes"],
            "summed_wall_s": summed["wall_s"],
            "parquet_wall_s": written["wall_s"],
            "parquet_bytes": file.stat().st_size,
        }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(measure(*json.loads(sys.argv[1]))) + "\n")
