"""Measured steps that ship with simcore, shown with a prediction of the same job.

``validate/tables/measured.yaml`` lists them by model, so that a prediction reads no table.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from simcore.answer.request import make_request
from simcore.answer.result import MeasuredRow, Prediction
from simcore.base.database import read_yaml, shipped_folder
from simcore.hardware.spec import GPUS
from simcore.request.resolved import Request

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
