"""More GPUs, or larger ones, for a job that does not fit on those it has; with as few other
changes of its words as then will do.
"""

from __future__ import annotations

from collections.abc import Iterator

from simcore.api.change import DOUBLINGS, GROWING, LONG_TOKENS, Change, Fix, Trial, grows
from simcore.engine.resolved import Request
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.hardware.spec import GPUS
from simcore.report.formatting import gigabytes

#: Most nodes that are tried, and GPUs of a whole one.
_MOST_NODES, _NODE = 256, 8
#: How often the GPUs that do with many changes are doubled, until they do with none.
_ALONE_DOUBLINGS = 3
#: What is rented widely, by vendor, the smaller first.
_KINDS = {
    "NVIDIA": ("A100-SXM-80GB", "H100-SXM-80GB", "H200-SXM", "B200-SXM"),
    "AMD": ("MI300X", "MI355X"),
}
#: How often the ranks of a sequence too long for one node are doubled.
_LONG_DOUBLINGS = 5
#: Cuts of a model: what sharding alone leaves whole on every GPU is a long sample, a layer's
#: experts, its products.
_CUTS: tuple[dict[str, int], ...] = (
    *({"tp": 2**i} for i in range(1, DOUBLINGS + 1)),
    {"tp": 8, "pp": 4}, {"tp": 8, "pp": 16}, {"tp": 2, "ep": 64}, {"ep": 64, "pp": 8},
    {"ep": 64, "pp": 16}, {"tp": 8, "ep": 64, "pp": 8}, {"tp": 8, "ep": 64, "pp": 16},
)  # fmt: skip


def more_gpus(request: Request, attempt: Trial) -> list[Fix]:
    """The fewest GPUs of these kinds that do, with the fewest changes beside them; and where more
    do with none, how many.
    """
    sizes = [gpus for gpus in _more(request.cluster) if _may_hold(request, gpus)]
    for at, gpus in enumerate(sizes):
        fewest = _sparing(request, gpus, attempt)
        if fewest is None:
            continue
        if fewest.said == gpus:
            return [fewest]
        later = sizes[at + 1 : at + 1 + _ALONE_DOUBLINGS]
        alone = next((f for g in later if (f := attempt(_alone(g), surely=True))), None)
        return [f for f in (fewest, alone) if f]
    return []


def larger_gpus(request: Request, attempt: Trial) -> list[Fix]:
    """The fewest GPUs of the first larger kind of which some number will do."""
    most = max(g.gpu.usable_memory_bytes for g in request.cluster.groups)
    vendor = request.cluster.groups[0].gpu.vendor
    for name in _KINDS.get(vendor, ()):
        if GPUS[name].usable_memory_bytes <= most:
            continue
        sizes = (gpus for gpus in _whole_nodes(name, 1) if _may_hold(request, gpus))
        found = next((f for gpus in sizes if (f := _sparing(request, gpus, attempt))), None)
        if found is not None:
            return [found]
    return []


def why_none(tried: Trial) -> str:
    """What of the nearest of all that was tried is more than a GPU has, alone or in all."""
    if tried.nearest is None:
        return ""
    change, memory = tried.nearest
    has = memory.capacity_bytes
    name, most = max(memory.terms.items(), key=lambda term: term[1])
    said = name.replace("_", " ")
    if most > has:
        verb = "take" if said.endswith("s") else "takes"
        what = f"{said} alone {verb} {gigabytes(most)} of {gigabytes(has)} GB"
    else:
        needs = f"{gigabytes(memory.least_bytes)} of {gigabytes(has)} GB"
        what = f"needs {needs}, {gigabytes(most)} GB of it {said}"
    return f"{what}, with {change.said}"


def _may_hold(request: Request, gpus: str) -> bool:
    """Whether GPUs hold what must be held of every parameter, once among all of them."""
    if request.strategy.offload:  # the host holds it
        return True
    p, optimizer = request.strategy.precision, request.strategy.optimizer
    each = p.param_bytes + p.master_bytes + optimizer.state_bytes
    held = request.workload.trainable_numel * each
    groups = parse_cluster(gpus).groups
    return held <= sum(g.n_gpus * g.gpu.usable_memory_bytes for g in groups)


