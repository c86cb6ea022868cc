"""Published data-parallel training runs of many sources, one row a run.

What a row's words mean as options of ``simcore predict`` are rules in ``validate/corpora/ddp.yaml``
(the language: ``rules.py``); this module makes the facts that they ask for. Only complete rows of
tier A or B become cases. ``peak_mem_gib`` is what nvidia-smi showed (reserved memory and context)
or the framework's own peak of live tensors: column ``memory_definition`` tells which. A speed-up is
the table's own against one GPU of the same source, host, batch and accumulation; where its note
says that the base differs, it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from simcore.base.errors import UsageError
from simcore.base.units import GIB, GIGA, MEGA, format_bytes
from simcore.engine.options import Options
from simcore.hardware.cluster import NO_P2P
from simcore.hardware.spec import GPUS as GPU_RECORDS
from simcore.strategy.programs import Runs, program_named
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present, whole
from simcore.validate.formats.rules import TEXT, Corpus, Fact, corpus
from simcore.workload.model_aliases import alias_named
from simcore.workload.models import MODELS, ModelRecord, Scalar, setting_kinds
from simcore.workload.releases import settings_of_release
from simcore.workload.resolve import resolve_model
from simcore.workload.trace.zoos import zoo_of

Facts = dict[str, Fact]

_ALLOCATED = re.compile(r"torch max_memory_allocated=([\d.]+)GiB")
_VERSION = re.compile(r"\bPT(\d+)\.(\d+)")
_SEQ = re.compile(r"\bseq(\d+)")
#: Cells that tell a row's program.
_TELLING = ("source", "framework", "model", "task", "input_shape", "notes")
#: What a rule calls the release of PyTorch that the row states.
_STATED = "stated"
#: How far the row's own parameters and FLOP may be from those of the entry that has its name.
_SAME_FRAC = 0.05


def _rules() -> Corpus:
    return corpus("ddp")


def _facts(row: Row) -> Facts:
    """What rules may ask of a row: its cells, all of its text, its program and PyTorch."""
    text = " | ".join([*(row[c] for c in _TELLING), f"precision={row['precision']}"]).lower()
    facts: Facts = {**row, TEXT: text}
    facts["gpus"] = float(row["gpus"]) if row["gpus"].replace(".", "").isdigit() else None
    facts["torch"] = _torch_version(row, facts)
    facts["program"] = _rules().value("programs", "program", facts)
    facts["without_p2p"] = _rules().first("without_p2p", facts) is not None
    return facts


def _torch_version(row: Row, facts: Facts) -> tuple[int, ...] | None:
    """PyTorch's version, where stated; no newer than the run."""
    found = _VERSION.search(row["notes"])
    if found is None:
        return None
    told = (int(found[1]), int(found[2]))
    newest = _rules().value("newest_torch", "torch", facts)
    return told if newest is None else min(told, tuple(map(int, newest.split("."))))


def _model(row: Row, facts: Facts) -> Mapping[str, Any] | None:
    """The row's model and how it is trained: a rule's, or its name where a model is called so.

    Raises UsageError where a vision library is not installed.
    """
    if (rule := _rules().first("models", facts)) is not None:
        return rule.gives
    if (entry := _of_equal_name(row)) is not None:
        return {"model": entry}
    if (found := zoo_of(row["model"])) is None:
        return None
    found[0].versions()
    return {"model": row["model"]}


def _of_equal_name(row: Row) -> str | None:
    """An entry that is called as the row's model is, less its library, and is of the same size."""
    entry = row["model"].rpartition(":")[2]
    params, flop = number(row, "params_m"), number(row, "fwd_gflops_per_sample")
    if MODELS.path(entry) is None or not params or not flop:
        return None
    record = MODELS[entry]
    built = record.build()
    same = all(
        abs(ours / theirs - 1.0) <= _SAME_FRAC
        for ours, theirs in (
            (built.trainable_numel, params * MEGA), (built.forward_flop, flop * GIGA),
        )
    )  # fmt: skip
    return record.name if same else None


