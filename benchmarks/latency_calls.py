"""The measurements of ``benchmarks.latency``: seconds of the quickest of ``n`` calls."""

from __future__ import annotations

import importlib
import os
import resource
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from benchmarks.rows import least_s

_ROOT = Path(__file__).resolve().parents[1]
ASK = ("predict", "--model", "latte-xl", "--gpus", "4x8xA6000ada")
DIVIDED = ("predict", "--model", "llama3-70b", "--gpus", "4x8xH100", "--tp", "8", "--pp", "2")
TOO_LARGE = ("predict", "--model", "llama3-70b", "--gpus", "8xA100")
LIST = ("list", "models", "llama")
#: Folders of a clone that hold records.
_RECORDS = ("hardware_db", "models_db", "programs_db")
_COMPLETED = "simcore predict --model bert-base --gpus A6000a"


class NotHere(Exception):
    """Why a figure cannot be measured on this machine."""


def _tests_module(name: str, *folders: str) -> Any:
    """A module of ``tests``, which exists only in a checkout of the repository."""
    for folder in folders:
        path = str(_ROOT / folder)
        if path not in sys.path:
            sys.path.insert(0, path)
    try:
        return importlib.import_module(name)
    except ImportError as why:
        raise NotHere(str(why)) from None


def _children_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def process_s(
    n: int, words: list[str], *, uncounted: int = 1, ends: int = 0, cwd: str | None = None,
    **env: str,
) -> float:  # fmt: skip
    """Processor seconds of a process that ends with the code ``ends``; first calls, which write
    bytecode and caches, do not count.
    """
    least = float("inf")
    for call in range(n + uncounted):
        before = _children_s()
        done = subprocess.run(
            [sys.executable, *words], env={**os.environ, **env}, cwd=cwd, capture_output=True
        )
        if done.returncode != ends:
            raise RuntimeError(done.stderr.decode())
        if call >= uncounted:
            least = min(least, _children_s() - before)
    return least


def command_s(n: int, *words: str, ends: int = 0) -> float:
    """Seconds of a simcore command in a new process."""
    return process_s(n, ["-m", "simcore", *words], ends=ends)


def in_a_clone_s(n: int, *words: str) -> float:
    """Seconds of a command in a folder that has its own records."""
    from simcore.base.database import shipped_root

    with tempfile.TemporaryDirectory() as clone:
        for folder in _RECORDS:
            shutil.copytree(shipped_root() / folder, Path(clone) / folder)
        return process_s(n, ["-m", "simcore", *words], cwd=clone, PYTHONPATH=str(_ROOT))


def completion_s(n: int) -> float:
    """Seconds of the shell completion at one press of TAB."""
    last = str(len(_COMPLETED.split(" ")) - 1)
    return process_s(
        n, ["-m", "simcore"],
        _SIMCORE_COMPLETE="complete_bash", COMP_WORDS=_COMPLETED, COMP_CWORD=last,
    )  # fmt: skip


def import_s(n: int) -> float:
    """Seconds that ``import simcore`` takes in addition to ``import numpy`` (``-X importtime``)."""

    def microseconds(package: str) -> int:
        done = subprocess.run(
            [sys.executable, "-X", "importtime", "-c", f"import {package}"],
            capture_output=True, text=True, check=True,
        )  # fmt: skip
        last = [x for x in done.stderr.splitlines() if x.endswith(f" {package}")][-1]
        return int(last.split("|")[1])

    simcore, numpy = (min(microseconds(p) for _ in range(n)) for p in ("simcore", "numpy"))
    return (simcore - numpy) / 1e6


def engine_s(n: int) -> float:
    """Seconds of ``answer.predict.predict`` for a request whose names are already resolved."""
    from simcore.answer.predict import predict
    from simcore.answer.request import make_request

    request = make_request("latte-xl", "4x8xA6000ada")
    predict(request)
    return least_s(lambda: predict(request), 0.0, n)


def public_s(n: int) -> float:
    """Seconds of ``simcore.predict``, which also looks up names and defaults."""
    import simcore

    simcore.predict("latte-xl", "4x8xA6000ada")
    return least_s(lambda: simcore.predict("latte-xl", "4x8xA6000ada"), 0.0, n)


def configurations_s(n: int) -> float:
    """One model on 100,000 sizes, batches and links."""
    from simcore.answer.request import make_request
    from simcore.timing.evaluate import evaluate
    from simcore.timing.points import Points
    from simcore.timing.steps import job_of, point_values

    size, rng = 100_000, np.random.default_rng(0)
    request = make_request("latte-xl", "4x8xA6000ada")
    values: dict[str, Any] = dict(
        point_values(request.cluster, request.profile, "latte-xl", 2.0, 1.0)
    )
    values["n_nodes"] = rng.integers(1, 64, size).astype(float)
    values["n_ranks"] = 8 * values["n_nodes"]
    values["micro_batch"] = rng.integers(1, 17, size).astype(float)
    values["inter_bw_bytes_per_s"] = rng.uniform(1e9, 1e11, size)
    axis, job = Points.of(values, size), job_of(request)
    evaluate(job, axis.take(slice(0, 10)))
    return least_s(lambda: evaluate(job, axis), 0.0, min(n, 3))


