"""A training program (DeepSpeed, FSDP, Megatron-LM, ...): its mechanisms, and how it runs a job.

Each mechanism covers one subject, such as gradients or the pipeline. A field's default describes
the method in general; a record of ``programs_db`` sets a field where that program does otherwise.
Python code that runs on the host is counted in *kernel issues*: one is the time that PyTorch takes
on the host to issue one kernel.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import field, replace
from types import MappingProxyType
from typing import Any, Literal, get_args

from simcore.base.record import dataclass
from simcore.strategy.layout import EVEN
from simcore.workload.archs.lm_attention import FUSED_SOFTMAX_SCORES
from simcore.workload.models import Scalar

#: Module that Megatron-LM's --recompute-granularity selective recomputes.
DEFAULT_MODULES = "core_attn"
#: Programs that launch kernels. ``torch``: modules of torch, operator by operator. ``megatron``:
#: modules of Megatron-Core with those of Transformer Engine inside, whose products are autograd
#: functions written in Python, with casts, views and hooks around them. ``megatron_graphs``: these
#: with CUDA graphs of each layer's attention and routing, or of routing. ``megatron_2022``:
#: Megatron-LM's modules before Megatron-Core and Transformer Engine. ``graph``: one of the step.
Issuer = Literal[
    "torch", "megatron", "megatron_graphs", "megatron_routing_graphs", "megatron_2022", "graph"
]
ISSUERS: tuple[Issuer, ...] = get_args(Issuer)


@dataclass(frozen=True, kw_only=True)
class Gradients:
    """How gradients are stored, accumulated and reduced over data-parallel ranks.

    ``norm_copy_bytes``: bytes per element of the temporary copy of one tensor's gradient from which
    the program computes the gradient norm; 0: it makes no copy.
    ``shard_joined_before_widening``: a ZeRO rank concatenates the gradients of its shard to one
    flat tensor before it casts them to fp32.
    ``bucket_copy_bytes``: bytes per element of the copy of a bucket that is reduced and sent; 0:
    the bucket itself is reduced.
    ``zero1_all_reduces``: ZeRO-1 all-reduces gradients, although each rank needs only its shard.
    ``buckets_after_backward``: buckets are allocated after backward and freed before the update.
    ``narrow_beside_fp32_sums``: the 16-bit gradients from backward stay in memory in addition to
    the fp32 accumulated gradients. After backward each is added through an fp32 copy of it.
    ``ddp_buckets_of_weight_width``: DDP reduces gradients in flat buckets of the weights' data type
    and holds these in addition to the fp32 accumulated gradients.
    ``added_by_own_kernel``: a separate kernel adds each tensor's gradient to its accumulated sum.
    ``stub_after_fused_sum``: where the kernel of a matrix product accumulates the weight gradient
    itself, autograd gets a placeholder tensor instead of a gradient.
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


@dataclass(frozen=True, kw_only=True)
class OptimizerState:
    """Weights and optimizer state that a rank holds, and extra memory traffic of the update.

    ``master_lower_halves``: only the lower 16 bits of the fp32 master weights are stored; the bf16
    weights are the upper 16 bits. The update reads 16-bit gradients without a cast.
    ``owned_tensor_by_tensor``: ZeRO-1 assigns whole tensors to ranks. Each rank updates its tensors
    and broadcasts them to the other ranks, one owner after the other.
    ``update_copies_bytes``: bytes that copies and norms around the update read and write, per
    parameter of the rank's model (all parameters, not only those of its shard).
    ``gathered_tensor_by_tensor``: after an update under ZeRO-1 or 2 each parameter is gathered by a
    collective of its own. ``update_kernels_a_tensor``: kernels that the program's Python code
    issues for each parameter around the optimizer's own: casts, norms, scaling, copies.
    """

    master_lower_halves: bool = False
    owned_tensor_by_tensor: bool = False
    update_copies_bytes: float = 0.0
    gathered_tensor_by_tensor: bool = False
    update_kernels_a_tensor: int = 0


