"""The frozen image autoencoder of latent diffusion (Rombach et al. 2022), encoder only.

``AutoencoderKL`` of diffusers as sd-vae-ft-ema configures it: GroupNorm(32) + SiLU + 3x3
convolutions, two residual blocks per level, one single-head attention at the lowest resolution.
"""

from __future__ import annotations

from simcore.workload import ops
from simcore.workload.archs import FROZEN_ARCHS
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Frozen, Kernel, Op

_GROUPS = 32
_MULTIPLIERS = (1, 2, 4, 4)
_IMAGE_CHANNELS = 3
#: Tensors that are live at the end of a level's second residual block: the level's input (the
#: encoder still holds it), the block's input, its last convolution, their sum, and the sum divided
#: by a scale of one.
_LIVE_TENSORS = 5.0


def _norm_silu(tape: Tape, name: str, x: T) -> T:
    return tape.act(name, tape.group_norm(name, x, _GROUPS, autocast=False), "silu")


def _scaled_sum(tape: Tape, name: str, x: T, y: T) -> T:
    """``(x + y) / scale``: the division runs although the scale is one."""
    out = tape.add(f"{name}.add", x, y)
    tape.op(ops.scale(f"{name}.scale", out.elems), grad=False)
    return out


def _resnet(tape: Tape, name: str, x: T, channels: int) -> T:
    y = tape.conv(f"{name}.1", _norm_silu(tape, f"{name}.1", x), channels, 3, bias=True)
    y = tape.conv(f"{name}.2", _norm_silu(tape, f"{name}.2", y), channels, 3, bias=True)
    if x.c != channels:
        x = tape.conv(f"{name}.shortcut", x, channels, 1, bias=True)
    return _scaled_sum(tape, name, x, y)


def _downsample(tape: Tape, name: str, x: T) -> T:
    padded = x.share * (x.grid[0] + 1) ** 2 * x.c
    pad = Kernel(kind="copy", low=padded + x.elems)
    fill = Kernel(kind="elementwise", low=padded)
    tape.op(Op(name=f"{name}.pad", fwd=(fill, pad)))
    return tape.conv(name, x, x.c, 3, stride=2, bias=True)


def _attention(tape: Tape, name: str, x: T) -> T:
    """Attention of one head.

    The normalised map is a transposed view: each layer copies it and adds its bias separately.
    """
    c, tokens = x.c, x.grid[0] * x.grid[1]
    tape.group_norm(name, x, _GROUPS, autocast=False)
    products = [ops.linear(f"{name}.{part}", x.points, c, c) for part in ("q", "k", "v", "out")]
    for op in products[:3]:
        tape.op(ops.copy(f"{op.name}.layout", x.elems), grad=False)
        tape.op(op, grad=False)
        tape.op(Op(name=f"{op.name}.bias", fwd=(ops.added_bias(x.elems, c),)))
    tape.op(ops.sdpa(f"{name}.sdpa", x.share, 1, 1, tokens, tokens, c), grad=False)
    tape.op(products[3], grad=False)
    tape.weights(name, 4 * c * c, 4 * c)
    return _scaled_sum(tape, name, x, x)


@FROZEN_ARCHS.register("autoencoder_kl_encoder")
def autoencoder_kl_encoder(
    *, name: str, image: int = 256, frames: int = 1, base_channels: int = 128, resnets: int = 2,
    latent_channels: int = 4, quant_conv: bool = True, decoder_numel: int = 49_490_199,
    stored_moments: bool = False,
) -> Frozen:  # fmt: skip
    """The encoder of ``frames`` images per sample in one call; latents are drawn at random.

    - ``quant_conv``: there is a 1x1 convolution of the moments (not in Flux's and Stable Diffusion
      3's).
    - ``stored_moments``: the data set contains the moments, so that the encoder is resident and
      only draws from the posterior.
    - ``decoder_numel``: parameters of the decoder and its 1x1 convolution, resident but never run
      (49,490,199 in sd-vae-ft-ema).
    """
    channels = [base_channels * m for m in _MULTIPLIERS]
    factor = 2 ** (len(channels) - 1)
    if image % factor or image <= 0:
        raise ValueError(f"image={image} must be a multiple of {factor}")
    tape = Tape()
    tape.frozen = True
    x = tape.conv(
        "conv_in", tape.input(_IMAGE_CHANNELS, (image, image), frames), channels[0], 3, bias=True
    )
    transient = 0.0
    for level, width in enumerate(channels):
        for i in range(resnets):
            x = _resnet(tape, f"down.{level}.{i}", x, width)
        transient = max(transient, _LIVE_TENSORS * x.elems)
        if level < len(channels) - 1:
            x = _downsample(tape, f"down.{level}", x)
    x = _resnet(tape, "mid.0", x, x.c)
    x = _attention(tape, "mid.attn", x)
    x = _resnet(tape, "mid.1", x, x.c)
    moments = 2 * latent_channels
    x = tape.conv("conv_out", _norm_silu(tape, "out", x), moments, 3, bias=True)
    if quant_conv:
        x = tape.conv("quant_conv", x, moments, 1, bias=True)
    tape.block("encoder")
    # Clamp, halving, two exponentials, noise, product, sum, scaling.
    draw = Kernel(kind="elementwise", low=17 * x.elems / 2, launches=8.0)
    encoder = () if stored_moments else tape.blocks[0].ops
    return Frozen(
        name=name,
        resident_numel=tape.resident + decoder_numel,
        ops=(*encoder, Op(name="sample", fwd=(draw,))),
        transient_low=0.0 if stored_moments else transient,
    )