def trillion_s(_n: int) -> float:
    """The first prediction of the largest model of Narayanan et al. 2021 in a process."""
    from simcore.answer.predict import predict

    table = _tests_module("validate.test_speed", "tests")
    with tempfile.TemporaryDirectory() as folder:
        request = table.trillion(Path(folder), 131_072)
        return least_s(lambda: predict(request), 0.0, 1)


def table_s(_n: int, *names: str) -> float:
    """``simcore validate`` of the published language-model steps in two processes."""
    tables = os.environ.get("SIMCORE_TABLES")
    if not tables:
        raise NotHere("SIMCORE_TABLES names no folder of measured tables")
    files = [str(Path(tables) / "steps" / f) for f in names]
    return process_s(1, ["-m", "simcore", "validate", *files, "--json", "--jobs", "2"])


def allocator_s(n: int, expandable: bool) -> float:
    """A replay of 100,000 allocations and frees, some thousand alive at a time."""
    from simcore.memory.allocator import replay

    random = Random(1)
    events: list[tuple[int, int | None]] = []
    live: list[int] = []
    for i in range(100_000):
        if live and random.random() < 0.5:
            at = random.randrange(len(live))
            live[at], live[-1] = live[-1], live[at]
            events.append((live.pop(), None))
        else:
            events.append((i, int(2 ** random.uniform(8, 26))))
            live.append(i)
    return least_s(lambda: replay(events, expandable_segments=expandable), 0.0, min(n, 3))


def trace_s(n: int) -> float:
    """A 24-layer GPT of width 1024 on fake tensors."""
    nets = _tests_module("reference.transformer", "tests/workload")
    import torch

    from simcore.workload.trace.callables import Built, traced_workload

    def call() -> None:
        with torch.device("meta"):
            model = nets.Gpt2(24, 1024, 16, p=0.0)
        ids = torch.zeros(2, 1024, dtype=torch.long, device="meta")
        traced_workload(Built(model, (ids,), None), (), "gpt")

    return least_s(call, 0.0, min(n, 3))


def traced_file_s(n: int) -> float:
    """The file that ``trace-model`` writes of a ResNet-50, read and built."""
    nets = _tests_module("reference.resnet", "tests/workload")
    import torch

    from simcore.workload.archs.traced import traced_part
    from simcore.workload.resolve import resolve_model
    from simcore.workload.trace.convert import converted
    from simcore.workload.trace.tracer import trace
    from simcore.workload.trace.yamlout import yaml_text

    with torch.device("meta"):
        model = nets.ResNet((3, 4, 6, 3), True, 1000)
    one, two = (trace(model, (torch.zeros(b, 3, 224, 224, device="meta"),)) for b in (2, 3))
    workload, _ = converted(
        (one, two), (2, 3), name="r", sample_unit="image", tokens_per_sample=0.0
    )
    data = {
        "full_name": "r", "arch": "traced", "sample_unit": "image",
        "params": {"value": 25557032.0, "source": "t"}, "sources": {"t": "t"},
        "training": {"micro_batch": 1, "precision": "fp32", "optimizer": "sgd", "source": "t"},
        "traced": traced_part(workload),
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "r.yaml"
        path.write_text(yaml_text(data, "r"), encoding="utf-8")
        return least_s(lambda: resolve_model(str(path)).build(), 0.0, n)


def fleet_s(_n: int) -> float:
    """A queue of 10,000 jobs of 1 to 128 GPUs over 30 days."""
    from simcore.planning.fleet import run_fleet

    jobs = _tests_module("planning.test_fleet", "tests").random_jobs(
        10_000, days=30, load_gpus=3600
    )
    return least_s(lambda: run_fleet(jobs, 4096), 0.0, 1)


def cut_s(n: int) -> float:
    """The exact cut of a pipeline whose last stage has the head."""
    from simcore.strategy.balanced_cut import balanced_cut
    from simcore.strategy.cuts import least_layers

    least = least_layers(64, 1)
    return least_s(
        lambda: balanced_cut(lambda a, b: b - a + 3.0 * (b == 1000), 1000, least), 0.0, n
    )


def shares_s(_n: int) -> float:
    """The best deal of a million samples a step to two kinds of GPU."""
    from simcore.answer.request import make_request
    from simcore.answer.shares import best_deal

    request = make_request("mnist-cnn", "1x8xH100+1x1xT4", micro_batch=1_000_000, network="ib-hdr")
    return least_s(lambda: best_deal(request), 0.0, 1)


def topology_s(n: int) -> float:
    """The graph of links of 80,000 GPUs, equal nodes folded."""
    from simcore.hardware.cluster import parse_cluster

    graph = _tests_module("cluster_graph", "tests")
    return least_s(lambda: graph.build_graph(parse_cluster("10000x8xA6000ada")), 0.0, n)


def flows_s(n: int) -> float:
    """Paths and max-min rates of random flows on a fat tree of two tiers, 4:1 above the leaves."""
    import numpy as np

    from simcore.hardware.fabrics.record import read_fabric
    from simcore.physics.fabric_shares import max_min_rates

    text = "name: a\nkind: fat-tree\ntiers: [{members: 32, oversubscription: 4}, {members: 16}]\n"
    topology = read_fabric(text, "benchmark").topology(8192, 400e9)
    source, target = np.random.default_rng(0).integers(0, 8192, (2, 100_000))
    return least_s(
        lambda: max_min_rates(
            len(source), *topology.routes(source, target), topology.bytes_per_s
        ),
        0.0, n,
    )  # fmt: skip
