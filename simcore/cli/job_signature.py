"""The options that describe a job, declared once: as ``predict`` shows them."""

from __future__ import annotations

import inspect
from typing import Annotated, Any

from simcore.cli import names
from simcore.cli.options import option


def _word(
    name: str, metavar: str, text: str, complete: names.Completer | None = None, *,
    flag: str = "", kind: Any = str | None,
) -> inspect.Parameter:  # fmt: skip
    """One option, ``--`` and its name unless another ``flag`` is said; of text, read later."""
    info = option(flag or f"--{name.replace('_', '-')}", metavar, text, complete)
    return inspect.Parameter(
        name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=Annotated[kind, info]
    )


_WORDS = (
    _word("inputs", "DTYPE[SHAPE]",
          "Of a callable or of timm's: float32[B,3,224,224]; channels_last may follow; once an "
          "input.", flag="--input", kind=list[str] | None),
    _word("settings", "KEY=VALUE",
          "Settings of the model itself: --set layers=16; several are parted by blanks, or --set "
          "again; of arch:NAME all dimensions.", flag="--set", kind=list[str] | None),
    _word("strategy", "NAME", "dp, manual, ddp, zero1 to zero3 (fsdp), hsdp.", names.strategies),
    _word("micro_batch", "N|max", "Samples a GPU at a time; max: the most that fits."),
    _word("grad_accum", "N", "Micro-batches a step."),
    _word("global_batch", "N", "Samples a step, instead of --grad-accum."),
    _word("shares", "RATIO",
          "On unequal GPUs: samples of each as 3:1 in the order of --gpus, equal (default), or "
          "auto: fastest."),
    _word("tp", "N", "Tensor parallel ranks (transformers)."),
    _word("sequence_parallel", "on|off", "Tensor ranks cut norms and residual too (default)."),
    _word("pp", "N", "Pipeline stages."),
    _word("vpp", "N", "Chunks of layers a pipeline rank."),
    _word("stages", "LAYERS",
          "Of each stage: 19,21,21,19 or 7,14x8,7 or 7,rest,7; even (default); auto: best."),
    _word("cp", "N", "Context parallel ranks."),
    _word("ep", "N", "Expert parallel ranks."),
    _word("expert_tp", "N", "Tensor ranks of an expert: 1 (default) or tp."),
    _word("schedule", "NAME",
          "Of the pipeline: 1f1b (with --vpp interleaved), gpipe, zb-1p, zb-2p, dualpipe.",
          names.schedules),
    _word("dispatcher", "NAME",
          "alltoall, or deepep, hybridep: a token goes to a rank once.", names.dispatchers),
    _word("cp_comm", "NAME",
          "What context ranks exchange: ring (default), all-gather or ulysses (all-to-all of "
          "heads).", names.cp_comms),
    _word("expert_imbalance", "FACTOR",
          "Tokens of the fullest expert rank over the mean: 1.3; default 1."),
    _word("expert_capacity", "FACTOR",
          "Slots of an expert over its mean rows: 1.25; tokens beyond are dropped."),
    _word("expert_padding", "on|off", "Slots that no token takes are computed (default)."),
    _word("zero", "N", "ZeRO stage 1 to 3, as --strategy zeroN."),
    _word("shard_ranks", "N", "ZeRO shards over N ranks, replicas between (HSDP)."),
    _word("overlap", "LIST",
          "Hidden traffic: grads (default), params, tensor, dgrad, experts, pipeline (default "
          "with --vpp); or none.", names.overlaps),
    _word("precision", "NAME",
          "fp32, fp32-ieee, tf32, amp-fp16, amp-bf16, fp16, bf16, fp16-true, bf16-true, fp8, "
          "mxfp8, nvfp4.", names.precisions),
    _word("recompute", "MODE", "none, selective or full.", names.recomputes),
    _word("recompute_modules", "LIST",
          "Of selective: core_attn (default), layernorm, mlp, moe_act, moe, shared_experts, "
          "mla_up_proj, operators (default of torchtitan).", names.recompute_modules),
    _word("recompute_layers", "N", "Recompute the first N layers only."),
    _word("main_grads", "WIDTH",
          "Gradients as wide as weights (default), fused, fp32.", names.main_grads),
    _word("software", "NAME",
          "Training library or program: megatron (default with tp, pp, cp, ep, fp8), "
          "transformers, trl, axolotl, torchtune, deepspeed ...", names.software),
    _word("growing_segments", "on|off", "Allocator with expandable_segments: no fragmentation."),
    _word("fp8_params", "on|off", "Layers' weights held and gathered in 8 bits."),
    _word("prefetch_blocks", "N", "Blocks ahead of which ZeRO-3 gathers parameters; default 1."),
    _word("reuse_numel", "N",
          "ZeRO-3 lets go of tensors that are not used again within N elements "
          "(stage3_max_reuse_distance)."),
    _word("gather_tensors", "on|off", "ZeRO-3 gathers each tensor on its own, not each block."),
    _word("bucket_numel", "N", "Elements of a gradient bucket."),
    _word("eager_kernels", "on|off",
          "CUDA loads all kernels of its libraries at start, as before 11.7."),
    _word("offload_layers", "N", "Activations of the first N layers go to the host."),
    _word("optimizer", "NAME",
          "adamw, adam, sgd, sgd-plain, adamw-8bit, adafactor, lion ...: `simcore list "
          "optimizers`.", names.optimizers),
    _word("optimizer_impl", "NAME",
          "Kernels of the update: foreach (torch's since 2.0), for-loop (some a tensor) or "
          "fused.", names.optimizer_impls),
    _word("grad_clip", "on|off", "Gradients are clipped by their norm."),
    _word("offload", "WHAT[:WHERE]",
          "none, optimizer, optimizer:nvme, optimizer+params; cpu, cpu-far or nvme.",
          names.offloads),
    _word("network", "LINK",
          'Between nodes: ib-hdr, 8xib-ndr, "25 Gbit/s"; "8xib-ndr 4:1 leaf=16": uplinks 4:1, '
          "16 nodes a leaf; rails, sharp.", names.networks),
    _word("nccl_algo", "LIST",
          "As NCCL_ALGO: Ring,Tree, ^NVLS (all but it) or allreduce:tree;allgather:ring; "
          "--explain collectives shows the choice.", names.nccl_algorithms),
    _word("nccl_proto", "LIST", "As NCCL_PROTO: LL, LL128, Simple.", names.nccl_protocols),
    _word("node", "NAME",
          "Node preset; `simcore list nodes`; with :no-p2p (or that alone) GPUs exchange "
          "through host memory.", names.nodes),
    _word("nnodes", "N", "As torchrun, where --gpus has no counts."),
    _word("nproc_per_node", "N", "As torchrun: GPUs a node."),
    _word("seq_len", "N", "Sequence length, where the model has one."),
    _word("resolution", "N|HxW",
          "Of images in pixels: 512, or 480x832 (height first), where the model has one."),
    _word("frames", "N", "Frames of a clip, where the model has them."),
    _word("layout", "NAME",
          "Of images in a convolutional net: nchw (PyTorch's default), nhwc (channels last: "
          "TensorFlow in 16 bit, tuned PyTorch)."),
    _word("attention", "NAME",
          "Kernel of attention: flash (torch's choice: flash2, cudnn on B200 and kin), flash3, "
          "flash1, flash_triton, masked (padded batches), fused_softmax, xla, math.",
          names.attentions),
    _word("issuer", "NAME",
          "What issues kernels: torch, megatron (8 times the host's time), megatron_graphs, "
          "megatron_2022 (3 times), graph.", names.issuers),
    _word("compile", "on|off", "torch.compile: one kernel between products (language models)."),
    _word("launch_blocking", "on|off",
          "Each launch waits for its kernel, as under CUDA_LAUNCH_BLOCKING=1."),
    _word("lora_rank", "N", "Train adapters of rank N, the base frozen (transformers)."),
    _word("lora_targets", "LIST", "Products with an adapter: q_proj,v_proj or all-linear."),
    _word("quantised_base", "FORMAT", "Frozen base in none, nf4, int8 or fp8."),
    _word("calibration", "NAME|FILE", "Fitted hardware figures.", names.calibrations),
    _word("launch", "FILE|FLAGS",
          "A launch file or quoted line: DeepSpeed JSON, Megatron flags, torchtitan TOML, "
          "Accelerate YAML, torchrun; options above win."),
)  # fmt: skip
#: By name, in the order in which help shows them; ``cli.job.takes_job`` gives them to commands.
JOB: dict[str, inspect.Parameter] = {p.name: p for p in _WORDS}
