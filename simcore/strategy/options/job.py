"""Options under the headings "Job" and "Model": what is trained, where, in which batches."""

from __future__ import annotations

from simcore.strategy.options.option import (
    Axis,
    Control,
    File,
    Name,
    Number,
    Option,
    Pairs,
    Switch,
    Text,
    Texts,
    Whole,
)

#: Positions of the slider for the micro-batch on the web page.
BATCHES = (1, 2, 3, 4, 5, 6, 8, 10, 12, 16, 20, 24, 32, 40, 48, 64, 96, 128, 192, 256)

#: What --qlora stands for.
QLORA = {"lora_rank": "16", "quantised_base": "nf4"}


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
        help="Cluster as NODESxGPUSxTYPE, or machines such as 4xDGX-H100 and 2xp5.48xlarge; parts "
             "are joined by + where GPU types are mixed.",
        control=Control(label="", group="Cluster", kind="error", place=9, most_letters=200,
                        example="4x8xA6000ada"),
        called={"": "gpu gpu-type num-gpus ngpus n-gpus world-size cluster hardware device devices "
                    "g"},
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
        called={"": "zero-stage stage", "1": "zero1", "2": "zero2", "3": "zero3"},
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
                "full": "grad-checkpointing gradient-checkpointing activation-checkpointing"},
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
    Option(
        name="settings", flag="--set", heading="Model", kind=Pairs(),
        help="Settings of the model: --set layers=16. Separate several by blanks or repeat "
             "--set. A model arch:NAME needs all of its dimensions.",
        more="A setting is a key of the model's config in models_db. It overrides the value that "
             "the training program would set. Default: those of its record.",
        control=Control(label="Settings of the model", hint="layers=16", most_letters=4000,
                        wide=True, example="layers=16 hidden=2048"),
        messages=(r"^--set ", r"needs its dimensions", r"or --set ", r"no settings to change"),
    ),
    Option(
        name="seq_len", common=True,
        heading="Model", kind=Whole(binary=True, or_max=True), unit="tokens",
        help="Sequence length, for models that have one; max: the longest that fits in memory.",
        more="Default: that of the model's record.",
        axis=Axis(of="workload"), in_launch=True, setting="has no sequence length to change",
        control=Control(label="Sequence length", group="Job", place=1, example=2048,
                        values="1024,2048,4096,8192"),
        called={"": "sequence-length seq-length seqlen context-length context max-seq-length "
                    "max-length max-seq-len ctx block-size s"},
        launch_keys={"megatron": "seq-length encoder-seq-length"},
        messages=(r"sequence",),
    ),
    Option(
        name="mean_seq_len", heading="Model", kind=Whole(binary=True), unit="tokens",
        help="Mean length of sequences that vary up to --seq-len: time is of the mean, memory of "
             "the longest.",
        more="Default: that of seq_len.",
        axis=Axis(of="workload"),
        control=Control(label="Mean length of sequences", unsaid="as long as the longest",
                        example=1300),
        called={"": "average-seq-len avg-seq-len mean-length average-length"},
    ),
    Option(
        name="packing", heading="Model", kind=Switch(), unsaid=False,
        help="Samples of --seq-len tokens are packed with sequences of --mean-seq-len, which "
             "attend only to themselves.",
        control=Control(label="Packed samples", unsaid="off", example="on"),
        called={"on": "sample-packing neat-packing packing-attn"},
    ),
    Option(
        name="resolution", heading="Model", unit="pixels",
        kind=Text(check="simcore.strategy.options:sides", metavar="N|HxW"),
        help="Image size in pixels: 512 (square) or 480x832 (height x width), for models of "
             "images.",
        more="Default: that of the model's record.",
        in_launch=True, axis=Axis(of="workload"),
        control=Control(label="Resolution of images", hint="480x832", example="480x832"),
        called={"": "image-size img-size size image"},
        messages=(r"\bresolution\b", r"\b(?:image|height|width)="),
    ),
    Option(
        name="frames", heading="Model", kind=Whole(), unit="frames",
        help="Frames per video clip, for models of video.",
        more="Default: that of the model's record.",
        in_launch=True, axis=Axis(of="workload"), setting="has no frames to change",
        control=Control(label="Frames of a clip", example=16), messages=(r"\bframes\b",),
    ),
    Option(
        name="layout", heading="Model",
        kind=Name(("nchw", "nhwc"), judged=True,
                  also={"channelslast": "nhwc", "channelsfirst": "nchw"}),
        help="Memory layout of image tensors in a convolutional network: nchw (PyTorch's "
             "default) or nhwc (channels last: TensorFlow in 16 bit, tuned PyTorch).",
        in_launch=True, axis=Axis(), setting="has no layout of tensors to choose",
        control=Control(label="Layout of images", unsaid="as the model has it", example="nhwc"),
        called={"": "data-format memory-format", "nhwc": "channels-last"},
        messages=(r"\blayout\b",),
    ),
    Option(
        name="attention", heading="Model",
        kind=Name("simcore.workload.archs.lm_attention:ATTENTIONS",
                  judged=True),
        help="Attention kernel: flash (the one that torch picks: cudnn on H100, B200 and similar "
             "GPUs, else flash2), flash2, flash3, flash4, cudnn, flash1, flash_triton, masked "
             "(padded batches), fused_softmax, xla, math.",
        more="For models whose record names a kernel. flash_first: what torch picked before 2.10 "
             "(flash2 on H100). flash_newest: flash3 on Hopper, flash4 on B200 and similar GPUs, "
             "else flash2. cudnn_first: before cuDNN 9.4. cudnn_fp8: attention in 8 bits "
             "(Transformer Engine's fp8_dpa); masked: the kernel that torch picks in transformers "
             "for padded batches and windows; eager: transformers' with the softmax in fp32. "
             "Default: that of the model's record or the training program.",
        axis=Axis(), in_launch=True, setting="has no attention kernel to choose",
        control=Control(label="Attention kernel", unsaid="as the model runs", example="cudnn"),
        called={"": "attn attn-implementation attention-backend attn-impl",
                "flash": "flash-attn use-flash-attn flash-attention flash-attention-2"},
        messages=(r"\battention\b",),
    ),
    Option(
        name="lora_rank", common=True, heading="Model", kind=Whole(),
        help="Train LoRA adapters of rank N (alone: 16) and freeze the base model (transformer "
             "models). Sequences are of 2,048 tokens then, where --seq-len is not given.",
        more="Default: no adapters, all weights are trained.",
        axis=Axis(of="workload"), in_launch=True, setting="takes no adapters",
        control=Control(label="LoRA rank", group="Job", place=-7, most=4096, example=16,
                        values="8,16,32,64"),
        called={"": "lora lora-r rank r"}, messages=(r"adapter",),
    ),
    Option(
        name="qlora", common=True, part="shorthand", heading="Model", kind=Switch(),
        stands_for=QLORA, unsaid=False,
        help="QLoRA: --lora-rank 16 --quantised-base nf4, where these are not given.",
    ),
    Option(
        name="lora_targets", heading="Model", kind=Text(metavar="LIST"),
        help="Linear layers that get a LoRA adapter: q_proj,v_proj or all-linear.",
        more="Default: all-linear, or as the training program.",
        in_launch=True, setting="takes no adapters",
        control=Control(label="LoRA targets", hint="q_proj,v_proj", example="q_proj,v_proj"),
        called={"": "target-modules lora-target-modules"},
        messages=(r"no product",),
    ),
    Option(
        name="quantised_base", heading="Model",
        kind=Name(("none", "nf4", "nf4-single", "gptq", "int8", "fp8"), metavar="FORMAT",
                  judged=True),
        help="Number format of the frozen base weights under adapters: none (not quantised), nf4, "
             "nf4-single (scales not quantised again), gptq (4 bits), int8 or fp8.",
        unsaid="none", in_launch=True,
        setting="has no frozen base to quantise",
        control=Control(label="Quantised base", unsaid="none", example="nf4"),
        called={"": "quantization quantisation quantized-base bits", "nf4": "load-in-4bit",
                "int8": "load-in-8bit"},
    ),
    Option(
        name="compile", heading="Model", kind=Switch(), in_launch=True, resolved="compiled",
        help="Run under torch.compile, which fuses the operators between matrix products into one "
             "kernel (language models).", unsaid=False,
        control=Control(label="torch.compile", unsaid="off", example="on"),
        called={"on": "torch-compile inductor dynamo"},
    ),
)  # fmt: skip