@dataclass(frozen=True, kw_only=True)
class Offload:
    """State that is offloaded to host memory.

    ``crosses_in_fp32``: the state is fp32 on the host and is transferred as fp32 in both
    directions.
    ``host_update_bytes``: bytes that the host reads and writes to update one offloaded parameter.
    The default is one pass of Adam in fp32: it reads gradient, both moments and weight, and writes
    all but the gradient (7 times 4 bytes).
    """

    crosses_in_fp32: bool = False
    host_update_bytes: float = 28.0


@dataclass(frozen=True, kw_only=True)
class ModuleHooks:
    """Host time of ZeRO-3's Python hooks around a model's modules, in kernel issues.

    Pairs are (forward, backward).

    ``module``: hooks before and after each module that owns a parameter tensor.
    ``layer``: hooks of all modules of a layer that own no tensor.
    ``matrix``: gathering the weight of a matrix product and releasing it.
    ``gradient``: copying a tensor's gradient to a bucket. ``bucket``: reducing a bucket.
    """

    module: tuple[float, float]
    layer: tuple[float, float]
    matrix: tuple[float, float]
    gradient: float
    bucket: float


@dataclass(frozen=True, kw_only=True)
class TensorLists:
    """Host time of collectives that take a list of tensors, one per rank, in kernel issues.

    ``call``: one collective. ``gathered_view``, ``reduced_view``: making a view of one rank's part
    of a parameter (gather) or of its gradient (reduction). ``copy``: issuing the copy of that part
    from or to the flat tensor that NCCL communicates.
    """

    call: float
    gathered_view: float
    reduced_view: float
    copy: float


@dataclass(frozen=True, kw_only=True)
class Zero3:
    """ZeRO stage 3 that gathers parameters module by module.

    ``live_numel``: the largest number of gathered parameters that stay on the rank for their next
    use. Where it is set, gradients are reduced through a bucket. 0: a block's parameters are
    gathered as one unit.
    ``persistent_numel``: tensors with at most this many elements are never sharded.
    ``reuse_numel``: a parameter stays gathered if at most this many elements are used before its
    next use.
    ``joins_bucket``: a bucket's gradients are copied into one tensor in the order of the ranks'
    shards before they are reduced.
    ``whole_at_first``: the whole model is on the device before it is sharded.
    ``hooks``: host time of its hooks; None: no hooks.
    ``tensor_lists``: host time of its collectives where they take lists of tensors, one parameter
    per collective and without prefetch; None: they take flat tensors.
    """

    live_numel: int = 0
    persistent_numel: int = 0
    reuse_numel: int = 0
    joins_bucket: bool = False
    whole_at_first: bool = False
    hooks: ModuleHooks | None = None
    tensor_lists: TensorLists | None = None

    @property
    def tensors_at_once(self) -> int:
        """Parameter-sized tensors of a block in memory at a time where modules are gathered singly.

        They come in addition to parameters that stay gathered (``live_numel``). With tensor lists
        it is 2: the flat tensor and the list that is copied from it. 0: the block is gathered as
        one unit.
        """
        return (1 + (self.tensor_lists is not None)) * bool(self.live_numel)


@dataclass(frozen=True, kw_only=True)
class UnitHooks:
    """Host time of FSDP's Python code around each unit that it shards, in kernel issues.

    Pairs are (forward, backward).

    ``unit``: gathering a unit, registering its parameters and releasing them. ``tensor``: the
    addition for each parameter of the unit. ``reduced``, ``reduced_tensor``: reducing the gradients
    of a trained unit, and the addition for each of its parameters.
    ``adapters``: each matrix of an adapter is a separate unit.
    """

    unit: tuple[float, float]
    tensor: tuple[float, float]
    reduced: float
    reduced_tensor: float
    adapters: bool = False