def _model_facts(name: str, library: bool) -> Facts:
    """What rules may ask of a row's model: its architecture and settings (``set_gelu``)."""
    if library:
        return {"arch": "", "library": True, "compiled": False, "norms_synchronised": False}
    record = resolve_model(name)
    assert isinstance(record, ModelRecord)
    settings = record.settings({})
    return {
        **{f"set_{key}": value for key, value in settings.items()},
        "arch": record.arch,
        "library": False,
        "compiled": bool(settings.get("xla")),
        "norms_synchronised": record.sync_norm_wait is not None,
    }


def _regions(row: Row, facts: Facts) -> dict[str, Scalar]:
    """Regions of an image, and positive ones, that a batch's proposals leave."""
    rule, batch = _rules().first("regions", facts), number(row, "local_batch")
    if rule is None or not batch:
        return {}
    gives = rule.gives
    regions = min(gives["at_most"], round(gives["batch_total"] / batch) + gives["plus"])
    positives = gives.get("positives") or round(regions * gives["positive_frac"])
    return {"regions": regions, "positives": positives}


def _model_words(name: str, row: Row, facts: Facts) -> Options:
    """Words by which the model is as the row's program and its libraries have it."""
    layout = _rules().value("layouts", "layout", facts)
    if facts["library"]:
        shape = f"float32[B,{row['input_shape'].replace('x', ',')}]"
        return {"inputs": (f"{shape} channels_last" if layout == "nhwc" else shape,)}
    words: Options = {}
    if layout == "nhwc" and "layout" in setting_kinds(str(facts["arch"])):
        words["layout"] = layout
    settings: dict[str, Scalar] = {}
    for rule in _rules().every("settings", facts):
        if release := rule.gives.get("torch_release"):
            stated = release if release != _STATED else ".".join(map(str, _version(facts) or ()))
            settings |= settings_of_release(str(facts["arch"]), stated)
        settings |= rule.gives.get("settings", {})
    settings |= _regions(row, facts)
    if settings:
        words["settings"] = settings
    return words


def _refusal(row: Row, facts: Facts) -> str:
    """Why the row is no case, empty where it may be one."""
    if row["tier"] not in ("A", "B"):
        return f"tier {row['tier'] or '(blank)'}: known to be unusable"
    if row["complete"] != "1":
        return "incomplete: batch, step time, parameters or FLOP are not given"
    strategy, names = row["strategy"], _rules().names
    if strategy not in names["strategies"]:
        known = _rules().value("skipped", "reason", facts)
        return str(known or f"strategy {strategy!r} is not known")
    if row["precision"] not in names["precisions"]:
        return f"precision {row['precision']!r} is not known"
    return ""


def _node(facts: Facts) -> str | None:
    preset = cast("str | None", _rules().value("nodes", "node", facts))
    if not facts["without_p2p"]:
        return preset
    return f"{preset}:{NO_P2P}" if preset else NO_P2P


def _beyond(gpu: str, memory: Mapping[str, float | None]) -> str:
    """A peak that the GPU that the row names does not have: it ran on another."""
    peak = max((v for v in memory.values() if v is not None), default=0.0)
    if not peak or GPU_RECORDS.path(gpu) is None or peak <= GPU_RECORDS[gpu].memory_size.value:
        return ""
    return f"its memory, {format_bytes(peak, unit='GiB')}, is more than the GPU it names has"


def _host(row: Row) -> str:
    """One host's runs share the folder of the source's log, or the document and its line."""
    return f"{row['source']}/{row['source_ref'].rpartition('/')[0] or row['source_ref']}"


def _memory(row: Row, facts: Facts) -> dict[str, float | None]:
    """The peak under the name of what it counts."""
    found = _ALLOCATED.search(row["notes"])
    if found:
        return {"peak_allocated_bytes": float(found[1]) * GIB}
    value = number(row, "peak_mem_gib")
    if value is None:
        return {}
    allocated = _rules().value("memory", "kind", facts) == "allocated"
    return {"peak_allocated_bytes" if allocated else "peak_shown_bytes": value * GIB}


def _version(facts: Facts) -> tuple[int, ...] | None:
    """PyTorch's version, where the row states one."""
    version = facts["torch"]
    return version if isinstance(version, tuple) else None


