"""What training libraries hold beside the tensors that their method needs, by name.

A library that writes the model and the loop itself also says how it runs where nobody else does:
``words`` are options, ``settings`` those of a language model's layers.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

from simcore.base.registry import Registry
from simcore.base.units import GIGA


def _nothing() -> Mapping[str, Any]:
    return MappingProxyType({})


@dataclass(frozen=True, slots=True, kw_only=True)
class Software:
    """Temporaries and copies of one library.

    ``norm_bytes``: an element of the copy that the norm of one tensor's gradient is taken of.
    ``joins_shard``: the shard's gradients become one flat tensor before they are widened.
    ``reduce_copy_bytes``: an element of the copy in which a bucket is reduced, and so on the wire;
    ``all_reduces``: of ZeRO-1 every rank gets the whole sum, where it needs a shard of it only.
    ``late_buckets``: buckets are made when backward is over, and gone before the update.
    ``grads_beside``: gradients as backward makes them stay beside sums in fp32; ``whole_master``:
    and so does an fp32 copy of all weights, of which each rank updates its part.
    ``weight_buckets``: under DDP gradients travel through flat buckets of the weights' width,
    beside sums in fp32; ``adds_grads``: which are sums of their own, a kernel a tensor.
    ``weight_stubs``: autograd gets a stub for a gradient that a product has summed.
    ``remainders``: bf16 weights are the upper halves of their fp32 master, of which the lower ones
    alone are kept; the update reads 16-bit gradients as they are.
    ``live_numel``: gathered parameters that ZeRO-3 may leave in place for their next use, and
    beside which its gradients are reduced through a bucket.
    ``root_unit``: what lies outside the repeated layers is gathered at once, by ZeRO-3 too, and
    stays from forward's begin to backward's end.
    ``sums_apart``: each product that is cut by columns sums up the gradient of its input over
    tensor ranks, also where several have one input, unless the sequence is cut too.
    ``group_copies``: communicators made for each dimension of the layout.
    ``received_copies``, ``sent_copies``: of what a pipeline stage receives and sends, tensors that
    its buffers hold for each micro-batch in flight; ``logits_bytes``: an element of the logits
    that they hold on the last stage, which lets go of a micro-batch's when the next but one comes.
    ``wide_host``: what is offloaded lies on the host in fp32 and crosses so in both directions.
    ``whole_sends``: every tensor rank sends the next stage all of a layer's output, not its share
    of it, unless the sequence is cut, where it has no more than a share.
    ``late_reduce``: FSDP's gradients of earlier micro-steps stay whole on each rank, in the width
    that they are reduced in; the last micro-step's backward alone makes shards of them.
    ``window_masks``: a window shorter than the sequence is a mask that attention reads.
    ``stops_early``: a layer that runs again in backward does so as far as something is needed.
    ``whole_tensors``: each of ZeRO-1's ranks owns whole tensors, of which it updates all, and
    broadcasts them to the others: owner after owner, where a gather would be one message.
    ``cut_ends``: modules before the first layer and after the last that a pipeline's stages are
    dealt out with as if they were layers; None cuts the layers alone. ``cut_fills``: one stage
    after the other is filled with as many layers as the fullest must have. ``cuts_by_cost``: stages
    take layers until the products of these and of those before pass a share of all, the head's
    included.
    ``words``: options as the command line names them, where none is given; ``settings``: of an
    architecture that has them, in the place of the model's own.
    """

    name: str
    meaning: str
    norm_bytes: float = 0.0
    joins_shard: bool = True
    reduce_copy_bytes: float = 0.0
    all_reduces: bool = False
    late_buckets: bool = False
    grads_beside: bool = False
    whole_master: bool = False
    weight_buckets: bool = False
    adds_grads: bool = False
    weight_stubs: bool = True
    remainders: bool = False
    live_numel: int = 0
    root_unit: bool = False
    sums_apart: bool = False
    group_copies: int = 1
    received_copies: int = 0
    sent_copies: int = 0
    logits_bytes: float = 0.0
    whole_sends: bool = False
    wide_host: bool = False
    late_reduce: bool = False
    window_masks: bool = False
    stops_early: bool = False
    whole_tensors: bool = False
    cut_ends: tuple[int, int] | None = None
    cuts_by_cost: bool = False
    cut_fills: bool = False
    words: Mapping[str, str] = field(default_factory=_nothing, hash=False)
    settings: Mapping[str, bool | str] = field(default_factory=_nothing, hash=False)


SOFTWARE: Registry[Software] = Registry("software")

#: Where nothing is said: what the method itself needs.
PLAIN = Software(name="plain", meaning="what the method itself holds")

#: Megatron-Core with the switches that NVIDIA's recipes of NeMo and Megatron-Bridge turn on.
#: Recompute is none unless --recompute-granularity is given, gradients of bf16 are summed and
#: reduced in fp32 (megatron/training/arguments.py); the recipes overlap gradients, parameters and
#: what tensor ranks exchange (MegatronCommOverlapCallback; Megatron-Bridge, training/
#: comm_overlap.py) and let segments grow (scripts/performance/utils/executors.py). q, k and v, gate
#: and up are one product each (core/transformer/attention.py, mlp.py), norms, rotary positions and
#: gated units kernels of their own (Transformer Engine, core/fusions), attention is Transformer
#: Engine's, the loss is over the cut vocabulary, experts' rows are weighed in their activation
#: (core/transformer/moe/experts.py).
MEGATRON = Software(
    name="megatron",
    meaning="Megatron-Core as NVIDIA's recipes run it",
    whole_sends=True,
    words=MappingProxyType(
        {
            "issuer": "megatron", "overlap": "grads,params,tensor,pipeline",
            "recompute": "none", "main_grads": "fp32", "growing_segments": "on",
        }
    ),
    settings=MappingProxyType(
        {
            "fused_pointwise": True, "fused_qkv": True, "fused_gate_up": True,
            "attention": "cudnn", "loss": "vocab_parallel", "upcast_loss": False,
            "weighed_early": True,
        }
    ),
)  # fmt: skip

for _software in (
    PLAIN,
    MEGATRON,
    # torch/distributed/fsdp/_fully_shard/_fsdp_state.py: the root's parameters are not resharded
    # after forward; torchtitan, llm-foundry and fms-fsdp shard each layer, then the model. What is
    # offloaded is copied to the device in fp32 and cast there (fsdp/_flat_param.py,
    # _use_low_precision_shard; FairScale's _cast_fp32_param_shards_to_fp16), gradients are cast
    # before they go down (_cast_grad_to_param_dtype). Its checkpoints are the non-reentrant ones,
    # which since PyTorch 2.1 stop once all that is saved has been made anew (torch/utils/
    # checkpoint.py, set_checkpoint_early_stop)
    Software(
        name="fsdp",
        meaning="PyTorch's FSDP around each layer and the model: embeddings and head are one unit; "
        "recompute stops early",
        weight_stubs=False, root_unit=True, wide_host=True, stops_early=True,
    ),
    Software(
        name="fsdp-2022",
        meaning="PyTorch's FSDP before 2.1, whose checkpoints run layers to their end",
        weight_stubs=False, root_unit=True, wide_host=True,
    ),
    # fsdp/_fully_shard/_fsdp_param.py, to_accumulated_grad_if_needed: without a gradient sync
    # (set_requires_gradient_sync, FSDP1's no_sync) what backward made stays as it is, in
    # reduce_dtype; _runtime_utils.py, _post_backward_hook, returns before it reduces
    Software(
        name="fsdp-no-sync",
        meaning="PyTorch's FSDP whose gradients are reduced after the last micro-step (no_sync), "
        "and whole on each rank until then",
        weight_stubs=False, root_unit=True, wide_host=True, stops_early=True, late_reduce=True,
    ),
    # trainer.py, _inner_training_loop: accelerator.accumulate, since 4.46 accelerator.no_sync, in
    # all micro-steps but the last unless sync_each_batch is set; compute_loss: the model's outputs
    # are gone when it returns the loss. modeling_utils.py, gradient_checkpointing_enable:
    # use_reentrant is True by default until 5, and such checkpoints run layers to their end.
    # models/llama/modeling_llama.py, LlamaRMSNorm, and its kin; masking_utils.py,
    # _ignore_causal_mask_sdpa: the mask of a shorter window is handed to sdpa, whose flash kernel
    # takes none (attn_implementation="sdpa" is the default)
    Software(
        name="transformers",
        meaning="Hugging Face's Trainer around transformers' models: RMS norms in tensor "
        "operations, FSDP's gradients reduced after the last micro-step",
        weight_stubs=False, root_unit=True, wide_host=True, late_reduce=True, window_masks=True,
        settings=MappingProxyType({"norm": "rmsnorm_eager", "loss": "eager_freed"}),
    ),
    # runtime/zero/stage_1_and_2.py: g.data.double().norm(2) in get_grad_norm_direct;
    # runtime/bf16_optimizer.py: lp grads stay beside the flat fp32 ones; runtime/pipe/topology.py:
    # a grid of groups of its own; runtime/zero/config.py: stage3_max_live_parameters;
    # runtime/pipe/engine.py: pipe_buffers keep inputs beside the clones that forward works on, and
    # outputs until their backward, on the last stage (fp32 logits) in two buffers in turn;
    # runtime/engine.py: stage 1 turns contiguous gradients off, without which reduce_ipg_grads ends
    # in allreduce_bucket; so does bf16 (_bf16_reduce_grads)
    Software(
        name="deepspeed",
        meaning="DeepSpeed's ZeRO and pipeline: norms in fp64, groups of its own, with fp32 sums "
        "16-bit gradients beside them",
        norm_bytes=8.0, all_reduces=True, grads_beside=True, weight_stubs=False, group_copies=2,
        live_numel=int(GIGA), received_copies=1, sent_copies=1, logits_bytes=2 * 4.0,
    ),
    # runtime/bf16_optimizer.py of early 2022: fp32_groups_flat is not yet cut into partitions;
    # runtime/utils.py, partition_balanced: the least weight that all stages need not exceed, to
    # which _lprobe then fills them in turn; Megatron-DeepSpeed's type:transformer weighs layers
    # alone ("78/12=6.5 - so the last stage has 1 block, while the rest have 7", bigscience,
    # train/tr11-176B-ml/chronicles-prequel.md)
    Software(
        name="deepspeed-2022",
        meaning="DeepSpeed of early 2022, whose bf16 optimizer keeps all fp32 weights on each rank",
        norm_bytes=8.0, all_reduces=True, grads_beside=True, whole_master=True,
        weight_stubs=False, group_copies=2,
        received_copies=1, sent_copies=1, logits_bytes=2 * 4.0, cut_fills=True,
    ),
    # core/optimizer/allreduce.py: a bucket is joined and cast to fp32, reduced, copied back, all
    # of it called by the optimizer's step (optimizer.py, allreduce_gradients);
    # parameter_group.py: the shard's fp32 gradient is filled tensor by tensor;
    # core/nn/parallel_module/parallel_module.py: outputs stay in the pipe buffer until their
    # gradient comes, on the last stage until their buffer (of two) is written again;
    # core/nn/mlp.py: gate and up are column-parallel layers apart, of which each copies its input
    # to the tensor ranks (column_parallel_linear.py), and a copy's backward is an all-reduce;
    # core/nn/parallel_module/communicator.py: send_data sends each tensor as it is;
    # core/nn/parallel_module/pipeline_partitioning.py: stages take modules evenly, the first ones
    # more; transformer/model/model.py: these are embedding, layers, final norm and head
    Software(
        name="scaling",
        meaning="Aleph Alpha's scaling: buckets all-reduced in an fp32 copy",
        joins_shard=False, reduce_copy_bytes=4.0, all_reduces=True, late_buckets=True,
        weight_stubs=False, sums_apart=True,
        sent_copies=1, logits_bytes=2.0, whole_sends=True, cut_ends=(1, 2),
    ),
    # Narayanan et al. 2021, 4.1: tensor ranks send a share each and gather what they receive;
    # p2p_communication.py does where scatter_gather_tensors_in_pipeline is set, until 2023;
    # core/pipeline_parallel/p2p_communication.py sends whatever a rank has
    Software(
        name="megatron-whole-sends",
        meaning="Megatron-LM before its scatter/gather of 2021, and Megatron-Core, which has none: "
        "each tensor rank sends the next stage all, unless the sequence is cut",
        whole_sends=True,
    ),
    # megatron/core/optimizer/__init__.py: with use_precision_aware_optimizer Transformer Engine's
    # Adam gets store_param_remainders=True (from 2.1 on; an option of optimizer_config.py later),
    # and gradients uncast (distrib_optimizer.py, decoupled_grad); NeMo 1 sets the same of apex's
    # distributed_fused_adam (nlp/models/language_modeling/megatron_base_model.py)
    replace(
        MEGATRON,
        name="precision-aware",
        meaning="Megatron-Core's precision-aware optimizer and NeMo's distributed_fused_adam: "
        "beside bf16 weights the lower halves of their fp32 masters",
        remainders=True,
        whole_sends=False,
    ),
    # models/base.py wraps the model in torch's DDP, whose hook adds a bucket to the fp32 sums
    # (optim/gradient_accumulator.py, where every backward ends with fp32_grad.add_), but not with
    # ZeRO-1 (trainer.py, make_ddp): there the fp32 sums are all-reduced as they are when backward
    # is over (sync_gradients_across_dp, reduce_scatter=False). build_model numbers blocks' stages
    # by cumulative costs, which are llama.py's get_block_compute_costs
    Software(
        name="nanotron",
        meaning="nanotron: torch's DDP buckets beside gradients that are summed in fp32",
        all_reduces=True, weight_buckets=True, adds_grads=True, weight_stubs=False,
        cuts_by_cost=True,
    ),
    # internlm/solver/optimizer/hybrid_zero_optim.py: _partition_param_list deals out tensors,
    # reduce_tensor without a dst_rank all-reduces over all data ranks whatever the shard group,
    # broadcast_params; model/linear.py, FeedForward: w1 and w2 are column-parallel layers apart
    Software(
        name="internevo",
        meaning="InternEvo's hybrid ZeRO-1: gradients all-reduced among all data ranks, tensors "
        "owned whole and broadcast by their owners",
        all_reduces=True, sums_apart=True, whole_tensors=True,
    ),
):  # fmt: skip
    SOFTWARE.register(_software.name)(_software)
