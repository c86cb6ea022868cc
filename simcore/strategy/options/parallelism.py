"""Options under the heading "Parallelism": degrees, the pipeline, experts, overlap."""

from __future__ import annotations

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

DECLARED = (
    Option(
        name="tp", common=True, heading="Parallelism", kind=Whole(), unsaid=1, unit="ranks",
        help="Tensor-parallel ranks (transformer models).",
        axis=Axis(), in_launch=True, resolved="placed.layout.tp",
        control=Control(label="Tensor parallel", group=LAYOUT_GROUP, most=4096, example=8,
                        values="1,2,4,8"),
        called={"": "tensor-parallel tensor-parallel-size tensor-parallel-degree "
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
        called={"": "pipeline-parallel pipeline-parallel-size pipeline-parallel-degree "
                    "pipeline-model-parallel-size"},
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
        called={"": "context-parallel context-parallel-size context-parallel-degree "
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
        called={"": "expert-parallel expert-parallel-size expert-parallel-degree "
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
        kind=NameList("simcore.strategy.communication:KINDS",
                      judged=True),
        help="Communication that overlaps with compute: grads (default), params, tensor, dgrad, "
             "experts, pipeline (default with --vpp); or none.",
        in_launch=True, resolved="strategy.overlap",
        control=Control(label="Overlaps with compute", group=LAYOUT_GROUP, hint="grads,tensor",
                        example="grads,tensor"),
    ),
    Option(
        name="shares", heading="Parallelism", unit="samples",
        kind=Text(check="simcore.strategy.options.values:check_shares", metavar="RATIO"),
        help="Samples per GPU of each type in a mixed cluster: a ratio such as 3:1 in the order "
             "of --gpus, equal (default), or auto (the fastest ratio).",
        axis=Axis(), control=Control(label="Samples per GPU of each type", hint="auto",
                                     example="auto"),
        messages=(r"^give --shares",),
    ),
)  # fmt: skip
