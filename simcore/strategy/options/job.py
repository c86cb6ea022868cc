"""Options under the heading "Job": the model, the GPUs, the batches and the strategy."""

from __future__ import annotations

from simcore.strategy.options.option import (
    Axis,
    Control,
    File,
    Name,
    Number,
    Option,
    Switch,
    Text,
    Texts,
    Whole,
)

#: Positions of the slider for the micro-batch on the web page.
BATCHES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256)

DECLARED = (
    Option(
        name="model", common=True, part="subject", heading="Job",
        kind=Text(names="simcore.workload.models:MODELS", metavar="NAME"),
        help="Model to train: a name in models_db, a YAML or config.json file, timm:NAME, "
             "torchvision:NAME, package.module:function.",
        control=Control(label="Model", group="Job", kind="name", place=-9, wide=True,
                        example="latte-xl"),
        called={"": "model-name model-name-or-path config arch network-name m"},
        messages=(r"^unknown model",),
    ),
    Option(
        name="inputs", flag="--input", heading="Job",
        kind=Texts(such_as="float32[B,3,224,224]", metavar="DTYPE[SHAPE]"),
        help="Shape of an input of a Python callable or a timm model: float32[B,3,224,224], "
             "optionally followed by channels_last. Repeat for each input.",
        more="Default: none; only models that are code need it.",
    ),
    Option(
        name="gpus", common=True, part="subject", heading="Job",
        kind=Text(names="simcore.hardware.spec:GPUS", metavar="CLUSTER"),
        help="Cluster as NODESxGPUSxTYPE; several parts joined by + where GPU types are mixed.",
        control=Control(label="", group="Cluster", kind="error", place=9, most_letters=200,
                        example="4x8xA6000ada"),
        called={"": "gpu num-gpus ngpus n-gpus world-size cluster hardware device devices g"},
        messages=(
            r"^unknown gpu", r"NODESxGPUSxTYPE", r"^node count", r"^GPUs a node",
            r"no GPUs given", r"^node ", r"has a comma: join the GPUs",
        ),
    ),
    Option(
        name="strategy", common=True, heading="Job",
        kind=Name("simcore.strategy.strategy:STRATEGY_NAMES",
                  also="simcore.strategy.strategy:TORCH_NAMES",
                  not_all=("single",), judged=True),
        help="Data parallelism: single, dp, manual, ddp, zero1 to zero3 (fsdp), hsdp.",
        more="Default: that of the model's record.",
        axis=Axis(), in_launch=True, resolved="strategy.parallelism",
        control=Control(label="Strategy", group="Job", place=2, example="zero2",
                        values="ddp,zero1,zero2,zero3"),
        called={
            "": "parallel parallelism sharding sharding-strategy distributed",
            "fsdp": "fsdp full-shard", "ddp": "ddp data-parallel dp",
            "hsdp": "hsdp hybrid-shard",
        },
        messages=(r"needs GPUs of one type",),
    ),
    Option(
        name="zero", part="shorthand", heading="Job", kind=Whole(least=1, most=3),
        help="ZeRO stage 1 to 3, short for --strategy zeroN.", axis=Axis(),
        called={"": "zero-stage stage"},
    ),
    Option(
        name="micro_batch", common=True,
        heading="Job", kind=Whole(least=1, most=1_000_000, or_max=True),
        unit="samples",
        help="Samples per GPU and micro-step; max: the most that fit in memory.",
        more="Default: that of the model's record.",
        axis=Axis(of="batch"), in_launch=True, resolved="micro_batch",
        control=Control(label="Micro-batch, samples per GPU", group="Job", kind="slider",
                        most_letters=8, example="4", wide=True, values="1,2,4,8,16"),
        called={"": "batch batch-size bs b mbs micro-batch-size per-device-train-batch-size "
                    "train-micro-batch-size-per-gpu local-batch-size batch-per-gpu"},
        launch_keys={"deepspeed": "train_micro_batch_size_per_gpu",
                     "megatron": "micro-batch-size batch-size"},
    ),
    Option(
        name="grad_accum", heading="Job", kind=Whole(), unsaid=1, unit="micro-batches",
        help="Micro-batches per step (gradient accumulation).", axis=Axis(of="batch"),
        in_launch=True, resolved="grad_accum",
        control=Control(label="Micro-batches per step", group="Job", place=1, example=2,
                        values="1,2,4,8,16"),
        called={"": "gradient-accumulation-steps gradient-accumulation accumulation accum ga "
                    "grad-acc accumulate"},
        launch_keys={"deepspeed": "gradient_accumulation_steps",
                     "trainer": "gradient-accumulation-steps"},
    ),
    Option(
        name="global_batch", common=True, heading="Job", kind=Whole(), unit="samples",
        help="Samples per step over all GPUs, instead of --grad-accum.", axis=Axis(of="batch"),
        more="Default: micro-batch x grad-accum x replicas.",
        resolved="global_batch",
        control=Control(label="Global batch, samples per step", example=256,
                        values="64,128,256,512,1024"),
        called={"": "global-batch-size gbs train-batch-size total-batch-size"},
        messages=(r"^give --global-batch",),
    ),
    Option(
        name="precision", common=True, heading="Job",
        kind=Name("simcore.strategy.precision:PRECISIONS",
                  judged=True),
        help="Number format: fp32, fp32-ieee, tf32, amp-fp16, amp-bf16, fp16, bf16, fp16-true, "
             "bf16-true, fp8, fp8-true, mxfp8, nvfp4, mxfp4.",
        more="Format of weights and matrix products; fp16-true, bf16-true and fp8-true (fp8 "
             "products of bf16 weights) keep no fp32 copy of the weights. Default: that of the "
             "model's record.",
        axis=Axis(), in_launch=True, resolved="strategy.precision.name",
        control=Control(label="Precision", group="Job", place=2, example="bf16",
                        values="tf32,bf16,fp8"),
        called={
            "": "dtype torch-dtype mixed-precision amp data-type", "bf16": "bf16 bfloat16",
            "fp16": "fp16 float16 half", "fp8": "fp8",
        },
        messages=(
            r"\bprecision\b", r"\bfp8\b", r"\bbf16\b", r"\btf32\b", r"\bnvfp4\b", r"\bfp16\b",
        ),
    ),
    Option(
        name="optimizer", common=True, heading="Job",
        kind=Name("simcore.strategy.optimizers:OPTIMIZERS",
                  judged=True),
        help="adamw, adam, sgd, sgd-plain, adamw-8bit, adafactor, lion ...: `simcore list "
             "optimizers`.",
        more="Default: that of the model's record.",
        axis=Axis(), in_launch=True, resolved="strategy.optimizer.name",
        control=Control(label="Optimizer", group="Strategy", place=2, example="adamw",
                        values="adamw,adamw-8bit,adafactor,sgd"),
        called={"": "optim optimiser opt"},
    ),
    Option(
        name="recompute", common=True, heading="Job",
        kind=Name("simcore.strategy.strategy:Recompute", metavar="MODE", for_true=("none", "full"),
                  judged=True),
        help="Activation checkpointing: none, selective or full.",
        more="Default: that of the model's record or of the training program.",
        axis=Axis(), in_launch=True, resolved="strategy.recompute",
        control=Control(label="Recompute", group="Strategy", place=1, example="full",
                        values="none,full"),
        called={"": "activation-checkpoint checkpointing ac recompute-granularity",
                "full": "gradient-checkpointing activation-checkpointing"},
    ),
    Option(
        name="launch", common=True, heading="Job", kind=File(metavar="FILE|FLAGS"),
        help="Take options from a launch file or a quoted command: DeepSpeed JSON, Megatron "
             "flags, torchtitan TOML, Accelerate YAML, torchrun. Options given here override it.",
        more="Default: none.",
        called={"": "config-file deepspeed deepspeed-config ds-config launch-file from-config"},
    ),
    Option(
        name="steps", common=True,
        part="length", heading="Job", kind=Number(counts=True, metavar="N"),
        unit="steps", help="Length of the run in steps: its time, cost and energy are told too.",
        control=Control(label="Steps of the run", group="Run", most=10**11, example=100000),
        called={"": "max-steps train-iters iterations"}, messages=(r"^give --steps",),
    ),
    Option(
        name="epochs", common=True,
        part="length", heading="Job", kind=Number(metavar="N"), unit="epochs",
        help="Length of the run in epochs of the model's data set, or of --epoch-samples.",
        control=Control(label="Epochs of the run", group="Run", most=10**11, fine=True, example=10),
        called={"": "num-epochs num-train-epochs"},
        messages=(r"has no data set", r"is larger than data set"),
    ),
    Option(
        name="tokens", common=True,
        part="length", heading="Job", kind=Number(counts=True, metavar="N"),
        unit="tokens", help="Length of the run in tokens: 300B, 15T.",
        control=Control(label="Tokens of the run", group="Job", place=8, most=10**17, hint="300B",
                        example=300_000_000_000),
        called={"": "train-tokens total-tokens num-tokens"},
    ),
    Option(
        name="deadline", common=True, part="run", heading="Job", kind=Text(metavar="TIME"),
        help="The probability that the run ends in time is told: 30d, 12h, 2026-12-24.",
        control=Control(label="Deadline of the run", group="Run", hint="30d", example="30d"),
        called={"": "until"},
    ),
    Option(
        name="cost", common=True, part="run", heading="Job", kind=Switch(),
        help="Tell the cost of an hour and of a million tokens (samples).",
        control=Control(label="Cost", group="Run", example="on"),
        called={"on": "costs dollars"},
    ),
    Option(
        name="price", part="run", heading="Job",
        kind=Texts(such_as="H100=2.5", metavar="GPU=DOLLARS"),
        help="Price of a GPU and hour, instead of the price lists: H100=2.5.",
        control=Control(label="Price of a GPU and hour", kind="text", group="Run", hint="H100=2.5",
                        example="H100=2.5"),
    ),
    Option(
        name="prices", part="run", heading="Job",
        kind=Text(names="simcore.hardware.prices:PRICES", metavar="LIST"),
        help="Use one price list only: `simcore list prices`.",
    ),
)  # fmt: skip
