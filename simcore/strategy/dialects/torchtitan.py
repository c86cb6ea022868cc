"""torchtitan's TOML job files.

Keys: torchtitan/config/job_config.py; older files have ``batch_size`` and the degrees in
``[training]`` and ``[experimental]``. Since 0.3 torchtitan is configured in Python; the TOML of
earlier versions is read and written here. An absent key has torchtitan's default.
"""

from __future__ import annotations

import math
from typing import Any

from simcore.base.errors import InvalidConfig
from simcore.strategy.dialects.base import DIALECTS, Emitted, Job, Launch
from simcore.strategy.dialects.reading import NOT_YET, Reading, Table
from simcore.strategy.dialects.source import Source, toml_table
from simcore.strategy.options import OPTIONS
from simcore.strategy.strategy import parse_offload

_T, _P, _X, _A = "training", "parallelism", "experimental", "activation_checkpoint"
_OPTIMIZERS: dict[str, str | None] = {"adamw": "adamw", "adam": "adam", "muon": "muon",
                                      "distmuon": "muon"}  # fmt: skip
_DTYPES: dict[str, str | None] = {"bfloat16": "bf16", "float32": "fp32", "float16": None}
_MODES: dict[str, str | None] = {"none": "none", "full": "full", "selective": "selective",
                                 "memory_budget": None}  # fmt: skip
#: What ``selective_ac_option = "op"`` recomputes, by its name in ``workload.recompute``.
_BY_OPERATOR = "operators"
#: torchao's recipes of float8 products (torchao/float8/config.py, Float8LinearRecipeName).
_FLOAT8 = {"fp8-dynamic": "tensorwise", "fp8-rowwise": "rowwise"}
IGNORED = frozenset(
    f"{section}.{key}"
    for section, keys in {
        _T: "steps dataset dataset_path gc_freq gc_debug seed deterministic data_parallel_type "
        "mixed_precision_reduce",
        _P: "disable_loss_parallel enable_async_tensor_parallel "
        "pipeline_parallel_split_points pipeline_parallel_layers_per_stage "
        "pipeline_parallel_schedule_csv "
        "pipeline_parallel_first_stage_less_layers "
        "pipeline_parallel_last_stage_less_layers module_fqns_per_model_part "
        "context_parallel_rotate_method context_parallel_load_balancer "
        "enable_fsdp_symm_mem spmd_backend",
        _X: "pipeline_parallel_split_points "
        "pipeline_parallel_microbatches enable_async_tensor_parallel custom_import "
        "custom_args_module context_parallel_rotate_method",
        _A: "per_op_sac_force_recompute_mm_shapes_by_fqns preserve_rng_state "
        "early_stop determinism_check debug memory_budget visualize_memory_budget_pareto",
        "optimizer": "lr beta1 beta2 eps weight_decay implementation early_step_in_backward fused "
        "foreach lr_min",
        "compile": "components backend",
        "model": "name flavor tokenizer_path hf_assets_path norm_type tokenizer_name "
        "print_after_conversion",
    }.items()
    for key in keys.split()
)
SECTIONS = ("job", "profiling", "metrics", "lr_scheduler", "checkpoint", "comm", "validation",
            "memory_estimation", "debug", "fault_tolerance", "validator", "profiler")  # fmt: skip
_TAKEN = (
    f"{_T}.local_batch_size", f"{_T}.batch_size", f"{_T}.global_batch_size", f"{_T}.seq_len",
    f"{_T}.max_norm", f"{_T}.mixed_precision_param", f"{_T}.dtype", f"{_T}.enable_cpu_offload",
    f"{_T}.gradient_accumulation_steps", f"{_T}.compile", f"{_P}.data_parallel_shard_degree",
    f"{_P}.data_parallel_replicate_degree", f"{_P}.fsdp_reshard_after_forward", f"{_A}.mode",
    f"{_A}.selective_ac_option",
    f"{_P}.tensor_parallel_degree", f"{_P}.pipeline_parallel_degree",
    f"{_P}.context_parallel_degree", f"{_P}.expert_parallel_degree", "optimizer.name",
    "model.converters", "compile.enable", _T, _P, _A, "optimizer", "model", "float8",
)  # fmt: skip


