"""Formula, inputs and source of each memory term."""

from __future__ import annotations

import numpy as np

from simcore.answer.explain_facts import Derivation, Explainer, Facts
from simcore.base.units import GIB, GIGA, format_si
from simcore.memory.job import fullest
from simcore.memory.parts import (
    CHANNELS_NETWORK,
    CHANNELS_NVLINK,
    CHANNELS_PCIE,
    CONNECTIONS_NETWORK,
    CONNECTIONS_NODE,
    CONNECTIONS_PAIR,
    CUBLAS_HANDLES,
    LL128_BYTES,
    LL_BYTES,
    SIMPLE_BYTES,
    engine_workspaces,
    frozen_width,
    groups_of,
    saved_activations,
)
from simcore.memory.result import MIN_LARGE_BYTES, ROUND_LARGE_BYTES
from simcore.memory.spread import is_foreign, program_kind, whole_sd_log
from simcore.strategy.layout import Layout

_ZERO = "ZeRO's 16 bytes a parameter (Rajbhandari et al. 2020, section 3.1)"
_ALLOCATOR = "PyTorch c10/cuda/CUDACachingAllocator.cpp"


def _gb(n_bytes: float) -> str:
    return f"{n_bytes / GIGA:.3f} GB"


def _params(f: Facts) -> tuple[str, str]:
    return ("parameters", f"{f.result.n_params:,}")


#: Suffix for FSDP's shards, which serve as the fp32 master copy.
_SHARD = ", FSDP's shard in fp32"


def _over(f: Facts, from_stage: int) -> tuple[str, str]:
    stage = f.request.strategy.zero_stage
    n = f.request.cluster.n_gpus if stage >= from_stage else 1
    return ("ranks that share it", f"{n:,}")


def _parameters(f: Facts) -> Derivation:
    p, wide = f.request.strategy.precision, f.request.strategy.wide_shards
    each = p.master_bytes if wide else p.param_bytes
    return Derivation(
        "parameters x bytes / ranks that share them (zero3)",
        (_params(f), ("bytes each", f"{each} ({p.name}{_SHARD * wide})"), _over(f, 3)),
        _ZERO,
    )


def _gradients(f: Facts) -> Derivation:
    p, wide = f.request.strategy.precision, f.request.strategy.wide_shards
    each = f.request.strategy.kept_grad_bytes
    return Derivation(
        "parameters x bytes / ranks that share them (zero2, zero3) x share that exists at the peak",
        (
            _params(f),
            ("bytes each", f"{each} ({p.name}{_SHARD * wide})"),
            _over(f, 2),
            ("moment of the peak", f.result.memory.moment),
        ),
        f"{_ZERO}; backward frees activations as gradients appear",
    )


def _optimizer(f: Facts) -> Derivation:
    s = f.request.strategy
    return Derivation(
        "parameters x (state + master copy) bytes / ranks that share them (zero1 to zero3)",
        (
            _params(f),
            ("state", f"{s.optimizer.state_bytes:.3g} bytes ({s.optimizer.name})"),
            (
                "master copy",
                f"{s.precision.master_bytes * (not s.wide_shards)} bytes "
                f"({s.precision.name}{_SHARD * s.wide_shards})",
            ),
            _over(f, 1),
            ("offload", str(s.offload)),
        ),
        f"{_ZERO}; {s.optimizer.meaning}",
    )


def _ema(f: Facts) -> Derivation:
    return Derivation(
        "parameters x bytes each: a whole copy on each rank",
        (_params(f), ("bytes each", f"{f.request.strategy.ema_bytes:g}")),
        f"--ema, or else the training loop of models_db (`simcore show model {f.result.model}`)",
    )


def _buckets(f: Facts) -> Derivation:
    s = f.request.strategy
    if s.zero_stage in (1, 2):
        return Derivation(
            "min(parameters, bucket) x bytes",
            (
                _params(f),
                ("bucket", f"{s.buckets.zero_numel:,} elements"),
                ("bytes each", f"{s.precision.grad_bytes}"),
            ),
            "DeepSpeed reduce_bucket_size, default 5e8",
        )
    return Derivation(
        "parameters x gradient bytes: DDP's flat buckets, in addition to the gradients unless "
        "these are views of the buckets; none on one GPU unless the script wraps the model there "
        "too: most scripts do so only under torchrun (--strategy single), some always "
        "(wraps_one_gpu in the model's record)",
        (
            _params(f),
            ("bytes each", f"{s.precision.grad_bytes}"),
            ("strategy", s.parallelism),
            ("gradient_as_bucket_view", f"{s.buckets.views}"),
        ),
        "torch DistributedDataParallel (Li et al. 2020)",
    )


def _gathered(f: Facts) -> Derivation:
    s = f.request.strategy
    largest = max(b.numel for b in f.request.workload.blocks)
    return Derivation(
        "at the peak: (block being computed + blocks fetched ahead) x parameter bytes, and in "
        "backward the block's unsharded gradients (zero3)",
        (
            ("largest block", f"{largest:,} parameters"),
            ("fetched ahead", f"{s.prefetch_blocks}"),
            ("bytes", f"{s.precision.param_bytes} and {s.precision.grad_bytes}"),
        ),
        "ZeRO stage 3 (Rajbhandari et al. 2020, section 5.3)",
    )


