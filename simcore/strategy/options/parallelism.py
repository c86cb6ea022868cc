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
        name="tp", heading="Parallelism", kind=Whole(), unsaid=1, unit="ranks",
        help="Tensor parallel ranks (transformers).",
        axis=Axis(), in_launch=True, resolved="placed.layout.tp",
        control=Control(label="Tensor parallel", group=LAYOUT_GROUP, most=4096, example=8),
        called={"": "tensor-parallel tensor-parallel-size tensor-parallel-degree "
                    "tensor-model-parallel-size"},
        launch_keys={"megatron": "tensor-model-parallel-size model-parallel-size",
                     "torchtitan": "tensor_parallel_degree"},
        told_by=(r"\btensor parallel", r"\btp="),
    ),
    Option(
        name="sequence_parallel", heading="Parallelism", kind=Switch(), in_launch=True,
        help="Tensor ranks cut norms and residual too (default).", unsaid=True,
        more="Off: they and their activations stay whole on each tensor rank.",
        resolved="placed.layout.sequence_parallel",
        control=Control(label="Tensor ranks cut norms too", group=LAYOUT_GROUP, unsaid="on",
                        example="off"),
    ),
    Option(
        name="pp", heading="Parallelism", kind=Whole(), unsaid=1, unit="stages",
        help="Pipeline stages.", axis=Axis(), in_launch=True, resolved="placed.layout.pp",
        control=Control(label="Pipeline stages", group=LAYOUT_GROUP, most=4096, example=2),
        called={"": "pipeline-parallel pipeline-parallel-size pipeline-parallel-degree "
                    "pipeline-model-parallel-size"},
        launch_keys={"megatron": "pipeline-model-parallel-size",
                     "torchtitan": "pipeline_parallel_degree"},
        told_by=(r"\bpp=", r"\bpipeline"),
    ),
    Option(
        name="vpp", heading="Parallelism", kind=Whole(), unsaid=1, unit="chunks",
        help="Chunks of layers a pipeline rank.",
        axis=Axis(), in_launch=True, resolved="placed.layout.vpp",
        control=Control(label="Chunks a pipeline rank", group=LAYOUT_GROUP, most=4096, example=2),
        launch_keys={"megatron": "num-virtual-stages-per-pipeline-rank "
                                 "virtual-pipeline-model-parallel-size"},
    ),
    Option(
        name="stages", heading="Parallelism", unsaid="even",
        kind=Text(check="simcore.strategy.cuts:normalised", metavar="LAYERS"),
        help="Of each stage: 19,21,21,19 or 7,14x8,7 or 7,rest,7; even (default); auto: best.",
        more="Layers of each pipeline stage. auto: such that the slowest stage is least slow and "
             "all fit.",
        axis=Axis(separator=";", metavar="CUT;CUT"), in_launch=True,
        control=Control(label="Layers of each stage", group=LAYOUT_GROUP, hint="auto",
                        example="7,14x8,7"),
        told_by=(r"^give --stages?", r"^stage\b"),
    ),
    Option(
        name="schedule", heading="Parallelism", unsaid="1f1b",
        kind=Name("simcore.strategy.layout:SCHEDULES",
                  judged=True),
        help="Of the pipeline: 1f1b (with --vpp interleaved), gpipe, zb-1p, zb-2p, dualpipe.",
        axis=Axis(), in_launch=True, resolved="placed.layout.schedule",
        control=Control(label="Pipeline's schedule", group=LAYOUT_GROUP, unsaid="1f1b",
                        example="zb-2p"),
    ),
    Option(
        name="cp", heading="Parallelism", kind=Whole(), unsaid=1, unit="ranks",
        help="Context parallel ranks.", axis=Axis(), in_launch=True, resolved="placed.layout.cp",
        control=Control(label="Context parallel", group=LAYOUT_GROUP, most=4096, example=2),
        called={"": "context-parallel context-parallel-size context-parallel-degree "
                    "sequence-parallel-size"},
        launch_keys={"megatron": "context-parallel-size", "torchtitan": "context_parallel_degree",
                     "deepspeed": "sequence_parallel_size"},
        told_by=(r"\bcp=", r"\bcontext"),
    ),
    Option(
        name="cp_comm", heading="Parallelism", unsaid="ring",
        kind=Name("simcore.strategy.layout:CpComm", judged=True),
        help="What context ranks exchange: ring (default), all-gather or ulysses (all-to-all of "
             "heads).",
        axis=Axis(), in_launch=True, resolved="placed.layout.cp_comm",
        control=Control(label="Exchange of context ranks", group=LAYOUT_GROUP, unsaid="ring",
                        example="ulysses"),
    ),
    Option(
        name="ep", heading="Parallelism", kind=Whole(), unsaid=1, unit="ranks",
        help="Expert parallel ranks.", axis=Axis(), in_launch=True, resolved="placed.layout.ep",
        control=Control(label="Expert parallel", group=LAYOUT_GROUP, most=4096, example=8),
        called={"": "expert-parallel expert-parallel-size expert-parallel-degree "
                    "expert-model-parallel-size"},
        launch_keys={"megatron": "expert-model-parallel-size",
                     "torchtitan": "expert_parallel_degree"},
        told_by=(r"\bep=", r"\bexpert"),
    ),
    Option(
        name="expert_tp", heading="Parallelism", kind=Whole(), unsaid=1, unit="ranks",
        help="Tensor ranks of an expert: 1 (default) or tp.",
        axis=Axis(), in_launch=True, resolved="placed.layout.expert_tp",
        control=Control(label="Tensor ranks of an expert", group=LAYOUT_GROUP, most=4096,
                        example=1),
        told_by=(r"^ep=\d+ x expert-tp=(?!1 )",),
    ),
    Option(
        name="dispatcher", heading="Parallelism", unsaid="alltoall",
        kind=Name("simcore.strategy.layout:Dispatcher",
                  also="simcore.strategy.layout:DISPATCHERS_CALLED",
                  judged=True),
        help="alltoall, or deepep, hybridep: a token goes to a rank once.",
        axis=Axis(), in_launch=True, resolved="placed.layout.dispatcher",
        control=Control(label="Dispatch of tokens", group=LAYOUT_GROUP, unsaid="alltoall",
                        example="deepep"),
    ),
    Option(
        name="expert_imbalance", heading="Parallelism", unsaid=1.0,
        kind=Number(least=1, metavar="FACTOR"),
        help="Tokens of the fullest expert rank over the mean: 1.3; default 1.",
        axis=Axis(of="workload"), resolved="strategy.routing.imbalance",
        control=Control(label="Fullest expert rank, x the mean", group=LAYOUT_GROUP, fine=True,
                        most=4096, example=1.3),
    ),
    Option(
        name="expert_capacity", heading="Parallelism", kind=Number(least=1, metavar="FACTOR"),
        help="Slots of an expert over its mean rows: 1.25; tokens beyond are dropped.",
        more="Megatron's moe_expert_capacity_factor. Default: none are dropped.",
        axis=Axis(of="workload"), in_launch=True, resolved="strategy.routing.capacity",
        control=Control(label="Expert capacity, x the mean", group=LAYOUT_GROUP, fine=True,
                        most=4096, example=1.25),
    ),
    Option(
        name="expert_padding", heading="Parallelism", kind=Switch(), unsaid=True,
        help="Slots that no token takes are computed (default).", in_launch=True,
        resolved="strategy.routing.padding",
        control=Control(label="Empty slots are computed", group=LAYOUT_GROUP, unsaid="on",
                        example="off"),
    ),
    Option(
        name="shard_ranks", heading="Parallelism", kind=Whole(least=0), unit="ranks",
        help="ZeRO shards over N ranks, replicas between (HSDP).",
        more="Neighbouring ranks; 0, the default: all.", unsaid=0,
        axis=Axis(), in_launch=True, resolved="strategy.shard_ranks",
        control=Control(label="ZeRO shards over, ranks", group=LAYOUT_GROUP, most=4096, example=8),
        called={"": "data-parallel-shard-degree"},
    ),
    Option(
        name="overlap", heading="Parallelism",
        kind=NameList("simcore.strategy.overlap:KINDS",
                      judged=True),
        help="Hidden traffic: grads (default), params, tensor, dgrad, experts, pipeline (default "
             "with --vpp); or none.",
        in_launch=True, resolved="strategy.overlap",
        control=Control(label="Hidden under compute", group=LAYOUT_GROUP, hint="grads,tensor",
                        example="grads,tensor"),
    ),
    Option(
        name="shares", heading="Parallelism", unit="samples",
        kind=Text(check="simcore.strategy.shares:check_shares", metavar="RATIO"),
        help="On unequal GPUs: samples of each as 3:1 in the order of --gpus, equal (default), or "
             "auto: fastest.",
        axis=Axis(), control=Control(label="Samples of each kind of GPU", hint="auto",
                                     example="auto"),
        told_by=(r"^give --shares",),
    ),
)  # fmt: skip
