"""Options under the headings "Parallelism" and "Memory": how a job is spread, what is held how."""

from __future__ import annotations

from collections.abc import Sequence
from typing import get_args

from simcore.strategy.options.kinds import looked_up
from simcore.strategy.options.option import (
    LAYOUT_GROUP,
    Axis,
    Control,
    Name,
    NameList,
    Number,
    Option,
    Switch,
    Text,
    Whole,
)


def offloads() -> Sequence[str]:
    """Common values of ``offload``: optimizer states alone, or parameters too, to each place."""
    places = [p for p in get_args(looked_up("simcore.strategy.precision:OffloadTarget"))
              if p != "none"]  # fmt: skip
    return (
        "none",
        *(f"optimizer:{p}" for p in places),
        *(f"optimizer:{p},params:{p}" for p in places),
        "activations:cpu",
    )


DECLARED = (
    Option(
        name="tp", common=True, heading="Parallelism", kind=Whole(), unsaid=1, unit="ranks",
        help="Tensor-parallel ranks (transformer models).",
        axis=Axis(), in_launch=True, resolved="placed.layout.tp",
        control=Control(label="Tensor parallel", group=LAYOUT_GROUP, most=4096, example=8,
                        values="1,2,4,8"),
        called={"": "tp-size tensor-parallel tensor-parallel-size tensor-parallel-degree "
                    "tensor-model-parallel-size"},
        launch_keys={"megatron": "tensor-model-parallel-size model-parallel-size",
                     "torchtitan": "tensor_parallel_degree"},
        messages=(r"\btensor parallel", r"\btp="),
    ),
    Option(
        name="sequence_parallel", heading="Parallelism", kind=Switch(), in_launch=True,
        help="Split norms and residuals over the tensor-parallel ranks too (default: on).",
        unsaid=True,
        more="Off: every tensor-parallel rank computes them, and holds their activations, whole.",
        resolved="placed.layout.sequence_parallel",
        control=Control(label="Sequence parallel", group=LAYOUT_GROUP, unsaid="on",
                        example="off"),
    ),
    Option(
        name="pp", common=True, heading="Parallelism", kind=Whole(), unsaid=1, unit="stages",
        help="Pipeline stages.", axis=Axis(), in_launch=True, resolved="placed.layout.pp",
        control=Control(label="Pipeline stages", group=LAYOUT_GROUP, most=4096, example=2,
                        values="1,2,4,8"),
        called={"": "pp-size pipeline pipeline-parallel pipeline-parallel-size "
                    "pipeline-parallel-degree pipeline-model-parallel-size"},
        launch_keys={"megatron": "pipeline-model-parallel-size",
                     "torchtitan": "pipeline_parallel_degree"},
        messages=(r"\bpp=", r"\bpipeline"),
    ),
    Option(
        name="vpp", heading="Parallelism", kind=Whole(), unsaid=1, unit="chunks",
        help="Chunks of layers per pipeline rank (virtual pipeline stages).",
        axis=Axis(), in_launch=True, resolved="placed.layout.vpp",
        control=Control(label="Chunks per pipeline rank", group=LAYOUT_GROUP, most=4096, example=2,
                        values="1,2,4"),
        launch_keys={"megatron": "num-virtual-stages-per-pipeline-rank "
                                 "virtual-pipeline-model-parallel-size"},
    ),
    Option(
        name="vpp_group", heading="Parallelism", kind=Whole(), unit="micro-batches",
        help="Micro-batches in a row on each chunk of --vpp, at least one a stage (default).",
        axis=Axis(), in_launch=True,
        control=Control(label="Micro-batches in a row", group=LAYOUT_GROUP, example=8),
        launch_keys={"megatron": "microbatch-group-size-per-virtual-pipeline-stage"},
    ),
    Option(
        name="deferred_heads", heading="Parallelism", kind=Whole(least=0), unit="micro-batches",
        unsaid=0, axis=Axis(), in_launch=True, resolved="placed.layout.deferred_heads",
        help="Most micro-batches whose weight gradients of the head wait for the pipeline's end.",
        more="Megatron's --defer-embedding-wgrad-compute: it costs memory on the last stage; the "
             "time it saves there is not predicted.",
        control=Control(label="Deferred gradients of the head", group=LAYOUT_GROUP,
                        example=4),
    ),
    Option(
        name="stages", heading="Parallelism", unsaid="even",
        kind=Text(check="simcore.strategy.cuts:normalised", metavar="LAYERS"),
        help="Layers per pipeline stage: 19,21,21,19 or 7,14x8,7 or 7,rest,7; even (default); "
             "auto: the fastest split that fits.",
        more="auto: the split that makes the slowest stage as fast as possible and fits every "
             "stage in memory.",
        axis=Axis(separator=";", metavar="CUT;CUT"), in_launch=True,
        control=Control(label="Layers per stage", group=LAYOUT_GROUP, hint="auto",
                        example="7,14x8,7"),
        messages=(r"^give --stages?", r"^stage\b"),
    ),
    Option(
        name="schedule", heading="Parallelism", unsaid="1f1b",
        kind=Name("simcore.step.schedules:SCHEDULES", judged=True),
        help="Pipeline schedule: {names}; default 1f1b, with --vpp interleaved.",
        axis=Axis(), in_launch=True, resolved="placed.layout.schedule",
        control=Control(label="Pipeline schedule", group=LAYOUT_GROUP, unsaid="1f1b",
                        example="zb-2p"),
    ),
    Option(
        name="cp", heading="Parallelism", kind=Whole(), unsaid=1, unit="ranks",
        help="Context-parallel ranks.", axis=Axis(), in_launch=True, resolved="placed.layout.cp",
        control=Control(label="Context parallel", group=LAYOUT_GROUP, most=4096, example=2,
                        values="1,2,4,8"),
        called={"": "cp-size context-parallel context-parallel-size context-parallel-degree "
                    "sequence-parallel-size"},
        launch_keys={"megatron": "context-parallel-size", "torchtitan": "context_parallel_degree",
                     "deepspeed": "sequence_parallel_size"},
        messages=(r"\bcp=", r"\bcontext"),
    ),
    Option(
        name="cp_comm", heading="Parallelism", unsaid="ring",
        kind=Name("simcore.strategy.layout:CpComm", judged=True),
        help="How context-parallel ranks share attention: ring (default), all-gather or ulysses "
             "(all-to-all of heads).",
        axis=Axis(), in_launch=True, resolved="placed.layout.cp_comm",
        control=Control(label="Context-parallel exchange", group=LAYOUT_GROUP, unsaid="ring",
                        example="ulysses"),
    ),
    Option(
        name="ep", heading="Parallelism", kind=Whole(), unsaid=1, unit="ranks",
        help="Expert-parallel ranks.", axis=Axis(), in_launch=True, resolved="placed.layout.ep",
        control=Control(label="Expert parallel", group=LAYOUT_GROUP, most=4096, example=8,
                        values="1,2,4,8"),
        called={"": "ep-size expert-parallel expert-parallel-size expert-parallel-degree "
                    "expert-model-parallel-size"},
        launch_keys={"megatron": "expert-model-parallel-size",
                     "torchtitan": "expert_parallel_degree"},
        messages=(r"\bep=", r"\bexpert"),
    ),
    Option(
        name="expert_tp", heading="Parallelism", kind=Whole(), unsaid=1, unit="ranks",
        help="Tensor-parallel ranks per expert: a divisor or multiple of --tp (default: 1, or as "
             "the program has it).",
        axis=Axis(), in_launch=True, resolved="placed.layout.expert_tp",
        control=Control(label="Tensor parallel per expert", group=LAYOUT_GROUP, most=4096,
                        example=1),
        messages=(r"^ep=\d+ x expert-tp=(?!1 )",),
    ),
    Option(
        name="dispatcher", heading="Parallelism", unsaid="alltoall",
        kind=Name("simcore.strategy.layout:Dispatcher",
                  also="simcore.strategy.layout:DISPATCHERS_CALLED",
                  judged=True),
        help="How tokens reach their experts: alltoall (default), or deepep or hybridep, which "
             "send a token to each rank at most once.",
        axis=Axis(), in_launch=True, resolved="placed.layout.dispatcher",
        control=Control(label="Token dispatcher", group=LAYOUT_GROUP, unsaid="alltoall",
                        example="deepep"),
    ),
    Option(
        name="expert_imbalance", heading="Parallelism", unsaid=1.0,
        kind=Number(least=1, metavar="FACTOR"),
        help="Tokens on the fullest expert-parallel rank over the mean of all ranks: 1.3; "
             "default 1.",
        axis=Axis(of="workload"), resolved="strategy.routing.imbalance",
        control=Control(label="Fullest expert rank, x the mean", group=LAYOUT_GROUP, fine=True,
                        most=4096, example=1.3),
    ),
    Option(
        name="expert_capacity", heading="Parallelism", kind=Number(least=1, metavar="FACTOR"),
        help="Most tokens that an expert takes, over the mean per expert: 1.25; tokens beyond are "
             "dropped.",
        more="Megatron's moe_expert_capacity_factor. Default: no token is dropped.",
        axis=Axis(of="workload"), in_launch=True, resolved="strategy.routing.capacity",
        control=Control(label="Expert capacity, x the mean", group=LAYOUT_GROUP, fine=True,
                        most=4096, example=1.25),
    ),
    Option(
        name="expert_padding", heading="Parallelism", kind=Switch(), unsaid=True,
        help="With --expert-capacity: pad each expert's input to its capacity and compute the "
             "padding too (default: on).", in_launch=True,
        resolved="strategy.routing.padding",
        control=Control(label="Pad experts to capacity", group=LAYOUT_GROUP, unsaid="on",
                        example="off"),
    ),
    Option(
        name="shard_ranks", heading="Parallelism", kind=Whole(least=0), unit="ranks",
        help="ZeRO shards over groups of N ranks, which hold replicas of each other (HSDP).",
        more="A group is N neighbouring ranks; 0, the default: all ranks.", unsaid=0,
        axis=Axis(), in_launch=True, resolved="strategy.shard_ranks",
        control=Control(label="Ranks per ZeRO group", group=LAYOUT_GROUP, most=4096, example=8),
        called={"": "data-parallel-shard-degree"},
    ),
    Option(
        name="overlap", heading="Parallelism",
        kind=NameList("simcore.strategy.layout:KINDS",
                      judged=True),
        help="Communication that overlaps with compute: grads (default), params, tensor, dgrad, "
             "experts, pipeline (default with --vpp); or none.",
        in_launch=True, resolved="strategy.overlap",
        control=Control(label="Overlaps with compute", group=LAYOUT_GROUP, hint="grads,tensor",
                        example="grads,tensor"),
    ),
    Option(
        name="shares", heading="Parallelism", unit="samples",
        kind=Text(check="simcore.strategy.options:check_shares", metavar="RATIO"),
        help="Samples per GPU of each type in a mixed cluster: a ratio such as 3:1 in the order "
             "of --gpus, equal (default), or auto (the fastest ratio).",
        axis=Axis(), control=Control(label="Samples per GPU of each type", hint="auto",
                                     example="auto"),
        messages=(r"^give --shares",),
    ),
    Option(
        name="recompute_modules", heading="Memory", in_launch=True,
        kind=NameList("simcore.workload.recompute:MODULES",
                      judged=True),
        help="Modules that --recompute selective recomputes: core_attn (default), layernorm, mlp, "
             "mlp_act, moe_act, moe, shared_experts, mla_up_proj, operators (default of "
             "torchtitan), all_but_attention.",
        control=Control(label="Modules to recompute", group=LAYOUT_GROUP, place=1,
                        hint="core_attn,mlp", example="core_attn,mlp"),
        messages=(r"^recompute modules?",),
    ),
    Option(
        name="reentrant", heading="Memory", kind=Switch(), in_launch=True,
        help="Checkpoints of --recompute full are torch's reentrant ones (use_reentrant).",
        more="Default: those of the training program. Reentrant ones run a layer again to its end, "
             "others stop once all that backward needs is there; beside adapters, FSDP 1 keeps the "
             "inputs of reentrant ones and their gradients until backward ends.",
        resolved="strategy.program.recompute.reentrant",
        control=Control(label="Reentrant checkpoints", unsaid="as the library sets it",
                        example="on"),
        called={"": "use-reentrant use-reentrant-gc gradient-checkpointing-use-reentrant"},
    ),
    Option(
        name="recompute_layers", heading="Memory", kind=Whole(least=0), unit="layers",
        help="Recompute only the first N layers.", more="0, the default: all layers.", unsaid=0,
        axis=Axis(), in_launch=True, resolved="strategy.recompute_layers",
        control=Control(label="Recomputed layers", group=LAYOUT_GROUP, place=1, example=20),
    ),
    Option(
        name="offload", heading="Memory", unsaid="none",
        kind=Text(check="simcore.strategy.strategy:parse_offload", names=offloads,
                  metavar="WHAT[:WHERE]"),
        help="What moves out of GPU memory, and where to: none, optimizer, optimizer:nvme, "
             "optimizer+params, activations; places: cpu, cpu-far, nvme (activations: cpu).",
        more="activations: what layers save for backward, with recompute full their inputs; "
             "blocks:18: so many blocks of a frozen base are swapped with the host.",
        axis=Axis(), in_launch=True, resolved="strategy.offload",
        control=Control(label="Offload", group="Strategy", kind="select", place=3, unsaid="none",
                        example="optimizer:cpu", values="none,optimizer:cpu"),
        called={"": "cpu-offload offload-optimizer zero-offload"},
        messages=(r"has no NVMe",),
    ),
    Option(
        name="offload_layers", heading="Memory", kind=Whole(least=0), unit="layers", unsaid=0,
        in_launch=True,
        help="Offload the activations of the first N layers to host memory.",
        axis=Axis(), resolved="strategy.offload_layers",
        control=Control(label="Layers with offloaded activations", example=8),
    ),
    Option(
        name="main_grads", heading="Memory", unsaid="weights",
        kind=Name("simcore.strategy.precision:MAIN_GRADS", metavar="WIDTH",
                  judged=True),
        help="How gradients are held and accumulated: weights (in the data type of the weights; "
             "default), fused (the same in one buffer), fp32.",
        more="weights: one tensor per parameter, in the data type of the weights; fused: one "
             "contiguous buffer of that type, to which the matrix products of the backward pass "
             "add; fp32: such a buffer in fp32, also reduced in fp32.",
        axis=Axis(), in_launch=True,
        control=Control(label="Main gradients", unsaid="as the library sets it", example="fp32"),
        messages=(r"main gradients",),
    ),
    Option(
        name="update_in_backward", heading="Memory", kind=Switch(), unsaid=False, in_launch=True,
        help="Update each parameter as soon as backward has made its gradient, and free that.",
        more="torchtune's optimizer_in_bwd, sd-scripts' --fused_backward_pass: the gradient of one "
             "tensor exists at a time. Not with accumulation, clipping or an offloaded optimizer; "
             "the update takes as long as after backward.",
        resolved="strategy.updates_in_backward",
        control=Control(label="Update within backward", unsaid="off", example="on"),
        called={"on": "optimizer-in-bwd fused-backward-pass early-step-in-backward"},
    ),
    Option(
        name="fp8_params", heading="Memory", kind=Switch(), unsaid=False, in_launch=True,
        help="Hold and gather the layers' weights in 8 bits, with fp32 master weights.",
        resolved="strategy.fp8_params",
        control=Control(label="Weights in 8 bits", unsaid="off", example="on"),
    ),
    Option(
        name="ema", heading="Memory", kind=Switch(), in_launch=True,
        help="Keep an exponential moving average of the parameters, a whole copy on each GPU.",
        more="Default: that of the model's record.",
        resolved="strategy.ema",
        control=Control(label="Moving average (EMA)", unsaid="as the model's training loop",
                        example="on"),
        called={"on": "use-ema ema-decay model-ema moving-average"},
    ),
    Option(
        name="growing_segments", heading="Memory", kind=Switch(), unsaid=False, in_launch=True,
        help="PyTorch's allocator runs with expandable_segments, which avoids fragmentation.",
        resolved="growing_segments",
        control=Control(label="Expandable segments", unsaid="as the library sets it",
                        example="on"),
    ),
    Option(
        name="software", common=True, heading="Memory", in_launch=True,
        kind=Text(check="simcore.request.training_library:check_library",
                  names="simcore.strategy.programs:program_names", metavar="NAME"),
        axis=Axis(metavar="NAMES"),
        help="Training library or program, or a release of it (NAME@RELEASE): megatron (default "
             "with tp, pp, cp, ep, fp8), transformers, torchtune, deepspeed@2022 ...: `simcore "
             "list software`.",
        more="It determines defaults, kernels and the copies of parameters and gradients. "
             "Default: megatron for language models with tp, pp, cp or ep, or in fp8, mxfp8, "
             "nvfp4 or mxfp4; else plain (PyTorch's own modules). auto: megatron for every "
             "language model.",
        resolved="strategy.software.name",
        control=Control(label="Library", kind="select", unsaid="as usual for the layout",
                        example="deepspeed"),
    ),
)  # fmt: skip
