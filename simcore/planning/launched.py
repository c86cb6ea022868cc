"""Completes the options of a sweep, comparison or plan with those of a launch file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from simcore.base.errors import InvalidConfig, UsageError
from simcore.planning.grid import has_counts
from simcore.request.launch import COUNTS, filled, names_kernel, summary
from simcore.strategy.dialects import read_launch
from simcore.workload.resolve import resolve_model

_BATCHES = ("global_batch", "grad_accum")


def launched_words(
    models: Sequence[str], gpus: Sequence[str], words: Mapping[str, Any], *, sized: bool = True
) -> tuple[dict[str, Any], tuple[str, ...]]:
    """``words`` without ``launch``, completed with the options of that file, and notes about it.

    Options and axes in ``words`` override the file. A global batch of the file applies to every
    cluster; the accumulation follows from it. The file's numbers of nodes and processes are used
    where all of ``gpus`` name only types and the cluster is not to be chosen (``sized``; False for
    a plan). Raises InvalidConfig that lists what cannot be predicted, DataError or UsageError for
    a file that cannot be read.
    """
    options = {k: v for k, v in words.items() if k != "launch"}
    launch = read_launch(str(words["launch"]))
    given = {k for k, v in options.items() if v is not None}
    if problems := launch.violations(given):
        raise InvalidConfig(problems)
    counted = not sized or any(map(has_counts, gpus)) or given & {*COUNTS}
    batched = launch.global_batch is not None or given & {*_BATCHES}
    without = (*(COUNTS if counted else ()), *(("grad_accum",) if batched else ()))
    merged, notes = filled(launch, options, without)
    if launch.global_batch is not None and not given & {*_BATCHES}:
        merged["global_batch"] = launch.global_batch
    if "attention" not in given and launch.attention is not None:
        inputs = tuple(options.get("inputs") or ())
        settings = options.get("settings")
        if not all(_names_kernel(m, inputs, settings) for m in models):
            merged["attention"] = None
    return merged, (summary(launch), *notes, *launch.approximated)


def _names_kernel(model: str, inputs: tuple[str, ...], settings: object) -> bool:
    try:
        return names_kernel(resolve_model(model, inputs=inputs, settings=settings))
    except UsageError:
        return True  # reported where models are looked up