def _more(cluster: ClusterSpec) -> Iterator[str]:
    """Clusters of the same kinds, the smaller first; what is mixed grows as it is mixed."""
    if len(cluster.groups) > 1:
        times = 2
        while times * cluster.n_nodes <= _MOST_NODES:
            yield "+".join(f"{g.n_nodes * times}x{g.gpus_per_node}x{g.gpu.name}"
                           for g in cluster.groups)  # fmt: skip
            times *= 2
        largest = max(cluster.groups, key=lambda g: g.gpu.usable_memory_bytes)
        yield from _whole_nodes(largest.gpu.name, 1)
        return
    group = cluster.groups[0]
    within = group.gpus_per_node * 2
    while group.n_nodes == 1 and within < _NODE:
        yield f"1x{within}x{group.gpu.name}"
        within *= 2
    per_node = max(group.gpus_per_node, _NODE)
    nodes = group.n_nodes * (1 if group.gpus_per_node < per_node else 2)
    yield from _whole_nodes(group.gpu.name, nodes, per_node)


def _whole_nodes(gpu: str, nodes: int, per_node: int = _NODE) -> Iterator[str]:
    while nodes <= _MOST_NODES:
        yield f"{nodes}x{per_node}x{gpu}"
        nodes *= 2


def _alone(gpus: str) -> Change:
    return Change(gpus, {"gpus": gpus, "nnodes": None, "nproc_per_node": None})


def _sparing(request: Request, gpus: str, attempt: Trial) -> Fix | None:
    """The least that must change beside the GPUs, the fastest of such; None where all of it does
    not help."""
    fitting: list[tuple[int, float, Fix]] = []
    for cut in _cuts(request):
        parts = [*_relief(request, cut)]
        if not attempt(_joined(gpus, parts)):
            continue
        kept = _needed(gpus, parts, attempt)
        fix = attempt(_joined(gpus, kept))
        if fix is not None:
            fitting.append((len(kept), -fix.samples_per_s, fix))
    return min(fitting, key=lambda f: f[:2])[2] if fitting else None


def _cuts(request: Request) -> Iterator[dict[str, int]]:
    yield {}
    tokens = request.workload.tokens_per_sample
    if tokens >= LONG_TOKENS:
        yield {"cp": _NODE}
    if tokens >= LONG_TOKENS * _NODE:  # a node's part of such a sequence is a long one still
        yield from ({"tp": _NODE, "cp": 2**i} for i in range(1, _LONG_DOUBLINGS + 1))
    yield {"ep": _NODE}
    yield from _CUTS


#: A way to need less memory: the strongest change first, then weaker ones.
_Rungs = tuple[Change, ...]


def _relief(request: Request, cut: dict[str, int]) -> Iterator[_Rungs]:
    """What is changed beside the GPUs, what costs most speed first."""
    if any(b.recomputable for b in request.workload.blocks):
        whole = {"recompute_modules": None, "recompute_layers": None}
        yield tuple(Change(f"recompute {how}", {"recompute": how, **whole})
                    for how in ("full", "selective"))  # fmt: skip
    for name, degree in reversed(cut.items()):
        yield (Change(f"{name} {degree}", {name: degree}),)
    stages = (1,) if "pp" in cut else (3, 2, 1)
    yield tuple(Change(f"zero{n}", {"strategy": f"zero{n}", "shard_ranks": None}) for n in stages)
    yield (Change("micro-batch 1", {"micro_batch": 1}),)
    if not request.growing_segments and grows(request):
        yield (GROWING,)


def _joined(gpus: str, parts: list[_Rungs]) -> Change:
    change = _alone(gpus)
    for rungs in parts:
        change += rungs[0]
    return change


def _needed(gpus: str, parts: list[_Rungs], attempt: Trial) -> list[_Rungs]:
    """Of changes that help together those that must stay, each as weak as may be."""
    kept = list(parts)
    for part in parts:
        without = [p for p in kept if p is not part]
        if attempt(_joined(gpus, without)):
            kept = without
            continue
        for n in range(len(part) - 1, 0, -1):  # the weakest that will do
            weaker = [p[n:] if p is part else p for p in kept]
            if attempt(_joined(gpus, weaker)):
                kept = weaker
                break
    return kept
