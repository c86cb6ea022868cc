"""The U-Net of latent diffusion (Rombach et al. 2022; SDXL: Podell et al. 2023).

Operators follow diffusers' ``UNet2DConditionModel``, one entry per kernel: residual blocks that
take the time step, and at some resolutions transformers over the latent's points that attend to a
caption. Tensors are channels first unless stated otherwise. Autocast runs both kinds of norm in
fp32 and everything between them in 16 bit.
"""

from __future__ import annotations

from typing import Literal

from simcore.base.record import dataclass
from simcore.workload import ops
from simcore.workload.archs import ARCHS, Adapters, adapters, check_names
from simcore.workload.archs.body import Body, check_targets
from simcore.workload.archs.lm_attention import FLASH
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Frozen, Kernel, Op, Workload
from simcore.workload.saved import Saved

_GROUPS = 32
#: math: scores in memory; flash1: xformers, before torch had its own kernel; flash:
#: FlashAttention-2.
MODES = ("math", "flash", "flash1")
#: Products to which diffusers' scripts add adapters
#: (examples/text_to_image/train_text_to_image_lora.py).
_ADAPTED = "to_q,to_k,to_v,to_out.0"
_ENCODED_BYTES, _TOKEN_BYTES = 2.0, 8.0
_PIXEL_BYTES = 12.0  # three colours in fp32
#: Traffic (in multiples of the latent) and launches. Noise: a normal draw, random steps, two
#: look-ups of schedule factors, two products and their sum. Loss: the squared error's difference,
#: square and mean, and their backward.
_NOISE_TRAFFIC, _NOISE_LAUNCHES = 8.0, 14.0
_LOSS_TRAFFIC, _LOSS_LAUNCHES = 6.0, 3.0
_LOSS_GRAD_TRAFFIC, _LOSS_GRAD_LAUNCHES = 6.0, 3.0


@dataclass(frozen=True, kw_only=True)
class _Net:
    widths: tuple[int, ...]
    depths: tuple[int, ...]  # layers of the transformers of each level, 0: none
    heads: tuple[int, ...]
    context: int  # rows of the caption
    context_width: int
    projects: Literal["linear", "conv"]
    attention: str
    channels_last: bool
    adapters: Adapters | None

    @property
    def step_width(self) -> int:
        return 4 * self.widths[0]


class _Tape(Tape):
    """A tape that is frozen if adapters are trained.

    Operators before the first adapter have no gradient and save nothing.
    """

    def __init__(self, net: _Net) -> None:
        super().__init__(nchw=not net.channels_last)
        self.frozen = net.adapters is not None
        self.bodies: list[Body] = []


def _norm_silu(tape: _Tape, name: str, x: T) -> T:
    """Norm and SiLU, both fp32 under autocast, and a cast for the following convolution."""
    h = tape.act(name, tape.group_norm(name, x, _GROUPS), "silu")
    return tape.narrow(f"{name}.down", h)


def _conv(tape: _Tape, name: str, x: T, cout: int, kernel: int = 3, *, stride: int = 1) -> T:
    return tape.conv(name, x, cout, kernel, stride=stride, bias=True)


def _resnet(tape: _Tape, net: _Net, x: T, cout: int) -> T:
    """A block of two norms and convolutions; the step's row is added between them."""
    start = x
    h = _conv(tape, "conv1", _norm_silu(tape, "norm1", x), cout)
    step = net.step_width
    row = T(step, (1,), grad=not tape.frozen)
    tape.op(ops.activation("time.silu", step, saves="none"), grad=row.grad)
    tape.op(ops.linear("time", 1, step, cout, bias=True), grad=row.grad)
    tape.op(ops.accumulate("time.fork", step), grad=row.grad)
    tape.weights("time", step * cout, cout)
    tape.read(h, save=False)
    added = Kernel(kind="elementwise", low=2 * h.elems + cout, indexed=h.elems)
    back = Kernel(kind="reduction", low=h.elems + cout)
    tape.op(Op(name="time.add", fwd=(added,), bwd=(back,)), grad=row.grad)
    h = _conv(tape, "conv2", _norm_silu(tape, "norm2", T(cout, h.grid, grad=h.grad)), cout)
    if x.c != cout:
        # norm1 saves this input, but under autocast in fp32, so that a 16-bit copy is saved too.
        held = T(x.c, x.grid, pinned=True, grad=x.grad)
        tape.read(x, save=False)
        if not tape.frozen or x.grad:
            tape.op(Op(name="shortcut.input", fwd=(), saved=Saved(autocast=x.elems)))
        x = _conv(tape, "shortcut", held, cout, 1)
    out = tape.add("sum", x, h)
    tape.op(ops.scale("sum.scale", out.elems), grad=out.grad)  # the factor is one
    tape.block("resnet", boundary=Saved(low=start.elems))
    return out


