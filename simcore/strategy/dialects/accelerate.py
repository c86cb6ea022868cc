"""Accelerate's YAML configuration and the flags of ``accelerate launch``.

Keys: accelerate/commands/config/{config_args,cluster}.py, commands/launch.py and the plugins of
utils/dataclasses.py, Accelerate 1.15.

With FSDP, 16-bit mixed precision gathers weights and reduces gradients in 16 bits and keeps fp32
shards (``set_mixed_precision``): 16 bytes a parameter, simcore's fp16 and bf16. Without FSDP or
DeepSpeed it is autocast, simcore's amp-fp16 and amp-bf16.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from simcore.base.errors import InvalidConfig
from simcore.strategy.dialects.base import DIALECTS, Emitted, Job, Launch, joined
from simcore.strategy.dialects.deepspeed import STAGES, overlap_of
from simcore.strategy.dialects.reading import NOT_YET, Reading, Table
from simcore.strategy.dialects.source import Source, json_table, read_source, yaml_table
from simcore.strategy.programs import program_named
from simcore.strategy.strategy import HYBRID, parse_offload

_TYPES: dict[str, str | None] = {
    "no": "no", "multi_gpu": "ddp", "fsdp": "fsdp", "deepspeed": "deepspeed",
    "megatron_lm": "megatron", "multi_cpu": None, "multi_npu": None, "multi_mlu": None,
    "multi_sdaa": None, "multi_musa": None, "multi_xpu": None, "multi_hpu": None,
    "multi_neuron": None, "xla": None, "tpu": None,
}  # fmt: skip
_PRECISION: dict[str, str | None] = {"no": "fp32", "fp16": "fp16", "bf16": "bf16", "fp8": "fp8"}
#: torch.distributed.fsdp.ShardingStrategy, by name or number (1 to 5).
_SHARDING: dict[str, str | None] = {
    "full_shard": "zero3", "shard_grad_op": "zero2", "no_shard": "ddp", "hybrid_shard": HYBRID,
    "hybrid_shard_zero2": None, "1": "zero3", "2": "zero2", "3": "ddp", "4": HYBRID, "5": None,
}  # fmt: skip
_STAGES = {str(number): name for number, name in STAGES.items()}
IGNORED = frozenset(
    f"{section}.{key}" if section else key
    for section, keys in {
        "": "compute_environment debug machine_rank main_process_ip main_process_port "
        "main_training_function rdzv_backend rdzv_conf same_network gpu_ids enable_cpu_affinity "
        "downcast_bf16 tpu_name tpu_zone tpu_use_cluster tpu_use_sudo tpu_env tpu_vm command_file "
        "commands quiet module no_python max_restarts monitor_interval tee log_dir role "
        "num_cpu_threads_per_process tpu_cluster no_tpu_cluster m q t",
        "fsdp_config": "fsdp_auto_wrap_policy fsdp_transformer_layer_cls_to_wrap "
        "fsdp_min_num_params fsdp_state_dict_type fsdp_use_orig_params "
        "fsdp_cpu_ram_efficient_loading fsdp_sync_module_states fsdp_version "
        "fsdp_backward_prefetch_policy fsdp_ignored_modules",
        "deepspeed_config": "zero3_init_flag zero3_save_16bit_model deepspeed_multinode_launcher "
        "deepspeed_hostfile deepspeed_exclusion_filter deepspeed_inclusion_filter "
        "deepspeed_moe_layer_cls_names offload_optimizer_nvme_path offload_param_nvme_path",
    }.items()
    for key in keys.split()
)
SECTIONS = ("mpirun_config", "ipex_config")
_TAKEN = (
    "distributed_type", "num_machines", "num_processes", "mixed_precision", "fp16", "use_cpu",
    "fsdp_config", "deepspeed_config", "megatron_lm_config", "parallelism_config", "tp_config",
    "dynamo_config", "dynamo_backend", "fp8_config", "fsdp_config.fsdp_sharding_strategy",
    "fsdp_config.fsdp_reshard_after_forward", "fsdp_config.fsdp_offload_params",
    "fsdp_config.fsdp_activation_checkpointing", "fsdp_config.fsdp_forward_prefetch",
    "fsdp_config.fsdp_backward_prefetch", "deepspeed_config.zero_stage",
    "deepspeed_config.gradient_accumulation_steps", "deepspeed_config.gradient_clipping",
    "deepspeed_config.offload_optimizer_device", "deepspeed_config.offload_param_device",
    "deepspeed_config.deepspeed_config_file",
)  # fmt: skip


class Accelerate:
    """The YAML file that ``accelerate config`` writes."""

    name = "accelerate"
    title = "Accelerate"
    summary = "YAML configuration of accelerate launch, with FSDP or DeepSpeed"

    def claims(self, source: Source) -> bool:
        """Whether it is YAML or JSON with keys that only Accelerate has."""
        if source.suffix not in (".yaml", ".yml", ".json"):
            return False
        own = ("distributed_type", "compute_environment", "fsdp_config", "deepspeed_config",
               "num_processes", "mixed_precision")  # fmt: skip
        return any(key in source.text for key in own)

    def read(self, source: Source) -> Launch:
        """The options that its keys state; a DeepSpeed file that it names is read too."""
        data = json_table(source) if source.suffix == ".json" else yaml_table(source)
        return _read(Reading(self.name, source), data, source)

    def emit(self, job: Job) -> Emitted:
        """The job as plain DDP, FSDP 2, or DeepSpeed where only that can express it."""
        problems: list[str] = []
        lines = _emit(job, problems)
        if problems:
            raise InvalidConfig(problems)
        left = ["micro_batch", "optimizer", "seq_len", "bucket_numel", "main_grads", "attention",
                "compile", "issuer", "expert_tp", "dispatcher", "cp_comm", "expert_capacity",
                "expert_padding"]  # fmt: skip
        deepspeed, fsdp = (f"distributed_type: {kind}" in lines for kind in ("DEEPSPEED", "FSDP"))
        if not deepspeed:
            left += ["grad_accum", "grad_clip"]
        if not fsdp and job.recompute == "none":
            left.append("recompute")
        left += [] if job.overlap is None else ["overlap"]
        program = {"software": "deepspeed"} if deepspeed else {}
        if fsdp:
            program["software"] = "fsdp@no-sync"
        if deepspeed:  # its plugin writes no overlap_comm (utils/dataclasses.py, DeepSpeedPlugin)
            program["overlap"] = overlap_of(int(job.strategy[-1]), None)
        return Emitted("\n".join(lines) + "\n", tuple(left), program)


def read_flags(dialect: str, source: Source, given: Mapping[str, str]) -> Launch:
    """The flags of ``accelerate launch``, which override those in the file of ``--config_file``.

    ``given``: flags with dashes for underscores, and their values.
    """
    data: dict[str, Any] = {}
    if "config-file" in given:
        data = _file(source, given["config-file"])
    renamed = {"use_fsdp": "FSDP", "use_deepspeed": "DEEPSPEED", "use_megatron_lm": "MEGATRON_LM",
               "multi_gpu": "MULTI_GPU", "tpu": "TPU"}  # fmt: skip
    for flag, value in given.items():
        key = flag.replace("-", "_")
        if key == "config_file":
            continue
        if key in renamed:
            data["distributed_type"] = renamed[key]
        elif key == "cpu":
            data["use_cpu"] = True
        else:
            section = _section(key)
            place = data.setdefault(section, {}) if section else data
            place[key.removeprefix("parallelism_config_")
                  if section == "parallelism_config" else key] = value  # fmt: skip
    if "distributed_type" not in data:  # launch.py: more than one process means MULTI_GPU
        several = str(data.get("num_processes", "1")) not in ("0", "1")
        data["distributed_type"] = "MULTI_GPU" if several else "NO"
    return _read(Reading(dialect, source), data, source)


def _section(key: str) -> str:
    if key.startswith("fsdp_"):
        return "fsdp_config"
    if key.startswith("megatron_lm_"):
        return "megatron_lm_config"
    if key.startswith("parallelism_config_"):
        return "parallelism_config"
    if key.startswith("fp8_"):
        return "fp8_config"
    if key.startswith("dynamo_"):
        return "dynamo_config"
    deepspeed = ("zero_", "zero3_", "offload_", "deepspeed_", "gradient_")
    return "deepspeed_config" if key.startswith(deepspeed) else ""


def _beside(source: Source, name: str) -> Source:
    near = source.path.parent / name if source.path is not None else None
    return read_source(str(near) if near is not None and near.is_file() else name)


def _file(source: Source, name: str) -> dict[str, Any]:
    found = _beside(source, name)
    return dict(json_table(found) if found.suffix == ".json" else yaml_table(found))


def _read(reading: Reading, data: Mapping[str, Any], source: Source) -> Launch:
    table = Table(data)
    kind = reading.choose(
        "distributed_type", table.take("distributed_type") or "NO", _TYPES, "strategy"
    )
    _counts(reading, table, kind)
    inner: Launch | None = None
    if kind in ("no", "ddp"):
        reading.say("strategy", "ddp", "distributed_type")
        reading.say("offload", "none", "distributed_type")
    if kind == "fsdp":
        _fsdp(reading, table)
    elif kind == "deepspeed":
        inner = _deepspeed(reading, table, source)
    elif kind == "megatron":
        reading.refuse("distributed_type = MEGATRON_LM", "is read from Megatron's own flags only")
    _precision(reading, table, kind, inner)
    for section in ("fsdp_config", "deepspeed_config", "megatron_lm_config"):
        if not kind or not section.startswith(kind):  # the section of a program that is not used
            for key in [section, *table.below(section)]:
                if table.take(key) is not None:
                    reading.ignore(section)
    _degrees(reading, table, kind)
    for section in ("parallelism_config", "tp_config", "fp8_config"):
        for key in [section, *table.below(section)]:
            if table.take(key) is not None:
                reading.ignore(section)
    backend = table.take("dynamo_backend") or table.take("dynamo_config.dynamo_backend")
    if backend and str(backend).lower() != "no":
        reading.say("compile", True, "dynamo_config")
    for key in ["dynamo_config", *table.below("dynamo_config")]:
        table.take(key)
    table.leftovers(reading, IGNORED, _TAKEN, SECTIONS)
    launch = reading.finish()
    return joined(launch, inner) if inner is not None else launch


def _counts(reading: Reading, table: Table, kind: str | None) -> None:
    if reading.flag("use_cpu", table.take("use_cpu")):
        reading.refuse("use_cpu", f"(training without GPUs) {NOT_YET}")
    nodes = reading.whole("num_machines", table.take("num_machines"))
    total = reading.whole("num_processes", table.take("num_processes"), least=-1)
    if kind == "no":
        nodes, total = 1, 1
    if nodes is None and total is not None:
        nodes = 1
    reading.say("nnodes", nodes, "num_machines")
    if total is None or total < 1:  # -1: the cluster gives the number
        return
    if nodes is not None and total % nodes:
        reading.refuse(f"num_processes = {total}", f"is no multiple of num_machines = {nodes}")
    elif nodes is not None:
        reading.say("nproc_per_node", total // nodes, "num_processes")


def _degrees(reading: Reading, table: Table, kind: str | None) -> None:
    sizes: dict[str, tuple[str, int]] = {}
    for key in ("tp_size", "cp_size", "sp_size", "dp_replicate_size", "dp_shard_size"):
        for name in (f"parallelism_config.parallelism_config_{key}", f"parallelism_config.{key}",
                     f"tp_config.{key}"):  # fmt: skip
            value = table.take(name)
            if key in ("tp_size", "cp_size"):
                reading.degree(name, value, key[:2])
            elif key == "sp_size":
                reading.no_degree(name, value, "sequence parallelism of attention heads")
            elif (size := reading.whole(name, value, least=None)) is not None and size > 1:
                sizes[key] = name, size
    if "dp_replicate_size" in sizes and kind in ("fsdp", "deepspeed"):
        name, copies = sizes["dp_replicate_size"]
        shards = sizes.get("dp_shard_size", ("", 1))[1]
        if kind == "fsdp" and shards > 1:
            reading.say("shard_ranks", shards * int(reading.said("cp") or 1), name)
            if reading.said("strategy") == HYBRID:
                reading.say("strategy", "zero3", name)
        else:  # parallelism_config.py, __post_init__ and _validate_accelerator
            reading.refuse(
                f"{name} = {copies}:", "takes FSDP with dp_shard_size above 1", "strategy"
            )
    if reading.said("tp") is not None:  # transformers' plans shard weights but not norms
        reading.say("sequence_parallel", False, "parallelism_config")


def _fsdp(reading: Reading, table: Table) -> None:
    # fsdp_sharding_strategy is the older name; with FSDP 2 it is true (gather again) or false.
    strategy = None
    for key in ("fsdp_config.fsdp_sharding_strategy", "fsdp_config.fsdp_reshard_after_forward"):
        value = table.take(key)
        if value is None:
            continue
        if str(value).strip().lower() in ("true", "false"):
            strategy = "zero3" if str(value).strip().lower() == "true" else "zero2"
        else:
            strategy = reading.choose(key, value, _SHARDING, "strategy")
            if strategy is None:
                return
        reading.say("strategy", strategy, key)
    if strategy is None:
        reading.say("strategy", "zero3", "distributed_type: FSDP (FULL_SHARD is its default)")
    if reading.said("strategy") != "ddp":  # NO_SHARD gathers nothing
        # accelerator.py: accumulate and no_sync leave all micro-steps but the last unreduced
        reading.say("software", "fsdp@no-sync", "distributed_type: FSDP")
    key = "fsdp_config.fsdp_offload_params"
    offload = reading.flag(key, table.take(key))
    if offload and reading.said("strategy") not in ("zero3", HYBRID):
        reading.refuse(key, "with weights kept after forward " + NOT_YET, "offload")
    else:
        reading.say("offload", "optimizer:cpu,params:cpu" if offload else "none", key)
    key = "fsdp_config.fsdp_activation_checkpointing"
    full = reading.flag(key, table.take(key))
    reading.say("recompute", "full" if full else None if full is None else "none", key)
    key = "fsdp_config.fsdp_activation_checkpointing_offload"
    if reading.flag(key, table.take(key)):
        reading.refuse(key, f"(activations in host memory) {NOT_YET}")
    prefetch = str(table.take("fsdp_config.fsdp_backward_prefetch") or "").upper()
    if prefetch in ("NO_PREFETCH", "BACKWARD_POST"):
        reading.approximate(
            f"fsdp_config.fsdp_backward_prefetch = {prefetch}",
            "is not followed: the next block is gathered while one computes",
        )
    elif prefetch:
        reading.ignore("fsdp_config.fsdp_backward_prefetch")
    if table.take("fsdp_config.fsdp_forward_prefetch") is not None:
        reading.ignore("fsdp_config.fsdp_forward_prefetch")


def _deepspeed(reading: Reading, table: Table, source: Source) -> Launch | None:
    section = "deepspeed_config"
    key = f"{section}.deepspeed_config_file"
    if (name := table.take(key)) not in (None, "none", "None"):
        for other in table.below(section):  # Accelerate allows no other keys next to the file
            table.take(other)
            reading.ignore(other)
        return DIALECTS["deepspeed"].read(_beside(source, str(name)))
    reading.say("software", "deepspeed", "distributed_type: DEEPSPEED")
    key = f"{section}.zero_stage"
    stage = table.take(key)
    choices: dict[str, str | None] = {**_STAGES}
    strategy = reading.choose(key, 2 if stage is None else stage, choices, "strategy")
    reading.say("strategy", strategy, key if stage is not None else f"{key} (2 is its default)")
    if strategy is not None:
        number = next(n for n, name in STAGES.items() if name == strategy)
        reading.say("overlap", overlap_of(number, None), "no overlap_comm")
    for name, word in (("gradient_accumulation_steps", "grad_accum"),):
        value = table.take(f"{section}.{name}")
        if value == "auto":
            reading.refuse(f"{section}.{name}", "is 'auto'", word)
        else:
            reading.say(word, reading.whole(f"{section}.{name}", value), f"{section}.{name}")
    clip = table.take(f"{section}.gradient_clipping")
    if clip not in (None, "auto", "none", "None"):
        norm = reading.number(f"{section}.gradient_clipping", clip)
        reading.say("grad_clip", None if norm is None else norm > 0, f"{section}.gradient_clipping")
    parts = []
    for what, name in (("optimizer", "offload_optimizer_device"),
                       ("params", "offload_param_device")):  # fmt: skip
        key = f"{section}.{name}"
        where = reading.choose(
            key, table.take(key), {"cpu": "cpu", "nvme": "nvme", "none": "none"}, "offload"
        )
        if where == "nvme" and strategy != "zero3":
            reading.refuse(f"{key} = 'nvme'", "needs stage 3 in DeepSpeed", "offload")
        elif where not in (None, "none"):
            parts.append(f"{what}:{where}")
    reading.say("offload", ",".join(parts) or "none", f"{section}.offload_*_device")
    return None


def _precision(reading: Reading, table: Table, kind: str | None, inner: Launch | None) -> None:
    value = table.take("mixed_precision")
    old = table.take("fp16")  # before mixed_precision: config_args.py, process_config
    if value is None and old is not None:
        value = "fp16" if reading.flag("fp16", old) else "no"
    if value is False:  # YAML 1.1 reads an unquoted no as false
        value = "no"
    if value is None:
        return
    found = reading.choose("mixed_precision", value, _PRECISION, "precision")
    if found in ("fp16", "bf16") and kind in ("no", "ddp"):
        found = f"amp-{found}"
    if found == "fp8" and kind in ("no", "ddp"):
        reading.refuse("mixed_precision = 'fp8'", f"over fp32 weights {NOT_YET}", "precision")
    if inner is not None and inner.precision is not None:
        reading.ignore("mixed_precision")  # the DeepSpeed file's precision counts
        return
    reading.say("precision", found, "mixed_precision")


def _fetches_by_module(job: Job) -> bool:
    """Whether the job's program shards with hooks around each module, as DeepSpeed does."""
    return job.software is not None and program_named(job.software).zero3.hooks is not None


