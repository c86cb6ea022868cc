"""Mechanisms by which training programs differ, as values: what each holds, sends, cuts and runs.

A dataclass is one subject; every field is off, or what the method itself needs, by default. Which
program has which is data: ``programs_db``. Work of a host in Python is counted in *kernel issues*:
the time that it takes torch to issue one kernel.
"""

from __future__ import annotations

from dataclasses import dataclass

from simcore.strategy.cut_rules import EVEN


@dataclass(frozen=True, slots=True, kw_only=True)
class Gradients:
    """How gradients are held, summed up and reduced.

    ``norm_copy_bytes``: an element of the copy of one tensor's gradient that its norm is taken of.
    ``shard_joined_before_widening``: a ZeRO rank joins its shard's gradients to one flat tensor
    before they become fp32.
    ``bucket_copy_bytes``: an element of the copy in which a bucket is reduced, and so on the wire;
    0: buckets are reduced as they are.
    ``zero1_all_reduces``: ZeRO-1 gives every rank the whole sum, of which it needs a shard only.
    ``buckets_after_backward``: buckets are made when backward is over, and gone before the update.
    ``narrow_beside_fp32_sums``: 16-bit gradients of backward stay beside sums in fp32.
    ``ddp_buckets_of_weight_width``: under DDP gradients travel through flat buckets of the weights'
    width, beside sums in fp32.
    ``added_by_own_kernel``: each tensor's gradient is added to its sum by a kernel of its own.
    ``stub_after_fused_sum``: autograd gets a stub for a gradient that a product has summed up.
    ``zeroed_between_steps``: between steps gradients are filled with zeros, not freed.
    """

    norm_copy_bytes: float = 0.0
    shard_joined_before_widening: bool = True
    bucket_copy_bytes: float = 0.0
    zero1_all_reduces: bool = False
    buckets_after_backward: bool = False
    narrow_beside_fp32_sums: bool = False
    ddp_buckets_of_weight_width: bool = False
    added_by_own_kernel: bool = False
    stub_after_fused_sum: bool = True
    zeroed_between_steps: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class OptimizerState:
    """What ranks hold of weights and optimizer state, and what the update moves beside them.

    ``fp32_weights_whole``: each rank holds an fp32 copy of all weights, of which it updates a part.
    ``master_lower_halves``: of the fp32 master of bf16 weights the lower 16 bits alone are kept,
    since the weights are the upper ones; the update reads 16-bit gradients as they are.
    ``owned_tensor_by_tensor``: each of ZeRO-1's ranks owns whole tensors, of which it updates all,
    and broadcasts them to the others, owner after owner.
    ``update_copies_bytes``: bytes that copies and norms around the update move, a parameter that a
    rank holds whole, whatever its shard.
    """

    fp32_weights_whole: bool = False
    master_lower_halves: bool = False
    owned_tensor_by_tensor: bool = False
    update_copies_bytes: float = 0.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Offload:
    """State that lies on the host.

    ``crosses_in_fp32``: it lies there in fp32 and crosses so in both directions.
    ``host_update_bytes``: bytes that the update of an offloaded parameter moves on the host; one
    pass of Adam in fp32 reads gradient, both moments and weight, and writes all but the gradient.
    """

    crosses_in_fp32: bool = False
    host_update_bytes: float = 28.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleHooks:
    """What ZeRO-3's hooks in Python take of the host around a model's modules, in kernel issues;
    pairs are forward and backward.

    ``module``: before and after each module that owns a tensor; ``layer``: of a layer's others;
    ``matrix``: to fetch the weight of a product and let go of it; ``gradient``: to take a tensor's
    gradient into a bucket; ``bucket``: to reduce one.
    """

    module: tuple[float, float]
    layer: tuple[float, float]
    matrix: tuple[float, float]
    gradient: float
    bucket: float


@dataclass(frozen=True, slots=True, kw_only=True)
class TensorLists:
    """Collectives that take a list of tensors, one a rank: what they take of the host, in kernel
    issues.

    ``call``: each of them; ``gathered_view``, ``reduced_view``: to name a rank's part of a
    parameter, or of its gradient; ``copy``: to issue its copy from or to the flat tensor that NCCL
    takes.
    """

    call: float
    gathered_view: float
    reduced_view: float
    copy: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Zero3:
    """ZeRO stage 3 whose parameters are fetched module by module.

    ``live_numel``: gathered parameters that may stay in place for their next use, and beside which
    gradients are reduced through a bucket; 0: a block is gathered as one unit.
    ``persistent_numel``: tensors of no more elements are never sharded.
    ``reuse_numel``: parameters that are used again within so many elements stay gathered.
    ``hooks``: what its hooks take of the host. ``tensor_lists``: its collectives take lists of
    tensors, a parameter at a time, none of them ahead.
    """

    live_numel: int = 0
    persistent_numel: int = 0
    reuse_numel: int = 0
    hooks: ModuleHooks | None = None
    tensor_lists: TensorLists | None = None

    @property
    def tensors_at_once(self) -> int:
        """Tensors of a block that are gathered at a time where each is fetched for its own module,
        beside what is left in place (``live_numel``); 0: all of the block, as one unit. A list's
        tensors stand beside the flat one that they are copied from.
        """
        return (1 + (self.tensor_lists is not None)) * bool(self.live_numel)


