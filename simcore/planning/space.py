"""A space of configurations: what varies, in which order, and how many points that is.

Two kinds of axes. *Form* axes (model, precision, strategy, recompute, degrees ...) shape the step
graph: each combination is one form. *Array* axes (cluster, accumulation, micro-batch) are the
configuration axis along which the engine evaluates a form in one call.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod
from typing import Any, get_args

from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.engine.options import Options
from simcore.engine.shares import check_shares
from simcore.engine.sizes import sides
from simcore.engine.sweep import cluster_kind
from simcore.engine.training_library import AUTO
from simcore.engine.words import word_problems
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.host import ISSUERS
from simcore.planning.grid import clusters as cluster_grid
from simcore.planning.grid import named_values, whole_values
from simcore.strategy.cuts import normalised
from simcore.strategy.layout import SCHEDULES, CpComm, Dispatcher
from simcore.strategy.precision import MAIN_GRADS, OPTIMIZERS, PRECISIONS
from simcore.strategy.routing import factor
from simcore.strategy.strategy import STRATEGIES, TORCH_NAMES, Recompute, parse_offload
from simcore.workload.archs.lm_attention import ATTENTIONS
from simcore.workload.settings import as_words, settings_given

#: Form axes whose values are whole numbers, and those whose values are names.
WHOLE_AXES = (
    "seq_len", "lora_rank", "tp", "pp", "vpp", "cp", "ep", "expert_tp", "shard_ranks",
    "recompute_layers", "offload_layers", "frames",
)  # fmt: skip
#: Those that make another workload: they turn slowest, so that its kernels are found once.
WORKLOAD_AXES = (
    "seq_len", "resolution", "frames", "lora_rank", "expert_imbalance", "expert_capacity",
)  # fmt: skip
NAMED_AXES: dict[str, tuple[str, ...]] = {
    "strategy": STRATEGIES,
    "precision": tuple(PRECISIONS),
    "optimizer": tuple(OPTIMIZERS),
    "recompute": get_args(Recompute),
    "main_grads": MAIN_GRADS,
    "dispatcher": get_args(Dispatcher),
    "cp_comm": get_args(CpComm),
    "attention": ATTENTIONS,
    "schedule": SCHEDULES,
    "issuer": ISSUERS,
}
#: What a name of an axis is called elsewhere.
OTHER_NAMES: dict[str, Mapping[str, str]] = {"strategy": TORCH_NAMES}
#: Degrees that cut the model over ranks.
DEGREES = ("tp", "pp", "cp", "ep")
#: Names that have a grammar of their own: what separates them, and what says that one is wrong.
FREE_AXES: dict[str, tuple[str, Callable[[str], object]]] = {
    "offload": (",", parse_offload),
    "stages": (";", normalised),
    "shares": (",", check_shares),
    "resolution": (",", sides),
    "expert_imbalance": (",", partial(factor, "expert-imbalance")),
    "expert_capacity": (",", partial(factor, "expert-capacity")),
}
#: Axes along which a form is evaluated in one call.
ARRAY_AXES = ("micro_batch", "grad_accum", "global_batch")
#: What a space holds fixed: one value for all points.
FIXED = (
    "calibration", "inputs", "settings", "sequence_parallel", "overlap",
    "recompute_modules", "grad_clip", "optimizer_impl", "bucket_numel", "quantised_base",
    "lora_targets", "prefetch_blocks", "reuse_numel", "gather_tensors", "eager_kernels",
    "growing_segments", "launch_blocking", "compile", "software", "fp8_params", "nccl_algo",
    "nccl_proto",
    "expert_padding",
)  # fmt: skip

Form = Mapping[str, Any]


@dataclass(frozen=True)
class Space:
    """The product of all axes. ``axes`` holds the form axes, the last turns fastest.

    Exactly one of ``grad_accums`` and ``global_batches`` has values; a None among the
    micro-batches stands for the model's default. ``networked``: networks are an axis.
    """

    models: tuple[str, ...]
    clusters: tuple[ClusterSpec, ...]
    axes: tuple[tuple[str, tuple[Any, ...]], ...]
    micro_batches: tuple[int | None, ...]
    grad_accums: tuple[int, ...]
    global_batches: tuple[int, ...]
    fixed: tuple[tuple[str, Any], ...] = ()
    networked: bool = False

    def __len__(self) -> int:
        return self.n_forms * len(self.clusters) * self.points_per_cluster

    @property
    def n_forms(self) -> int:
        """Combinations of the form axes."""
        return len(self.models) * prod(len(v) for _, v in self.axes)

    @property
    def points_per_cluster(self) -> int:
        """Points that one form has on one cluster."""
        batches = len(self.global_batches or self.grad_accums)
        return len(self.micro_batches) * batches

    def form(self, index: int) -> tuple[str, Form]:
        """A form: the model's name and the words of its request. The last axis turns fastest."""
        words: dict[str, Any] = {}
        for name, values in reversed(self.axes):
            index, at = divmod(index, len(values))
            words[name] = values[at]
        return self.models[index], {**dict(self.fixed), **words}

    def forms(self) -> Iterator[tuple[str, Form]]:
        """Every form in order."""
        return map(self.form, range(self.n_forms))

    def kinds(self) -> list[list[int]]:
        """Clusters by kind, as indices: those of one kind share an axis."""
        found: dict[object, list[int]] = {}
        for i, cluster in enumerate(self.clusters):
            found.setdefault(cluster_kind(cluster), []).append(i)
        return list(found.values())

    def fingerprint(self) -> str:
        """A digest of the space: what a resumed sweep must agree with."""
        text = repr((
            self.models, [f"{c} {[g.node.nics for g in c.groups]}" for c in self.clusters],
            self.axes, self.micro_batches, self.grad_accums, self.global_batches, self.fixed,
        ))  # fmt: skip
        return hashlib.sha256(text.encode()).hexdigest()[:16]


