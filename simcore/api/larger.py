"""Clusters with more GPUs, or with larger ones, on which a job fits, with few other changes."""

from __future__ import annotations

from collections.abc import Iterator

from simcore.api.change import DOUBLINGS, GROWING, LONG_TOKENS, Change, Fix, Trial, grows
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.hardware.spec import GPUS
from simcore.report.formatting import gigabytes
from simcore.request.resolved import Request

#: The most nodes that are tried, and the GPUs of a whole node.
_MOST_NODES, _NODE = 256, 8
#: Having found GPUs that suffice with other changes, how often their number is doubled when looking
#: for one that suffices without any.
_ALONE_DOUBLINGS = 3
#: Widely rented GPUs by vendor, those with less memory first.
_KINDS = {
    "NVIDIA": ("A100-SXM-80GB", "H100-SXM-80GB", "H200-SXM", "B200-SXM"),
    "AMD": ("MI300X", "MI355X"),
}
#: How often the context-parallel ranks are doubled for sequences too long for one node.
_LONG_DOUBLINGS = 5
#: Degrees of model parallelism to try. They divide what sharding alone leaves whole on every GPU:
#: long samples, the experts of a layer, its matrix products.
_CUTS: tuple[dict[str, int], ...] = (
    *({"tp": 2**i} for i in range(1, DOUBLINGS + 1)),
    {"tp": 8, "pp": 4}, {"tp": 8, "pp": 16}, {"tp": 2, "ep": 64}, {"ep": 64, "pp": 8},
    {"ep": 64, "pp": 16}, {"tp": 8, "ep": 64, "pp": 8}, {"tp": 8, "ep": 64, "pp": 16},
)  # fmt: skip


def more_gpus(request: Request, attempt: Trial) -> list[Fix]:
    """The fewest GPUs of the same types on which the job fits, with the fewest other changes; and
    the fewest on which it fits without other changes, if that is another number.
    """
    sizes = [gpus for gpus in _more(request.cluster) if _may_hold(request, gpus)]
    for at, gpus in enumerate(sizes):
        fewest = _sparing(request, gpus, attempt)
        if fewest is None:
            continue
        if fewest.said == gpus:
            return [fewest]
        later = sizes[at + 1 : at + 1 + _ALONE_DOUBLINGS]
        alone = next((f for g in later if (f := attempt(_alone(g)))), None)
        return [f for f in (fewest, alone) if f]
    return []


def larger_gpus(request: Request, attempt: Trial) -> list[Fix]:
    """The fewest GPUs of another type on which the job fits, with the fewest other changes.

    The type is the first of ``_KINDS`` with more memory than the present GPUs on which it fits.
    """
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
    """Why even the change that comes closest to fitting does not fit: the largest term of memory.

    Empty where every change was invalid.
    """
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
    """Whether one copy of parameters, master weights and optimizer states, divided among all these
    GPUs, fits.
    """
    if request.strategy.offload:  # the host holds them
        return True
    p, optimizer = request.strategy.precision, request.strategy.optimizer
    each = p.param_bytes + p.master_bytes + optimizer.state_bytes
    held = request.workload.trainable_numel * each
    groups = parse_cluster(gpus).groups
    return held <= sum(g.n_gpus * g.gpu.usable_memory_bytes for g in groups)


def _more(cluster: ClusterSpec) -> Iterator[str]:
    """Clusters of the same GPU types, the smaller first; mixed clusters keep their proportions."""
    if len(cluster.groups) > 1:
        times = 2
        while times * cluster.n_nodes <= _MOST_NODES:
            yield "+".join(f"{g.n_nodes * times}x{g.gpus_per_node}x{g.gpu.name}"
                           for g in cluster.as_written)  # fmt: skip
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
    """The fix with the fewest changes besides the GPUs, the fastest of these; None where no
    combination of changes helps.
    """
    fitting: list[tuple[int, float, Fix]] = []
    for cut in _cuts(request):
        parts = [*_relief(request, cut)]
        if not attempt.fits(_joined(gpus, parts)):
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
    if tokens >= LONG_TOKENS * _NODE:  # even an eighth of such a sequence is long
        yield from ({"tp": _NODE, "cp": 2**i} for i in range(1, _LONG_DOUBLINGS + 1))
    yield {"ep": _NODE}
    yield from _CUTS


#: A way to save memory: the strongest change first, then milder ones.
_Rungs = tuple[Change, ...]


def _relief(request: Request, cut: dict[str, int]) -> Iterator[_Rungs]:
    """Changes to make besides the GPUs, those that cost the most speed first."""
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
    """The changes that remain necessary of some that help together, each as mild as possible."""
    kept = list(parts)
    for part in parts:
        without = [p for p in kept if p is not part]
        if attempt.fits(_joined(gpus, without)):
            kept = without
            continue
        for n in range(len(part) - 1, 0, -1):  # the mildest that suffices
            weaker = [p[n:] if p is part else p for p in kept]
            if attempt.fits(_joined(gpus, weaker)):
                kept = weaker
                break
    return kept
