"""Published data-parallel training runs of many sources, one row a run.

Only complete rows of tier A or B become cases. ``peak_mem_gib`` is what nvidia-smi showed
(reserved memory and context) or the framework's own peak of live tensors: column
``memory_definition`` tells which. A speed-up is the table's own against one GPU of the same
source, host, batch and accumulation; where its note says that the base differs, it is left out.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from simcore.base.errors import UsageError
from simcore.base.units import GIB, GIGA, MEGA, format_bytes
from simcore.engine.options import Options
from simcore.engine.sizes import SWITCHED
from simcore.hardware.cluster import NO_P2P
from simcore.hardware.spec import GPUS as GPU_RECORDS
from simcore.strategy.software.pytorch import FOUNDRY, FOUNDRY_TORCH_1
from simcore.strategy.software.record import Program
from simcore.validate.case import Case, Skipped
from simcore.validate.formats import Format, Row, number, present, whole
from simcore.validate.formats.ddp_eras import era_optimizer, era_settings
from simcore.validate.formats.ddp_names import (
    CHANNELS_LAST,
    DATED,
    DETECTORS,
    DOUBTS,
    FUSED_ATTENTION_SINCE,
    GPUS,
    LLM_FOUNDRY,
    LLM_FOUNDRY_TORCH_1,
    LOOPED,
    LOOPED_BEFORE,
    MEMORY,
    MMDET,
    MMDET_SOURCE,
    NETWORKS,
    NO_P2P_RUNS,
    NODES,
    OBJECTS,
    OTHERWISE,
    POSITIVES_FRAC,
    PRECISIONS,
    PROPOSALS_A_BATCH,
    RECOMPUTED,
    REFUSED,
    RULES,
    SENT_LAST,
    SENT_LAST_BEFORE,
    SENT_LAST_ONCE,
    SENT_LAST_SOURCES,
    STRATEGIES,
    TRACED_OPTIMIZER,
    UNLEARNT,
    UNLEARNT_POSITIVES,
    UNWAITED,
    UNWAITED_BEFORE,
    UNWAITED_WHY,
    Rule,
)
from simcore.workload.models import MODELS, Scalar
from simcore.workload.trace.zoos import zoo_of

#: Architectures whose builders take a layout.
LAID_OUT = (
    "resnet", "resnext", "inverted_residual", "vgg", "densenet", "inception_v3", "ssd300", "rcnn",
    "efficientdet",
)  # fmt: skip
#: Words of a note that make the speed-up's base another run than this one on one GPU.
_OTHER_BASE = re.compile(r"strong scaling|from another host|base has grad_accum")
_ALLOCATED = re.compile(r"torch max_memory_allocated=([\d.]+)GiB")
_VERSION = re.compile(r"\bPT(\d+)\.(\d+)")
_CHECKPOINTS = re.compile(r"gradient checkpointing[ =](ON|OFF)")
_SEQ = re.compile(r"\bseq(\d+)")


_TELLING = ("source", "framework", "model", "task", "input_shape", "notes")


def _holds(where: str, row: Row) -> bool:
    """Whether all parts of ``where`` stand in what tells the row's program."""
    told = [*(row[c] for c in _TELLING), f"precision={row['precision']}"]
    text = " | ".join(told).lower()
    return all(w in text for w in where.split(" | "))


def _rule(row: Row) -> Rule | None:
    found = (r for r in RULES if r.model == row["model"] and _holds(r.where, row))
    return next(found, None) or _by_name(row) or _by_library(row)


def _by_library(row: Row) -> Rule | None:
    """A library's model, traced. Raises UsageError where the library is not installed."""
    if (found := zoo_of(row["model"])) is None:
        return None
    found[0].versions()
    return Rule(row["model"], row["model"], optimizer=TRACED_OPTIMIZER)


def _model_words(entry: str, row: Row) -> Options:
    """Words by which the entry is as the row's program and its libraries have it: the layout of
    tensors, products, the size of a traced network's images.
    """
    last = next((last for where, last in CHANNELS_LAST if _holds(where, row)), False)
    if zoo_of(entry):
        return _traced(entry, row, channels_last=last)
    record = MODELS[entry]
    found: dict[str, Scalar] = {}
    if last and record.arch in LAID_OUT:
        found["layout"] = "nhwc"
    if row["framework"] == "PyTorch" and row["source"] in SENT_LAST_SOURCES:
        found |= era_settings(record.arch, record.config, _version(row))
    if (foundry := _foundry(row)) is not None:
        found |= foundry.settings
    if row["source"] == MMDET_SOURCE:
        found |= MMDET.get(record.arch, {})
    if record.arch == "rcnn":
        found |= _detector(row)
    return {"settings": found} if found else {}


