"""Predicts a job for every pair of values of two options: the map of the page."""

# No "from __future__ import annotations" here: the types of queries are made at run time.

from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field, StringConstraints, create_model

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.base.units import format_seconds
from simcore.planning.points import NO_MEMORY
from simcore.planning.ranking import Point, point_at
from simcore.planning.space import axis_values
from simcore.report.formatting import figure, gigabytes
from simcore.serve.controls import NODES, controls
from simcore.serve.query import OF_RUN, SetUp, arguments, set_up
from simcore.serve.uploads import PREFIX, Uploads

#: Most values of an axis, and most cells of a map.
MOST_VALUES, MOST_CELLS = 16, 100
#: The axis over numbers of nodes; all others are options.
_NODES = "nodes"
#: Options of the batch, of which the sweep has its own columns; an axis replaces its other one.
_BATCH = ("micro_batch", "grad_accum", "global_batch")
_OTHER = {"global_batch": "grad_accum", "grad_accum": "global_batch"}
Axis = Literal[tuple(c.name for group in controls() for c in group.controls if c.values)]  # type: ignore[valid-type]
Values = Annotated[str, StringConstraints(min_length=1, max_length=100)]


class Cell(BaseModel):
    """One pair of values. ``set_up``: the words that predict it."""

    x: int = Field(description="position on the axis, like y")
    y: int
    fits: bool
    rate: str
    memory: str
    step: str
    rate_per_s: float
    memory_bytes: float
    best: bool = Field(description="whether it trains the most of all that fit")
    set_up: dict[str, str]


class Map(BaseModel):
    """Cells by two axes; a pair without one is impossible, for one of the reasons ``left_out``."""

    x: list[str]
    y: list[str]
    unit: str = Field(description="the unit that a cell's rate counts")
    cells: list[Cell]
    left_out: list[str]


def sweep_query() -> type[SetUp]:
    """``SetUp`` with two axes and their values."""
    fields: dict[str, Any] = {}
    for axis, example in (("x", "tp"), ("y", "pp")):
        fields[axis] = (Axis, Field(description="An option, or nodes", examples=[example]))
        said = Field(description="Values: 1,2,4 or 1..8*2", examples=["1,2"])
        fields[f"{axis}_values"] = (Values, said)
    return create_model("SweepQuery", __base__=set_up(), **fields)


def sweep(asked: SetUp, uploads: Uploads) -> Map:
    """The map. Raises SimcoreError where the request is wrong or too large."""
    words = asked.words()
    pair = {words.pop(which): words.pop(f"{which}_values") for which in ("x", "y")}
    if len(pair) < 2:
        raise InvalidConfig(["choose two different axes"])
    if any(str(v).startswith(PREFIX) for v in words.values()):
        raise InvalidConfig(["maps take models and calibrations by name, not uploaded ones"])
    arguments(asked, uploads)  # refuses names that are paths or code
    values = [_values(name, text) for name, text in pair.items()]
    n_cells = len(values[0]) * len(values[1])
    if n_cells > MOST_CELLS:
        raise InvalidConfig([f"a map may have {MOST_CELLS} cells, not {n_cells}"])
    job = {k: v for k, v in words.items() if k not in {*OF_RUN, *pair}}
    job = {k: v for k, v in job.items() if k not in [_OTHER.get(name) for name in pair]}
    for (name, _), several in zip(pair.items(), values, strict=True):
        if name == _NODES:
            job["gpus"] = _clusters(str(job["gpus"]), several)
        else:
            job[name] = list(several)
    found = api.sweep(job.pop("model"), job.pop("gpus"), top=1, **job)
    return _map(asked, tuple(pair), values, found)


def _values(name: str, text: str) -> tuple[Any, ...]:
    """The values of an axis. Raises SimcoreError."""
    found = axis_values("tp" if name == _NODES else name, text)
    if len(found) > MOST_VALUES:
        raise InvalidConfig([f"an axis may have {MOST_VALUES} values, not {len(found)}"])
    if name == _NODES and max(found) > NODES[-1]:
        raise InvalidConfig([f"at most {NODES[-1]:,} nodes, not {max(found):,}"])
    return found


def _clusters(gpus: str, counts: tuple[int, ...]) -> list[str]:
    """The cluster with other numbers of nodes. Raises SimcoreError."""
    groups = api.make_request(model="mnist-cnn", gpus=gpus).cluster.as_written
    if len(groups) > 1:
        raise InvalidConfig(["an axis over nodes needs GPUs of one type"])
    return [f"{n}x{groups[0].gpus_per_node}x{groups[0].gpu.name}" for n in counts]


def _map(asked: SetUp, names: tuple[str, ...], values: list[tuple[Any, ...]], found: Any) -> Map:
    given = {k: str(v) for k, v in asked.words().items() if k in set_up().model_fields}
    gone = [_OTHER[name] for name in names if name in _OTHER]
    base = {k: v for k, v in given.items() if k not in gone}
    points = [point_at(b, i, found.space.clusters) for b in found.batches for i in range(len(b))]
    cells = []
    for point in points:
        own = {name: _value(point, name) for name in names}
        cells.append(
            Cell(
                x=values[0].index(own[names[0]]),
                y=values[1].index(own[names[1]]),
                fits=point.fits,
                rate=figure(point.work_per_s),
                memory=f"{gigabytes(point.memory_bytes)} GB",
                step=format_seconds(point.step_time_s),
                rate_per_s=point.work_per_s,
                memory_bytes=point.memory_bytes,
                best=point in found.best,
                set_up=base | _words(point, own),
            )
        )
    return Map(
        x=[str(v) for v in values[0]],
        y=[str(v) for v in values[1]],
        unit="tokens/s" if any(p.tokens_per_s is not None for p in points) else "samples/s",
        cells=cells,
        left_out=[
            f"{n} of the pairs: {why}" for why, n in found.invalid.items() if why != NO_MEMORY
        ],
    )


def _value(point: Point, name: str) -> Any:
    """The value of a point on an axis, as the axis has it."""
    if name == _NODES:
        return point.n_nodes
    return getattr(point, name) if name in _BATCH else dict(point.form.options)[name]


def _words(point: Point, own: dict[str, Any]) -> dict[str, str]:
    """The words in which a point's set-up differs from the job's."""
    words = dict(own)
    if words.pop(_NODES, None):
        words["gpus"] = point.cluster
    if (software := dict(point.form.options).get("software")) is not None:
        words["software"] = software
    return {k: str(v) for k, v in words.items()}