def _attend(body: Body, net: _Net, name: str, points: int, width: int, heads: int) -> None:
    """Add norm, attention to the points themselves or (``cross``) to the caption, and the sum."""
    cross = name == "cross"
    elems, norm = float(points * width), f"{name}.norm"
    cast = ops.autocast_cast(elems)
    body.add(Op(name=f"{norm}.up", fwd=(cast,), bwd=(cast,)))
    body.norm(norm, points, width, "layernorm")
    body.linear(f"{name}.q", points, width, width, reads=norm)
    keys, reads, k_width = (
        (net.context, "caption", net.context_width) if cross else (points, norm, width)
    )
    for part in "kv":
        body.linear(f"{name}.{part}", keys, k_width, width, reads=reads, input_grad=not cross)
    if not cross:
        body.add(ops.accumulate(f"{name}.forks", elems, times=2, high=True))
    head = width // heads
    if net.attention == "math":
        body.add(*ops.attention_eager(f"{name}.core", heads, points, keys, head, scaled=False))
    else:
        body.add(ops.sdpa(f"{name}.core", 1, heads, heads, points, keys, head,
                          kind=FLASH[net.attention]))  # fmt: skip
        body.kept.add(f"{name}.context")
    body.linear(f"{name}.attention.out", points, width, width, bias=True, reads=f"{name}.context")
    body.add(ops.scale(f"{name}.rescale", elems))  # the factor is one
    _sum(body, name, elems)


def _sum(body: Body, name: str, elems: float) -> None:
    """Add a residual sum in 16 bit, and in backward the sum of the two gradients."""
    body.add(ops.binary(f"{name}.sum", elems, grads=0), ops.accumulate(f"{name}.fork", elems))


def _feed_forward(body: Body, points: int, width: int) -> None:
    """Add GEGLU: one product gives both halves; GELU's input and its factor are views of it."""
    inner, elems = 4.0 * points * width, float(points * width)
    cast = ops.autocast_cast(elems)
    body.add(Op(name="ff.norm.up", fwd=(cast,), bwd=(cast,)))
    body.norm("ff.norm", points, width, "layernorm")
    body.linear("ff.up", points, width, 8 * width, bias=True, reads="ff.norm")
    gelu = Kernel(kind="elementwise", low=2 * inner, indexed=inner)
    product = Kernel(kind="elementwise", low=3 * inner, indexed=inner)
    body.add(
        Op(
            name="ff.geglu",
            fwd=(gelu, product),
            bwd=(
                Kernel(kind="elementwise", low=3 * inner),  # gradient of the factor
                product,  # gradient of GELU's result
                product,  # gradient of GELU's input
                Kernel(kind="copy", low=4 * inner),  # halves joined
            ),
            saved=Saved(low=3 * inner),
        )
    )
    body.linear("ff.down", points, 4 * width, width, bias=True, reads="ff.gated")
    _sum(body, "ff", elems)