def _detector(row: Row) -> dict[str, Scalar]:
    """Whose host picks the row's proposals, and how many regions that leaves of an image."""
    settings = next((how for where, how in DETECTORS if _holds(where, row)), None)
    if settings is None or row["framework"].startswith("TensorFlow"):
        return {}
    found, batch = dict(settings), number(row, "local_batch")
    if found["mask_targets"] == "device_polygons" and batch:
        regions = min(512, round(PROPOSALS_A_BATCH / batch) + OBJECTS)
        learns = row["source"] not in UNLEARNT
        positives = round(regions * POSITIVES_FRAC) if learns else UNLEARNT_POSITIVES
        found |= {"regions": regions, "positives": positives}
    return found


def _foundry(row: Row) -> Program | None:
    """llm-foundry's release, where the row is of it."""
    if row["source"] not in LLM_FOUNDRY:
        return None
    return FOUNDRY_TORCH_1 if LLM_FOUNDRY_TORCH_1 in row["notes"] else FOUNDRY


#: How far the row's own parameters and FLOP may be from those of the entry that has its name.
_SAME_FRAC = 0.05


def _by_name(row: Row) -> Rule | None:
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
    return Rule(row["model"], record.name) if same else None


def _traced(name: str, row: Row, *, channels_last: bool) -> Options:
    """A library's model at the row's size, its attention as the row's PyTorch had it."""
    shape = f"float32[B,{row['input_shape'].replace('x', ',')}]"
    options: Options = {"inputs": (f"{shape} channels_last" if channels_last else shape,)}
    old = (_version(row) or FUSED_ATTENTION_SINCE) < FUSED_ATTENTION_SINCE
    if old and name.startswith(SWITCHED):
        options["attention"] = "math"
    return options


def _refusal(row: Row) -> str:
    """Why the row is no case, empty where it may be one."""
    if row["tier"] not in ("A", "B"):
        return f"tier {row['tier'] or '(blank)'}: known to be unusable"
    if row["complete"] != "1":
        return "incomplete: batch, step time, parameters or FLOP are not given"
    strategy = row["strategy"]
    if strategy not in STRATEGIES:
        known = (why for start, why in REFUSED.items() if strategy.startswith(start))
        return next(known, f"strategy {strategy!r} is not known")
    if row["precision"] not in PRECISIONS:
        return f"precision {row['precision']!r} is not known"
    return ""


def _node(row: Row) -> str | None:
    gpu, link = row["gpu_type"], row["intra_link"]
    preset = next((n for start, at, n in NODES if gpu.startswith(start) and link == at), None)
    if not _without_p2p(row):
        return preset
    return f"{preset}:{NO_P2P}" if preset else NO_P2P


def _without_p2p(row: Row) -> bool:
    source, where = row["source"], row["source_ref"]
    return any(source.startswith(s) and pattern.search(where) for s, pattern in NO_P2P_RUNS)


def _one_cluster(entry: str) -> bool:
    """Whether XLA compiles all of backward, whose gradients are then there at once.

    Norms that ranks average part it into clusters, since their exchange is Horovod's.
    """
    record = MODELS[entry]
    compiled = bool(record.config.get("xla"))
    return compiled and record.sync_norm_wait is None


def _sent_last(row: Row, entry: str) -> bool:
    """Whether the row's program sends its gradients after backward."""
    if row["source"] not in SENT_LAST_SOURCES:
        return False
    if row["framework"].startswith("TensorFlow"):
        return _one_cluster(entry)
    if row["framework"] != "PyTorch":
        return False
    version = _version(row)
    once = row["model"].startswith(SENT_LAST_ONCE)
    old = version is not None and version < SENT_LAST_BEFORE
    return row["model"].startswith(SENT_LAST) or (once and old)


def _flag(row: Row, gpus: int) -> str:
    """What the table itself doubts and no option of the job explains, or what ran otherwise."""
    told = (row["source"], row["framework"], row["model"])
    for *these, why in OTHERWISE:
        if told == tuple(these) and gpus > 1:
            return why
    version = _version(row)
    timed = (row["model"], row["source"], row["precision"])
    if timed == UNWAITED and version is not None and version < UNWAITED_BEFORE:
        return UNWAITED_WHY
    if _without_p2p(row):
        return ""
    return next((text for word, text in DOUBTS if word in row["notes"]), "")


def _beyond(gpu: str, memory: Mapping[str, float | None]) -> str:
    """A peak that the GPU that the row names does not have: it ran on another."""
    peak = max((v for v in memory.values() if v is not None), default=0.0)
    if not peak or GPU_RECORDS.path(gpu) is None or peak <= GPU_RECORDS[gpu].memory_size.value:
        return ""
    return f"its memory, {format_bytes(peak, unit='GiB')}, is more than the GPU it names has"


def _host(row: Row) -> str:
    """One host's runs share the folder of the source's log, or the document and its line."""
    return f"{row['source']}/{row['source_ref'].rpartition('/')[0] or row['source_ref']}"


