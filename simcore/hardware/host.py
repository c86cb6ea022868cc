"""Host time to launch a kernel, by processor and by the program that launches it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Literal, get_args

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
