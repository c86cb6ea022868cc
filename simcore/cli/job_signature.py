"""The options that describe a job, declared once: as ``predict`` shows them."""

from __future__ import annotations

from typing import Annotated

from simcore.cli import names
from simcore.cli.options import option


def job(
    inputs: Annotated[
        list[str] | None,
        option("--input", "DTYPE[SHAPE]", "Of a callable or of timm's: float32[B,3,224,224]; "
               "channels_last may follow; once an input."),
    ] = None,
    strategy: Annotated[
        str | None,
        option("--strategy", "NAME", "dp, manual, ddp, zero1 to zero3 (fsdp), hsdp.",
               names.strategies),
    ] = None,
    micro_batch: Annotated[
        str | None,
        option("--micro-batch", "N|max", "Samples a GPU at a time; max: the most that fits."),
    ] = None,
    grad_accum: Annotated[
        str | None, option("--grad-accum", "N", "Micro-batches a step.")
    ] = None,
    global_batch: Annotated[
        str | None, option("--global-batch", "N", "Samples a step, instead of --grad-accum.")
    ] = None,
    shares: Annotated[
        str | None,
        option("--shares", "RATIO", "On unequal GPUs: samples of each as 3:1 in the order of "
                "--gpus, equal (default), or auto: fastest."),
    ] = None,
    tp: Annotated[str | None, option("--tp", "N", "Tensor parallel ranks (transformers).")] = None,
    sequence_parallel: Annotated[
        str | None,
        option("--sequence-parallel", "on|off",
               "Tensor ranks cut norms and residual too (default)."),
    ] = None,
    pp: Annotated[str | None, option("--pp", "N", "Pipeline stages.")] = None,
    vpp: Annotated[str | None, option("--vpp", "N", "Chunks of layers a pipeline rank.")] = None,
    stages: Annotated[
        str | None,
        option("--stages", "LAYERS",
               "Of each stage: 19,21,21,19 or 7,14x8,7 or 7,rest,7; even (default); auto: best."),
    ] = None,
    cp: Annotated[str | None, option("--cp", "N", "Context parallel ranks.")] = None,
    ep: Annotated[str | None, option("--ep", "N", "Expert parallel ranks.")] = None,
    expert_tp: Annotated[
        str | None, option("--expert-tp", "N", "Tensor ranks of an expert: 1 (default) or tp.")
    ] = None,
    schedule: Annotated[
        str | None,
        option("--schedule", "NAME", "Of the pipeline: 1f1b (with --vpp interleaved), gpipe, "
                "zb-1p, zb-2p, dualpipe.", names.schedules),
    ] = None,
    dispatcher: Annotated[
        str | None,
        option("--dispatcher", "NAME", "alltoall, or deepep: a token goes to a rank once.",
                names.dispatchers),
    ] = None,
    cp_comm: Annotated[
        str | None,
        option("--cp-comm", "NAME", "What context ranks exchange: ring (default), all-gather or "
                "ulysses (all-to-all of heads).", names.cp_comms),
    ] = None,
    expert_imbalance: Annotated[
        str | None,
        option("--expert-imbalance", "FACTOR",
               "Tokens of the fullest expert rank over the mean: 1.3; default 1."),
    ] = None,
    expert_capacity: Annotated[
        str | None,
        option("--expert-capacity", "FACTOR",
               "Slots of an expert over its mean rows: 1.25; tokens beyond are dropped."),
    ] = None,
    expert_padding: Annotated[
        str | None,
        option("--expert-padding", "on|off", "Slots that no token takes are computed (default)."),
    ] = None,
    zero: Annotated[
        str | None, option("--zero", "N", "ZeRO stage 1 to 3, as --strategy zeroN.")
    ] = None,
    shard_ranks: Annotated[
        str | None,
        option("--shard-ranks", "N", "ZeRO shards over N ranks, replicas between (HSDP)."),
    ] = None,
    overlap: Annotated[
        str | None,
        option("--overlap", "LIST", "Hidden traffic: grads (default), params, tensor, dgrad, "
                "experts, pipeline (default with --vpp); or none.", names.overlaps),
    ] = None,
    precision: Annotated[
        str | None,
        option(
            "--precision", "NAME",
            "fp32, fp32-ieee, tf32, amp-fp16, amp-bf16, fp16, bf16, fp16-true, bf16-true, fp8, "
            "mxfp8, nvfp4.",
            names.precisions,
        ),
    ] = None,
    recompute: Annotated[
        str | None,
        option("--recompute", "MODE", "none, selective or full.", names.recomputes),
    ] = None,
    recompute_modules: Annotated[
        str | None,
        option("--recompute-modules", "LIST", "Of selective: core_attn (default), layernorm, mlp, "
                "moe_act, moe, shared_experts, mla_up_proj, operators (default of torchtitan).",
                names.recompute_modules),
    ] = None,
    recompute_layers: Annotated[
        str | None,
        option("--recompute-layers", "N", "Recompute the first N layers only."),
    ] = None,
    main_grads: Annotated[
        str | None,
        option("--main-grads", "WIDTH", "Gradients as wide as weights (default), fused, fp32.",
                names.main_grads),
    ] = None,
    software: Annotated[
        str | None,
        option("--software", "NAME",
                "Training library or program: megatron (default with tp, pp, cp, ep, fp8), "
                "transformers, trl, axolotl, torchtune, deepspeed ...",
                names.software),
    ] = None,
    growing_segments: Annotated[
        str | None,
        option("--growing-segments", "on|off", "Allocator with expandable_segments: no holes."),
    ] = None,
    fp8_params: Annotated[
        str | None,
        option("--fp8-params", "on|off", "Layers' weights held and gathered in 8 bits."),
    ] = None,
    offload_layers: Annotated[
        str | None,
        option("--offload-layers", "N", "Activations of the first N layers go to the host."),
    ] = None,
    optimizer: Annotated[
        str | None,
        option("--optimizer", "NAME", "adamw, adam, sgd, sgd-plain, adamw-8bit, adafactor, lion "
               "...: `simcore list optimizers`.", names.optimizers),
    ] = None,
    optimizer_impl: Annotated[
        str | None,
        option("--optimizer-impl", "NAME", "Kernels of the update: foreach (torch's since 2.0), "
                "for-loop (some a tensor) or fused.", names.optimizer_impls),
    ] = None,
    grad_clip: Annotated[
        str | None,
        option("--grad-clip", "on|off", "Gradients are clipped by their norm."),
    ] = None,
    offload: Annotated[
        str | None,
        option(
            "--offload", "WHAT[:WHERE]",
            "none, optimizer, optimizer:nvme, optimizer+params; cpu, cpu-far or nvme.",
            names.offloads,
        ),
    ] = None,
    network: Annotated[
        str | None,
        option("--network", "LINK", 'Between nodes: ib-hdr, 8xib-ndr, "25 Gbit/s"; "8xib-ndr 4:1 '
                'leaf=16": uplinks 4:1, 16 nodes a leaf; rails, sharp.', names.networks),
    ] = None,
    nccl_algo: Annotated[
        str | None,
        option("--nccl-algo", "LIST", "As NCCL_ALGO: Ring,Tree, ^NVLS (all but it) or "
                "allreduce:tree;allgather:ring; --explain collectives shows the choice.",
                names.nccl_algorithms),
    ] = None,
    nccl_proto: Annotated[
        str | None,
        option("--nccl-proto", "LIST", "As NCCL_PROTO: LL, LL128, Simple.", names.nccl_protocols),
    ] = None,
    node: Annotated[
        str | None,
        option("--node", "NAME", "Node preset; `simcore list nodes`; with :no-p2p (or that alone) "
                "GPUs exchange through host memory.", names.nodes),
    ] = None,
    nnodes: Annotated[
        str | None, option("--nnodes", "N", "As torchrun, where --gpus has no counts.")
    ] = None,
    nproc_per_node: Annotated[
        str | None, option("--nproc-per-node", "N", "As torchrun: GPUs a node.")
    ] = None,
    seq_len: Annotated[
        str | None, option("--seq-len", "N", "Sequence length, where the model has one.")
    ] = None,
    resolution: Annotated[
        str | None,
        option("--resolution", "N|HxW", "Of images in pixels: 512, or 480x832 (height first), "
                "where the model has one."),
    ] = None,
    frames: Annotated[
        str | None, option("--frames", "N", "Frames of a clip, where the model has them.")
    ] = None,
    layout: Annotated[
        str | None,
        option("--layout", "NAME", "Of images in a convolutional net: nchw (PyTorch's default), "
                "nhwc (channels last: TensorFlow in 16 bit, tuned PyTorch)."),
    ] = None,
    attention: Annotated[
        str | None,
        option("--attention", "NAME", "Kernel of attention: flash (torch's choice: flash2, "
                "cudnn on B200 and kin), flash3, flash1, flash_triton, masked (padded batches), "
                "fused_softmax, xla, math.",
                names.attentions),
    ] = None,
    issuer: Annotated[
        str | None,
        option("--issuer", "NAME", "What issues kernels: torch, megatron (8 times the host's "
                "time), megatron_graphs, megatron_2022 (3 times), graph.", names.issuers),
    ] = None,
    compile: Annotated[
        str | None,
        option("--compile", "on|off", "torch.compile: one kernel between products (language "
                "models)."),
    ] = None,
    launch_blocking: Annotated[
        str | None,
        option("--launch-blocking", "on|off", "Each launch waits for its kernel, as under "
                "CUDA_LAUNCH_BLOCKING=1."),
    ] = None,
    lora_rank: Annotated[
        str | None,
        option("--lora-rank", "N", "Train adapters of rank N, the base frozen (transformers)."),
    ] = None,
    lora_targets: Annotated[
        str | None,
        option("--lora-targets", "LIST", "Products with an adapter: q_proj,v_proj or all-linear."),
    ] = None,
    quantised_base: Annotated[
        str | None, option("--quantised-base", "FORMAT", "Frozen base in none, nf4, int8 or fp8.")
    ] = None,
    calibration: Annotated[
        str | None,
        option("--calibration", "NAME|FILE", "Fitted hardware figures.", names.calibrations),
    ] = None,
    launch: Annotated[
        str | None,
        option("--launch", "FILE|FLAGS", "A launch file or quoted line: DeepSpeed JSON, Megatron "
                "flags, torchtitan TOML, Accelerate YAML, torchrun; options above win."),
    ] = None,
) -> None:  # fmt: skip
    """Never called: commands take over its parameters (``cli.job.takes_job``)."""
