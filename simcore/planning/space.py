"""A space of configurations: the axes that vary, their order, and the number of points.

There are two kinds of axes. *Form* axes (model, precision, strategy, recompute, degrees ...)
determine the step graph: each combination of their values is one *form*. *Array* axes (cluster,
accumulation, micro-batch) do not: the engine evaluates all their combinations in one call per form.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping, Sequence
from itertools import product, takewhile
from math import prod
from pathlib import Path
from typing import Any

from simcore.answer.sweep import cluster_kind
from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.base.record import dataclass
from simcore.hardware.cluster import ClusterSpec
from simcore.planning.grid import clusters as cluster_grid
from simcore.planning.grid import named_values, whole_values
from simcore.request.training_library import AUTO
from simcore.strategy.layout import DEGREES, Layout
from simcore.strategy.options import OPTIONS, Name, Option, Text, Whole, read_options, refuse_empty
from simcore.workload.settings import as_words, settings_given

#: Degrees that divide the model over ranks.
CUTS = tuple(degree for degree in DEGREES if degree != "vpp")

Form = Mapping[str, Any]
#: The axis that varies fastest: its forms are evaluated together.
ALIKE = "recompute"
#: Axes whose forms are evaluated together where no other one varies faster.
_TOGETHER = (ALIKE, "pp")
#: Longest text of a value in ``Space.asked``; a longer value is replaced by its digest.
_SHORT = 60


@dataclass(frozen=True)
class Space:
    """The product of all axes.

    axes            names and values of the form axes; the last one varies fastest
    micro_batches   None among them stands for the model's default
    grad_accums, global_batches   exactly one of them has values
    fixed           options with the same value at all points
    networked       whether the network is an axis
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
        """Number of combinations of the form axes."""
        return len(self.models) * prod(len(v) for _, v in self.axes)

    @property
    def forms_alike(self) -> int:
        """Number of forms, one after another, that share a model with the same settings."""
        return prod(len(values) for name, values in self.axes if _of(name) != "workload")

    @property
    def forms_together(self) -> int:
        """Number of forms, one after another, that differ in recompute and pipeline alone."""
        last = takewhile(lambda axis: len(axis[1]) == 1 or axis[0] in _TOGETHER, self.axes[::-1])
        return prod(len(values) for _, values in last)

    @property
    def points_per_cluster(self) -> int:
        """Number of points of one form on one cluster."""
        batches = len(self.global_batches or self.grad_accums)
        return len(self.micro_batches) * batches

    def form(self, index: int) -> tuple[str, Form]:
        """The form of that index: the model's name and the options of its request."""
        words: dict[str, Any] = {}
        for name, values in reversed(self.axes):
            index, at = divmod(index, len(values))
            words[name] = values[at]
        return self.models[index], {**dict(self.fixed), **words}

    def forms(self) -> Iterator[tuple[str, Form]]:
        """All forms, in order of their index."""
        return map(self.form, range(self.n_forms))

    def kinds(self) -> list[list[int]]:
        """Indices of the clusters, grouped by kind: the engine evaluates one kind in one call.

        A named program may divide each expert over as many tensor ranks as a cluster allows.
        """
        words = {**{name: (value,) for name, value in self.fixed}, **dict(self.axes)}
        degrees = [words.get(name) or (1,) for name in ("tp", "pp", "ep")]
        named = any(w not in (None, AUTO) for w in words.get("software", ()))
        layouts = [Layout(tp=tp or 1, pp=pp or 1, ep=ep or 1) for tp, pp, ep in product(*degrees)]
        found: dict[object, list[int]] = {}
        for i, cluster in enumerate(self.clusters):
            widths = tuple(each.widest_expert_tp(cluster.n_gpus) for each in layouts if named)
            found.setdefault((cluster_kind(cluster), widths), []).append(i)
        return list(found.values())

    def asked(self) -> dict[str, str]:
        """The values of every axis and fixed option, as text or, where that is long, a digest."""
        clusters = [f"{c} {c.network} {[g.node.nics for g in c.groups]}" for c in self.clusters]
        found = {
            "model": self.models, "gpus": clusters, "micro-batch": self.micro_batches,
            "grad-accum": self.grad_accums, "global-batch": self.global_batches,
            "order of options": [name for name, _ in self.axes],
            **{name.replace("_", "-"): v for name, v in (*self.axes, *self.fixed)},
        }  # fmt: skip
        return {
            k: text if len(text := repr(v)) <= _SHORT else digest_of(v) for k, v in found.items()
        }


def digest_of(value: object) -> str:
    """A digest of the ``repr`` of a value."""
    return hashlib.sha256(repr(value).encode()).hexdigest()[:16]