def _emit(job: Job, problems: list[str]) -> list[str]:
    offload = parse_offload(job.offload)
    if "cpu-far" in (offload.optimizer, offload.params):
        problems.append("Accelerate cannot ask for the far NUMA node (cpu-far)")
    both = offload.optimizer == offload.params == "cpu"
    fsdp = (
        job.strategy in ("zero2", "zero3")
        and (not offload or (both and job.strategy == "zero3"))
        and not _fetches_by_module(job)
    )
    deepspeed = not fsdp and job.strategy in _STAGES.values() and job.strategy != "ddp"
    if job.strategy not in _STAGES.values():
        problems.append(f"Accelerate has no strategy {job.strategy}: ddp and zero1 to zero3")
    kind = "FSDP" if fsdp else "DEEPSPEED" if deepspeed else "MULTI_GPU"
    if kind == "MULTI_GPU" and job.n_gpus == 1:
        kind = "NO"
    amp, half = ("fp32", "amp-fp16", "amp-bf16"), ("fp32", "fp16", "bf16", "fp8")
    wanted = half if fsdp or deepspeed else amp
    if job.precision not in wanted:
        problems.append(
            f"Accelerate's mixed_precision cannot express {job.precision} with {job.strategy}: "
            f"{', '.join(wanted)} can be expressed"
        )
    problems += job.cannot_recompute("Accelerate's file")
    if job.recompute == "full" and not fsdp:
        problems.append("Accelerate's file asks for recompute full with FSDP only: the model's "
                        "script asks for it elsewhere")  # fmt: skip
    if deepspeed and job.strategy != "zero3" and "nvme" in (offload.optimizer, offload.params):
        problems.append(f"DeepSpeed offloads to nvme with stage 3 only, not {job.strategy}")
    problems += job.cannot("Accelerate's file", "pp", "vpp", "ep", "schedule")
    if job.shard_ranks and not fsdp:
        problems.append(
            f"Accelerate shards over {job.shard_ranks} ranks with FSDP alone: zero2 or zero3, "
            "without offload or all of it on cpu"
        )
    if job.tp and job.sequence_parallel:
        problems.append("Accelerate's tensor parallelism has no sequence parallelism")
    lines = [
        "compute_environment: LOCAL_MACHINE",
        f"distributed_type: {kind}",
        f"num_machines: {job.nnodes}",
        f"num_processes: {job.n_gpus}",
        "machine_rank: 0",
        f"mixed_precision: {_quoted(job.precision.removeprefix('amp-'))}",
    ]
    if fsdp:
        lines += [
            "fsdp_config:",
            "  fsdp_version: 2",
            f"  fsdp_reshard_after_forward: {str(job.strategy == 'zero3').lower()}",
            f"  fsdp_offload_params: {str(both).lower()}",
            f"  fsdp_activation_checkpointing: {str(job.recompute == 'full').lower()}",
            "  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP",
            "  fsdp_state_dict_type: SHARDED_STATE_DICT",
        ]
    lines += _mesh(job, problems, fsdp=fsdp, deepspeed=deepspeed)
    if deepspeed:
        lines += [
            "deepspeed_config:",
            f"  zero_stage: {job.strategy[-1]}",
            f"  gradient_accumulation_steps: {job.grad_accum}",
            f"  offload_optimizer_device: {offload.optimizer}",
            f"  offload_param_device: {offload.params}",
        ]
        if job.grad_clip is not None:
            lines.append(f"  gradient_clipping: {'1.0' if job.grad_clip else '0.0'}")
    return lines


