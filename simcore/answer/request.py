"""Requests with what a search over predictions finds, and measured steps of the same job.

A search finds the largest batch or length, uneven shares and balanced stages. The measured steps
ship with simcore: ``validate/tables/measured.yaml`` lists them by model, so that a prediction reads
no table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from simcore.answer.result import MeasuredRow, Prediction
from simcore.base.database import read_yaml, shipped_folder
from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.base.names import Changed
from simcore.base.units import KIB, MIB
from simcore.hardware.cluster import ClusterSpec
from simcore.hardware.spec import GPUS
from simcore.memory.job import MOST_BATCH, axis_of, largest_batch, memory_over
from simcore.request.make import ReadRequest, read_request
from simcore.request.resolved import Request
from simcore.workload.resolve import ModelSource

#: ``seq_len="max"`` searches in multiples of ``_STEPS[0]`` tokens below ``_FINE_BELOW`` tokens and
#: of ``_STEPS[1]`` from there on, up to ``_LONGEST``.
_STEPS, _FINE_BELOW, _LONGEST = (128, int(KIB)), 8 * int(KIB), 16 * int(MIB)


def make_request(
    model: str | Path | ModelSource,
    gpus: str | ClusterSpec,
    **options: Any,
) -> Request:
    """The request with every option resolved. Raises InvalidConfig with every violation.

    ``options`` may include ``every_violation`` of ``read_request``.
    """
    if is_max(options.get("seq_len")):
        return _with_longest(model, gpus, options)
    return searched(read_request(model, gpus, **options))


def searched(read: ReadRequest) -> Request:
    """The request with the values that a search over predictions finds."""
    request = read.request
    if read.largest_batch:
        request = _with_largest_batch(request)
    if read.shares:
        from simcore.answer.shares import with_shares  # few requests have uneven shares

        request = with_shares(request, read.shares)
    if read.stages:
        from simcore.answer.stages import with_balanced_stages  # or unbalanced stages

        request = with_balanced_stages(request)
    return request


def is_max(value: object) -> bool:
    """Whether an option's value asks for the most that fits."""
    return isinstance(value, str) and value.strip().lower() == "max"


def _with_longest(
    model: str | Path | ModelSource, gpus: str | ClusterSpec, options: dict[str, Any]
) -> Request:
    """The request with the longest sequences that fit, or with a note where none do."""
    if is_max(options.get("micro_batch")):
        raise InvalidConfig(["give --micro-batch max or --seq-len max, not both"])

    def of(tokens: int) -> Request:
        return make_request(model, gpus, **{**options, "seq_len": tokens})

    refused: list[int] = []

    def fits(tokens: int) -> bool:
        try:
            request = of(tokens)
        except SimcoreError:  # longer than the model takes; another reason is raised at the end
            refused.append(tokens)
            return False
        capacity = min(g.gpu.usable_memory_bytes for g in request.cluster.groups)
        return all(m.needed[0] <= capacity for m in memory_over(request, *axis_of(request)))

    low, high = 0, _FINE_BELOW
    while high <= _LONGEST and fits(high):
        low, high = high, 2 * high
    step = _STEPS[low > 0]
    while high - low > step:
        middle = (low + high) // 2 // step * step
        low, high = (middle, high) if fits(middle) else (low, middle)
    why = "that the model takes" if high in refused else f"that fit (in multiples of {step})"
    note = f"sequences of {low} tokens are the longest {why}"
    found = of(low or step)
    notes = (note if low else Changed(f"not even {step} tokens fit"), *found.assumptions)
    return replace(found, assumptions=notes)


def _with_largest_batch(request: Request) -> Request:
    """The request with the largest micro-batch that fits, or with 1 and a note where none does."""
    best = largest_batch(request, MOST_BATCH)
    note = (
        f"micro-batch {best} is the largest that fits"
        if best
        else Changed("micro-batch max: not even 1 fits; predicted with 1")
    )
    if best == MOST_BATCH:
        note = f"micro-batch {best} fits: larger ones are not accepted"
    return replace(request, micro_batch=max(best, 1), assumptions=(*request.assumptions, note))


#: The list of measured steps, in the folder of tables from which it is made.
FILE = "measured.yaml"
#: Quantities that are compared, in this order.
QUANTITIES = ("step_time_s", "peak_memory_bytes")


def tables_folder() -> Path:
    """Folder of the shipped tables, in the wheel or in the checkout."""
    return shipped_folder("validate/tables")


@lru_cache(maxsize=1)
def _steps_by_model() -> Mapping[str, list[dict[str, Any]]]:
    return read_yaml(tables_folder() / FILE)


def _with_file_names(cluster: str) -> tuple[str, ...]:
    """A cluster's groups with each GPU's file name, without reading the files."""
    groups = []
    for part in cluster.split("+"):
        nodes, per_node, name = part.split("x", 2)
        path = GPUS.path(name)
        groups.append(f"{nodes}x{per_node}x{path.stem if path else name}")
    return tuple(groups)


def measured_rows(request: Request, result: Prediction) -> tuple[MeasuredRow, ...]:
    """Measurements of the same job: model, cluster with its network, strategy and batch."""
    steps = _steps_by_model().get(result.model, ())
    if not steps or request.grad_accum != 1:
        return ()
    values = result.step_time_s.value, result.memory.device_bytes
    here = _with_file_names(result.cluster)
    return tuple(
        MeasuredRow(
            source=step["source"], quantity=quantity, measured=step[quantity], predicted=value,
            note=step["note"],
        )
        for step in steps
        if step["options"].get("micro_batch", 1) == result.micro_batch
        and step["options"].get("strategy", "ddp") == result.strategy
        and _with_file_names(step["gpus"]) == here
        and _same_job(step, result.model, request)
        for quantity, value in zip(QUANTITIES, values, strict=True)
        if quantity in step
    )  # fmt: skip


def _same_job(step: Mapping[str, Any], model: str, request: Request) -> bool:
    """Whether the step, with defaults for what it does not state, is of the request's job."""
    of_step = make_request(model, step["gpus"], **step["options"])
    alone = of_step.strategy.buckets.wraps_alone
    wanted = replace(  # either way
        request.strategy, buckets=replace(request.strategy.buckets, wraps_alone=alone)
    )
    return (
        of_step.cluster.groups == request.cluster.groups
        and of_step.strategy == wanted
        and of_step.workload == request.workload
        and of_step.placed == request.placed
    )