def make_space(
    models: str | Sequence[str],
    gpus: str | Sequence[str] | Sequence[ClusterSpec],
    *,
    network: str | Sequence[str] | None = None,
    node: str | None = None,
    nnodes: str | int | None = None,
    nproc_per_node: str | int | None = None,
    fabric: str | Path | None = None,
    **words: Any,
) -> Space:
    """The space that a request describes; each axis is a value, a sequence, or a grid as text.

    ``nnodes`` and ``nproc_per_node``: numbers of nodes and GPUs per node where ``gpus`` names only
    types; ``fabric``: name or file of the switches between nodes. ``words``: options and axes of
    the job. Raises InvalidConfig that lists everything that is wrong.
    """
    problems: list[str] = []
    names = _listed(models)
    networks: list[str | None] = [None] if network is None else [*_listed(network)]
    found_clusters: tuple[ClusterSpec, ...] = ()
    given = [gpus] if isinstance(gpus, str) else list(gpus)
    try:
        if network is not None:
            refuse_empty(OPTIONS["network"], network)
        if given and all(isinstance(g, ClusterSpec) for g in given):
            found_clusters = tuple(g for g in given if isinstance(g, ClusterSpec))
        else:
            found_clusters = cluster_grid(
                [str(g) for g in given], networks=networks, node=node,
                nnodes=nnodes, nproc_per_node=nproc_per_node,
                fabric=None if fabric is None else OPTIONS["fabric"].read(fabric),
            )  # fmt: skip
    except InvalidConfig as err:
        problems += err.violations
    axes: list[tuple[str, tuple[Any, ...]]] = []
    arrays: dict[str, tuple[int, ...]] = {}
    fixed: dict[str, Any] = {}
    for name, value in words.items():
        if value is None:
            continue
        option = OPTIONS.get(name)
        try:
            if option is not None:
                refuse_empty(option, value)
            if option is not None and option.part == "option" and option.axis is None:
                fixed[name] = _fixed(name, value)
                continue
            values = axis_values(name, value)
        except SimcoreError as err:
            problems += err.sentences
            continue
        if _of(name) == "batch":
            arrays[name] = values
        else:
            axes.append((name, values))
    # Each model's kernels are built once, and forms that differ in recompute alone are neighbours.
    axes.sort(key=lambda axis: (_of(axis[0]) != "workload", axis[0] == ALIKE))
    if words.get("software") is None and _cuts(axes):  # also for points without a cut
        fixed["software"] = AUTO
    fixed, wrong = read_options(fixed)
    problems += wrong
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
    """An option of all points, hashable: settings become text. Raises InvalidConfig."""
    return " ".join(as_words(settings_given(value))) if name == "settings" else value


def _cuts(axes: Sequence[tuple[str, tuple[Any, ...]]]) -> bool:
    """Whether some point divides the model over ranks."""
    return any(name in CUTS and max(values) > 1 for name, values in axes)


def axis_values(name: str, value: Any) -> tuple[Any, ...]:
    """The values of one axis. Raises InvalidConfig, UnknownName."""
    flag = "--" + name.replace("_", "-")
    if isinstance(value, str | int | float):
        parts: list[Any] = [value]
    else:
        parts = list(value)
    if name == "micro_batch" and "max" in parts:
        raise InvalidConfig(
            ["--micro-batch max is not a grid: write 1..64*2, values that fit are ranked"]
        )
    out: dict[Any, None] = {}
    option = OPTIONS.get(name)
    if option is None or option.axis is None:
        raise InvalidConfig([f"a sweep has no axis {name!r}"])
    for part in parts:
        out.update(dict.fromkeys(_values(option, option.axis.separator, part)))
    if not out:
        raise InvalidConfig([f"{flag} has no values"])
    return tuple(out)


def _of(name: str) -> str:
    """What an axis varies (``Axis.of``); empty for a name that is not an axis."""
    option = OPTIONS.get(name)
    return option.axis.of if option is not None and option.axis is not None else ""


def _values(option: Option, separator: str, part: Any) -> tuple[Any, ...]:
    """The values that one part of an axis denotes, by the option's kind. Raises UsageError."""
    kind = option.kind
    if isinstance(kind, Whole):
        return whole_values(f"--{option.word}", part, least=kind.least or 0)
    if isinstance(kind, Name):
        names = [name for name in option.names() if name not in kind.not_all]
        others = {**kind.others, **{name: name for name in kind.not_all}}
        return named_values(option.word, str(part), names, others)
    texts = [text.strip() for text in str(part).split(separator)]
    for text in texts:
        kind.judge(text) if isinstance(kind, Text) else option.read(text)
    return tuple(texts)


def _listed(value: str | Sequence[str]) -> tuple[str, ...]:
    parts = [value] if isinstance(value, str) else list(value)
    return tuple(dict.fromkeys(p.strip() for part in parts for p in part.split(",") if p.strip()))