def _software(facts: Facts) -> str:
    """The framework's version in words: the same work with another is other work."""
    version = _version(facts)
    return f"PyTorch {version[0]}.{version[1]}" if version else ""


def _options(row: Row, facts: Facts, found: Mapping[str, Any], batch: int) -> Options:
    """All that the row says beside its model and GPUs."""
    names = _rules().names
    precision = names["precisions"][row["precision"]]
    options: dict[str, Any] = {
        "strategy": names["strategies"][row["strategy"]],
        "micro_batch": batch,
        "grad_accum": whole(row, "grad_accum", 1),
        "precision": found.get("precision", {}).get(precision, precision),
        **found.get("words", {}),
    }
    if found.get("seq_len") and (seq := _SEQ.search(row["input_shape"])):
        options["seq_len"] = int(seq[1])
    if whole(row, "nodes", 1) > 1 and row["inter_link"] in names["networks"]:
        options["network"] = names["networks"][row["inter_link"]]
    if (node := _node(facts)) is not None:
        options["node"] = node
    for rule in _rules().every("options", facts):
        options |= rule.gives["words"]
    options |= _model_words(found["model"], row, facts)
    return cast("Options", options)


def _with_alias(name: str, options: Options) -> tuple[str, Options]:
    """The plain model of an alias, and its words where the row says nothing."""
    if (alias := alias_named(name)) is None:
        return name, options
    settings = {**alias.settings, **cast("dict[str, Scalar]", options.get("settings") or {})}
    words = {**alias.words, **options, **({"settings": settings} if settings else {})}
    return alias.model, cast("Options", words)


def _with_program(options: Options) -> Options:
    """The options with the settings that their program would leave to the model's record."""
    if (name := options.get("software")) is None:
        return options
    program = program_named(name)
    own = cast("dict[str, Scalar]", options.get("settings") or {})
    settings = {**(program.runs or Runs()).settings, **own}
    return {**options, "software": program.name, "settings": settings}


def _read(name: str, row: Row) -> Case | Skipped:
    facts = _facts(row)
    reason = _refusal(row, facts)
    if reason:
        return Skipped(name, reason)
    try:
        found = _model(row, facts)
    except UsageError as err:
        return Skipped(name, str(err))
    if found is None:
        return Skipped(name, f"model {row['model']!r} is not in models_db")
    gpus, nodes = whole(row, "gpus"), whole(row, "nodes", 1)
    if gpus % nodes:
        return Skipped(name, f"{gpus} GPUs do not divide over {nodes} nodes")
    batch = number(row, "local_batch", at_least=1)
    if batch is None or batch != int(batch):
        return Skipped(name, f"local batch {row['local_batch']!r} is not a whole number")
    entry = found["model"]
    facts |= _model_facts(entry, library=zoo_of(entry) is not None)
    model, options = _with_alias(entry, _options(row, facts, found, int(batch)))
    memory = _memory(row, facts)
    gpu = _rules().names["gpus"].get(row["gpu_type"], row["gpu_type"])
    # One GPU's speed-up is 1 by definition: nothing to judge.
    other = gpus == 1 or _rules().first("other_base", facts) is not None
    return Case(
        id=name,
        table="ddp",
        model=model,
        label=entry if entry != model else "",
        gpus=f"{nodes}x{gpus // nodes}x{gpu}",
        options=_with_program(options),
        measured=present(
            step_time_s=number(row, "step_time_s"),
            speedup=None if other else number(row, "speedup_vs_1gpu"),
            **memory,
        ),
        columns={
            **row,
            "entry": entry,
            "host": _host(row),
            "version": _software(facts),
            "gpus_are": "one" if gpus == 1 else "several",
            "memory_definition": next(iter(memory), "").replace("peak_", "").replace("_bytes", ""),
        },
        reference="",
        flag=str(_rules().value("doubts", "why", facts) or "") or _beyond(gpu, memory),
        notes=row["notes"],
    )


FORMAT = Format(
    "ddp",
    frozenset({"tier", "complete", "local_batch", "gpu_type", "speedup_vs_1gpu", "peak_mem_gib"}),
    _read,
)
