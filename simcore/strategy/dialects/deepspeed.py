"""DeepSpeed's JSON configuration.

Keys: deepspeed.ai/docs/config-json and deepspeed/runtime/{config,constants,precision_config}.py,
zero/config.py and zero/offload_config.py of DeepSpeed 0.19.
"""

from __future__ import annotations

import json
from typing import Any

from simcore.base.errors import InvalidConfig
from simcore.strategy.dialects.base import DIALECTS, Emitted, Job, Launch
from simcore.strategy.dialects.reading import NOT_YET, Reading, Table
from simcore.strategy.dialects.source import Source, json_table
from simcore.strategy.options import OPTIONS
from simcore.strategy.overlap import parse_overlap
from simcore.strategy.strategy import parse_offload

STAGES = {0: "ddp", 1: "zero1", 2: "zero2", 3: "zero3"}
#: Optimizer types (runtime/config.py); ``sgd`` is torch's. Adam is AdamW unless adam_w_mode is
#: false.
OPTIMIZERS: dict[str, str | None] = {
    "adam": "adamw", "adamw": "adamw", "sgd": "sgd", "adagrad": None, "lamb": None, "lion": "lion",
    "muon": "muon", "muadam": None, "muadamw": None, "musgd": None, "onebitadam": None,
    "zerooneadam": None, "onebitlamb": None, "adafactor": None,
}  # fmt: skip
_AUTOCAST = {"bfloat16": "amp-bf16", "bf16": "amp-bf16", "torch.bfloat16": "amp-bf16",
             "float16": "amp-fp16", "fp16": "amp-fp16", "half": "amp-fp16",
             "torch.float16": "amp-fp16"}  # fmt: skip
_APEX: dict[str, str | None] = {"o0": "fp32", "o1": "amp-fp16", "o2": "fp16", "o3": None}
_Z = "zero_optimization"

#: Keys that are known and have no effect on the prediction.
IGNORED = frozenset(
    f"{section}.{key}" if section else key
    for section, keys in {
        "": "steps_per_print wall_clock_breakdown memory_breakdown dump_state disable_python_gc "
        "prescale_gradients gradient_predivide_factor gradient_allreduce_op sparse_gradients "
        "zero_allow_untested_optimizer zero_force_ds_cpu_optimizer dataloader_drop_last log_level "
        "seq_parallel_communication_data_type disable_allgather vocabulary_size "
        "managed_gradient_accumulation use_data_before_expert_parallelism",
        "fp16": "auto_cast loss_scale initial_scale_power loss_scale_window hysteresis "
        "consecutive_hysteresis min_loss_scale",
        "bf16": "immediate_grad_update check_grad_overflow check_overflow",
        "torch_autocast": "lower_precision_safe_modules",
        "optimizer": "legacy_fusion",
        _Z: "allgather_partitions allgather_bucket_size reduce_scatter contiguous_gradients "
        "use_multi_rank_bucket_allreduce round_robin_gradients load_from_fp32_weights "
        "elastic_checkpoint ignore_unused_parameters legacy_stage1 sub_group_size "
        "stage3_max_live_parameters stage3_max_reuse_distance stage3_prefetch_bucket_size "
        "stage3_param_persistence_threshold stage3_model_persistence_threshold "
        "stage3_gather_16bit_weights_on_model_save stage3_gather_fp16_weights_on_model_save "
        "stage3_module_granularity_threshold stage3_use_all_reduce_for_fetch_params "
        "stage3_allgather_sequential compute_grad_norm parameter_alignment memory_efficient_linear "
        "pipeline_loading_checkpoint override_module_apply log_trace_cache_warnings "
        "enable_sanity_checks cpu_offload_use_pin_memory mics_hierarchical_params_gather",
        f"{_Z}.offload_optimizer": "pin_memory nvme_path buffer_count pipeline_read "
        "pipeline_write fast_init cpuadam_cores_perc buffer_size max_in_cpu pipeline",
        f"{_Z}.offload_param": "pin_memory nvme_path buffer_count buffer_size max_in_cpu",
        "activation_checkpointing": "partition_activations contiguous_memory_optimization "
        "number_checkpoints synchronize_checkpoint_boundary profile",
        "tensor_parallel": "tp_grain_size tp_overlap_comm preset_model partition_config "
        "keep_module_on_host injection_policy_tuple",
    }.items()
    for key in keys.split()
)
SECTIONS = (
    "optimizer.params", "scheduler", "aio", "tensorboard", "wandb", "csv_monitor", "comet",
    "monitor_config", "flops_profiler", "comms_logger", "checkpoint", "autotuning", "nebula",
    "data_types", "timers", "hybrid_engine", "eigenvalue", f"{_Z}.leaf_module",
    f"{_Z}.zeropp_loco_param",
)  # fmt: skip
_CHANGES_THE_STEP = (
    "sparse_attention", "compression_training", "quantize_training", "progressive_layer_drop",
    "curriculum_learning", "data_efficiency", "expert_parallel", "elasticity",
    "weight_quantization", f"{_Z}.zenflow",
)  # fmt: skip
_TAKEN = (
    "train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps",
    "gradient_clipping", "fp16.enabled", "bf16.enabled", "torch_autocast.enabled",
    "torch_autocast.dtype", "optimizer.type", "scheduler.type", "amp.enabled", "amp.opt_level",
    "fp16", "bf16", "optimizer", _Z, f"{_Z}.stage", f"{_Z}.overlap_comm",
    f"{_Z}.reduce_bucket_size", f"{_Z}.cpu_offload", f"{_Z}.cpu_offload_param",
    f"{_Z}.offload_optimizer.device", f"{_Z}.offload_param.device",
    f"{_Z}.offload_optimizer.ratio", "activation_checkpointing",
    "activation_checkpointing.cpu_checkpointing", "communication_data_type", "fp32_allreduce",
    "sequence_parallel_size", "tensor_parallel.autotp_size", "pipeline.stages", "compile",
)  # fmt: skip
_OWN = ("train_micro_batch_size_per_gpu", "train_batch_size", _Z, "gradient_accumulation_steps",
        "fp16", "bf16", "gradient_clipping", "steps_per_print", "optimizer")  # fmt: skip