@dataclass(frozen=True, kw_only=True)
class Fsdp:
    """Parameters that are sharded in units of modules, as PyTorch's FSDP does.

    ``outer_layers_one_unit``: all layers outside the repeated ones (embedding, head) are one unit,
    which stays gathered from the start of forward to the end of backward.
    ``reduces_last_micro_step``: gradients are reduced and sharded only in the last micro-step.
    Until then each rank holds all of them, in the data type in which they are reduced.
    ``flat_copies``: a unit's parameters are copied out of the flat tensor that ranks gather, and
    its gradients to the one that they reduce; without it they are views of it.
    ``keeps_low_shards``: a rank keeps shards in the width of products beside its fp32 masters, from
    which others gather; without it products read a narrowed copy of fp32 shards.
    ``beside_tensor_ranks``: parameters that tensor ranks divide are sharded too, where no strategy
    is named.
    ``outer_layers_stay``: parameters outside the repeated layers stay gathered over a micro-step.
    ``ahead_numel``: units are gathered ahead until they have so many parameters, at least one.
    ``queued_numel``: whole gradients stay until more than so many elements wait for their
    reduction, or backward ends; 0: each unit's are freed at once.
    ``holds_checkpoint_inputs``: beside adapters, the input of each reentrant checkpoint and its
    gradient stay until backward ends.
    ``units``: host time of each unit; None: not counted.
    """

    outer_layers_one_unit: bool = False
    outer_layers_stay: bool = False
    ahead_numel: float = 0.0
    queued_numel: float = 0.0
    holds_checkpoint_inputs: bool = False
    reduces_last_micro_step: bool = False
    flat_copies: bool = False
    keeps_low_shards: bool = False
    beside_tensor_ranks: bool = False
    units: UnitHooks | None = None


@dataclass(frozen=True, kw_only=True)
class Pipeline:
    """How layers are assigned to pipeline stages, what stages send and what their buffers hold.

    ``received_copies``, ``sent_copies``: copies of the received and of the sent activation tensor
    that a stage's buffers hold for each micro-batch in flight.
    ``logits_bytes``: bytes per element of the logits in the last stage's buffers, which hold the
    logits of two micro-batches.
    ``sends_whole_output``: every tensor rank sends a layer's whole output to the next stage, not
    only its part. With sequence parallelism a rank has only its part and sends that.
    ``cut``: the rule that assigns layers to stages, a name of ``strategy.layout.CUT_RULES``.
    ``interleaves``: a stage may hold several chunks of layers (virtual pipeline stages).
    ``whole_rounds``: the interleaved schedule needs at least one micro-batch per stage
    (``Schedule.rounds_refused``).
    """

    received_copies: int = 0
    sent_copies: int = 0
    logits_bytes: float = 0.0
    sends_whole_output: bool = False
    cut: str = EVEN
    interleaves: bool = True
    whole_rounds: bool = False


@dataclass(frozen=True, kw_only=True)
class Recompute:
    """What backward recomputes.

    ``full_includes_head``: full recompute includes the final norm and the head.
    ``stops_early``: the recompute of a layer stops after the last tensor that its backward needs.
    ``reentrant``: a checkpoint is a function of autograd of its own, whose backward runs the layer
    again to its end on detached inputs (``torch.utils.checkpoint``, use_reentrant=True).
    """

    full_includes_head: bool = False
    stops_early: bool = False
    reentrant: bool = False

    def made(self, reentrant: bool) -> Recompute:
        """The same with torch's reentrant checkpoints, or with its other ones, which stop early."""
        return replace(self, reentrant=reentrant, stops_early=not reentrant)


@dataclass(frozen=True, kw_only=True)
class ParallelRanks:
    """All-reduces of tensor-parallel ranks, and the communicators of a parallel layout.

    ``input_gradients_summed_apart``: each column-parallel product all-reduces the gradient of its
    input separately, also where several products share one input. It does not apply with sequence
    parallelism.
    ``sequence_copies``: gathers of tensor ranks along the sequence copy the whole tensor after the
    collective, and reduce-scatters before it, since NCCL joins and divides the first dimension,
    which is the batch. Pieces that hide under products are not copied.
    ``communicators_a_dimension``: those that the program makes for each dimension of the layout.
    """

    input_gradients_summed_apart: bool = False
    sequence_copies: bool = False
    communicators_a_dimension: int = 1


