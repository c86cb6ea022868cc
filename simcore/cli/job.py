"""The words that describe a job, shared by every command that predicts one.

``job_signature`` declares them once; commands take over its options with ``takes_job``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Collection, Mapping
from copy import copy
from typing import Annotated, Any, TypeVar, get_args, get_type_hints

from simcore.cli.job_signature import JOB
from simcore.cli.values import whole, with_zero, with_zeros

Command = TypeVar("Command", bound=Callable[..., Any])

#: Words of a grid that are no axis of it.
ONE_VALUE = (
    "inputs", "settings", "overlap", "recompute_modules", "node", "lora_targets", "quantised_base",
    "calibration", "software", "growing_segments", "fp8_params", "nccl_algo", "nccl_proto",
    "launch_blocking", "launch", "expert_padding", "compile", "sequence_parallel",
    "optimizer_impl", "grad_clip", "prefetch_blocks", "reuse_numel", "gather_tensors",
    "bucket_numel", "eager_kernels",
)  # fmt: skip
#: Counts that may be 0, and counts of which a grid has one value.
_FROM_0 = ("prefetch_blocks", "reuse_numel")
_ONE_NUMBER = ("prefetch_blocks", "reuse_numel", "bucket_numel")
#: How the values of an axis are written, by how one value is.
_SEVERAL = {
    "N": "GRID", "N|max": "GRID", "NAME": "NAMES", "MODE": "NAMES", "WIDTH": "NAMES",
    "LINK": "LIST", "WHAT[:WHERE]": "LIST", "LAYERS": "CUT;CUT",
    "RATIO": "LIST", "N|HxW": "LIST", "FACTOR": "LIST",
}  # fmt: skip


def job_words() -> tuple[str, ...]:
    """The words of ``simcore.api`` that are options of a job, besides model and gpus."""
    return tuple(JOB)


def job_options(words: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The options of ``simcore.api`` that words of the command line mean.

    What ``Options`` has as ``int | None`` is a whole number from 1; ``micro_batch`` may be "max"
    and is read further in.
    """
    from simcore.engine.options import Options

    options = {k: v for k, v in words.items() if k in job_words()}
    for name, kind in get_type_hints(Options).items():
        if name in options and kind == int | None:
            least = int(name not in _FROM_0)
            options[name] = whole(name.replace("_", "-"), options[name], problems, least=least)
    options["strategy"] = with_zero(words.get("strategy"), options.pop("zero", None), problems)
    return options | _lists(options)


def _lists(options: Mapping[str, Any]) -> dict[str, Any]:
    """Words that may be given several times, as tuples: they are a part of keys."""
    given = (name for name in ("inputs", "settings") if options.get(name) is not None)
    return {name: tuple(options[name]) or None for name in given}


def grid_options(words: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The axes of ``simcore.api`` that words of the command line mean; grids are read there."""
    options = {k: v for k, v in words.items() if k in job_words()}
    stages = options.pop("zero", None)
    options["strategy"] = with_zeros(words.get("strategy"), stages, problems)
    for name in _ONE_NUMBER:
        if name in options:
            options[name] = whole(
                name.replace("_", "-"), options[name], problems, least=int(name not in _FROM_0)
            )
    return options | _lists(options)


def takes_job(
    only: Collection[str] | None = None, *, axes: bool = False
) -> Callable[[Command], Command]:
    """Give a command that ends in ``**job`` the options that describe a job.

    ``only`` these, and never those that it declares itself; ``axes``: the words of a grid, of
    several values each.
    """
    words = only or job_words()

    def decorate(command: Command) -> Command:
        own = get_type_hints(command, include_extras=True)
        parameters = [
            p.replace(annotation=own[p.name])
            for p in inspect.signature(command).parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        parameters += [
            p.replace(annotation=_axis(p.annotation)) if axes and name not in ONE_VALUE else p
            for name, p in JOB.items()
            if name in words and name not in own
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