class Torchtitan:
    """A ``train_configs/*.toml`` file."""

    name = "torchtitan"
    title = "torchtitan"
    summary = "TOML job file"

    def claims(self, source: Source) -> bool:
        """Whether the file is TOML."""
        return source.suffix == ".toml"

    def read(self, source: Source) -> Launch:
        """The options that its keys state, in old sections too, or torchtitan's defaults."""
        data = toml_table(source)
        reading, table = Reading(self.name, source), Table(data)
        if not any(s in data for s in (_T, _P, "model", _A)):
            reading.approximate("the file", "has no torchtitan section with an effect")
        more = _parallelism(reading, table)
        _batch(reading, table)
        _precision(reading, table)
        _rest(reading, table)
        table.leftovers(reading, IGNORED, _TAKEN, SECTIONS)
        return reading.finish(**more)

    def emit(self, job: Job) -> Emitted:
        """Batch, degrees, precision, recompute, optimizer; the launcher states nodes and GPUs."""
        problems: list[str] = []
        sharded = job.strategy in ("zero2", "zero3")
        if job.strategy not in ("ddp", "zero2", "zero3"):
            problems.append(f"torchtitan has no strategy {job.strategy}: ddp, zero2 (never "
                            "reshard) and zero3 (FSDP)")  # fmt: skip
        wanted = {"fp32": "float32", "bf16" if sharded else "amp-bf16": "bfloat16"}
        wanted |= dict.fromkeys(_FLOAT8, "bfloat16") if sharded else {}
        if job.precision not in wanted:
            problems.append(f"torchtitan cannot express precision {job.precision} with "
                            f"{job.strategy}: {', '.join(wanted)} can be expressed")  # fmt: skip
        if job.optimizer not in ("adamw", "adam"):
            problems.append(f"torchtitan has no optimizer {job.optimizer}: adamw, adam")
        offload = parse_offload(job.offload)
        everything = offload.optimizer == offload.params == "cpu" and job.strategy == "zero3"
        if offload and not everything:
            problems.append(f"torchtitan offloads optimizer and params of zero3 to cpu together, "
                            f"not {job.offload} of {job.strategy}")  # fmt: skip
        problems += job.cannot("torchtitan", "vpp", "stages", "schedule", "recompute_layers")
        copies = job.data_ranks // (job.shard_ranks or job.data_ranks)
        if job.recompute == "selective" and job.recompute_modules != _BY_OPERATOR:
            problems.append(f"torchtitan recomputes {_BY_OPERATOR} selectively (its option op), "
                            f"not {job.recompute_modules}")  # fmt: skip
        if problems:
            raise InvalidConfig(problems)
        local = job.micro_batch * (job.grad_accum if job.pp else 1)
        lines = [f"[{_T}]", f"local_batch_size = {local}",
                 f"global_batch_size = {job.global_batch}"]  # fmt: skip
        if job.seq_len is not None:
            lines.append(f"seq_len = {job.seq_len}")
        if job.grad_clip is not None:
            lines.append(f"max_norm = {'1.0' if job.grad_clip else '0.0'}")
        lines += [
            f'mixed_precision_param = "{wanted[job.precision]}"',
            f"enable_cpu_offload = {str(everything).lower()}",
            "",
            f"[{_P}]",
            f"data_parallel_replicate_degree = {copies if sharded else job.data_ranks}",
            f"data_parallel_shard_degree = {(job.shard_ranks or -1) if sharded else 1}",
        ]
        if sharded:
            reshard = "always" if job.strategy == "zero3" else "never"
            lines.append(f'fsdp_reshard_after_forward = "{reshard}"')
        degrees = OPTIONS.launch_keys("torchtitan").items()
        lines += [f"{key} = {n}" for key, word in degrees if (n := getattr(job, word))]
        if job.tp:
            lines.append(f"enable_sequence_parallel = {str(bool(job.sequence_parallel)).lower()}")
        if job.pp:
            lines.append(f"pipeline_parallel_microbatch_size = {job.micro_batch}")
        if job.precision in _FLOAT8:
            lines += ["", "[model]", 'converters = ["quantize.linear.float8"]']
            lines += ["", "[quantize.linear.float8]", f'recipe_name = "{_FLOAT8[job.precision]}"']
        name = {"adamw": "AdamW", "adam": "Adam"}[job.optimizer]
        lines += ["", f"[{_A}]", f'mode = "{job.recompute}"']
        if job.recompute == "selective":
            lines.append('selective_ac_option = "op"')
        lines += ["", "[optimizer]", f'name = "{name}"']
        if job.compile:
            lines += ["", "[compile]", "enable = true"]
        left = ("nnodes", "nproc_per_node", "bucket_numel", "main_grads", "attention",
                "expert_tp", "dispatcher", "cp_comm", "overlap", "expert_capacity",
                "expert_padding")  # fmt: skip
        program = {"software": "fsdp"} if sharded else {}
        return Emitted("\n".join(lines) + "\n", left, program)


def _first(table: Table, *keys: str) -> tuple[str, Any]:
    """The first key that exists, with its value; the first key and None where none exists."""
    for key in keys:
        value = table.take(key)
        if value is not None:
            return key, value
    return keys[0], None