@dataclass(frozen=True, kw_only=True)
class Layers:
    """Whether the program runs a model's own layers or replaces their kernels.

    ``plain_pytorch_modules``: it loops around the model's own modules, which run PyTorch's kernels.
    ``window_as_mask``: attention with a window shorter than the sequence reads a mask tensor.
    ``compiled_mask``: the release of PyTorch before which causal attention reads a mask tensor too
    under torch.compile; "" where it never does.
    ``engine_workspaces``: products are Transformer Engine's, which keeps workspaces of its own
    beside those of PyTorch's handles; ``engine_routers``: those of experts' routers are.
    ``buffers_planned``: a compiler assigns every buffer of the step before it runs, so that no
    memory is lost to an allocator's fragmentation.
    ``handle_workspace_bytes``: of each of PyTorch's cuBLAS handles, as CUBLAS_WORKSPACE_CONFIG has
    it; 0: PyTorch's default. ``scores_buffer``: attention's scores in memory are computed from a
    tensor of their size, which is allocated once and kept.
    """

    plain_pytorch_modules: bool = False
    window_as_mask: bool = False
    compiled_mask: str = ""
    engine_workspaces: bool = False
    engine_routers: bool = False
    buffers_planned: bool = False
    handle_workspace_bytes: int = 0
    scores_buffer: bool = False


@dataclass(frozen=True, kw_only=True)
class ModuleOverhead:
    """Host time of the Python code of a model's modules, in addition to issuing their kernels.

    In kernel issues (forward, backward). ``layer``: of one layer; ``adapter``: of one adapter.
    """

    layer: tuple[float, float]
    adapter: tuple[float, float]


@dataclass(frozen=True, kw_only=True)
class TrainerLoop:
    """Host time of a trainer between two micro-steps, in kernel issues; the device is idle then.

    ``micro_step``: once per micro-step. ``layer``, ``adapter``: besides, for each of the model's.
    """

    micro_step: float
    layer: float
    adapter: float


@dataclass(frozen=True, kw_only=True)
class HostWork:
    """Host time of Python code other than issuing kernels: of the model's modules and the trainer.

    None: not counted.
    """

    modules: ModuleOverhead | None = None
    trainer_loop: TrainerLoop | None = None


#: 8-bit precisions with one scale per tensor, in which weights can be stored.
SCALED_A_TENSOR = ("fp8", "fp8-cs")
#: Fields of ``Runs`` to which a release adds keys.
MAPPINGS = ("settings", "compiled_settings", "options", "precisions")


