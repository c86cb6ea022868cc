"""What is wrong with a request: one clear sentence each, and the control that it is about."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from pydantic import BaseModel, Field

from simcore.base.called import word_meant
from simcore.base.errors import DataError, InvalidConfig, SimcoreError, UnknownName, nearest
from simcore.serve.query import SetUp


class Problem(BaseModel):
    """One thing that is wrong."""

    field: str = Field(description="the parameter that it is about; empty where it is several")
    message: str = Field(description="one sentence, with the nearest valid choice where known")


class Problems(BaseModel):
    """Everything that is wrong with a request, at once."""

    problems: list[Problem]


#: First hit wins: what a sentence of simcore is about, told by its words.
_ABOUT: tuple[tuple[str, str], ...] = (
    (r"main-grads|main gradients", "main_grads"),
    (r"^unknown dialect", "dialect"),
    (r"^overlap ", "overlap"),
    (r"^shard-ranks", "shard_ranks"),
    (r"^recompute modules", "recompute_modules"),
    (r"^recompute-layers", "recompute_layers"),
    (r"^expert-tp=|x expert-tp=(?!1 )", "expert_tp"),
    (r"^unknown model", "model"),
    (r"^unknown gpu|NODESxGPUSxTYPE|^node count|^GPUs a node|no GPUs given", "gpus"),
    (r"has a comma: join the GPUs", "gpus"),
    (r"of a network is|^oversubscription|nodes a leaf", "network"),
    (r"^--network|^unknown link|has no network|name one with --network|Gbit/s", "network"),
    (r"needs GPUs of one type|^strategy ", "strategy"),
    (r"^offload |has no NVMe", "offload"),
    (r"^node ", "gpus"),
    (r"^micro-batch", "micro_batch"),
    (r"^grad-accum", "grad_accum"),
    (r"^(?:give --)?global-batch", "global_batch"),
    (r"^--set |needs its dimensions|or --set |no settings to change", "settings"),
    (r"^give --steps|^steps ", "steps"),
    (r"^epochs |has no data set|is larger than data set", "epochs"),
    (r"^tp\b", "tp"),
    (r"^pp\b", "pp"),
    (r"^vpp\b", "vpp"),
    (r"^(?:give --)?stages?\b", "stages"),
    (r"^(?:give --)?shares\b", "shares"),
    (r"^cp\b", "cp"),
    (r"^ep\b", "ep"),
    (r"expert-imbalance", "expert_imbalance"),
    (r"expert-padding", "expert_padding"),
    (r"expert-capacity", "expert_capacity"),
    (r"sequence-parallel", "sequence_parallel"),
    (r"seq_len|seq-len|sequence", "seq_len"),
    (r"\bresolution\b|\b(image|height|width)=", "resolution"),
    (r"\bframes\b", "frames"),
    (r"\blayout\b", "layout"),
    (r"lora_targets|lora-targets|no product", "lora_targets"),
    (r"lora_rank|lora-rank|adapter", "lora_rank"),
    (r"\battention\b", "attention"),
    (r"quantised_base|quantised-base", "quantised_base"),
    (r"\bprecision\b|\bfp8\b|\bbf16\b|\btf32\b|\bnvfp4\b|\bfp16\b", "precision"),
    (r"\btensor parallel|\btp=", "tp"),
    (r"\bpp=|\bpipeline", "pp"),
    (r"\bep=|\bexpert", "ep"),
    (r"\bcp=|\bcontext", "cp"),
)


def field_of(message: str) -> str:
    """The parameter that a sentence of simcore is about; empty where no word tells."""
    if (unknown := re.match(r"unknown ([a-z0-9-]+) '", message)) is not None:
        word = unknown[1].replace("-", "_")
        if word in SetUp.model_fields:  # whatever the known names are called
            return word
    for pattern, field in _ABOUT:
        if (match := re.search(pattern, message)) is not None:
            return match.expand(field)
    return ""


def of_error(err: SimcoreError) -> Problems:
    """Every violation of an error as a problem."""
    sentences: Sequence[str] = err.violations if isinstance(err, InvalidConfig) else (str(err),)
    if isinstance(err, UnknownName) and err.kind in SetUp.model_fields:
        return Problems(problems=[Problem(field=err.kind, message=str(err))])
    if isinstance(err, DataError):
        return Problems(problems=[Problem(field="", message=str(err))])
    return Problems(problems=[Problem(field=field_of(s), message=s) for s in sentences])


def of_validation(errors: Iterable[Mapping[str, Any]], known: Sequence[str]) -> Problems:
    """FastAPI's findings in the words of the command line."""
    found = []
    for error in errors:
        field = str(error["loc"][-1]) if error["loc"] else ""
        found.append(Problem(field=field if field in known else "", message=_say(error, known)))
    return Problems(problems=found)


def _say(error: Mapping[str, Any], known: Sequence[str]) -> str:
    field = str(error["loc"][-1]) if error["loc"] else "request"
    flag = f"--{field.replace('_', '-')}"
    kind, limits = error["type"], error.get("ctx") or {}
    given = repr(error.get("input"))
    given = given if len(given) <= 60 else given[:57] + "..."
    if kind == "missing":
        return f"{flag} is missing"
    if kind == "extra_forbidden":
        meant = word_meant(field, "", known) or next(map(repr, nearest(field, known, 1)), "")
        hint = f": did you mean {meant}?" if meant else ""
        return f"unknown parameter {field[:60]!r}{hint}"
    if kind.startswith(("int_", "float_")):
        return f"{flag} {given} is not a {'whole ' if kind.startswith('int_') else ''}number"
    if kind == "greater_than_equal":
        return f"{flag} must be at least {limits['ge']:,}, not {given}"
    if kind == "less_than_equal":
        return f"{flag} must be at most {limits['le']:,.0f}, not {given}"
    if kind == "greater_than":
        return f"{flag} must be above {limits['gt']:g}, not {given}"
    if kind == "finite_number":
        return f"{flag} must be finite, not {given}"
    if kind == "string_too_short":
        return f"{flag} is empty"
    if kind == "string_too_long":
        return f"{flag} is longer than {limits['max_length']} letters"
    text = str(error.get("msg", "is not valid"))
    return f"{flag}: {text[:1].lower()}{text[1:]}"