class DeepSpeed:
    """The file ``ds_config.json``."""

    name = "deepspeed"
    title = "DeepSpeed"
    summary = "JSON configuration (ds_config.json)"

    def claims(self, source: Source) -> bool:
        """Whether it is JSON, but no Accelerate configuration."""
        text = source.text.lstrip()
        looks = source.suffix == ".json" or text.startswith("{")
        return looks and '"distributed_type"' not in source.text

    def read(self, source: Source) -> Launch:
        """The options that its keys state; Hugging Face's ``auto`` needs an option in its place."""
        data = json_table(source)
        reading, table = Reading(self.name, source), Table(data)
        reading.say("software", "deepspeed", "the file")
        if not any(key in data for key in _OWN):
            reading.approximate("the file", "has no DeepSpeed key with an effect on the prediction")
        _batch(reading, table)
        stage = _zero(reading, table)
        _offload(reading, table, stage)
        _precision(reading, table)
        _optimizer(reading, table)
        _rest(reading, table)
        table.leftovers(reading, IGNORED, _TAKEN, SECTIONS)
        return reading.finish()

    def emit(self, job: Job) -> Emitted:
        """Stage, batch, precision, optimizer and offload; the launcher states nodes and GPUs."""
        problems: list[str] = []
        data: dict[str, Any] = {
            "train_batch_size": job.global_batch,
            "train_micro_batch_size_per_gpu": job.micro_batch,
            "gradient_accumulation_steps": job.grad_accum,
        }
        if job.grad_clip is not None:
            data["gradient_clipping"] = 1.0 if job.grad_clip else 0.0
        data |= _emit_precision(job, problems) | _emit_optimizer(job)
        stage = 0
        if job.strategy not in STAGES.values():
            problems.append(f"DeepSpeed has no strategy {job.strategy}: ddp and zero1 to zero3")
        else:
            stage = next(n for n, s in STAGES.items() if s == job.strategy)
            data[_Z] = {"stage": stage}
            if stage:
                data[_Z]["overlap_comm"] = parse_overlap(job.overlap).grads
            if stage in (1, 2) and job.bucket_numel is not None:
                data[_Z]["reduce_bucket_size"] = job.bucket_numel
            data[_Z] |= _emit_offload(job, stage, problems)
        if job.tp:
            data["tensor_parallel"] = {"autotp_size": job.tp}
            if job.sequence_parallel:
                problems.append("DeepSpeed's autotp_size has no sequence parallelism")
        if job.cp:
            data["sequence_parallel_size"] = job.cp
            if job.cp_comm != "ulysses":
                problems.append("DeepSpeed's context ranks exchange heads: give --cp-comm ulysses")
        problems += job.cannot("DeepSpeed's file", "pp", "vpp", "ep", "schedule")
        if job.shard_ranks:  # zero/mics.py, allreduce_mics_shard_grads; zero/config.py, hpz
            problems.append(
                f"DeepSpeed has no hybrid sharding (shard-ranks {job.shard_ranks}): ZeRO++ (hpZ) "
                "doubles weights only, MiCS needs MiCS_Init and sums replicas once a step"
            )
        problems += job.cannot_recompute("DeepSpeed's file")
        if job.recompute == "full":
            data["activation_checkpointing"] = {"partition_activations": False}
        if problems:
            raise InvalidConfig(problems)
        left = ["nnodes", "nproc_per_node", "seq_len", "main_grads", "attention", "issuer",
                "compile", "expert_tp", "dispatcher", "expert_capacity",
                "expert_padding"]  # fmt: skip
        left += ["recompute"] if job.recompute == "none" else []
        left += [] if "optimizer" in data else ["optimizer"]
        left += ["bucket_numel"] if job.strategy not in ("zero1", "zero2") else []
        overlap = overlap_of(stage, parse_overlap(job.overlap).grads)
        differs = job.overlap is not None and str(parse_overlap(job.overlap)) != overlap
        left += ["overlap"] if differs else []
        program = {"software": "deepspeed", "overlap": overlap}
        return Emitted(json.dumps(data, indent=2) + "\n", tuple(left), program)


