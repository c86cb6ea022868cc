"""The frozen image autoencoder of latent diffusion (Rombach et al. 2022), encoder only.

``AutoencoderKL`` of diffusers as sd-vae-ft-ema configures it: GroupNorm(32) + SiLU + 3x3
convolutions, two residual blocks per level, one single-head attention at the lowest resolution.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from simcore.workload import ops
from simcore.workload.archs import FROZEN_ARCHS
from simcore.workload.graph import Frozen, Kernel, Op
from simcore.workload.saved import NOTHING

_GROUPS = 32
_MULTIPLIERS = (1, 2, 4, 4)
_IMAGE_CHANNELS = 3
#: Tensors that are live at the end of a level's second residual block: the level's input (the
#: encoder still holds it), the block's input, its last convolution, their sum, and the sum divided
#: by a scale of one.
_LIVE_TENSORS = 5.0


def _conv_params(cin: int, cout: int, kernel: int) -> int:
    return cin * cout * kernel * kernel + cout


@dataclass(slots=True)
class _Builder:
    """Walks the network and collects its ops and the number of its parameters."""

    frames: int
    ops: list[Op]
    numel: int = 0

    def add(self, *parts: Op) -> None:
        self.ops.extend(replace(op, bwd=(), saved=NOTHING) for op in parts)

    def conv(self, name: str, size: int, cin: int, cout: int, kernel: int, stride: int = 1) -> None:
        self.numel += _conv_params(cin, cout, kernel)
        side = size // stride
        self.add(
            ops.conv(
                name, (size, size), (side, side), cin, cout, kernel, stride=stride,
                images=self.frames, bias=True,
            )
        )  # fmt: skip

    def norm(self, name: str, size: int, channels: int, *, silu: bool = True) -> None:
        self.numel += 2 * channels
        elems = float(self.frames) * size * size * channels
        self.add(ops.group_norm(f"{name}.norm", elems, float(_GROUPS) * self.frames))
        if silu:
            self.add(ops.activation(f"{name}.silu", elems))

    def scaled_sum(self, name: str, elems: float) -> None:
        """``(x + h) / scale``: the division runs although the scale is one."""
        self.add(ops.binary(f"{name}.add", elems, grads=0), ops.scale(f"{name}.scale", elems))

    def resnet(self, name: str, size: int, cin: int, cout: int) -> None:
        self.norm(f"{name}.1", size, cin)
        self.conv(f"{name}.conv1", size, cin, cout, 3)
        self.norm(f"{name}.2", size, cout)
        self.conv(f"{name}.conv2", size, cout, cout, 3)
        if cin != cout:
            self.conv(f"{name}.shortcut", size, cin, cout, 1)
        self.scaled_sum(name, float(self.frames) * size * size * cout)

    def downsample(self, name: str, size: int, channels: int) -> None:
        padded = float(self.frames) * (size + 1) ** 2 * channels
        pad = Kernel(kind="copy", low=padded + float(self.frames) * size * size * channels)
        fill = Kernel(kind="elementwise", low=padded)
        self.add(Op(name=f"{name}.pad", fwd=(fill, pad)))
        self.conv(f"{name}.conv", size, channels, channels, 3, stride=2)

    def attention(self, name: str, size: int, channels: int) -> None:
        rows = float(self.frames) * size * size
        elems = rows * channels
        self.norm(name, size, channels, silu=False)
        # The normalised map is a transposed view: each layer copies it and adds its bias
        # separately.
        bias = Kernel(kind="elementwise", low=2 * elems, weight=float(channels), indexed=elems)
        for part in ("q", "k", "v"):
            self.add(
                ops.copy(f"{name}.{part}.layout", elems),
                ops.linear(f"{name}.{part}", rows, channels, channels),
                Op(name=f"{name}.{part}.bias", fwd=(bias,)),
            )
        self.add(
            ops.sdpa(f"{name}.sdpa", self.frames, 1, 1, size * size, size * size, channels),
            ops.linear(f"{name}.out", rows, channels, channels),
        )
        self.numel += 4 * (channels * channels + channels)
        self.scaled_sum(name, elems)


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
    build = _Builder(frames=frames, ops=[])
    size, width = image, channels[0]
    build.conv("conv_in", size, _IMAGE_CHANNELS, width, 3)
    transient = 0.0
    for level, cout in enumerate(channels):
        for i in range(resnets):
            build.resnet(f"down.{level}.{i}", size, width, cout)
            width = cout
        transient = max(transient, _LIVE_TENSORS * frames * size * size * cout)
        if level < len(channels) - 1:
            build.downsample(f"down.{level}", size, width)
            size //= 2
    build.resnet("mid.0", size, width, width)
    build.attention("mid.attn", size, width)
    build.resnet("mid.1", size, width, width)
    build.norm("out", size, width)
    moments = 2 * latent_channels
    build.conv("conv_out", size, width, moments, 3)
    if quant_conv:
        build.conv("quant_conv", size, moments, moments, 1)
    latent = float(frames) * size * size * latent_channels
    # Clamp, halving, two exponentials, noise, product, sum, scaling.
    draw = Kernel(kind="elementwise", low=17 * latent, launches=8.0)
    if stored_moments:
        build.ops, transient = [], 0.0
    build.add(Op(name="sample", fwd=(draw,)))
    return Frozen(
        name=name,
        resident_numel=build.numel + decoder_numel,
        ops=tuple(build.ops),
        transient_low=transient,
    )
