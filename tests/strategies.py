"""Tiny workloads, ideal hardware and hypothesis generators that several tests share."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
from hypothesis import strategies as st
from numpy.typing import NDArray

from simcore.hardware.spec import GPUS
from simcore.physics.collectives import Group, Library
from simcore.physics.kernel import TrafficLimits
from simcore.step.graph import StepGraph, Task
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import Buckets, Strategy
from simcore.timing.points import Points
from simcore.timing.rates import ClassRates, KernelRates, no_work
from simcore.workload.graph import Block, Kernel, Op, Param, Workload
from simcore.workload.saved import Saved

Array = NDArray[np.float64]
INF = float("inf")
PARALLELISMS = ("dp", "manual", "ddp", "zero1", "zero2", "zero3")


def strategy(parallelism: str = "ddp", precision: str = "fp32", **changes: Any) -> Strategy:
    """A strategy with AdamW unless told otherwise; fields of its buckets are given directly."""
    of_buckets = {f.name for f in fields(Buckets)} & changes.keys()
    changes["buckets"] = Buckets(**{name: changes.pop(name) for name in of_buckets})
    optimizer = OPTIMIZERS[changes.pop("optimizer", "adamw")]
    return Strategy(
        parallelism=parallelism,  # type: ignore[arg-type]
        precision=PRECISIONS[precision],
        optimizer=optimizer,
        **changes,
    )


def block(
    name: str,
    numels: Sequence[int],
    *,
    forward_flop: float = 1.0,
    backward_flop: float = 2.0,
    saved: Saved | None = None,
    **more: Any,
) -> Block:
    """One op of one product each way; parameters as given."""
    op = Op(
        name="op",
        fwd=(Kernel(kind="gemm", flop=forward_flop),),
        bwd=(Kernel(kind="gemm", flop=backward_flop),),
        saved=saved or Saved(),
    )
    params = tuple(Param(f"p{i}", n) for i, n in enumerate(numels))
    return Block(name=name, ops=(op,), params=params, **more)


def workload(blocks: Sequence[Block], order: Sequence[int] | None = None, **more: Any) -> Workload:
    """A workload that runs ``blocks`` once each unless ``order`` says otherwise."""
    return Workload(
        name="tiny",
        sample_unit="sample",
        blocks=tuple(blocks),
        order=tuple(order if order is not None else range(len(blocks))),
        **more,
    )


def kernel_rates(**changes: Any) -> KernelRates:
    """Kernels of 1 FLOP/s with free memory; columns of ``KIND_RATES`` are for all kinds."""
    kinds = no_work()
    kinds["flop_per_s"], kinds["bytes_per_s"] = 1.0, INF
    for column in set(changes) & set(kinds.dtype.names or ()):
        kinds[column] = changes.pop(column)
    values: dict[str, Any] = {
        "kinds": kinds,
        "direct": no_work(),
        "limits": TrafficLimits(),
        "sm_count": 0.0,
        "half_width": 0.0,
        "attention_bwd_frac": 1.0,
        "start_s": 0.0,
    }
    return KernelRates(**(values | changes))


def rates(**changes: Any) -> ClassRates:
    """A device of 1 FLOP/s with free memory, host and copies, so that seconds equal FLOP."""
    own = {f.name for f in fields(ClassRates)}
    of_kernels = {name: changes.pop(name) for name in set(changes) - own}
    values: dict[str, Any] = {
        "gpu": GPUS["A100-SXM-80GB"],
        "kernels": kernel_rates(**of_kernels),
        "update_bytes_per_s": INF,
        "host_issue_s": 0.0,
        "host_launch_s": 0.0,
        "issue_over_torch": {},
        "h2d_bytes_per_s": INF,
        "dram_bytes_per_s": INF,
        "far_bytes_per_s": INF,
        "nvme_read_bytes_per_s": INF,
        "nvme_write_bytes_per_s": INF,
        "overlap_slowdown_frac": 0.0,
        "comm_slowdown_frac": 0.0,
        "cores": 16,
        "sockets": 2,
        "ranks_per_socket": 1.0,
        "gpus_per_node": 1,
        "peak_flop_per_s": 1.0,
        "assumptions": (),
    }
    return ClassRates(**(values | changes))


def points(size: int = 1, **changes: Any) -> Points:
    """Two ranks on two nodes over a wire without latency, 1 byte/s each way; knobs at 1."""
    values: dict[str, Any] = {
        "n_ranks": 2.0,
        "n_nodes": 2.0,
        "intra_bw_bytes_per_s": INF,
        "inter_bw_bytes_per_s": 1.0,
        "intra_hop_s": 0.0,
        "inter_hop_s": 0.0,
    }
    return Points.of(values | changes, size)


def group(
    n_ranks: Any,
    n_nodes: Any = 1.0,
    *,
    intra_bw: Any = 1e10,
    inter_bw: Any = 1e10,
    intra_hop_s: Any = 0.0,
    inter_hop_s: Any = 0.0,
    base_s: Any = 0.0,
    **library: Any,
) -> Group:
    """A communicator; every field becomes an array over the configurations."""
    given = (n_ranks, n_nodes, intra_bw, inter_bw, intra_hop_s, inter_hop_s, base_s)
    arrays = np.broadcast_arrays(*[np.atleast_1d(np.asarray(v, dtype=np.float64)) for v in given])
    found = Group(*[np.array(a) for a in arrays])
    if not library:
        return found
    lib = Library(**library)
    return replace(found, library=lib, nvls_bw_bytes_per_s=lib.nvls_bw_bytes_per_s)


@st.composite
def groups(draw: st.DrawFn) -> Group:
    """1 to 4096 nodes of 1 to 16 ranks on links from 10 MB/s to 1 TB/s."""
    nodes = draw(st.integers(1, 4096))
    rate = st.floats(1e7, 1e12)
    hop = st.floats(0.0, 1e-4)
    return group(
        float(nodes * draw(st.integers(1, 16))),
        float(nodes),
        intra_bw=draw(rate),
        inter_bw=draw(rate),
        intra_hop_s=draw(hop),
        inter_hop_s=draw(hop),
        base_s=draw(hop),
    )


@st.composite
def step_graphs(draw: st.DrawFn) -> tuple[StepGraph, Array]:
    """A random acyclic graph on several streams, and durations for three configurations."""
    n = draw(st.integers(1, 24))
    streams = ["a", "b", "c", "d"][: draw(st.integers(1, 4))]
    tasks = []
    for i in range(n):
        earlier = st.lists(st.integers(0, i - 1), max_size=3) if i else st.just([])
        tasks.append(
            Task(
                f"t{i}",
                draw(st.sampled_from(streams)),
                "term",
                tuple(draw(earlier)),
                tuple(draw(earlier)),
            )
        )
    seconds = st.lists(st.floats(0.0, 100.0), min_size=3 * n, max_size=3 * n)
    return StepGraph(tuple(tasks)), np.array(draw(seconds)).reshape(n, 3)


def on_by_default(*records: Any) -> dict[str, float]:
    """Numbers and switches that records hold where nothing is said, but for what is off or zero."""
    found: dict[str, float] = {}
    for record in records:
        pairs = ({f.name: f.default for f in fields(record)} if is_dataclass(record)
                 else record._field_defaults)  # fmt: skip
        found |= {
            name: value for name, value in pairs.items()
            if isinstance(value, int | float) and (value is True or value != 0)
        }  # fmt: skip
    return found
