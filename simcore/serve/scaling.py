"""Predicts a set-up on fewer and on more nodes."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from pydantic import BaseModel, Field

from simcore import api
from simcore.answer.scaling import words_for
from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.base.units import format_seconds
from simcore.report import sentences as say
from simcore.report.formatting import figure, percent
from simcore.serve.query import OF_RUN, predicted

#: The number of nodes is doubled up to this multiple of the set-up's.
_BEYOND = 4
#: The curve goes at least up to this many nodes, also for a set-up of a single node.
_AT_LEAST = 8
_MOST_NODES = 4096
#: Most points of the curve; each is a separate prediction.
_MOST_POINTS = 8


class Point(BaseModel):
    """The prediction for one number of nodes.

    ``rate_per_s``: throughput with its 80 % interval ``low`` to ``high``; ``ideal``: what as many
    single GPUs reach.
    """

    nodes: int
    gpus: int
    asked: bool = Field(description="whether this is the set-up itself")
    fits: bool
    rate_per_s: float
    low: float
    high: float
    ideal: float
    step: str
    rate: str
    speedup_text: str
    efficiency: str


class Scaling(BaseModel):
    """A scaling curve; invalid numbers of nodes are left out, with the reason."""

    unit: str = Field(description="the unit that a point's rate counts")
    points: list[Point]
    left_out: list[str]


def scaling(arguments: dict[str, Any]) -> Scaling:
    """The scaling curve of a job over numbers of nodes.

    ``arguments``: keywords of ``api.predict``. Raises SimcoreError where they are wrong.
    """
    rest = {k: v for k, v in arguments.items() if k not in {"gpus", *OF_RUN}}
    cluster = api.make_request(gpus=arguments["gpus"], **rest).cluster
    rest |= words_for(cluster, rest.get("node"), rest.get("network"))
    sizes = [(g.n_nodes, f"{g.gpus_per_node}x{g.gpu.name}") for g in cluster.as_written]
    points: list[Point] = []
    left_out: dict[str, str] = {}
    unit = ""
    for times, divide in _factors(cluster.n_nodes, len(sizes)):
        counted = "+".join(f"{n * times // divide}x{what}" for n, what in sizes)
        try:
            p = predicted(gpus=counted, **rest)
        except SimcoreError as err:
            first = err.violations[0] if isinstance(err, InvalidConfig) else str(err)
            left_out.setdefault(first, counted)
            continue
        unit = say.work_unit(p)
        t = p.step_time_s
        points.append(
            Point(
                nodes=p.n_nodes,
                gpus=p.n_gpus,
                asked=times == divide,
                fits=p.fits,
                rate_per_s=p.work_per_s,
                low=p.work_per_s * t.value / t.high,
                high=p.work_per_s * t.value / t.low,
                ideal=p.work_per_s / p.speedup * p.n_gpus,
                step=format_seconds(t.value),
                rate=f"{figure(p.work_per_s)} {unit}",
                speedup_text=f"{figure(p.speedup)} x",
                efficiency=percent(p.scaling_efficiency_frac),
            )
        )
    return Scaling(
        unit=unit,
        points=points,
        left_out=[f"{where}: {why}" for why, where in left_out.items()],
    )


def _factors(n_nodes: int, n_groups: int) -> Iterator[tuple[int, int]]:
    """(multiplier, divisor) of the number of nodes for each point.

    The points are powers of two and the set-up's own number. A mixed cluster is multiplied as a
    whole.
    """
    if n_groups > 1:
        yield from ((2**i, 1) for i in range(4) if n_nodes * 2**i <= _MOST_NODES or i == 0)
        return
    top = max(min(n_nodes * _BEYOND, _MOST_NODES), n_nodes, _AT_LEAST)
    counts = {2**i for i in range(top.bit_length()) if 2**i <= top}
    kept = sorted(counts, key=lambda n: abs(n.bit_length() - n_nodes.bit_length()))[:_MOST_POINTS]
    yield from ((n, n_nodes) if n != n_nodes else (1, 1) for n in sorted({*kept, n_nodes}))
