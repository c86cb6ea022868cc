"""Collects the data of a job's HTML report, which ``report.html`` lays out."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeVar

from simcore.api.many import side_by_side
from simcore.api.results import Prediction
from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.hardware.profile import Profile
from simcore.report.html.document import ClusterResults, Facts, Sources
from simcore.request.resolved import Request
from simcore.strategy.options import command_words, shown
from simcore.workload.resolve import ModelSource

T = TypeVar("T")


def facts_of(model: str | Path | ModelSource, gpus: Sequence[str] | str, **options: Any) -> Facts:
    """The data of the page that ``api.report`` returns. Raises UsageError as ``predict`` does."""
    from simcore import __version__, api

    clusters = [gpus] if isinstance(gpus, str) else list(dict.fromkeys(gpus))
    if not clusters:
        raise InvalidConfig(["a report needs at least one cluster"])
    requests = [api.make_request(model, c, **options) for c in clusters]
    given = tuple((k, _shown(v)) for k, v in options.items() if v is not None)
    named = str(model) if isinstance(model, str | Path) else model.name
    words = ["simcore", "report", "--model", named]
    for cluster in clusters:
        words += ["--gpus", cluster]
    words += command_words({k: _one(v) for k, v in options.items()})
    sections = tuple(_facts_on(model, c, options) for c in clusters)
    return Facts(
        version=__version__,
        command=shlex.join(words),
        clusters=sections,
        compared=side_by_side([t.prediction for t in sections]) if len(sections) > 1 else None,
        sources=_sources(requests),
        given=given,
    )


def _one(value: object) -> object:
    """An option's value as the command line takes it: a profile by its name."""
    return value.name if isinstance(value, Profile) else value


def _shown(value: object) -> str:
    if isinstance(value, Profile):
        return value.name
    return " ".join(map(str, value)) if isinstance(value, (tuple, list)) else shown(value)


def _facts_on(
    model: str | Path | ModelSource, cluster: str, options: dict[str, Any]
) -> ClusterResults:
    """The data of the page about one cluster; ``gaps`` says which parts are not available."""
    from simcore import api
    from simcore.answer.explain import explain

    gaps: list[str] = []

    def attempt(make: Callable[[], T]) -> T | None:
        try:
            return make()
        except SimcoreError as err:
            gaps.append(str(err))
            return None

    prediction: Prediction = api.predict(model, cluster, keep_timeline=True, **options)
    request = api.make_request(model, cluster, **options)
    terms = [
        "interval",
        *(f"time.{k}" for k, v in prediction.time_s.items() if v > 0),
        *(f"memory.{k}" for k in prediction.memory.terms),
    ]
    explanations = [
        found
        for term in terms
        if (found := attempt(lambda term=term: explain(request, prediction, term))) is not None  # type: ignore[misc]
    ]
    return ClusterResults(
        prediction=prediction,
        explanations=tuple(explanations),
        scaling=attempt(lambda: api.scaling(model, cluster, **options)),
        memory=attempt(lambda: api.memory_timeline(model, cluster, **options)),
        roofline=attempt(lambda: api.roofline(model, cluster, **options)),
        sensitivity=attempt(lambda: api.sensitivity(model, cluster, **options)),
        gaps=tuple(dict.fromkeys(gaps)),
    )


def _sources(requests: Sequence[Request]) -> tuple[Sources, ...]:
    """The figures and sources of every GPU, node and link of the clusters."""
    from simcore.hardware.cluster import link_named
    from simcore.report.catalog import notes_of, sourced

    records: dict[str, Any] = {}
    for request in requests:
        for group in request.cluster.groups:
            node = group.node
            records[f"GPU {group.gpu.name}"] = group.gpu
            records[f"node {node.name}"] = node
            links = [node.pcie_link, node.socket_link, *(nic.link for nic in node.nics)]
            records |= {f"link {name}": link_named(name) for name in links if name}
    return tuple(
        Sources(name=f"{name}: {r.full_name}", rows=tuple(sourced(r)), notes=tuple(notes_of(r)))
        for name, r in records.items()
    )