def _transformer(tape: _Tape, net: _Net, x: T, depth: int, heads: int) -> T:
    """Norm, projection, ``depth`` layers over the points, projection, sum.

    Each layer is a block.
    """
    points = int(x.points)
    layout = ops.copy("layout", x.elems)  # channels last, and back

    def project(name: str, h: T) -> T:
        first = name == "proj_in"
        if not net.channels_last and (first == (net.projects == "linear")):
            tape.op(layout, grad=h.grad)
        h = tape.linear(name, h, h.c) if net.projects == "linear" else _conv(tape, name, h, x.c, 1)
        if not net.channels_last and (first == (net.projects == "conv")):
            tape.op(layout, grad=h.grad)
        return h

    h = project("proj_in", tape.narrow("norm.down", tape.group_norm("norm", x, _GROUPS)))
    tape.block("transformer start")
    for _ in range(depth):
        body = Body(net.adapters)
        body.kept.add("caption")
        _attend(body, net, "self", points, x.c, heads)
        _attend(body, net, "cross", points, x.c, heads)
        _feed_forward(body, points, x.c)
        for op in body.ops:
            tape.op(op)
        for p in body.params:  # with adapters, only theirs
            tape.trained(p.name, p.numel)
        tape.resident += body.frozen_numel
        tape.bodies.append(body)
        tape.block("transformer layer", boundary=Saved(low=h.elems))
    h = project("proj_out", T(x.c, x.grid))
    out = tape.add("transformer.sum", h, x)
    tape.block("transformer end")
    return out


def _step(tape: _Tape, net: _Net, pooled: int) -> None:
    """Add sinusoids of the step and two products; SDXL has these for caption and sizes too."""

    def embedder(name: str, width: int) -> None:
        wide = net.step_width
        row = T(wide, (1,), grad=not tape.frozen)
        tape.op(ops.linear(f"{name}.1", 1, width, wide, bias=True, input_grad=False), grad=row.grad)
        tape.op(ops.activation(f"{name}.silu", wide), grad=row.grad)
        tape.op(ops.linear(f"{name}.2", 1, wide, wide, bias=True), grad=row.grad)
        tape.weights(f"{name}.1", width * wide, wide)
        tape.weights(f"{name}.2", wide * wide, wide)

    features = Kernel(kind="elementwise", high=8.0 * net.widths[0], launches=10.0)
    tape.op(Op(name="step.features", fwd=(features,)))
    embedder("step", net.widths[0])
    if pooled:
        tape.op(Op(name="sizes.features", fwd=(features,)))
        embedder("pooled", pooled)
        tape.op(ops.binary("step.sum", net.step_width, grads=0))
    tape.op(ops.keep("step.row", net.step_width))


def _numbers(text: str | int, levels: int) -> tuple[int, ...]:
    """Numbers separated by blanks, one per level; a single number stands for all levels."""
    numbers = tuple(int(word) for word in str(text).split())
    return numbers * levels if len(numbers) == 1 else numbers