@dataclass(frozen=True, kw_only=True)
class Runs:
    """How a program runs language models where neither job nor launch file says.

    ``issuer``: what issues kernels, in the words of ``--issuer``.
    ``overlap``: communication that it hides whatever a job sets, in the words of ``--overlap``;
    ``recipe_overlap``: what its recipes turn on beside, where a job does not list its switches;
    ``zero1_reduces_after_backward``: ZeRO-1 alone does not hide its gradients.
    ``main_grads``: the gradients' copies, in the words of ``--main-grads``;
    ``fp32_gradient_sums``: sums in fp32 instead, of all precisions but fp16.
    ``precisions``: what it makes of a precision that a job names; ``fp8_weights``: it can hold
    weights in 8 bits.
    ``sequence_parallel``: tensor ranks cut the sequence too.
    ``experts_on_tensor_ranks``: tensor ranks divide each expert too.
    ``selective_modules``: what selective recompute runs again; ``selective_is_whole_layers``: whole
    layers, so that its selective recompute is full recompute.
    ``dropout``: the rate that its jobs train with.
    ``settings``: of a language model's layers; ``loss_with_tensor_ranks``: the loss where there
    are any; ``compiled_settings``: under torch.compile, where they are other than usual.
    ``options``: others, as the command line names them.
    ``torch``: the release of PyTorch that it ran on; "" where it says nothing of old ones.
    """

    issuer: Issuer = "torch"
    overlap: frozenset[str] = frozenset({"grads"})
    recipe_overlap: frozenset[str] = frozenset()
    zero1_reduces_after_backward: bool = False
    main_grads: str = "weights"
    fp32_gradient_sums: bool = False
    fp8_weights: bool = False
    sequence_parallel: bool = True
    experts_on_tensor_ranks: bool = False
    selective_modules: str = DEFAULT_MODULES
    selective_is_whole_layers: bool = False
    dropout: float = 0.0
    loss_with_tensor_ranks: str = ""
    settings: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    compiled_settings: Mapping[str, Scalar] = field(default_factory=dict, hash=False)
    options: Mapping[str, Any] = field(default_factory=dict, hash=False)
    precisions: Mapping[str, str] = field(default_factory=dict, hash=False)
    torch: str = ""

    def __post_init__(self) -> None:
        for name in MAPPINGS:
            object.__setattr__(self, name, MappingProxyType(dict(getattr(self, name))))

    def words(self, strategy: str = "", precision: str = "") -> dict[str, Any]:
        """Options where nothing is said, of a job that its recipes run.

        ``strategy``, ``precision``: the job's; "" where it does not say them.
        """
        hidden = self.overlap | self.recipe_overlap
        if "tensor" in hidden:
            hidden -= {"dgrad"}
        if self.zero1_reduces_after_backward and strategy == "zero1":
            hidden -= {"grads"}
        return {
            "issuer": self.issuer,
            "overlap": ",".join(sorted(hidden)) or "none",
            "main_grads": "fp32" if self.fp32_gradient_sums else self.main_grads,
            **({} if self.sequence_parallel else {"sequence_parallel": False}),
            **({"fp8_params": True} if self.fp8_weights and precision in SCALED_A_TENSOR else {}),
            **self.options,
        }

    def layers(self, tensor_ranks: int, heads: int) -> dict[str, Scalar]:
        """Settings of a language model's layers.

        ``heads``: attention heads of a rank times samples of a micro-batch. The kernel that fuses
        mask and softmax takes a multiple of ``FUSED_SOFTMAX_SCORES`` of them; others run apart.
        """
        found: dict[str, Scalar] = {"dropout": self.dropout, **self.settings}
        if self.loss_with_tensor_ranks and tensor_ranks > 1:
            found["loss"] = self.loss_with_tensor_ranks
        if found.get("attention") == "fused_softmax" and heads % FUSED_SOFTMAX_SCORES:
            found["attention"] = "math"
        return found

    def __reduce__(self) -> tuple[Any, ...]:
        values = dict(vars(self))
        for name in MAPPINGS:
            values[name] = dict(values[name])
        return _runs_again, (values,)


def _runs_again(values: dict[str, Any]) -> Runs:
    """The same in another process, whose mappings travel as dictionaries."""
    return Runs(**values)


@dataclass(frozen=True, kw_only=True)
class OfKind:
    """Defaults of a program for the jobs for which ``when`` holds (``base/conditions.py``).

    Facts of a job: ``model`` and ``arch``, names of models_db and of its architecture;
    ``precision``, ``strategy``; ``torch``, the release of PyTorch; and the model's settings, blank
    where it does not have one.

    ``options``, as the command line names them; ``settings`` of the model, as of ``--set``;
    ``precisions``: what the program makes of a precision that the job names. A value of None takes
    an earlier one back.
    """

    when: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    settings: Mapping[str, Scalar] = field(default_factory=dict)
    precisions: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, kw_only=True)
class Program:
    """One program, or a release of it: ``name`` as ``--software`` takes it, ``meaning`` in a line.

    ``runs`` is None of a library that is put around a user's own model and loop. ``kinds``: what it
    does for some kinds of job only, whose order is that of its facts.
    """

    name: str
    meaning: str
    gradients: Gradients = field(default_factory=Gradients)
    optimizer_state: OptimizerState = field(default_factory=OptimizerState)
    offload: Offload = field(default_factory=Offload)
    zero3: Zero3 = field(default_factory=Zero3)
    fsdp: Fsdp = field(default_factory=Fsdp)
    pipeline: Pipeline = field(default_factory=Pipeline)
    recompute: Recompute = field(default_factory=Recompute)
    ranks: ParallelRanks = field(default_factory=ParallelRanks)
    layers: Layers = field(default_factory=Layers)
    host: HostWork = field(default_factory=HostWork)
    runs: Runs | None = None
    kinds: tuple[OfKind, ...] = ()

    def __hash__(self) -> int:
        return hash(self.name)  # programs are keys of caches; equal ones have one name


#: Where no program is named: what the method itself needs, around PyTorch's own modules.
PLAIN = Program(
    name="plain",
    meaning="what the method itself holds",
    layers=Layers(plain_pytorch_modules=True),
)