def make_space(
    models: str | Sequence[str],
    gpus: str | Sequence[str] | Sequence[ClusterSpec],
    *,
    network: str | Sequence[str] | None = None,
    node: str | None = None,
    nnodes: str | int | None = None,
    nproc_per_node: str | int | None = None,
    **words: Any,
) -> Space:
    """A space from words: each axis a value, a sequence, or the text of a grid.

    ``nnodes`` and ``nproc_per_node`` count the nodes and GPUs of bare types in ``gpus``. Raises
    InvalidConfig with everything that is wrong.
    """
    problems: list[str] = []
    names = _listed(models)
    networks = [None, *()] if network is None else list(_listed(network))
    found_clusters: tuple[ClusterSpec, ...] = ()
    given = [gpus] if isinstance(gpus, str) else list(gpus)
    try:
        if given and all(isinstance(g, ClusterSpec) for g in given):
            found_clusters = tuple(g for g in given if isinstance(g, ClusterSpec))
        else:
            found_clusters = cluster_grid(
                [str(g) for g in given], networks=networks or (None,), node=node,
                nnodes=nnodes, nproc_per_node=nproc_per_node,
            )  # fmt: skip
    except InvalidConfig as err:
        problems += err.violations
    axes: list[tuple[str, tuple[Any, ...]]] = []
    arrays: dict[str, tuple[int, ...]] = {}
    fixed: dict[str, Any] = {}
    for name, value in words.items():
        if value is None:
            continue
        try:
            if name in FIXED:
                fixed[name] = _fixed(name, value)
                continue
            values = axis_values(name, value)
        except SimcoreError as err:
            problems += err.violations if isinstance(err, InvalidConfig) else [str(err)]
            continue
        if name in ARRAY_AXES:
            arrays[name] = values
        else:
            axes.append((name, values))
    axes.sort(key=lambda axis: axis[0] not in WORKLOAD_AXES)
    if "software" not in fixed and _cuts(axes):  # points without a cut run the same library
        fixed["software"] = AUTO
    problems += word_problems(fixed, Options)
    if not names:
        problems.append("no model given: name one of `simcore list models`")
    if {"grad_accum", "global_batch"} <= arrays.keys():
        problems.append("give --grad-accum or --global-batch, not both")
    if problems:
        raise InvalidConfig(list(dict.fromkeys(problems)))
    return Space(
        models=names,
        clusters=found_clusters,
        axes=tuple(axes),
        micro_batches=arrays.get("micro_batch", (None,)),
        grad_accums=() if "global_batch" in arrays else arrays.get("grad_accum", (1,)),
        global_batches=arrays.get("global_batch", ()),
        fixed=tuple(sorted(fixed.items())),
        networked=len(networks) > 1,
    )


def _fixed(name: str, value: Any) -> Any:
    """A word of all points; settings as text, since a space is a key. Raises InvalidConfig."""
    return " ".join(as_words(settings_given(value))) if name == "settings" else value


def _cuts(axes: Sequence[tuple[str, tuple[Any, ...]]]) -> bool:
    """Whether some point cuts the model over ranks."""
    return any(name in DEGREES and max(values) > 1 for name, values in axes)


def axis_values(name: str, value: Any) -> tuple[Any, ...]:
    """The values of one axis. Raises InvalidConfig, UnknownName."""
    flag = "--" + name.replace("_", "-")
    if isinstance(value, str | int | float):
        parts: list[Any] = [value]
    else:
        parts = list(value)
    if name == "micro_batch" and "max" in parts:
        raise InvalidConfig(["--micro-batch max is not a grid: write 1..64*2, what fits is ranked"])
    out: dict[Any, None] = {}
    for part in parts:
        if name in WHOLE_AXES or name in ARRAY_AXES:
            out.update(dict.fromkeys(whole_values(flag, part)))
        elif name in NAMED_AXES:
            known, others = NAMED_AXES[name], OTHER_NAMES.get(name, {})
            out.update(dict.fromkeys(named_values(name, str(part), known, others)))
        elif name in FREE_AXES:
            separator, check = FREE_AXES[name]
            names = [p.strip() for p in str(part).split(separator)]
            for one in names:
                check(one)
            out.update(dict.fromkeys(names))
        else:
            raise InvalidConfig([f"a sweep has no axis {name!r}"])
    if not out:
        raise InvalidConfig([f"{flag} has no values"])
    return tuple(out)


def _listed(value: str | Sequence[str]) -> tuple[str, ...]:
    parts = [value] if isinstance(value, str) else list(value)
    return tuple(dict.fromkeys(p.strip() for part in parts for p in part.split(",") if p.strip()))
