"""The words that describe a job, shared by every command that predicts one.

``predict`` declares them once; other commands take over its options with ``takes_job``.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from typing import Any, TypeVar, get_type_hints

from simcore.cli.values import whole

Command = TypeVar("Command", bound=Callable[..., Any])

#: Words of ``simcore.api`` that the command line has, besides model and gpus.
JOB = (
    "inputs", "strategy", "micro_batch", "grad_accum", "global_batch", "tp", "pp", "vpp", "cp",
    "ep", "precision", "recompute", "main_grads", "optimizer", "offload", "network", "node",
    "nnodes", "nproc_per_node", "seq_len", "lora_rank", "lora_targets", "quantised_base",
    "calibration", "launch",
)  # fmt: skip
#: Those that are whole numbers from 1; ``micro_batch`` may be "max" and is read further in.
WHOLE = (
    "grad_accum", "global_batch", "tp", "pp", "vpp", "cp", "ep", "nnodes", "nproc_per_node",
    "seq_len", "lora_rank",
)  # fmt: skip


def job_options(words: Mapping[str, Any], problems: list[str]) -> dict[str, Any]:
    """The options of ``simcore.api`` that words of the command line mean."""
    options = {k: v for k, v in words.items() if k in JOB}
    for name in WHOLE:
        if name in options:
            options[name] = whole(name.replace("_", "-"), options[name], problems)
    if options.get("inputs") is not None:
        options["inputs"] = tuple(options["inputs"]) or None
    return options


def takes_job(source: Callable[..., Any]) -> Callable[[Command], Command]:
    """Give a command that ends in ``**job`` the options of ``source`` that describe a job."""

    def decorate(command: Command) -> Command:
        own = get_type_hints(command, include_extras=True)
        job = get_type_hints(source, include_extras=True)
        parameters = [
            p.replace(annotation=own[p.name])
            for p in inspect.signature(command).parameters.values()
            if p.kind is not inspect.Parameter.VAR_KEYWORD
        ]
        parameters += [
            p.replace(annotation=job[p.name], kind=inspect.Parameter.KEYWORD_ONLY)
            for p in inspect.signature(source).parameters.values()
            if p.name in JOB
        ]
        command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
        command.__annotations__ = {p.name: p.annotation for p in parameters}
        return command

    return decorate