def _auto(reading: Reading, key: str, value: object, word: str | None) -> bool:
    """Whether the value is Hugging Face's ``auto``; refused where the option must be known."""
    if value != "auto":
        return False
    if word is not None:
        reading.refuse(key, "is 'auto', which the Hugging Face Trainer fills in", word)
    else:
        reading.ignore(f"{key} (auto)")
    return True


def _batch(reading: Reading, table: Table) -> None:
    plain = {key: word for key, word in OPTIONS.launch_keys("deepspeed").items() if word != "cp"}
    for key, word in {**plain, "train_batch_size": "global_batch"}.items():
        value = table.take(key)
        if not _auto(reading, key, value, word if key in plain else None):
            reading.option(key, value, word)
    clip = table.take("gradient_clipping")
    if not _auto(reading, "gradient_clipping", clip, None):
        norm = reading.number("gradient_clipping", clip)
        reading.say("grad_clip", None if norm is None else norm > 0, "gradient_clipping")


def _zero(reading: Reading, table: Table) -> int | None:
    old = table.take(_Z)
    # before there were stages: zero/config.py, read_zero_config_deprecated
    if isinstance(old, bool):
        reading.say("strategy", STAGES[int(old)], _Z)
        return int(old)
    key = f"{_Z}.stage"
    raw = table.take(key)
    stage = reading.whole(key, 0 if raw is None else raw, least=0)
    if stage is None:
        return None
    if stage not in STAGES:
        reading.refuse(f"{key} = {stage}", "is no stage of ZeRO: 0 to 3")
        return None
    reading.say("strategy", STAGES[stage], key)
    bucket = table.take(f"{_Z}.reduce_bucket_size")
    if not _auto(reading, f"{_Z}.reduce_bucket_size", bucket, None) and stage in (1, 2):
        key = f"{_Z}.reduce_bucket_size"
        reading.say("bucket_numel", reading.whole(key, bucket), key)
    key = f"{_Z}.overlap_comm"
    stated = reading.flag(key, table.take(key))
    reading.say("overlap", overlap_of(stage, stated), key if stated is not None else f"no {key}")
    for name, what in (
        ("zero_hpz_partition_size", "a secondary partition (ZeRO++)"),
        ("mics_shard_size", "sharding within a group (MiCS)"),
    ):
        reading.no_degree(f"{_Z}.{name}", table.take(f"{_Z}.{name}"), what)
    for name in ("zero_quantized_weights", "zero_quantized_gradients",
                 "zero_quantized_nontrainable_weights"):  # fmt: skip
        if reading.flag(f"{_Z}.{name}", table.take(f"{_Z}.{name}")):
            reading.refuse(f"{_Z}.{name}", f"(ZeRO++) {NOT_YET}")
    return stage


