"""DeepSpeed, and the programs around it: Megatron-DeepSpeed, transformers' Trainer."""

from __future__ import annotations

from dataclasses import replace

from simcore.base.units import GIGA
from simcore.strategy.software.megatron import MEGATRON_2021
from simcore.strategy.software.record import SOFTWARE, Hooks, Lists, Program, Software

#: Of ZeRO-3's hooks (runtime/zero/parameter_offload.py, partitioned_param_coordinator.py,
#: stage3.py): CPU time of DeepSpeed 0.19.8 on torch 2.13's fake backend, over that of the same
#: modules alone, tiny tensors, forward and backward. Chains of modules without a tensor 93 and
#: 45 us, with a small vector 120 and 107, with a matrix 213 and 130; a reduction 300 to 500 more;
#: a layer of transformers' Llama 2440 and 1520, of its GPT-2 1890 and 1410. A kernel is 10 us.
ZERO3_HOOKS = Hooks(
    module=(9.0, 4.5), layer=(83.0, 43.0), matrix=(12.0, 5.0), gradient=4.0, bucket=37.0
)
#: Until pull request 1453 of January 2022 (runtime/zero/partition_parameters.py, _allgather_param,
#: _reduce_scatter_gradient): torch.cuda.synchronize, then dist.all_gather and reduce_scatter with a
#: list of each rank's view, which torch copies one by one out of or into a flat tensor
#: (ProcessGroupNCCL.cpp). A gather of a small tensor over 8 ranks took 130 us before its launch and
#: 250 in it (DeepSpeed issue 1069): 38 kernels of 10 us. Beside nn.Linear's 12.8 us torch 2.13
#: takes 20 % for a view of a tensor and 36 for one of a gradient, made in Python, a quarter more
#: before 3.11 (docs.python.org, What's new), and 13 for a slice of the flat tensor and its copy,
#: whose launch, 2 us, is an assumption.
LISTS_2021 = Lists(call=33.0, gathered_view=0.32, reduced_view=0.58, copy=0.37)
#: runtime/zero/stage_1_and_2.py: g.data.double().norm(2) in get_grad_norm_direct;
#: runtime/bf16_optimizer.py: lp grads stay beside the flat fp32 ones; runtime/pipe/topology.py: a
#: grid of groups of its own; runtime/zero/config.py: stage3_max_live_parameters,
#: stage3_param_persistence_threshold, stage3_max_reuse_distance; runtime/pipe/engine.py:
#: pipe_buffers keep inputs beside the clones that forward works on, and outputs until their
#: backward, on the last stage (fp32 logits) in two buffers in turn; runtime/engine.py: stage 1
#: turns contiguous gradients off, without which reduce_ipg_grads ends in allreduce_bucket; so does
#: bf16 (_bf16_reduce_grads). An offloaded update is one pass of Adam (28 bytes) between a product
#: of the gradients with their scale (stage3.py, unscale_and_clip_grads: 8) and a cast of the
#: weights, which torch's copy to another device makes on the source's (6).
DEEPSPEED = SOFTWARE.register("deepspeed")(
    Software(
        name="deepspeed",
        meaning="DeepSpeed's ZeRO and pipeline: norms in fp64, groups of its own, with fp32 sums "
        "16-bit gradients beside them",
        norm_bytes=8.0, all_reduces=True, grads_beside=True, weight_stubs=False, group_copies=2,
        live_numel=int(GIGA), received_copies=1, sent_copies=1, logits_bytes=2 * 4.0,
        host_update_bytes=42.0, hooks=ZERO3_HOOKS, persist_numel=100_000, reuse_numel=int(GIGA),
        interleaves=False,
    )
)  # fmt: skip
#: runtime/bf16_optimizer.py of early 2022: fp32_groups_flat is not yet cut into partitions.
DEEPSPEED_2022 = SOFTWARE.register("deepspeed-2022")(
    replace(
        DEEPSPEED,
        name="deepspeed-2022",
        meaning="DeepSpeed of early 2022, whose bf16 optimizer keeps all fp32 weights on each rank",
        whole_master=True, live_numel=0, cut="filled",
    )
)  # fmt: skip

#: DeepSpeed 0.3.10 to 0.5.8; what it gathers ahead waits as well, since each gather synchronises
#: (pull request 1188).
DEEPSPEED_2021 = SOFTWARE.register("deepspeed-2021")(
    replace(
        DEEPSPEED,
        name="deepspeed-2021",
        meaning="DeepSpeed of 2021, whose ZeRO-3 gathers and reduces tensor by tensor, through "
        "lists of each rank's part",
        lists=LISTS_2021,
    )
)  # fmt: skip

#: Megatron-DeepSpeed's recipes for Azure, July 2022 (examples/azure: stage3_max_reuse_distance
#: 3e9): attention materialises its scores, overlap_comm is off (runtime/zero/constants.py), and as
#: its runs show each tensor waits for its gather.
ZERO3_AZURE = Program(
    software=DEEPSPEED, overlap=frozenset(), sequence_parallel=False,
    settings={"attention": "fused_softmax"},
    options={"gather_tensors": True, "prefetch_blocks": 0, "reuse_numel": int(3 * GIGA)},
)  # fmt: skip
#: Its pipeline engine reduces after the last micro-batch; gradients are DeepSpeed's optimizer's.
MEGATRON_DEEPSPEED = replace(MEGATRON_2021, software=DEEPSPEED, grads="weights")
MEGATRON_DEEPSPEED_2022 = replace(MEGATRON_DEEPSPEED, software=DEEPSPEED_2022)
#: transformers' modules, whose q, k, v, gate and up are products of their own, with Liger's head
#: and loss in one kernel, a part of the logits at a time.
TRANSFORMERS_LIGER = Program(
    software=DEEPSPEED,
    settings={
        "fused_qkv": False, "fused_gate_up": False, "loss": "chunked", "upcast_loss": False,
    },
)  # fmt: skip
