"""Host time to launch a kernel: by its kind, by processor and by the program that launches it."""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Literal, NamedTuple, get_args

from simcore.base.database import read_yaml, shipped_root

#: Programs that launch kernels. ``torch``: modules of torch, operator by operator. ``megatron``:
#: modules of Megatron-Core with those of Transformer Engine inside, whose products are autograd
#: functions written in Python, with casts, views and hooks around them. ``megatron_graphs``: the
#: same with attention and routing replayed as CUDA graphs. ``megatron_2022``: Megatron-LM's own
#: modules before Megatron-Core and Transformer Engine. ``graph``: one CUDA graph of the step.
Issuer = Literal["torch", "megatron", "megatron_graphs", "megatron_2022", "graph"]
ISSUERS: tuple[Issuer, ...] = get_args(Issuer)


def issue_over_torch(
    runtime: Mapping[str, Any], issuer: Issuer, cpu: str, *, eight_bit: bool = False
) -> float:
    """Host time to launch a kernel, over that of torch on an x86 host (``runtime.yaml``).

    ``cpu``: the processor's name in the node's record; empty where the host itself was measured.
    ``eight_bit``: whether products run in 8 bits or fewer; Transformer Engine handles their scales
    and casts in Python too.
    """
    table = runtime["issue_over_torch"]
    if issuer == "graph":
        return float(table["graph"]["value"])  # the device replays: the CPU hardly matters
    by_program = float(table[issuer]["value"]) if issuer in table else 1.0
    if issuer.startswith("megatron") and eight_bit:
        by_program *= float(table["megatron_eight_bit"]["value"])
    by_cpu = table["by_cpu"]
    return by_program * (float(by_cpu[cpu]["value"]) if cpu in by_cpu else 1.0)


class HostWork(NamedTuple):
    """Work of the host: what the framework does, and what CUDA and its libraries do.

    ``issues``: time of Python, dispatch and autograd in *kernel issues*, of which forward of
    ``nn.Linear`` takes 1.28. ``launches``: time in CUDA's driver and libraries, in launches of one
    kernel.
    """

    issues: float
    launches: float


@lru_cache(maxsize=1)
def host_work_by_kind() -> Mapping[str, tuple[HostWork, HostWork]]:
    """Host work of an operator of PyTorch that runs eagerly, by kind: (forward, backward).

    Of kinds with several kernels in backward it is the work of one of them. Kinds that are missing
    cost as ``elementwise`` (``runtime.yaml``, ``host_work``).
    """
    table = read_yaml(shipped_root() / "hardware_db" / "calibrations" / "runtime.yaml")
    return {
        kind: (HostWork(*map(float, row["forward"])), HostWork(*map(float, row["backward"])))
        for kind, row in table["host_work"].items()
    }


def host_work(kind: str, *, backward: bool) -> HostWork:
    """Host work of one eager kernel of a kind."""
    table = host_work_by_kind()
    return table.get(kind, table["elementwise"])[backward]