@dataclass(frozen=True, slots=True, kw_only=True)
class UnitHooks:
    """What FSDP does in Python around each unit that it shards, in kernel issues; pairs are forward
    and backward.

    ``unit``: to gather it, show its parameters and let go of them; ``tensor``: each parameter
    of it; ``reduced``, ``reduced_tensor``: to reduce its gradients, where it is trained.
    ``adapters``: each matrix of an adapter is a unit of its own.
    """

    unit: tuple[float, float]
    tensor: tuple[float, float]
    reduced: float
    reduced_tensor: float
    adapters: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Fsdp:
    """Parameters that are sharded in units of modules, as PyTorch's FSDP does.

    ``outer_layers_one_unit``: what lies outside the repeated layers is one unit, gathered from the
    begin of forward to the end of backward.
    ``reduces_last_micro_step``: gradients of earlier micro-steps stay whole on each rank, in the
    width that they are reduced in; only the last micro-step's backward makes shards of them.
    ``units``: what it takes of the host, unit by unit.
    """

    outer_layers_one_unit: bool = False
    reduces_last_micro_step: bool = False
    units: UnitHooks | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Pipeline:
    """How a pipeline is cut, what its stages send and what their buffers hold.

    ``received_copies``, ``sent_copies``: of what a stage receives and sends, tensors that its
    buffers hold for each micro-batch in flight.
    ``logits_bytes``: an element of the logits that they hold on the last stage, which lets go of a
    micro-batch's when the next but one comes.
    ``sends_whole_output``: every tensor rank sends the next stage all of a layer's output, not its
    share of it, unless the sequence is cut, where it has no more than a share.
    ``cut``: the rule that assigns layers to stages, a name in ``strategy.cut_rules``.
    ``interleaves``: a stage may hold several chunks of layers.
    ``whole_rounds``: the number of micro-batches must fill whole rounds of the stages.
    """

    received_copies: int = 0
    sent_copies: int = 0
    logits_bytes: float = 0.0
    sends_whole_output: bool = False
    cut: str = EVEN
    interleaves: bool = True
    whole_rounds: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Recompute:
    """What is run again in backward.

    ``full_includes_head``: full recompute runs the final norm and the head again too.
    ``stops_early``: a layer runs again only as far as something is needed of it.
    """

    full_includes_head: bool = False
    stops_early: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ParallelRanks:
    """Tensor ranks, and the communicators of a layout.

    ``input_gradients_summed_apart``: each product that is cut by columns sums up the gradient of
    its input over tensor ranks, also where several products have one input, unless the sequence is
    cut too.
    ``communicators_a_dimension``: communicators made for each dimension of the layout.
    """

    input_gradients_summed_apart: bool = False
    communicators_a_dimension: int = 1


@dataclass(frozen=True, slots=True, kw_only=True)
class Layers:
    """Whose kernels a model's layers are.

    ``plain_pytorch_modules``: the program is a loop around modules as the model defines them, whose
    kernels are PyTorch's.
    ``window_as_mask``: a window shorter than the sequence is a mask that attention reads.
    """

    plain_pytorch_modules: bool = False
    window_as_mask: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class ModuleOverhead:
    """What modules written in Python take of the host beside the kernels that they issue; pairs are
    forward and backward.

    ``share``: of the time to issue a layer's kernels; ``adapter``: of an adapter's module, in
    kernel issues.
    """

    share: tuple[float, float]
    adapter: tuple[float, float]


@dataclass(frozen=True, slots=True, kw_only=True)
class TrainerLoop:
    """What a trainer does in Python between two micro-steps while the device waits, in kernel
    issues: ``micro_step`` each time, ``layer`` and ``adapter`` for each of the model's.
    """

    micro_step: float
    layer: float
    adapter: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HostWork:
    """Work in Python beside issuing kernels: ``modules`` of the model, and the loop around them."""

    modules: ModuleOverhead | None = None
    trainer_loop: TrainerLoop | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Evidence:
    """What measured tables know of a program.

    ``memory_figures_of``: the kind of program whose measured memory sets the width of its interval
    (``memory_kinds`` of hardware_db/calibrations/runtime.yaml); none: of what issues its kernels.
    """

    memory_figures_of: str = ""