def _mesh(job: Job, problems: list[str], *, fsdp: bool, deepspeed: bool) -> list[str]:
    """The section of degrees, whose product is the number of processes (parallelism_config.py).

    FSDP shards over ``dp_shard`` and context ranks together (dp_shard_cp_dim_names).
    """
    tp, cp = job.tp or 1, job.cp or 1
    if tp * cp == 1 and not (fsdp and job.shard_ranks):
        return []
    if deepspeed or (not fsdp and job.data_ranks > 1):
        degrees = " ".join(f"{w} {n}" for w, n in (("tp", tp), ("cp", cp)) if n > 1)
        if degrees:
            problems.append(f"Accelerate has {degrees} beside data ranks with FSDP alone: zero3")
        return []
    ranks = job.n_gpus // tp
    group = job.shard_ranks or ranks
    copies, shards = (ranks // group, group // cp) if fsdp else (1, 1)
    if group % cp or (copies > 1 and shards == 1):
        problems.append(f"Accelerate cannot shard over {group} ranks of which {cp} are context's")
    sizes = {"dp_replicate": copies, "dp_shard": shards, "tp": tp, "cp": cp}
    return [
        "parallelism_config:",
        *(f"  parallelism_config_{name}_size: {n}" for name, n in sizes.items() if n > 1),
    ]


def _quoted(precision: str) -> str:
    return "'no'" if precision == "fp32" else precision


DIALECTS.register("accelerate")(Accelerate())
