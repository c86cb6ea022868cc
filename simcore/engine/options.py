"""The words that ask for a prediction, as the command line and the API spell them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TypedDict

from simcore.hardware.profile import Profile


class Options(TypedDict, total=False):
    """The words of the command line; what is missing or None takes the model's default.

    strategy        dp, manual, ddp, zero1, zero2, zero3
    micro_batch     samples a GPU and micro-step, or "max"
    grad_accum      micro-steps before an update
    precision       fp32, fp32-ieee, tf32, amp-fp16, amp-bf16, fp16, bf16, fp16-true
                    and bf16-true (no fp32 copy)
    recompute       none, selective, full
    recompute_modules   what selective recompute runs again: core_attn (the default), layernorm,
                    mlp, moe_act, moe, shared_experts, mla_up_proj, operators; joined by commas
    recompute_layers    how many layers from the input on; default all
    main_grads      weights: gradients in the weights' width; fused: and summed over micro-steps by
                    their own products; fp32: accumulated so and reduced in fp32
    optimizer       adamw, adam, sgd, sgd-plain, adamw-8bit, adafactor, lion, muon, ...
    offload         none, optimizer, optimizer:nvme, optimizer+params, ... (cpu, cpu-far, nvme)
    network         link between nodes: ib-hdr, 8xib-ndr, "25 Gbit/s"; and its switches: uplinks
                    oversubscribed 4:1, nodes a leaf switch leaf=16, rails, sharp
    nccl_algo, nccl_proto   as NCCL_ALGO and NCCL_PROTO: Ring,Tree; ^NVLS; Simple
    node            node preset
    nnodes, nproc_per_node   torchrun's counts, where ``gpus`` names a type only
    seq_len         sequence length, where the model has one
    resolution      of images: 512 (square) or 480x832 (height, width), where the model has one
    frames          of a clip, where the model has them
    layout          of images in a convolutional net: nchw (PyTorch's default) or nhwc (channels
                    last)
    attention       kernel of attention, where the model names one: flash (torch's own choice:
                    FlashAttention-2, cuDNN's on data-centre Blackwell), flash2, flash3, cudnn,
                    cudnn_fp8 (the same in 8 bits: Transformer Engine's fp8_dpa), flash1,
                    flash_triton, masked (torch's choice for padded batches and windows
                    in transformers), fused_softmax, xla, math,
                    eager (transformers: softmax in fp32)
    issuer          what issues kernels: torch (the default but of software megatron), megatron
                    (Megatron-Core and Transformer Engine, about eight times the host's time),
                    megatron_graphs (attention and routing in graphs), megatron_2022 (Megatron-LM's
                    modules before those, three times), graph (a CUDA graph of the
                    step)
    compile         on where torch.compile makes one kernel of what stands between products
                    (language models)
    lora_rank       train adapters of this rank on a frozen base, where the model has them
    lora_targets    products that get one: q_proj,v_proj, ... or all-linear
    quantised_base  format of the frozen base: none, nf4, int8, fp8
    calibration     name or file of a calibration
    profile         a calibration that is not a file (``read_calibration``), instead
    tp, pp, vpp, cp, ep   degrees of tensor, pipeline (and chunks a rank), context and expert
                    parallelism; what is left of the GPUs is data parallel
    stages          layers of each pipeline stage: 19,21,21,19, 7,14x8,7, 7,rest,7, even (the
                    default) or auto: such that the slowest stage is least slow and all fit
    sequence_parallel   whether norms are cut over the tensor ranks too (default: yes); off keeps
                    them and their activations whole on each
    schedule        of the pipeline: 1f1b (the default; interleaved with vpp), gpipe, zb-1p, zb-2p,
                    dualpipe
    overlap         what communication hides under compute: grads (the default; with vpp also
                    pipeline), params, tensor, dgrad, experts, or none
    shard_ranks     neighbouring ranks that ZeRO shards over, replicas between (HSDP); default all
    prefetch_blocks how many blocks ahead ZeRO-3 gathers parameters; default 1
    reuse_numel     elements between two uses of a tensor over which ZeRO-3 lets go of it
                    (DeepSpeed's stage3_max_reuse_distance; default: the software's)
    gather_tensors  whether ZeRO-3 gathers each tensor on its own (DeepSpeed before 2022)
    expert_tp       tensor ranks of an expert: 1 (the default) or tp
    dispatcher      alltoall, or deepep, hybridep: a token goes to a node and a rank once
    cp_comm         what context ranks exchange: ring (the default), all-gather or ulysses
    expert_imbalance    tokens of the fullest expert-parallel rank over the mean; default 1
    expert_capacity     slots of an expert over tokens x top-k / experts; tokens beyond are dropped
                    (Megatron's moe_expert_capacity_factor); default: none are
    expert_padding  off where slots that no token takes are not computed; default on
    global_batch    samples a step, instead of grad_accum
    shares          on GPUs of several kinds: samples of each in proportion (3:1, in the order of
                    ``gpus``), equal (the default), or auto: such that the step is shortest
    inputs          shapes for a model given as package.module:callable or timm:NAME
    grad_clip       whether gradients are clipped by their norm
    optimizer_impl  foreach, for-loop (a kernel a tensor: PyTorch before 2.0) or fused
    bucket_numel    elements of a gradient bucket
    eager_kernels   whether libraries load all their kernels at start (CUDA before 11.7)
    launch_blocking on where each launch waits for its kernel (CUDA_LAUNCH_BLOCKING=1)
    growing_segments    on where the allocator runs with expandable_segments:True
    fp8_params      on where layers' weights are held in 8 bits beside fp32 masters
    offload_layers  layers, from the first on, whose activations go to the host
    software        training library: megatron (fused kernels, overlaps, no recompute where nothing
                    is said), deepspeed, scaling ... (its temporaries and copies), transformers
                    (Hugging Face's Trainer: clipped gradients, its AdamW; transformers-2023, -2022,
                    -liger; by the names of programs around it too: trl, axolotl,
                    llama-factory, swift), torchtitan, torchtune, fsdp; plain: PyTorch's
                    modules and what the method needs. Default: megatron for language models cut by
                    tp, pp, cp or ep, or in fp8, mxfp8 or nvfp4; else plain. auto: megatron for any
                    language model, to set points without a cut beside others
    settings        the model's own settings that this job changes: {"layers": 16}, or texts
                    "layers=16"; they win over the model's record and the training library's
    launch          a launch file, or its flags: its words where none is given here
    """

    strategy: str | None
    micro_batch: int | str | None
    grad_accum: int | None
    precision: str | None
    recompute: str | None
    recompute_modules: str | None
    recompute_layers: int | None
    main_grads: str | None
    optimizer: str | None
    offload: str | None
    network: str | None
    nccl_algo: str | None
    nccl_proto: str | None
    node: str | None
    nnodes: int | None
    nproc_per_node: int | None
    seq_len: int | None
    resolution: str | None
    frames: int | None
    layout: str | None
    attention: str | None
    issuer: str | None
    compile: bool | str | None
    lora_rank: int | None
    lora_targets: str | None
    quantised_base: str | None
    calibration: str | Path | None
    profile: Profile | None
    tp: int | None
    pp: int | None
    vpp: int | None
    cp: int | None
    ep: int | None
    stages: str | None
    sequence_parallel: bool | str | None
    schedule: str | None
    overlap: str | None
    shard_ranks: int | None
    prefetch_blocks: int | None
    reuse_numel: int | None
    gather_tensors: bool | str | None
    expert_tp: int | None
    dispatcher: str | None
    cp_comm: str | None
    expert_imbalance: float | str | None
    expert_capacity: float | str | None
    expert_padding: bool | str | None
    global_batch: int | None
    shares: str | None
    inputs: Sequence[str] | str | None
    settings: Mapping[str, int | float | bool | str] | Sequence[str] | str | None
    grad_clip: bool | str | None
    optimizer_impl: str | None
    bucket_numel: int | None
    eager_kernels: bool | str | None
    launch_blocking: bool | str | None
    growing_segments: bool | str | None
    fp8_params: bool | str | None
    offload_layers: int | None
    software: str | None
    launch: str | Path | None