def _memory(row: Row) -> dict[str, float | None]:
    """The peak under the name of what it counts."""
    found = _ALLOCATED.search(row["notes"])
    if found:
        return {"peak_allocated_bytes": float(found[1]) * GIB}
    value = number(row, "peak_mem_gib")
    if value is None:
        return {}
    kind = next((k for s, k in MEMORY.items() if row["source"].startswith(s)), "nvidia-smi")
    key = "peak_allocated_bytes" if kind == "allocated" else "peak_shown_bytes"
    return {key: value * GIB}


def _version(row: Row) -> tuple[int, int] | None:
    """PyTorch's version, where stated."""
    found = _VERSION.search(row["notes"])
    if found is None:
        return None
    told = (int(found[1]), int(found[2]))
    source, when, newest = DATED
    dated = row["source"] == source and when.search(row["source_ref"])
    return min(told, newest) if dated else told


def _software(row: Row) -> str:
    """The framework's version in words: the same work with another is other work."""
    version = _version(row)
    return f"PyTorch {version[0]}.{version[1]}" if version else ""


def _loads_all_kernels(row: Row) -> bool:
    """Whether the framework's version, where stated, is before PyTorch's first lazy loading."""
    version = _version(row)
    return version is not None and version < (1, 13)


def _updates_by_tensor(row: Row) -> bool:
    """Whether the row's program updates and clips tensor by tensor, and the device waits for it."""
    if row["framework"] != "PyTorch" or row["source"] not in SENT_LAST_SOURCES:
        return False
    return row["model"].startswith(LOOPED) and (_version(row) or (1, 0)) < LOOPED_BEFORE


def _read(name: str, row: Row) -> Case | Skipped:
    reason = _refusal(row)
    if reason:
        return Skipped(name, reason)
    try:
        rule = _rule(row)
    except UsageError as err:
        return Skipped(name, str(err))
    if rule is None:
        return Skipped(name, f"model {row['model']!r} is not in models_db")
    gpus, nodes = whole(row, "gpus"), whole(row, "nodes", 1)
    if gpus % nodes:
        return Skipped(name, f"{gpus} GPUs do not divide over {nodes} nodes")
    batch = number(row, "local_batch", at_least=1)
    if batch is None or batch != int(batch):
        return Skipped(name, f"local batch {row['local_batch']!r} is not a whole number")
    precision = PRECISIONS[row["precision"]]
    options: Options = {
        "strategy": STRATEGIES[row["strategy"]],
        "micro_batch": int(batch),
        "grad_accum": whole(row, "grad_accum", 1),
        "precision": rule.precision.get(precision, precision),
    }
    if rule.optimizer:
        options["optimizer"] = era_optimizer(rule.optimizer, _version(row))
    if rule.optimizer_impl:
        options["optimizer_impl"] = rule.optimizer_impl
    if rule.main_grads:
        options["main_grads"] = rule.main_grads
    if rule.seq_len and (seq := _SEQ.search(row["input_shape"])):
        options["seq_len"] = int(seq[1])
    if nodes > 1 and row["inter_link"] in NETWORKS:
        options["network"] = NETWORKS[row["inter_link"]]
    if (node := _node(row)) is not None:
        options["node"] = node
    if _sent_last(row, rule.entry):
        options["overlap"] = "none"
    if _updates_by_tensor(row):
        options["optimizer_impl"] = "for-loop"
    if _loads_all_kernels(row):
        options["eager_kernels"] = True
    if (checkpoints := _CHECKPOINTS.search(row["notes"])) is not None:
        options["recompute"] = "full" if checkpoints[1] == "ON" else "none"
    if any(words in row["notes"] for words in RECOMPUTED):
        options["recompute"] = "full"
    if (foundry := _foundry(row)) is not None:
        options["software"] = foundry.software.name
    memory = _memory(row)
    gpu = GPUS.get(row["gpu_type"], row["gpu_type"])
    # One GPU's speed-up is 1 by definition: nothing to judge.
    faster = None if gpus == 1 or _OTHER_BASE.search(row["notes"]) else "speedup_vs_1gpu"
    return Case(
        id=name,
        table="ddp",
        model=rule.entry,
        gpus=f"{nodes}x{gpus // nodes}x{gpu}",
        options=options | _model_words(rule.entry, row),
        measured=present(
            step_time_s=number(row, "step_time_s"),
            speedup=number(row, faster) if faster else None,
            **memory,
        ),
        columns={
            **row,
            "entry": rule.entry,
            "host": _host(row),
            "version": _software(row),
            "gpus_are": "one" if gpus == 1 else "several",
            "memory_definition": next(iter(memory), "").replace("peak_", "").replace("_bytes", ""),
        },
        reference="",
        flag=_flag(row, gpus) or _beyond(gpu, memory),
        notes=row["notes"],
    )


FORMAT = Format(
    "ddp",
    frozenset({"tier", "complete", "local_batch", "gpu_type", "speedup_vs_1gpu", "peak_mem_gib"}),
    _read,
)