@ARCHS.register("latent_unet")
def build(
    *,
    name: str,
    sample_unit: str = "image",
    image: int = 512,
    widths: str = "320 640 1280 1280",
    transformer_layers: str = "1 1 1 0",
    middle_layers: int = 1,
    heads: str = "8",
    resnets: int = 2,
    text_tokens: int = 77,
    text_width: int = 768,
    pooled_width: int = 0,
    projections: Literal["linear", "conv"] = "conv",
    attention: str = "flash",
    layout: str = "nchw",
    vae_factor: int = 8,
    in_channels: int = 4,
    encoded: bool = False,
    captions_encoded: bool = False,
    encoders_held: bool = False,
    lora_rank: int = 0,
    lora_targets: str = "",
) -> Workload:
    """A U-Net on the latent of one square image and an encoded caption.

    Numbers per level, separated by blanks: ``widths``, ``transformer_layers`` (of each transformer
    of that level, 0: none) and ``heads``.

    - ``projections``: kind of the layers before and after a transformer.
    - ``layout``: nhwc if tensors are channels last.
    - ``pooled_width``: width of SDXL's second condition.
    - ``encoded``: the inputs are latents and encoded captions; false: pixels and tokens, for
      encoders that run in the step; ``captions_encoded``: captions were encoded beforehand.
    - ``encoders_held``: encoders that ran before the first step stay on the device all the same
      (``workload.models`` counts them).
    - ``lora_rank`` > 0: adapters on products of the transformers' layers (``archs.body``),
      everything else is frozen; on q, k, v and out if no targets are named.
    """
    check_names(
        attention=(attention, MODES),
        projections=(projections, ("linear", "conv")),
        layout=(layout, ("nchw", "nhwc")),
    )
    levels = len(widths.split())
    net = _Net(
        widths=_numbers(widths, levels), depths=_numbers(transformer_layers, levels),
        heads=_numbers(heads, levels), context=text_tokens, context_width=text_width,
        projects=projections, attention=attention, channels_last=layout == "nhwc",
        adapters=adapters(lora_rank, lora_targets or _ADAPTED * bool(lora_rank), "none"),
    )  # fmt: skip
    if not len(net.depths) == len(net.heads) == levels:
        raise ValueError("widths, transformer_layers and heads must have one number a level")
    if any(w % h for w, h in zip(net.widths, net.heads, strict=True)):
        raise ValueError("widths must be multiples of heads")
    if resnets < 1 or text_tokens < 1:
        raise ValueError("resnets and text_tokens must be at least 1")
    patch = 2 ** (levels - 1)
    if image % (vae_factor * patch) or image <= 0:
        raise ValueError(f"image={image} must be a multiple of {vae_factor} x patch={patch}")
    latent = T(in_channels, (image // vae_factor,) * 2)
    tape = _Tape(net)
    noise = Kernel(kind="elementwise", high=_NOISE_TRAFFIC * latent.elems, launches=_NOISE_LAUNCHES)
    tape.op(Op(name="noise", fwd=(noise,)))
    _step(tape, net, pooled_width)
    x = _levels(tape, net, latent, resnets, middle_layers)
    x = _conv(tape, "conv_out", _norm_silu(tape, "norm_out", x), in_channels)
    _loss(tape, latent)
    tape.block("output")
    caption = _ENCODED_BYTES * (text_tokens * text_width + pooled_width)
    inputs = _ENCODED_BYTES * latent.elems + caption
    if not encoded:
        tokens = _TOKEN_BYTES * text_tokens
        inputs = _PIXEL_BYTES * image**2 + (caption if captions_encoded else tokens)
    made = tape.workload(name, sample_unit, input_bytes=inputs, tokens=latent.points)
    if net.adapters is None:
        return made
    check_targets(net.adapters, tape.bodies)
    base = Frozen(name="frozen base", resident_numel=tape.resident, ops=())
    forward, backward = (
        sum(
            k.flop
            for block in made.instances()
            for op in block.ops
            for k in getattr(op, side)
            if not k.kind.startswith("attention")
        )
        for side in ("fwd", "bwd")
    )
    note = f"adapters of rank {lora_rank} without dropout; the frozen base is whole on every rank"
    return made.replace(frozen=(base,), frozen_weight_flop=2 * forward - backward, notes=(note,))


def _levels(tape: _Tape, net: _Net, latent: T, resnets: int, middle_layers: int) -> T:
    x = _conv(tape, "conv_in", tape.input(latent.c, latent.grid), net.widths[0])
    tape.block("input")
    skips, last = [x], len(net.widths) - 1
    for level, width in enumerate(net.widths):
        for _ in range(resnets):
            x = _resnet(tape, net, x, width)
            if net.depths[level]:
                x = _transformer(tape, net, x, net.depths[level], net.heads[level])
            skips.append(x)
        if level < last:
            x = _conv(tape, "downsample", x, width, stride=2)
            skips.append(x)
            tape.block("downsample")
    x = _resnet(tape, net, x, x.c)
    if middle_layers:
        x = _transformer(tape, net, x, middle_layers, net.heads[-1])
    x = _resnet(tape, net, x, x.c)
    for level in reversed(range(len(net.widths))):
        for _ in range(resnets + 1):
            parts = [x, skips.pop()]
            x = tape.concat("skip", parts)
            tape.block("join")
            x = _resnet(tape, net, x, net.widths[level])
            if net.depths[level]:
                x = _transformer(tape, net, x, net.depths[level], net.heads[level])
        if level:
            x = _conv(tape, "upsample", tape.upsample("nearest", x, 2), x.c)
            tape.block("upsample")
    return x


def _loss(tape: Tape, latent: T) -> None:
    fp32_bytes = 4.0 * latent.elems
    fwd = Kernel(kind="elementwise", raw_bytes=_LOSS_TRAFFIC * fp32_bytes, launches=_LOSS_LAUNCHES)
    bwd = Kernel(
        kind="elementwise", raw_bytes=_LOSS_GRAD_TRAFFIC * fp32_bytes, launches=_LOSS_GRAD_LAUNCHES
    )
    tape.op(Op(name="loss", fwd=(fwd,), bwd=(bwd,), saved=Saved(raw_bytes=2 * fp32_bytes)))
