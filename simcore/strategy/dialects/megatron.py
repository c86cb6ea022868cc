"""Megatron-LM's flags: typed, in a script with a launch line, in a text of flags, or in YAML.

Flags: megatron/training/arguments.py; the nested YAML of examples/gpt3/gpt_config.yaml and the
``MODEL_ARGS`` of its functional tests. An absent flag has Megatron's default.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any

from simcore.base.errors import InvalidConfig
from simcore.strategy.dialects.base import DIALECTS, Emitted, Job, Launch
from simcore.strategy.dialects.megatron_context import emit_context, read_context
from simcore.strategy.dialects.megatron_keys import (
    DEGREES,
    IGNORED,
    MODEL,
    NO_DEGREES,
    SHAPE,
    TAKEN,
)
from simcore.strategy.dialects.megatron_overlap import emit_overlap, overlap_of, read_overlap
from simcore.strategy.dialects.megatron_stages import emit_stages, read_stages
from simcore.strategy.dialects.megatron_state import (
    emit_state,
    narrow_grads,
    program_of,
    read_state,
)
from simcore.strategy.dialects.reading import NOT_YET, Reading
from simcore.strategy.dialects.shell import flags, read_script
from simcore.strategy.dialects.source import Source, yaml_table
from simcore.strategy.dialects.torchrun import find_line, read_counts
from simcore.strategy.options import OPTIONS
from simcore.strategy.strategy import parse_offload
from simcore.workload.recompute import DEFAULT_MODULES, MEGATRON_MODULES

#: Flags that only Megatron has.
_OWN = re.compile(
    r"--(?:tensor-model-parallel-size|pipeline-model-parallel-size|use-distributed-optimizer|"
    r"micro-batch-size|recompute-granularity|use-mcore-models|seq-length|num-attention-heads|"
    r"train-iters|use-megatron-fsdp)\b"
)
_OWN_YAML = re.compile(r"^\s*(?:-*)(?:micro[_-]batch[_-]size|tensor[_-]model[_-]parallel[_-]size|"
                       r"MODEL_ARGS|language_model|model_parallel)\s*:", re.MULTILINE)  # fmt: skip
_SECTIONS = (
    "language_model",
    "model_parallel",
    "training",
    "MODEL_ARGS",
    "model",
    "optimizer_args",
)
#: Optimizers. ``adam`` is FusedAdam with decoupled decay (megatron/core/optimizer: adam_w_mode).
_OPTIMIZERS: dict[str, str | None] = {"adam": "adamw", "sgd": "sgd", "muon": "muon",
                                      "dist_muon": "muon"}  # fmt: skip
_SHARDING: dict[str, str | None] = {"no_shard": "ddp", "optim": "zero1", "optim_grads": "zero2",
                                    "optim_grads_params": "zero3"}  # fmt: skip

#: AttnBackend in core/transformer/enums.py: "fused" is Transformer Engine's cuDNN kernels; with
#: "unfused", scores go through the same softmax kernel as in Megatron-LM's own code ("local").
_ATTENTION = {"flash": "flash", "fused": "cudnn", "unfused": "fused_softmax",
              "local": "fused_softmax"}  # fmt: skip
_DISPATCHERS = {"allgather": "alltoall", "alltoall": "alltoall", "flex": "alltoall"}
#: Backends of the flex dispatcher that send a token only once to each node and rank.
_ONCE_A_NODE = ("deepep", "hybridep")

Given = dict[str, Any]


class Megatron:
    """Arguments of ``pretrain_*.py``."""

    name = "megatron"
    title = "Megatron-LM"
    summary = "flags of pretrain_*.py: typed, .sh, .txt or .yaml"

    def claims(self, source: Source) -> bool:
        """Whether the text has flags or YAML keys that only Megatron has."""
        if source.suffix in (".yaml", ".yml"):
            return _OWN_YAML.search(source.text) is not None
        if source.suffix in (".json", ".toml"):
            return False
        return _OWN.search(source.text.replace("_", "-")) is not None

    def read(self, source: Source) -> Launch:
        """The options that its flags state; a torchrun line adds nodes and processes."""
        reading = Reading(self.name, source)
        given = _yaml(source) if source.suffix in (".yaml", ".yml") else _script(reading, source)
        for name in [n for n, v in given.items() if isinstance(v, str) and v.startswith("$")]:
            if name in TAKEN or name in DEGREES:
                reading.refuse(
                    f"--{name} {given.pop(name)}", "is not set in the text", _WORD.get(name)
                )
        _batch(reading, given)
        _strategy(reading, given)
        _precision(reading, given)
        _optimizer(reading, given)
        read_state(reading, given)
        _degrees(reading, given)
        _experts(reading, given)
        read_stages(reading, given)
        read_overlap(reading, given)
        _recompute(reading, given)
        _kernels(reading, given)
        shape = {}
        for name, key in SHAPE.items():
            value = reading.whole(f"--{name}", given.pop(name, None))
            if value is not None:
                shape[key] = value
        for name in given:
            if name in MODEL or name in IGNORED or name in TAKEN:
                reading.ignore(f"--{name}")
            else:
                known = (*MODEL, *IGNORED, *TAKEN, *DEGREES, *NO_DEGREES, *SHAPE)
                reading.not_known(f"--{name}", [f"--{k}" for k in known])
        return reading.finish(shape=shape)

    def emit(self, job: Job) -> Emitted:
        """Flags, one a line; flags of the model and of the launcher are left out."""
        problems: list[str] = []
        lines = [f"--micro-batch-size {job.micro_batch}", f"--global-batch-size {job.global_batch}"]
        if job.seq_len is not None:
            lines.append(f"--seq-length {job.seq_len}")
        lines += _emit_strategy(job, problems) + _emit_precision(job, problems)
        lines += _emit_recompute(job, problems)
        if job.optimizer == "adam":
            problems.append("Megatron's adam is AdamW: optimizer adam (coupled decay) has no flag")
        elif job.optimizer not in ("adamw", "adamw-bf16", "sgd", "sgd-plain", "muon"):
            problems.append(f"Megatron has no optimizer {job.optimizer}: adamw, adamw-bf16, sgd, "
                            "sgd-plain, muon")  # fmt: skip
        names = {
            "adamw": "adam",
            "adamw-bf16": "adam",
            "muon": "muon" if job.strategy == "ddp" else "dist_muon",
        }
        lines.append(f"--optimizer {names.get(job.optimizer, 'sgd')}")
        lines += emit_state(job, problems)
        if job.optimizer.startswith("sgd"):
            lines.append(f"--sgd-momentum {'0.9' if job.optimizer == 'sgd' else '0.0'}")
        if job.grad_clip is not None:
            lines.append(f"--clip-grad {'1.0' if job.grad_clip else '0.0'}")
        if job.bucket_numel is not None:
            lines.append(f"--ddp-bucket-size {job.bucket_numel}")
        lines += emit_overlap(job)
        by_word = {word: name for name, word in reversed(DEGREES.items())}
        by_word["vpp"] = "num-virtual-stages-per-pipeline-rank"
        lines += [f"--{name} {n}" for word, name in by_word.items() if (n := getattr(job, word))]
        cut = emit_stages(job)
        if any(line.startswith("--pipeline-model-parallel-layout") for line in cut):
            lines = [line for line in lines if not line.startswith(f"--{by_word['vpp']} ")]
        lines += cut
        lines += emit_context(job)
        if job.tp and job.sequence_parallel:
            lines.append("--sequence-parallel")
        left = ["nnodes", "nproc_per_node", "compile"]
        lines += _emit_kernels(job, left)
        problems += job.cannot("Megatron", "schedule", "shard_ranks")
        if problems:
            raise InvalidConfig(problems)
        issuer = job.issuer if job.issuer in ("megatron_graphs", "graph") else "megatron"
        program = {"issuer": issuer, "overlap": str(overlap_of(job))}
        program["software"] = program_of(job)
        return Emitted("\n".join(lines) + "\n", tuple(left), program)


_WORD = {
    "micro-batch-size": "micro_batch",
    "seq-length": "seq_len",
    "global-batch-size": "grad_accum",
}


def _script(reading: Reading, source: Source) -> Given:
    commands = read_script(source).commands
    line = find_line(commands)
    if line is None:
        words = [w for c in commands for w in c]
    else:
        read_counts(reading, line)
        words = list(line.rest)
    found: Given = {}
    for flag, values in flags(words):
        if flag.startswith("--"):
            name = flag[2:].replace("_", "-")
            found[name] = values[0] if len(values) == 1 else values or True
    return found


def _yaml(source: Source) -> Given:
    """Keys without their sections, with dashes for underscores.

    null, and false for most keys, count as absent flags.
    """
    on = ("overlap_p2p_comm",)

    def walk(data: Mapping[str, Any], deep: bool) -> Given:
        found: Given = {}
        for key, value in data.items():
            if isinstance(value, dict) and (deep or key in _SECTIONS):
                found |= walk(value, True)
            elif value not in (None, {}, []) and (value is not False or key in on):
                found[key.lstrip("-").replace("_", "-")] = value
        return found

    return walk(yaml_table(source), False)


def _batch(reading: Reading, given: Given) -> None:
    plain = {key: word for key, word in OPTIONS.launch_keys("megatron").items()
             if key not in DEGREES}  # fmt: skip
    for name, word in {**plain, "global-batch-size": "global_batch"}.items():
        reading.option(f"--{name}", given.pop(name, None), word)
    if reading.said("global_batch") is None and reading.said("micro_batch") is not None:
        reading.say("grad_accum", 1, "--global-batch-size (not stated)")
    if given.pop("rampup-batch-size", None):
        reading.approximate("--rampup-batch-size", "is not followed: the full batch is predicted")
    norm = reading.number("--clip-grad", given.pop("clip-grad", None))
    reading.say("grad_clip", norm is None or norm > 0, "--clip-grad")


def _on(reading: Reading, given: Given, name: str) -> bool:
    return bool(reading.flag(f"--{name}", given.pop(name, None)))


def _strategy(reading: Reading, given: Given) -> None:
    sharded = _on(reading, given, "use-distributed-optimizer")
    strategy, key = ("zero1", "--use-distributed-optimizer") if sharded else (
        "ddp", "no --use-distributed-optimizer")  # fmt: skip
    own = [_on(reading, given, n) for n in ("use-megatron-fsdp", "use-custom-fsdp")]
    name = "data-parallel-sharding-strategy"
    how = given.pop(name, "no_shard")
    if any(own):
        found = reading.choose(f"--{name}", how, _SHARDING, "strategy")
        strategy, key = found or strategy, f"--{name}"
    keep = _on(reading, given, "torch-fsdp2-no-reshard-after-forward")
    if _on(reading, given, "use-torch-fsdp2"):
        strategy, key = "zero2" if keep else "zero3", "--use-torch-fsdp2"
    reading.say("strategy", strategy, key)


def _degrees(reading: Reading, given: Given) -> None:
    for name, word in DEGREES.items():
        reading.degree(f"--{name}", given.pop(name, None), word)
    for name, what in NO_DEGREES.items():
        reading.no_degree(f"--{name}", given.pop(name, None), what)
    read_context(reading, given)
    spread = _on(reading, given, "sequence-parallel")
    if reading.said("tp") is not None:
        reading.say("sequence_parallel", spread, "--sequence-parallel")
    key = "--num-layers-per-virtual-pipeline-stage"
    each = reading.whole(key, given.pop(key[2:], None))
    total, stages = reading.whole("--num-layers", given.get("num-layers")), reading.said("pp")
    if each is None or not isinstance(stages, int):
        return
    if total is None:
        reading.refuse(f"{key} {each}", "needs --num-layers beside it", "vpp")
    elif total % (stages * each):
        reading.refuse(f"{key} {each}", f"does not cut {total} layers evenly", "vpp")
    else:
        reading.degree(key, total // (stages * each), "vpp")


def _precision(reading: Reading, given: Given) -> None:
    low = [(n, p) for n, p in (("fp8-format", "fp8"), ("fp8", "fp8"), ("fp4-format", "nvfp4"),
                               ("fp4", "nvfp4")) if given.pop(n, None) is not None]  # fmt: skip
    if given.get("fp8-recipe") == "mxfp8":
        low = [(n, "mxfp8" if p == "fp8" else p) for n, p in low]
    half = [n for n in ("bf16", "fp16") if _on(reading, given, n)]
    if len(half) == 2:
        reading.refuse("--bf16 and --fp16", "are both given", "precision")
        return
    reading.say("precision", half[0] if half else "fp32", f"--{half[0]}" if half else "no --bf16")
    if low and half == ["bf16"]:
        reading.say("precision", low[0][1], f"--{low[0][0]}")
    elif low:
        reading.refuse(f"--{low[0][0]}", f"without --bf16 {NOT_YET}", "precision")
    fp32 = _on(reading, given, "accumulate-allreduce-grads-in-fp32")
    short = _on(reading, given, "grad-reduce-in-bf16")
    # arguments.py: bf16 accumulates and reduces in fp32 by default.
    short = short or narrow_grads(given)
    if half and (fp32 or (half == ["bf16"] and not short)):
        key = "--accumulate-allreduce-grads-in-fp32" if fp32 else f"--{half[0]}"
        reading.say("main_grads", "fp32", key)


def _recompute(reading: Reading, given: Given) -> None:
    key = "--recompute-granularity"
    how = given.pop("recompute-granularity", None)
    if _on(reading, given, "recompute-activations") and how is None:
        key, how = "--recompute-activations", "selective"
    if _on(reading, given, "checkpoint-activations") and how is None:
        key, how = "--checkpoint-activations", "full"
    modules = given.pop("recompute-modules", None)
    layers = reading.whole("--recompute-num-layers", given.pop("recompute-num-layers", None))
    method = given.pop("recompute-method", None)
    if how is None:
        reading.say("recompute", "none", f"no {key}")
        return
    choices: dict[str, str | None] = {"full": "full", "selective": "selective"}
    mode = reading.choose(key, how, choices, "recompute")
    total = reading.whole("--num-layers", given.get("num-layers"))
    if mode == "full" and method == "block" and not (layers and total and layers >= total):
        # The number counts layers of each pipeline stage; simcore counts from the first layer on.
        block = f"--recompute-method block with {layers or 0} layers"
        if not layers or reading.said("pp") is not None:
            reading.refuse(f"{block} a stage" if layers else block, NOT_YET, "recompute")
            return
        reading.say("recompute_layers", layers, "--recompute-num-layers")
    if mode == "full" and method == "uniform" and layers is not None and layers > 1:
        reading.approximate("--recompute-num-layers", "is not followed: all inputs are kept")
    reading.say("recompute", mode, key)
    if mode == "selective":
        _modules(reading, modules)
    if _on(reading, given, "moe-layer-recompute"):
        reading.approximate("--moe-layer-recompute", "is not followed")


def _modules(reading: Reading, given: Any) -> None:
    """Read the names after ``--recompute-modules``, separated by spaces; default ``core_attn``."""
    key = "--recompute-modules"
    if given is None or given is True:
        reading.say("recompute_modules", DEFAULT_MODULES, f"{key} ({DEFAULT_MODULES} by default)")
        return
    listed = given if isinstance(given, list) else [given]
    words = [w for item in listed for w in str(item).replace(",", " ").split()]
    known: dict[str, str | None] = {m: m for m in MEGATRON_MODULES}
    found = [reading.choose(key, w, known, "recompute") for w in words]
    if all(found):
        reading.say("recompute_modules", ",".join(map(str, dict.fromkeys(found))), key)


def _emit_recompute(job: Job, problems: list[str]) -> list[str]:
    if job.recompute == "none":
        return []
    if job.recompute == "selective":
        names = (job.recompute_modules or DEFAULT_MODULES).split(",")
        odd = [n for n in names if n not in MEGATRON_MODULES]
        if odd:
            problems.append(f"Megatron cannot recompute {', '.join(odd)}: its modules are "
                            f"{', '.join(MEGATRON_MODULES)}")  # fmt: skip
        problems.extend(job.cannot("Megatron's selective recompute", "recompute_layers"))
        return ["--recompute-granularity selective", f"--recompute-modules {' '.join(names)}"]
    if job.recompute_layers and job.pp:
        problems.append("Megatron counts recompute-layers in each pipeline stage: "
                        f"{job.recompute_layers} of all layers cannot be expressed")  # fmt: skip
    method = "block" if job.recompute_layers else "uniform"
    return ["--recompute-granularity full", f"--recompute-method {method}",
            f"--recompute-num-layers {job.recompute_layers or 1}"]  # fmt: skip


def _optimizer(reading: Reading, given: Given) -> None:
    name = given.pop("optimizer", None)
    found = reading.choose("--optimizer", name or "adam", _OPTIMIZERS, "optimizer")
    momentum = reading.number("--sgd-momentum", given.pop("sgd-momentum", None))
    if found == "sgd" and momentum == 0.0:
        found = "sgd-plain"
    reading.say("optimizer", found, "--optimizer" if name else "--optimizer (adam is its default)")
    part = reading.number(
        "--optimizer-offload-fraction", given.pop("optimizer-offload-fraction", None)
    )
    away = _on(reading, given, "optimizer-cpu-offload")
    if away and part is not None and part != 1.0:
        reading.refuse(f"--optimizer-offload-fraction {part:g}", f"{NOT_YET}, only 1.0", "offload")
    elif away and reading.said("strategy") == "ddp":
        reading.refuse("--optimizer-cpu-offload", "of an optimizer that is not sharded "
                       f"{NOT_YET}", "offload")  # fmt: skip
    else:
        reading.say("offload", "optimizer:cpu" if away else "none", "--optimizer-cpu-offload")
    layers = reading.whole("--cpu-offloading-num-layers",
                           given.pop("cpu-offloading-num-layers", None), least=0)  # fmt: skip
    if layers or _on(reading, given, "cpu-offloading"):
        reading.refuse("--cpu-offloading-num-layers", f"(activations in host memory) {NOT_YET}")


def _kernels(reading: Reading, given: Given) -> None:
    """Read what issues the kernels, and the attention kernel if the file names one."""
    old = [_on(reading, given, n) for n in ("enable-cuda-graph", "external-cuda-graph")]
    how, scope = given.pop("cuda-graph-impl", "none"), given.pop("cuda-graph-scope", [])
    parts = scope if isinstance(scope, list) else str(scope).replace(",", " ").split()
    reading.say("issuer", "megatron", "the file")
    if reading.said("software") is None:
        reading.say("software", "megatron", "the file")
    if "full_iteration" in parts and how == "local":
        reading.say("issuer", "graph", "--cuda-graph-scope")
    elif "attn" in parts and how != "none":
        reading.say("issuer", "megatron_graphs", "--cuda-graph-scope")
    elif any(old) or how != "none":
        reading.approximate("--cuda-graph-impl", "is not followed: kernels are predicted as eager")
    if _on(reading, given, "deterministic-mode"):
        reading.approximate("--deterministic-mode", "is not followed: attention is slower with it")
    flash = _on(reading, given, "use-flash-attn")
    backend = given.pop("attention-backend", "flash" if flash else "auto")
    if backend != "auto":
        key = "--attention-backend"
        reading.say("attention", reading.choose(key, backend, {**_ATTENTION}, "attention"), key)


def _experts(reading: Reading, given: Given) -> None:
    """Read how experts are divided and how tokens reach them, for a model with experts."""
    key = "--expert-tensor-parallel-size"
    tp = reading.said("tp") or 1
    stated = reading.whole(key, given.pop(key[2:], None))
    kind = given.pop("moe-token-dispatcher-type", None)
    backend = given.pop("moe-flex-dispatcher-backend", "deepep")
    once = _on(reading, given, "moe-enable-deepep") or backend in _ONCE_A_NODE
    if stated not in (None, 1, tp):
        reading.refuse(f"{key} = {stated}:", f"tensor parallelism of experts {NOT_YET} but for 1 "
                       "and all tensor ranks", "expert_tp")  # fmt: skip
    elif reading.said("ep") is not None and reading.said("tp") is not None:
        # arguments.py: by default as many as the tensor ranks
        reading.say("expert_tp", stated or tp, key)
    _capacity(reading, given)
    if reading.said("ep") is None or kind is None:
        return
    key = "--moe-token-dispatcher-type"
    if kind == "flex" and once:
        reading.say("dispatcher", backend if backend in _ONCE_A_NODE else "deepep", key)
    else:
        if kind == "allgather":
            reading.approximate(f"{key} allgather", "is predicted as alltoall")
        choices: dict[str, str | None] = {**_DISPATCHERS}
        reading.say("dispatcher", reading.choose(key, kind, choices, "dispatcher"), key)


def _capacity(reading: Reading, given: Given) -> None:
    """Read expert capacity; a factor below 0 is none (core/transformer/transformer_config.py)."""
    key, pad = "--moe-expert-capacity-factor", "moe-pad-expert-input-to-capacity"
    capacity = reading.number(key, given.pop(key[2:], None))
    padding = _on(reading, given, pad)
    if capacity is not None and capacity >= 0:
        reading.say("expert_capacity", capacity, key)
        reading.say("expert_padding", padding, f"--{pad}" if padding else f"no --{pad}")
    elif padding:
        reading.refuse(f"--{pad}", f"needs {key}", "expert_capacity")


def _emit_kernels(job: Job, left: list[str]) -> list[str]:
    """The flags that ``_kernels`` and ``_experts`` read; issuing by Megatron-LM needs no flag."""
    lines = []
    if job.issuer == "graph":
        lines += ["--cuda-graph-impl local", "--cuda-graph-scope full_iteration"]
    elif job.issuer == "megatron_graphs":
        routing = " moe_router" if job.ep else ""
        lines += ["--cuda-graph-impl transformer_engine", f"--cuda-graph-scope attn{routing}"]
    by_kernel = {kernel: name for name, kernel in reversed(_ATTENTION.items())}
    if job.attention in by_kernel:
        lines.append(f"--attention-backend {by_kernel[job.attention]}")
    else:
        left.append("attention")
    if job.expert_tp:
        lines.append(f"--expert-tensor-parallel-size {job.expert_tp}")
    if job.ep:
        how = job.dispatcher or "alltoall"
        kind = f"flex --moe-flex-dispatcher-backend {how}" if how in _ONCE_A_NODE else how
        lines.append(f"--moe-token-dispatcher-type {kind}")
    if job.expert_capacity is not None:
        lines.append(f"--moe-expert-capacity-factor {job.expert_capacity:.12g}")
        lines += ["--moe-pad-expert-input-to-capacity"] * bool(job.expert_padding)
    return lines


def _emit_strategy(job: Job, problems: list[str]) -> list[str]:
    by_name = {
        "ddp": [],
        "zero1": ["--use-distributed-optimizer"],
    } | {
        strategy: ["--use-distributed-optimizer", "--use-megatron-fsdp",
                   f"--data-parallel-sharding-strategy {how}", "--ckpt-format fsdp_dtensor",
                   "--overlap-grad-reduce", "--overlap-param-gather"]
        for how, strategy in (("optim_grads", "zero2"), ("optim_grads_params", "zero3"))
    }  # fmt: skip
    if job.strategy not in by_name:
        problems.append(f"Megatron has no strategy {job.strategy}: ddp and zero1 to zero3")
    lines = by_name.get(job.strategy, [])
    offload = parse_offload(job.offload)
    if offload and (offload.optimizer != "cpu" or offload.params != "none"):
        problems.append(f"Megatron offloads the optimizer to cpu only, not {job.offload}")
    elif offload:
        lines = [*lines, "--optimizer-cpu-offload", "--optimizer-offload-fraction 1.0",
                 "--use-precision-aware-optimizer"]  # fmt: skip
    return lines


def _emit_precision(job: Job, problems: list[str]) -> list[str]:
    wide = job.main_grads == "fp32"
    bf16 = ["--bf16"] if wide else ["--bf16", "--grad-reduce-in-bf16"]
    fp16 = ["--fp16", *["--accumulate-allreduce-grads-in-fp32"] * wide]
    by_name = {"fp32": [], "fp16": fp16, "bf16": bf16,
               "fp8": [*bf16, "--fp8-format hybrid"],
               "mxfp8": [*bf16, "--fp8-format e4m3", "--fp8-recipe mxfp8"],
               "nvfp4": [*bf16, "--fp4-format e2m1"]}  # fmt: skip
    if job.precision not in by_name:
        problems.append(f"Megatron has no precision {job.precision}: {', '.join(by_name)}")
    return by_name.get(job.precision, [])


DIALECTS.register("megatron")(Megatron())