def overlap_of(stage: int, stated: bool | None) -> str:
    """Which gradient traffic a stage hides; ``stated``: the file's overlap_comm, None for none.

    The default is off for stages 1 and 2 and on for stage 3 (overlap_comm_valid in zero/config.py).
    When off, buckets are reduced on the compute stream (average_tensor in zero/stage_1_and_2.py);
    with stage 1 and without ZeRO this happens after backward (allreduce_gradients in engine.py).
    """
    hidden = stage > 0 and (stage == 3 if stated is None else stated)
    return "grads" if hidden else "none"


def _offload(reading: Reading, table: Table, stage: int | None) -> None:
    parts: dict[str, str] = {}
    keys: list[str] = []
    for what, name, old in (
        ("optimizer", "offload_optimizer", "cpu_offload"),
        ("params", "offload_param", "cpu_offload_param"),
    ):
        key = f"{_Z}.{name}.device"
        value = table.take(key)
        if reading.flag(f"{_Z}.{old}", table.take(f"{_Z}.{old}")):
            key, value = f"{_Z}.{old}", "cpu"
        table.take(f"{_Z}.{name}")
        choices = {"cpu": "cpu", "nvme": "nvme", "none": "none"}
        where = reading.choose(key, value, choices, "offload")
        if where in (None, "none"):
            continue
        if where == "nvme" and stage is not None and stage < 3:
            reading.refuse(f"{key} = 'nvme'", "needs stage 3 in DeepSpeed", "offload")
            continue
        parts[what] = str(where)
        keys.append(key)
    said = ",".join(f"{w}:{t}" for w, t in parts.items())
    reading.say("offload", said or "none", ", ".join(keys) or f"no {_Z}.offload_optimizer")
    ratio = reading.number("ratio", table.take(f"{_Z}.offload_optimizer.ratio"))
    if ratio is not None and ratio < 1.0:
        reading.refuse(f"{_Z}.offload_optimizer.ratio = {ratio:g}", f"{NOT_YET}, only 1.0",
                       "offload")  # fmt: skip
    if reading.flag("super_offload", table.take(f"{_Z}.offload_optimizer.super_offload")):
        reading.refuse(f"{_Z}.offload_optimizer.super_offload", NOT_YET, "offload")


def _precision(reading: Reading, table: Table) -> None:
    on: dict[str, str] = {}
    auto = False
    for key, name in (("fp16.enabled", "fp16"), ("bf16.enabled", "bf16")):
        value = table.take(key)
        if _auto(reading, key, value, "precision"):
            auto = True
        elif reading.flag(key, value):
            on[key] = name
    for key in ("fp16", "bf16", "amp"):  # empty sections
        table.take(key)
    key = "torch_autocast.enabled"
    if reading.flag(key, table.take(key)):
        dtype = table.take("torch_autocast.dtype") or "bfloat16"
        found = reading.choose("torch_autocast.dtype", dtype, _AUTOCAST, "precision")
        on[key] = found or "amp-bf16"
    table.take("torch_autocast.dtype")
    if reading.flag("amp.enabled", table.take("amp.enabled")):
        level = reading.choose(
            "amp.opt_level", table.take("amp.opt_level") or "O1", _APEX, "precision"
        )
        on["amp.enabled"] = level or "amp-fp16"
    table.take("amp.opt_level")
    for name in ("bf16.bf16_master_weights_and_grads", "bf16.bf16_optimizer_states",
                 "fp16.fp16_master_weights_and_grads"):  # fmt: skip
        if reading.flag(name, table.take(name)):
            reading.refuse(name, f"(no fp32 master copy) {NOT_YET}")
    if len(set(on.values())) > 1:
        reading.refuse(" and ".join(on), "are both on", "precision")
    elif on or not auto:
        key, name = next(iter(on.items()), ("no fp16, bf16 or torch_autocast section", "fp32"))
        reading.say("precision", name, key)


