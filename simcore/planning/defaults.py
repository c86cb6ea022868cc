"""The values that a plan searches where the caller gives none; the answer states them."""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

from simcore.base.errors import SimcoreError
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.spec import GPUS
from simcore.planning.grid import counted, whole_values
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import ModelSource
from simcore.workload.sharding import splits

#: Most GPUs of one type that a plan considers, where no number of available GPUs is given.
MAX_GPUS = 4096
#: Tokens per step, as of all Llama 2 models (Touvron et al. 2023, table 1).
TOKENS_PER_STEP = 4e6
#: Expert-parallel degrees that a plan searches, where they divide the model's experts.
_EXPERT_RANKS = (1, 2, 4, 8, 16, 32, 64)
_BARE = re.compile(r"^[^\d:+][^:+]*$")


def node_counts(most: int) -> list[int]:
    """Node counts up to ``most``: 1, 2, 3, 4, 6, 8, 12 ..., powers of two and 1.5 times these."""
    found: set[int] = set()
    n = 1
    while n <= most:
        found |= {n, n + n // 2} if n > 1 else {1}
        n *= 2
    return sorted(x for x in found if x <= most)


def gpu_grids(
    texts: Iterable[str],
    *,
    available: dict[str, int],
    max_gpus: int | None,
    nnodes: str | int | None = None,
    nproc_per_node: str | int | None = None,
    parts: bool = False,
) -> list[str]:
    """The grids of clusters; a type without numbers becomes whole nodes of it.

    available   GPUs that are available, by type
    max_gpus    most GPUs; with neither, there are at most ``MAX_GPUS`` of a type
    nnodes, nproc_per_node   nodes, and GPUs per node, of types without numbers
    parts       whether parts of a node are searched too: clouds rent GPUs one by one
    """
    found: list[str] = []
    for text in texts:
        for item in text.split(",") if ":" not in text else [text]:
            item = item.strip()
            if not _BARE.match(item) or GPUS.path(item) is None:  # a cluster, or a slice by name
                found.append(counted(item, nnodes, nproc_per_node))
                continue
            name = GPUS[item].name
            if nnodes is not None:
                found.append(counted(name, nnodes, nproc_per_node or _per_node(name)))
                continue
            per_node = _per_node(name)
            if nproc_per_node is not None:
                per_node = max(whole_values(f"{name}: GPUs per node", nproc_per_node))
            most = min(max_gpus or MAX_GPUS, available.get(name, MAX_GPUS))
            counts = node_counts(most // per_node)
            if nproc_per_node is None and (parts or not counts):  # GPUs of one node
                few = [n for n in (1, 2, 4) if n < per_node and n <= most]
                found += [f"{name}:1x{','.join(map(str, few))}"] if few else []
            if counts:
                nodes = ",".join(map(str, counts))
                found.append(f"{name}:{nodes}x{nproc_per_node or per_node}")
    return found


def _per_node(gpu: str) -> int:
    """GPUs in the default node of a type: the number in its preset, or 8."""
    for count in (8, 4, 2, 1):
        try:
            spec = parse_cluster(f"1x{count}x{gpu}")
        except SimcoreError:
            continue
        if not spec.groups[0].node.name.startswith("generic") or count in (8, 1):
            return count
    return 1


def default_words(source: ModelSource, given: dict[str, Any], tokens: bool) -> dict[str, Any]:
    """Values of the axes that the caller did not give, for a model.

    ``given``: options of the caller; ``tokens``: whether the length of the run is in tokens, so
    that a usual global batch is known.
    """
    config = source.config if isinstance(source, ModelRecord) else {}
    cut = isinstance(source, ModelRecord) and splits(source.arch)
    words: dict[str, Any] = {
        "strategy": "ddp,zero1,zero3,hsdp",
        "recompute": "all",
        "micro_batch": "1,2,4,8" if tokens else "1..64*2",
    }
    if cut:
        words |= {"tp": "1..8*2", "pp": "1..16*2"}
        if experts := int(config.get("experts", 0) or 0):
            words["ep"] = ",".join(str(n) for n in _EXPERT_RANKS if experts % n == 0)
    if tokens and not {"global_batch", "grad_accum"} & {k for k, v in given.items() if v}:
        seq_len = given.get("seq_len")
        overrides = {"seq_len": int(seq_len)} if seq_len else {}
        per_sample = source.build(**overrides).tokens_per_sample
        if per_sample:
            words["global_batch"] = tuple(_batches(TOKENS_PER_STEP / per_sample))
    return {k: v for k, v in words.items() if given.get(k) is None}


def _batches(wanted: float) -> list[int]:
    """The power of two nearest to a batch, and 1.5 times that."""
    power = 1
    while power * 2 <= wanted * 2**0.5:
        power *= 2
    return [power, power + power // 2] if power > 1 else [1]


__all__ = ["MAX_GPUS", "TOKENS_PER_STEP", "default_words", "gpu_grids", "node_counts"]
