"""Published data-parallel training runs of many sources, one row a run.

The rules in ``validate/corpora/ddp.yaml`` translate a row's cells to options of ``simcore predict``
(``rules.py`` describes their language). This module computes the facts of a row that the rules'
conditions refer to. Only complete rows of tier A or B become cases. ``peak_mem_gib`` is either the
figure of nvidia-smi (reserved memory and CUDA context) or the framework's peak of live tensors; the
added column ``memory_definition`` says which. Speed-ups are the table's own, relative to one GPU
with the same source, host, batch and accumulation. Where a row's note says that it is relative to
another run, the speed-up is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, cast

from simcore.base.errors import UsageError
from simcore.base.units import GIB, GIGA, MEGA, format_bytes
from simcore.hardware.cluster import NO_P2P
from simcore.hardware.spec import GPUS as GPU_RECORDS
from simcore.strategy.options import Options
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
#: Columns whose text identifies a row's program.
_PROGRAM_COLUMNS = ("source", "framework", "model", "task", "input_shape", "notes")
#: The value of ``torch_release`` in a rule that stands for the release that the row states.
_STATED = "stated"
#: Largest relative difference of parameters and FLOP between a row and the models_db entry of the
#: same name for which the entry is taken to be the row's model.
_SAME_FRAC = 0.05


def _rules() -> Corpus:
    return corpus("ddp")


def _facts(row: Row) -> Facts:
    """The facts of a row for the rules' conditions: cells, joined text, program, PyTorch."""
    text = " | ".join(
        [*(row[c] for c in _PROGRAM_COLUMNS), f"precision={row['precision']}"]
    ).lower()
    facts: Facts = {**row, TEXT: text}
    facts["gpus"] = float(row["gpus"]) if row["gpus"].replace(".", "").isdigit() else None
    facts["torch"] = _torch_version(row, facts)
    facts["program"] = _rules().value("programs", "program", facts)
    facts["without_p2p"] = _rules().first("without_p2p", facts) is not None
    return facts


def _torch_version(row: Row, facts: Facts) -> tuple[int, ...] | None:
    """PyTorch's version in the row's notes; None if they state none.

    A rule of ``newest_torch`` limits it to the newest version that can have existed at the run.
    """
    match = _VERSION.search(row["notes"])
    if match is None:
        return None
    stated = (int(match[1]), int(match[2]))
    newest = _rules().value("newest_torch", "torch", facts)
    return stated if newest is None else min(stated, tuple(map(int, newest.split("."))))


def _model(row: Row, facts: Facts) -> Mapping[str, Any] | None:
    """The row's model and options of its training; None if the model is not known.

    They come from the first rule that holds; without one, a models_db entry or a model of a vision
    library with the row's name is used. Raises UsageError if that library is not installed.
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
    """The models_db entry with the row's model name (without its library) and the same size.

    None if there is none whose parameters and FLOP agree with the row's to ``_SAME_FRAC``.
    """
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
    """The facts of a model for the rules' conditions: architecture, settings (``set_gelu``)."""
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
    """Settings of a two-stage detector: proposals per image, and how many of them are positive.

    Both depend on the batch size where the program limits the proposals of a whole batch.
    """
    rule, batch = _rules().first("regions", facts), number(row, "local_batch")
    if rule is None or not batch:
        return {}
    gives = rule.gives
    regions = min(gives["at_most"], round(gives["batch_total"] / batch) + gives["plus"])
    positives = gives.get("positives") or round(regions * gives["positive_frac"])
    return {"regions": regions, "positives": positives}


def _model_words(name: str, row: Row, facts: Facts) -> Options:
    """Options that adapt the model to the row's program: tensor layout, settings, input shape."""
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
    """Why the row is skipped; empty if it is not."""
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
    """Why the row is doubted if its peak memory exceeds the named GPU's; empty if it does not."""
    peak = max((v for v in memory.values() if v is not None), default=0.0)
    if not peak or GPU_RECORDS.path(gpu) is None or peak <= GPU_RECORDS[gpu].memory_size.value:
        return ""
    return f"its memory, {format_bytes(peak, unit='GiB')}, is more than the GPU it names has"


def _host(row: Row) -> str:
    """A text that is equal for runs on one host: the source and the folder of its log.

    For a source without folders it is the whole reference, a document and its line.
    """
    return f"{row['source']}/{row['source_ref'].rpartition('/')[0] or row['source_ref']}"


def _memory(row: Row, facts: Facts) -> dict[str, float | None]:
    """Peak memory [bytes], under a name that says what it counts (allocated, or nvidia-smi's)."""
    found = _ALLOCATED.search(row["notes"])
    if found:
        return {"peak_allocated_bytes": float(found[1]) * GIB}
    value = number(row, "peak_mem_gib")
    if value is None:
        return {}
    allocated = _rules().value("memory", "kind", facts) == "allocated"
    return {"peak_allocated_bytes" if allocated else "peak_shown_bytes": value * GIB}


def _version(facts: Facts) -> tuple[int, ...] | None:
    """PyTorch's version; None if the row states none."""
    version = facts["torch"]
    return version if isinstance(version, tuple) else None


def _software(facts: Facts) -> str:
    """The framework and its version as text, such as ``PyTorch 1.10``; empty if not stated.

    Runs that differ in it are not repeats of one another.
    """
    version = _version(facts)
    return f"PyTorch {version[0]}.{version[1]}" if version else ""


def _options(row: Row, facts: Facts, found: Mapping[str, Any], batch: int) -> Options:
    """The options of the row's job other than its model and GPUs."""
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
    return options


def _with_alias(name: str, options: Options) -> tuple[str, Options]:
    """The model that an alias stands for, and the options plus those of the alias.

    Options of the row override the alias's. Other names are returned unchanged.
    """
    if (alias := alias_named(name)) is None:
        return name, options
    settings = {**alias.settings, **cast("dict[str, Scalar]", options.get("settings") or {})}
    words = {**alias.words, **options, **({"settings": settings} if settings else {})}
    return alias.model, words


def _with_program(options: Options) -> Options:
    """The options with the settings of their program added to the row's settings."""
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
    # The speed-up of one GPU is 1 by definition, so it is not compared.
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
    )


FORMAT = Format(
    "ddp",
    frozenset({"tier", "complete", "local_batch", "gpu_type", "speedup_vs_1gpu", "peak_mem_gib"}),
    _read,
)