def _replicas(f: Facts) -> Derivation:
    p = f.request.strategy.precision
    return Derivation(
        "parameters x gradient bytes: gradients that GPU 0 receives from one replica (dp)",
        (_params(f), ("bytes each", f"{p.grad_bytes}")),
        "torch.nn.DataParallel, reduce_add to device 0",
    )


def _frozen(f: Facts) -> Derivation:
    p, w = f.request.strategy.precision, f.request.workload
    inputs = [
        (n.name, f"{n.resident_numel:,} x {frozen_width(n, p):g} bytes")
        for n in w.frozen[:6]
    ]  # fmt: skip
    inputs.append(("buffers", f"{w.buffers_numel:,} x {p.param_bytes} bytes"))
    how = f.request.strategy
    cut = how.zero_stage >= 3 and any(b.base_bytes(1.0) for b in w.blocks)
    where = "in host memory" if how.offload.params != "none" else "/ ranks that shard it"
    return Derivation(
        "sum of resident parameters x bytes, and the model's own buffers"
        + (f"; frozen base of adapters {where}" if cut else ""),
        tuple(inputs),
        f"models_db (`simcore show model {f.result.model}`)",
    )


def _activations(f: Facts) -> Derivation:
    s, w, batch = f.request.strategy, f.request.held_workload, fullest(f.request)[2]
    saved = saved_activations(w, s.precision, s.recompute == "full")
    sample = saved.kept
    return Derivation(
        "micro-batch x sum over ops of the tensors that backward needs, each storage counted once, "
        "up to the moment of the peak",
        (
            ("micro-batch", f"{batch}"),
            ("whole model", f"{_gb(sample)} a sample, {_gb(sample * batch)} in all"),
            ("recompute", s.recompute),
            ("bytes an element", f"{s.precision.low_bytes}; norms, softmax, residual sum "
                                 f"{s.precision.high_bytes}"),
            ("moment of the peak", f.result.memory.moment),
        ),
        "what torch autograd saves for each op, counted from the architecture",
    )  # fmt: skip


def _autocast(f: Facts) -> Derivation:
    p = f.request.strategy.precision
    weights = f.request.held_workload.gemm_weights[1]
    return Derivation(
        "weights of matrix products x bytes of their copies, held until backward ends",
        (("weights", f"{weights:,.0f}"), ("bytes each", f"{p.cast_bytes}")),
        "torch.autocast weight cache (aten/src/ATen/autocast_mode.cpp)"
        if p.autocasts
        else "8-bit weights and their transposes (Transformer Engine, pytorch/module/linear.py)",
    )


def _working(f: Facts) -> Derivation:
    return Derivation(
        "backward: operands of the largest kernel in the block at the peak (with recompute also "
        "the block's activations); optimizer step: temporaries of foreach; frozen forward: live "
        "activations",
        (
            ("moment of the peak", f.result.memory.moment),
            ("micro-batch", f"{fullest(f.request)[2]}"),
            ("optimizer implementation", f.request.strategy.step_impl),
        ),
        "counted from the architecture",
    )


def _copies(f: Facts) -> Derivation:
    p = f.request.strategy.precision
    sharded = f.request.strategy.zero_stage > 0
    return Derivation(
        "updated parameters of the shard x bytes of the flat fp32 copy of their gradients and of "
        "the flat tensor that joins them, less what the optimizer's temporaries take in their place"
        if sharded
        else "parameters x bytes of the fp32 copy of their gradients, one tensor after another",
        (("copy", "4 bytes"), ("gradient", f"{p.grad_bytes} bytes")),
        "DeepSpeed, runtime/zero/stage_1_and_2.py, step"
        if sharded
        else "apex.amp, _process_optimizer.py; Megatron-LM, optimizer.py, "
        "_copy_model_grads_to_main_grads",
    )


def _stubs(f: Facts) -> Derivation:
    shapes = f.request.workload.layer_weight_shapes
    return Derivation(
        "one 16-bit tensor for each shape of a layer's weights: fused accumulation into main "
        "gradients returns it to autograd in place of the gradient",
        tuple(("shape", f"{k:,.0f} x {n:,.0f}") for k, n in sorted(shapes)[:6]),
        "Transformer Engine, module/base.py, get_dummy_wgrad",
    )


def _workspace(f: Facts) -> Derivation:
    r = f.request
    tp = r.placed.layout.tp if r.placed else 1
    engine = engine_workspaces(r.strategy, r.held_workload, tp)
    return Derivation(
        "cuBLAS handles x (2 x 4 MiB + 8 x 16 KiB; from Hopper on, or where the program sets "
        "CUBLAS_WORKSPACE_CONFIG so, 32 MiB) + workspaces of Transformer Engine x (4 MiB; from "
        "Hopper on 32 MiB) + scores that Megatron-LM's own attention keeps a tensor for",
        (
            ("handles", f"{CUBLAS_HANDLES}: forward's thread and autograd's thread"),
            ("of Transformer Engine", f"{engine}"),
            ("bytes", f"{f.result.memory.terms['workspace']:,.0f}"),
        ),
        "CUBLAS_WORKSPACE_CONFIG's default, aten/src/ATen/cuda/CublasHandlePool.cpp; "
        "transformer_engine/pytorch/cpp_extensions/gemm.py, get_cublas_workspace",
    )


