"""The words that describe a job, shared by every command that predicts one.

``predict`` declares them once; other commands take over its options with ``takes_job``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from simcore.cli.values import whole, with_zero

Command = TypeVar("Command", bound=Callable[..., Any])

#: Words of ``simcore.api`` that the command line has, besides model and gpus.
JOB = (
    "inputs", "strategy", "micro_batch", "grad_accum", "global_batch", "tp", "pp", "vpp", "cp",
    "ep", "expert_tp", "dispatcher", "zero", "shard_ranks", "overlap", "precision", "recompute",
    "recompute_modules", "recompute_layers", "main_grads", "optimizer", "offload", "network",
    "node", "nnodes", "nproc_per_node", "seq_len", "lora_rank", "lora_targets", "quantised_base",
    "calibration", "launch",
)  # fmt: skip
#: Those that are whole numbers from 1; ``micro_batch`` may be "max" and is read further in.
WHOLE = (
    "grad_accum", "global_batch", "tp", "pp", "vpp", "cp", "ep", "expert_tp", "shard_ranks",
    "recompute_layers", "nnodes", "nproc_per_node", "seq_len", "lora_rank",
)  # fmt: skip

#: Words that a grid of jobs has no use for: clusters and strategies are its axes.
OF_ONE = ("zero", "nnodes", "nproc_per_node", "launch")
#: Words of a grid: several values of them, but for ``ONE_VALUE``, are an axis.
GRID = tuple(word for word in JOB if word not in OF_ONE)
ONE_VALUE = (
    "inputs", "overlap", "recompute_modules", "node", "lora_targets", "quantised_base",
    "calibration",
)  # fmt: skip
#: How the values of an axis are written, by how one value is.
_SEVERAL = {
    "N": "GRID", "N|max": "GRID", "NAME": "NAMES", "MODE": "NAMES", "WIDTH": "NAMES",
    "LINK": "LIST", "WHAT[:WHERE]": "LIST",
}  # fmt: skip


def job_options(words: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The options of ``simcore.api`` that words of the command line mean."""
    options = {k: v for k, v in words.items() if k in JOB}
    for name in WHOLE:
        if name in options:
            options[name] = whole(name.replace("_", "-"), options[name], problems)
    options["strategy"] = with_zero(words.get("strategy"), options.pop("zero", None), problems)
    if options.get("inputs") is not None:
        options["inputs"] = tuple(options["inputs"]) or None
    return options


def grid_options(words: Mapping[str, Any]) -> dict[str, Any]:
    """The axes of ``simcore.api`` that words of the command line mean; grids are read there."""
    options = {k: v for k, v in words.items() if k in GRID}
    if options.get("inputs") is not None:
        options["inputs"] = tuple(options["inputs"]) or None
    return options


def takes_job(
    source: Callable[..., Any], words: Collection[str] = JOB, *, axes: bool = False
) -> Callable[[Command], Command]:
    """Give a command that ends in ``**job`` the options of ``source`` that describe a job.

    Of ``words`` alone, but for those that the command declares itself; ``axes``: each may have
    several values.
    """

    def decorate(command: Command) -> Command:
        own = get_type_hints(command, include_extras=True)
        job = get_type_hints(source, include_extras=True)
        parameters = [
            p.replace(annotation=own[p.name])
            for p in inspect.signature(command).parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        parameters += [
            p.replace(
                annotation=_axis(job[p.name]) if axes and p.name not in ONE_VALUE else job[p.name],
                kind=inspect.Parameter.KEYWORD_ONLY,
            )
            for p in inspect.signature(source).parameters.values()
            if p.name in words and p.name not in own
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate


def _axis(annotation: Any) -> Any:
    """The annotation of an option that takes one value as that of one that takes several."""
    kind, info = get_args(annotation)
    several = copy(info)
    several.metavar = _SEVERAL.get(info.metavar, info.metavar)
    return Annotated[kind, several]