def _batch(reading: Reading, table: Table) -> None:
    key, value = _first(table, f"{_T}.local_batch_size", f"{_T}.batch_size")
    origin = key if value is not None else f"{key} (8 is its default)"
    local = reading.whole(key, 8 if value is None else value)
    parts = 1
    piece, value = _first(table, f"{_P}.pipeline_parallel_microbatch_size",
                          f"{_X}.pipeline_parallel_microbatch_size")  # fmt: skip
    size = reading.whole(piece, 1 if value is None else value)
    if reading.said("pp") is not None and local and size:
        # The local batch passes the pipeline in pieces (of 1 sample by default).
        if local % size:
            reading.refuse(f"{key} = {local}", f"is no multiple of {piece} = {size}")
        parts, local, origin = max(local // size, 1), size, piece
    reading.say("micro_batch", local, origin)
    key = f"{_T}.global_batch_size"
    total = reading.whole(key, table.take(key), least=-1)
    if total is not None and total > 0:
        reading.say("global_batch", total, key)
    key = f"{_T}.gradient_accumulation_steps"
    steps = reading.whole(key, table.take(key))
    if steps is not None or reading.said("global_batch") is None:
        reading.say("grad_accum", (steps or 1) * parts, key)
    key = f"{_T}.seq_len"
    value = table.take(key)
    origin = key if value is not None else f"{key} (2048 is its default)"
    reading.say("seq_len", reading.whole(key, 2048 if value is None else value), origin)
    norm = reading.number(f"{_T}.max_norm", table.take(f"{_T}.max_norm"))
    reading.say("grad_clip", norm is None or norm > 0, f"{_T}.max_norm")


def _parallelism(reading: Reading, table: Table) -> dict[str, Any]:
    model_ranks = _degrees(reading, table)
    if reading.flag("fault_tolerance.enable", table.take("fault_tolerance.enable")):
        reading.refuse("fault_tolerance.enable", NOT_YET)
    r_key, replicate = _first(table, *(f"{s}.data_parallel_replicate_degree" for s in (_P, _T, _X)))
    s_key, shard = _first(
        table, *(f"{s}.data_parallel_shard_degree" for s in (_P, _T, _X)),
        f"{_T}.data_parallel_degree",
    )  # fmt: skip
    copies = reading.whole(r_key, 1 if replicate is None else replicate)
    shards = reading.whole(s_key, -1 if shard is None else shard, least=-1)
    key = f"{_P}.fsdp_reshard_after_forward"
    found = table.take(key)
    policies: dict[str, str | None] = {"default": "zero3", "always": "zero3", "never": "zero2"}
    strategy = reading.choose(key, "default" if found is None else found, policies, "strategy")
    if copies is None or shards is None:
        return {}
    if shards == 1:
        reading.say("strategy", "ddp", r_key)
        return {"n_gpus": copies * model_ranks}
    if shards != 1 and (copies == 1 or shards > 1):
        reading.say("software", "fsdp", s_key)
    if copies > 1 and shards > 1:
        reading.say("strategy", strategy, s_key if found is None else key)
        reading.say("shard_ranks", shards, s_key)
        return {"n_gpus": copies * shards * model_ranks}
    if copies > 1:  # the remaining ranks shard; plain DDP where none remain
        reading.say("strategy", "ddp", r_key)
        why = f"{reading.where}: {r_key} = {copies} on more GPUs than that (HSDP) {NOT_YET}"
        return {"n_gpus": copies * model_ranks, "whole_world": why}
    reading.say("strategy", strategy, s_key if found is None else key)
    return {"n_gpus": shards * model_ranks} if shards > 1 else {}


def _degrees(reading: Reading, table: Table) -> int:
    """Read the degrees of model parallelism; returns the number of ranks of one replica."""
    for name, word in OPTIONS.launch_keys("torchtitan").items():
        for section in (_P, _X, _T):
            reading.degree(f"{section}.{name}", table.take(f"{section}.{name}"), word)
    key = f"{_P}.expert_tensor_parallel_degree"
    reading.no_degree(key, table.take(key), "tensor parallelism of experts")
    key = f"{_P}.enable_sequence_parallel"
    spread = reading.flag(key, table.take(key))
    if reading.said("tp") is not None:
        reading.say("sequence_parallel", spread is not False, key)
    key, schedule = _first(table, f"{_P}.pipeline_parallel_schedule",
                           f"{_X}.pipeline_parallel_schedule")  # fmt: skip
    if reading.said("pp") is None:
        if schedule is not None:
            reading.ignore(key)
    elif schedule is not None and str(schedule).lower() in OPTIONS["schedule"].names():
        reading.say("schedule", str(schedule).lower(), key)
    elif schedule is not None:
        reading.approximate(f"{key} = {schedule}", "is predicted as 1F1B: --vpp for interleaving")
    ranks = [reading.said(w) for w in ("tp", "pp", "cp")]
    return math.prod(n for n in ranks if isinstance(n, int))


def _precision(reading: Reading, table: Table) -> None:
    key = f"{_T}.dtype"
    if table.take(key) not in (None, "float32"):
        reading.refuse(key, f"(weights and optimizer state in 16 bits) {NOT_YET}")
    key = f"{_T}.mixed_precision_param"
    value = table.take(key)
    origin = key if value is not None else f"{key} (bfloat16 is its default)"
    name = reading.choose(key, "bfloat16" if value is None else value, _DTYPES, "precision")
    if name == "bf16" and reading.said("strategy") == "ddp":
        name = "amp-bf16"  # DDP runs under autocast, FSDP casts what it gathers
    reading.say("precision", name, origin)
    converters = table.take("model.converters")
    low = [str(c) for c in converters if "float8" in str(c) or "mx" in str(c)] if isinstance(
        converters, list) else []  # fmt: skip
    recipe, stated = _first(table, "quantize.linear.float8.recipe_name", "float8.recipe_name")
    scaled = next((p for p, name in _FLOAT8.items() if name == stated), "fp8-dynamic")
    if stated is not None and stated not in _FLOAT8.values():
        reading.approximate(f"{recipe} = {stated}", "is predicted with a scale for each tensor")
    if low:
        scaled = scaled if any("float8" in name for name in low) else "mxfp8"
        _low_precision(reading, f"model.converters = {low}", scaled)
    elif converters:
        reading.approximate("model.converters", "is not followed")
    for section in ("float8", "mx", "quantize"):
        on = any(table.take(k) is True for k in (f"{section}.enable_float8_linear",
                                                 f"{section}.enable_fp8_linear"))  # fmt: skip
        if on:
            _low_precision(reading, f"{section}.enable_float8_linear", scaled)
        for key in [section, *table.below(section)]:
            if table.take(key) is not None:
                reading.ignore(section)


def _low_precision(reading: Reading, key: str, name: str) -> None:
    """float8 products with bfloat16 weights, which FSDP gathers; not with autocast."""
    if reading.said("precision") == "bf16":
        reading.say("precision", name, key)
    else:
        reading.refuse(key, f"over {reading.said('precision')} {NOT_YET}", "precision")


def _selective(reading: Reading, table: Table) -> None:
    """Read ``op`` (by operator) or n (every n-th layer whole; activation_checkpoint.py)."""
    key = f"{_A}.selective_ac_option"
    option = table.take(key)
    if reading.said("recompute") != "selective":
        if option is not None:
            reading.ignore(key)
    elif option == "op":
        reading.say("recompute_modules", _BY_OPERATOR, key)
    elif str(option) == "1":
        reading.say("recompute", "full", key)
    elif option is None:
        reading.refuse(key, "is not stated, and its default differs between versions", "recompute")
    else:
        reading.refuse(f"{key} = {option!r:.40}", f"(every n-th layer) {NOT_YET}", "recompute")


def _rest(reading: Reading, table: Table) -> None:
    key = f"{_A}.mode"
    mode = table.take(key)
    if mode is None:
        reading.approximate(key, "is not stated: the model's own default is predicted")
    else:
        reading.say("recompute", reading.choose(key, mode, _MODES, "recompute"), key)
    _selective(reading, table)
    key = "optimizer.name"
    name = table.take(key)
    origin = key if name is not None else f"{key} (AdamW is its default)"
    found = reading.choose(key, "AdamW" if name is None else name, _OPTIMIZERS, "optimizer")
    reading.say("optimizer", found, origin)
    key, value = _first(table, f"{_T}.enable_cpu_offload", f"{_X}.enable_cpu_offload")
    if reading.flag(key, value) and reading.said("strategy") != "zero3":
        reading.refuse(key, f"with {reading.said('strategy')} {NOT_YET}", "offload")
    else:
        both = "optimizer:cpu,params:cpu" if reading.flag(key, value) else "none"
        reading.say("offload", both, key)
    for key in ("compile.enable", f"{_T}.compile"):
        if reading.flag(key, table.take(key)):
            reading.say("compile", True, key)
    if reading.flag(f"{_P}.enable_compiled_autograd", table.take(f"{_P}.enable_compiled_autograd")):
        reading.approximate(f"{_P}.enable_compiled_autograd", "is not followed")


DIALECTS.register("torchtitan")(Torchtitan())