def _rounding(f: Facts) -> Derivation:
    return Derivation(
        "sum over saved storages above 10 MiB of their rounding up to multiples of 2 MiB",
        (
            ("above", format_si(MIN_LARGE_BYTES, "B")),
            ("multiple of", format_si(ROUND_LARGE_BYTES, "B")),
        ),
        _ALLOCATOR,
    )


def _holes(f: Facts) -> Derivation:
    m = f.result.memory
    how = "a share of what comes and goes" if m.segments is None else "a replay of three steps"
    return Derivation(
        "segments that the allocator reserves - tensors and their rounding",
        (("reserved", _gb(m.segments_bytes)), ("from", how)),
        _ALLOCATOR,
    )


def _nccl(f: Facts) -> Derivation:
    nvlink = f.paths[0].route == "nvlink"
    r = f.request
    layout = r.placed.layout if r.placed else Layout()
    n_gpus, a_node = np.array([float(r.cluster.n_gpus)]), r.cluster.n_gpus / r.cluster.n_nodes
    groups = groups_of(layout, n_gpus, a_node, r.strategy.program.ranks.communicators_a_dimension)
    busy = [g for g in groups if g.n_ranks[0] > 1]
    one_set = (SIMPLE_BYTES, LL128_BYTES, LL_BYTES)
    return Derivation(
        "sum over communicators of channels x connections x buffers, within the node and to the "
        "network",
        (
            ("buffers", " + ".join(format_si(n, "B") for n in one_set)),
            ("connections", f"{CONNECTIONS_NODE} within a node ({CONNECTIONS_PAIR} for two ranks), "
                            f"{CONNECTIONS_NETWORK} to the network"),
            ("channels", f"{CHANNELS_NVLINK if nvlink else CHANNELS_PCIE} within a node, "
                         f"{CHANNELS_NETWORK} to the network"),
            ("communicators", ", ".join(f"{g.n_ranks[0]:,.0f} ranks" for g in busy) or "none"),
        ),
        "NCCL, init.cc and transport/; NVIDIA/nccl issue 964",
    )  # fmt: skip


def _context(f: Facts) -> Derivation:
    gpus = {g.gpu.name: g.gpu for g in f.request.cluster.groups}
    eager = f.request.eager_kernels
    found = {n: f.request.profile.cuda_context_bytes(g, eager=eager) for n, g in gpus.items()}
    worst = max(found.values(), key=lambda e: e.value)
    return Derivation(
        "device memory of the process before its first tensor",
        tuple((n, format_si(e.value, "B")) for n, e in list(found.items())[:6]),
        f.cite(worst),
    )


def _device(f: Facts) -> Derivation:
    m = f.result.memory
    kind, width = program_kind(f.request), whole_sd_log(f.request)
    why = (
        "assumed, not named" if f.request.software_assumed
        else "no published figures" if is_foreign(f.request)
        else "published figures"
    )  # fmt: skip
    figures = f"{why}: +-{width:.1%} of allocated" if width else why
    return Derivation(
        "allocated (tensors) + allocator rounding = reserved; + NCCL buffers + CUDA context; at "
        "the fullest of five moments: set-up, frozen forward, forward, backward, optimizer step",
        (
            ("allocated", _gb(m.allocated_bytes)),
            ("reserved", _gb(m.reserved_bytes)),
            ("needed", f"{_gb(m.least_bytes)}, with the allocator's fragmentation"),
            ("shown by nvidia-smi", f"{_gb(m.shown_bytes)}, with all that the allocator keeps"),
            ("capacity", f"{_gb(m.capacity_bytes)} ({m.capacity_bytes / GIB:.2f} GiB)"),
            ("80 % interval", f"{_gb(m.low_bytes)} to {_gb(m.high_bytes)}"),
            ("program", f"{kind}: {figures}"),
            ("moment of the peak", m.moment),
        ),
        f.cite(f.request.profile.memory_sd_log(eager=f.request.eager_kernels)),
    )


MEMORY_TERMS: dict[str, Explainer] = {
    "device": _device,
    "parameters": _parameters,
    "gradients": _gradients,
    "optimizer_state": _optimizer,
    "ema": _ema,
    "gradient_buckets": _buckets,
    "gathered_parameters": _gathered,
    "replicas": _replicas,
    "frozen_models": _frozen,
    "activations": _activations,
    "autocast_weights": _autocast,
    "working_set": _working,
    "gradient_copies": _copies,
    "gradient_stubs": _stubs,
    "workspace": _workspace,
    "allocator_rounding": _rounding,
    "allocator_holes": _holes,
    "nccl_buffers": _nccl,
    "cuda_context": _context,
}
