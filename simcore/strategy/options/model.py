"""Options under the heading "Model": size of a sample, kernels, adapters."""

from __future__ import annotations

from simcore.strategy.options.option import Axis, Control, Name, Option, Pairs, Switch, Text, Whole

#: What --qlora stands for.
QLORA = {"lora_rank": "16", "quantised_base": "nf4"}

DECLARED = (
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
        kind=Text(check="simcore.strategy.options.values:sides", metavar="N|HxW"),
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
             "else flash2. cudnn_fp8: attention in 8 bits (Transformer "
             "Engine's fp8_dpa); masked: the kernel that torch picks in transformers for padded "
             "batches and windows; eager: that of transformers with the softmax in fp32. "
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
        kind=Name(("none", "nf4", "nf4-single", "int8", "fp8"), metavar="FORMAT", judged=True),
        help="Number format of the frozen base weights under adapters: none (not quantised), nf4, "
             "nf4-single (scales not quantised again), int8 or fp8.", unsaid="none", in_launch=True,
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
