"""A measured row as a user would state it who describes the job, and at most names its program.

What the row itself states remains: the model's sizes, GPUs, precision, batch, parallel degrees,
sharding, recompute and remarks. Kernels, overlaps, copies of libraries and the issuer of kernels
are simcore's assumptions, as on the command line: those of the program and release if they are
named (``by_program``), else of the program that such a job most likely has (``unnamed``).
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from simcore.request.model_settings import layout_of
from simcore.request.training_library import library_of
from simcore.validate.case import Case
from simcore.workload.models import Scalar
from simcore.workload.resolve import resolve_model
from simcore.workload.settings import settings_given

#: What the entries of models_db, and Hugging Face's configs, say of language models in plain loops.
_PLAIN: dict[str, Scalar] = {"fused_qkv": False, "upcast_loss": True}
#: Suffixes of norms that a program implements itself.
_NORM = re.compile("_(eager(_wide)?|again)$")


def by_program(case: Case) -> Case:
    """The case as its row describes it, with its program's name and release but no other word."""
    if case.own is None:
        return case
    told = {k: v for k, v in case.options.items() if k in case.own}
    every = settings_given(case.options.get("settings"))
    given = {k: v for k, v in every.items() if k in case.own}
    if "norm" in every:  # which norm is the model's, how it is computed the program's
        given["norm"] = _NORM.sub("", str(every["norm"]))
    named = {"software": case.program} if case.program else {}
    return replace(case, options=told | named | ({"settings": given} if given else {}))


def unnamed(case: Case, told: Collection[str] = ()) -> Case:
    """The case as its row describes it, without its program's name, and the options in ``told``."""
    asked = by_program(replace(case, program=""))
    options = {k: v for k, v in asked.options.items() if k != "software"}
    options |= {k: v for k, v in case.options.items() if k in told}
    if case.settings_of_program:
        given = settings_given(options.get("settings"))
        record = resolve_model(case.model, settings=given)
        if not library_of(options, record, layout_of(options, [])).assumed:
            options = options | {"settings": {**_PLAIN, **given}}
    return replace(asked, options=options, program=case.program)
