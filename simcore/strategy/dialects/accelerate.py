"""Accelerate's YAML and the flags of ``accelerate launch``: what its record cannot express."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import PurePath
from typing import Any

from simcore.base.errors import DataError, UsageError
from simcore.base.record import dataclass
from simcore.strategy.dialects.base import Job, Launch
from simcore.strategy.dialects.keyed import DIALECTS, TableDialect, read_named
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.record import fold
from simcore.strategy.dialects.source import Source, beside, json_table, yaml_table
from simcore.strategy.programs import program_named
from simcore.strategy.strategy import HYBRID, parse_offload

_TYPE, _DEEPSPEED_FILE = "distributed_type", "deepspeed_config.deepspeed_config_file"
#: Section -> values of ``distributed_type`` for which it counts.
_SECTION_OF = {"fsdp_config": "fsdp", "deepspeed_config": "deepspeed",
               "megatron_lm_config": "megatron_lm"}  # fmt: skip
#: Starts of flags of ``accelerate launch``, and the sections of the file that have their keys.
_SECTION_OF_FLAG = {
    "fsdp_": "fsdp_config", "megatron_lm_": "megatron_lm_config",
    "parallelism_config_": "parallelism_config", "fp8_": "fp8_config", "dynamo_": "dynamo_config",
    "zero_": "deepspeed_config", "zero3_": "deepspeed_config", "offload_": "deepspeed_config",
    "deepspeed_": "deepspeed_config", "gradient_": "deepspeed_config",
}  # fmt: skip
#: Flags that stand for a value of another key.
_SWITCHES = {
    "use_fsdp": (_TYPE, "FSDP"), "use_deepspeed": (_TYPE, "DEEPSPEED"),
    "use_megatron_lm": (_TYPE, "MEGATRON_LM"), "multi_gpu": (_TYPE, "MULTI_GPU"),
    "tpu": (_TYPE, "TPU"), "cpu": ("use_cpu", True),
}  # fmt: skip
#: Flags whose value is a configuration: of accelerate launch, and of TRL's command.
_FILES = ("config_file", "accelerate_config")
#: Flags whose values are counts.
_COUNTS = ("num_processes", "num_machines")
#: The ZeRO stage in the name of a configuration.
_STAGE = re.compile(r"(?:zero|deepspeed|ds|z)\w*?([0-3])(?!\d)")
_MESH = "parallelism_config.parallelism_config_{}_size"


@dataclass(frozen=True)
class Accelerate(TableDialect):
    """The YAML or JSON file that ``accelerate config`` writes, and flags that override it."""

    def claims(self, source: Source) -> bool:
        """Whether it is YAML or JSON with keys that only Accelerate has."""
        marked = any(mark in source.text for mark in self.record.marks)
        return source.suffix in (".yaml", ".yml", ".json") and marked

    def data(self, source: Source) -> Mapping[str, Any]:
        """The keys and values of a file. Raises DataError for a file of another form."""
        return json_table(source) if source.suffix == ".json" else yaml_table(source)

    def read_flags(self, reading: Reading, given: Mapping[str, str]) -> Launch:
        """The flags of ``accelerate launch``, which override those of ``--config_file``.

        ``given``: flags with dashes for underscores, and their values.
        """
        data: dict[str, Any] = {}
        if name := given.get("config-file") or given.get("accelerate-config"):
            data = self._named(reading, name)
        for flag, value in given.items():
            key = flag.replace("-", "_")
            section = next((s for p, s in _SECTION_OF_FLAG.items() if key.startswith(p)), "")
            if key in _SWITCHES:
                name, switched = _SWITCHES[key]
                data[name] = switched
            elif section:
                data[section] = {**data.get(section, {}), key: value}
            elif key not in _FILES:
                data[key] = value
        if _TYPE not in data:  # launch.py: a process for each GPU, and of several MULTI_GPU
            several = str(data.get("num_processes", "all")) not in ("0", "1")
            data[_TYPE] = "MULTI_GPU" if several else "NO"
        return self.read_table(reading, Table(data))

    def _named(self, reading: Reading, name: str) -> dict[str, Any]:
        """The keys of a configuration; of one that is not at hand, what its name says."""
        try:
            return dict(self.data(beside(reading.source, name)))
        except (DataError, UsageError):
            if not (said := _by_name(PurePath(name).name)):
                reading.refuse(f"--config_file {name}", "is not at hand", "strategy")
                reading.not_at_hand(name, self.title)
                return {}
        values = [v for value in said.values() for v in (value.values() if isinstance(value, dict)
                                                         else [value])]  # fmt: skip
        how = f"is not at hand: read by its name as {' '.join(map(str, values))}"
        reading.approximate(f"--config_file {name}", how)
        return said

    def takes(self, flag: str) -> bool:
        """Whether ``accelerate launch`` has a flag (dashes for underscores)."""
        key, record = flag.replace("-", "_"), self.record
        plain = {*record.without_effect()[0], *(k for names in record.table() for k in names)}
        return (
            key in (*_FILES, *_COUNTS, *_SWITCHES, *plain, *record.bare.replace("-", "_").split())
            or key.startswith(tuple(_SECTION_OF_FLAG))
        )  # fmt: skip


def _by_name(name: str) -> dict[str, Any]:
    """What the usual names of configurations mean: zero3.yaml, fsdp2.yaml, multi_gpu.yaml."""
    low = name.lower()
    if stage := _STAGE.search(low):
        section = {"zero_stage": int(stage[1])}
        return {_TYPE: "DEEPSPEED", "deepspeed_config": section, "mixed_precision": "bf16"}
    if "fsdp" in low:
        version = {"fsdp_version": 2} if re.search(r"fsdp_?(?:v?2|version_?2)", low) else {}
        return {_TYPE: "FSDP", "fsdp_config": version, "mixed_precision": "bf16"}
    kinds = {"multi_gpu": "MULTI_GPU", "ddp": "MULTI_GPU", "single_gpu": "NO"}
    return next(({_TYPE: kind} for part, kind in kinds.items() if part in low), {})


def _sections(reading: Reading, table: Table) -> None:
    """Leave out sections of programs that are not used; read the DeepSpeed file, if one is named.

    Accelerate allows no other DeepSpeed keys beside the file's name.
    """
    kind = fold(table.given.get(_TYPE))
    for section, used_by in _SECTION_OF.items():
        if kind != used_by and table.drop(section):
            reading.ignore(section)
    name = table.take(_DEEPSPEED_FILE)
    if kind != "deepspeed" or name in (None, "none", "None"):
        table.given.pop(_DEEPSPEED_FILE, None)
        return
    for key in table.drop("deepspeed_config"):
        reading.ignore(key)
    reading.inner = read_named(reading, "deepspeed_config_file", "deepspeed", str(name))
    if reading.inner.precision is not None and table.take("mixed_precision") is not None:
        reading.ignore("mixed_precision")  # the DeepSpeed file's precision counts


def _rest(reading: Reading, table: Table) -> None:
    alone = fold(table.given.get(_TYPE, "no")) == "no"
    nodes = reading.whole("num_machines", table.take("num_machines"))
    total = reading.whole("num_processes", table.take("num_processes"), least=-1)
    if alone:
        nodes, total = 1, 1
    if nodes is None and total is not None:
        nodes = 1
    reading.say("nnodes", nodes, "num_machines")
    if nodes is not None and total is not None and total > 0:  # -1: the cluster gives the number
        if total % nodes:
            reading.refuse(f"num_processes = {total}", f"is no multiple of num_machines = {nodes}")
        reading.say("nproc_per_node", None if total % nodes else total // nodes, "num_processes")
    _mesh(reading, table)
    backend = table.take("dynamo_backend") or table.take("dynamo_config.dynamo_backend")
    if backend and fold(backend) != "no":
        reading.say("compile", True, "dynamo_config")
    table.drop("dynamo_config")


def _mesh(reading: Reading, table: Table) -> None:
    """Replicas and shards: FSDP shards over ``dp_shard`` and context ranks together."""
    sizes: dict[str, int] = {}
    keys: dict[str, str] = {}
    for part in ("dp_replicate", "dp_shard"):
        named = (_MESH.format(part), f"parallelism_config.{part}_size", f"tp_config.{part}_size")
        keys[part], value = table.first(*named)
        sizes[part] = reading.whole(keys[part], value, least=None) or 1
    kind = fold(table.given.get(_TYPE))
    if sizes["dp_replicate"] <= 1 or kind not in ("fsdp", "deepspeed"):
        return
    key, shards = keys["dp_replicate"], sizes["dp_shard"]
    if kind == "fsdp" and shards > 1:
        reading.say("shard_ranks", shards * int(reading.said("cp") or 1), key)
        if reading.said("strategy") == HYBRID:
            reading.say("strategy", "zero3", key)
    else:  # parallelism_config.py, __post_init__ and _validate_accelerator
        why = "takes FSDP with dp_shard_size above 1"
        reading.refuse(f"{key} = {sizes['dp_replicate']}:", why, "strategy")


def _write(job: Job, data: dict[str, Any], problems: list[str]) -> None:
    """Plain DDP, FSDP 2, or DeepSpeed where only that can express the job; counts and mesh."""
    offload = parse_offload(job.offload)
    both = offload.optimizer == offload.params == "cpu" and job.strategy == "zero3"
    # DeepSpeed shards with hooks around each module
    by_module = job.software is not None and program_named(job.software).zero3.hooks is not None
    if job.strategy in ("zero2", "zero3") and (both or not offload) and not by_module:
        data[_TYPE] = "FSDP"
    elif job.strategy.startswith("zero"):
        data[_TYPE] = "DEEPSPEED"
    else:
        data[_TYPE] = "NO" if job.n_gpus == 1 else "MULTI_GPU"
    data |= {"num_machines": job.nnodes, "num_processes": job.n_gpus}
    tp, cp, fsdp = job.tp or 1, job.cp or 1, data[_TYPE] == "FSDP"
    alone = data[_TYPE] != "DEEPSPEED" and job.data_ranks == 1
    if tp * cp > 1 and not fsdp and not alone:
        degrees = " ".join(f"{w} {n}" for w, n in (("tp", tp), ("cp", cp)) if n > 1)
        problems.append(f"Accelerate has {degrees} beside data ranks with FSDP alone: zero3")
    ranks = job.n_gpus // tp
    group = job.shard_ranks or ranks
    copies, shards = (ranks // group, group // cp) if fsdp else (1, 1)
    if fsdp and tp * cp * copies > 1 and (group % cp or (copies > 1 and shards == 1)):
        problems.append(f"Accelerate cannot shard over {group} ranks of which {cp} are context's")
    sizes = {"dp_replicate": copies, "dp_shard": shards, "tp": tp, "cp": cp}
    if tp * cp > 1 or job.shard_ranks:
        data |= {_MESH.format(part): n for part, n in sizes.items() if n > 1}


ACCELERATE = Accelerate("accelerate", first=_sections, odd=_rest, odd_writing=_write)
DIALECTS.register("accelerate")(ACCELERATE)