def _optimizer(reading: Reading, table: Table) -> None:
    key = "optimizer.type"
    raw = table.take(key)
    name = reading.choose(key, raw, OPTIMIZERS, "optimizer")
    momentum = reading.number("optimizer.params.momentum", table.take("optimizer.params.momentum"))
    w_mode = reading.flag(
        "optimizer.params.adam_w_mode", table.take("optimizer.params.adam_w_mode")
    )
    if name == "sgd" and not momentum:
        name = "sgd-plain"
    if str(raw).lower() == "adam" and w_mode is False:
        name = "adam"
    reading.say("optimizer", name, key)
    table.take("optimizer")


def _rest(reading: Reading, table: Table) -> None:
    section = "activation_checkpointing"
    if table.has(section):
        cpu = f"{section}.cpu_checkpointing"
        if reading.flag(cpu, table.take(cpu)):
            reading.refuse(cpu, f"(activations in host memory) {NOT_YET}")
        reading.say("recompute", "full", section)
        reading.approximate(section, "is taken as recompute full; the model decides what it wraps")
        table.take(section)
    reading.degree("tensor_parallel.autotp_size", table.take("tensor_parallel.autotp_size"), "tp")
    if reading.said("tp") is not None:  # AutoTP splits linear layers only
        reading.say("sequence_parallel", False, "tensor_parallel.autotp_size")
    key = "sequence_parallel_size"  # Ulysses: runtime/config.py, runtime/sequence_parallel
    reading.degree(key, table.take(key), "cp")
    reading.say("cp_comm", "ulysses" if reading.said("cp") else None, key)
    stages = table.take("pipeline.stages")
    if stages != "auto":
        reading.degree("pipeline.stages", stages, "pp")
    for key in table.below("pipeline"):
        table.take(key)
        reading.ignore("pipeline")
    for name in _CHANGES_THE_STEP:
        if not table.has(name):
            continue
        off = [k for k in (f"{name}.enabled", f"{name}.enable") if table.take(k) is False]
        for key in [name, *table.below(name)]:
            table.take(key)
        if off:
            reading.ignore(name)
        else:
            reading.refuse(name, NOT_YET)
    for key in ("communication_data_type", "fp32_allreduce"):
        if table.take(key) not in (None, False):
            reading.approximate(key, "is not followed: traffic is in the gradients' own type")
    if table.has("compile"):
        for key in ["compile", *table.below("compile")]:
            table.take(key)
        reading.approximate("compile", "is not followed: kernels are predicted as eager")


def _emit_precision(job: Job, problems: list[str]) -> dict[str, Any]:
    if job.precision in ("fp16", "bf16"):
        return {job.precision: {"enabled": True}}
    if job.precision in ("amp-fp16", "amp-bf16"):
        dtype = "bfloat16" if job.precision == "amp-bf16" else "float16"
        return {"torch_autocast": {"enabled": True, "dtype": dtype}}
    if job.precision != "fp32":
        problems.append(f"DeepSpeed's configuration has no precision {job.precision}: "
                        "torch.backends sets it in the script")  # fmt: skip
    return {}


def _emit_optimizer(job: Job) -> dict[str, Any]:
    by_name: dict[str, dict[str, Any]] = {
        "adamw": {"type": "AdamW", "params": {"lr": 1e-4}},
        "lion": {"type": "Lion", "params": {"lr": 1e-4}},
        "adam": {"type": "Adam", "params": {"lr": 1e-4, "adam_w_mode": False}},
        "sgd": {"type": "SGD", "params": {"lr": 1e-2, "momentum": 0.9}},
        "sgd-plain": {"type": "SGD", "params": {"lr": 1e-2}},
    }
    return {"optimizer": by_name[job.optimizer]} if job.optimizer in by_name else {}


def _emit_offload(job: Job, stage: int, problems: list[str]) -> dict[str, Any]:
    offload = parse_offload(job.offload)
    found: dict[str, Any] = {}
    for what, target in (("optimizer", offload.optimizer), ("param", offload.params)):
        if target == "none":
            continue
        if target == "cpu-far":
            problems.append("DeepSpeed's configuration cannot ask for the far NUMA node (cpu-far)")
        if stage < (3 if what == "param" or target == "nvme" else 1):
            problems.append(f"DeepSpeed offloads {what} to {target} with stage 3 only, not "
                            f"{job.strategy}")  # fmt: skip
        found[f"offload_{what}"] = {"device": target, "pin_memory": True}
        if target == "nvme":
            found[f"offload_{what}"]["nvme_path"] = "/local_nvme"
    return found


DIALECTS.register("deepspeed")(DeepSpeed())
