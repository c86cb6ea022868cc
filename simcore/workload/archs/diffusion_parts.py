"""The latent of an image or a clip, which a diffusion model reads."""

from __future__ import annotations

from simcore.base.record import dataclass

#: Attention of U-nets. math: scores in memory; flash1: xformers, before torch had its own kernel;
#: flash: FlashAttention-2.
MODES = ("math", "flash", "flash1")

STEP_FEATURES = 256  # sinusoids of the time step, the input of the embedder's MLP
PIXEL_CHANNELS = 3


@dataclass(frozen=True)
class Latent:
    """The latent of one sample, which the denoiser reads."""

    frames: int
    side: int  # of the latent, in elements
    channels: int
    patch: int

    @property
    def elems(self) -> float:
        return float(self.frames) * self.channels * self.side**2

    @property
    def tokens(self) -> int:
        """Tokens of one frame."""
        return (self.side // self.patch) ** 2


def latent_of(image: int, vae_factor: int, patch: int, frames: int, channels: int) -> Latent:
    """The latent of an image size. Raises ValueError unless patches divide it."""
    if image % (vae_factor * patch) or image <= 0:
        raise ValueError(f"image={image} must be a multiple of {vae_factor} x patch={patch}")
    return Latent(frames, image // vae_factor, channels, patch)


def latent_frames(frames: int, stride: int) -> int:
    """Frames of the latent: one for the first frame, then one per ``stride``. Raises ValueError."""
    if frames < 1 or (frames - 1) % stride:
        raise ValueError(f"frames={frames} must be 1 more than a multiple of {stride}")
    return (frames - 1) // stride + 1


def pixel_bytes(image: int, frames: int, bytes_per_value: float) -> float:
    """Bytes of the pixels of one sample that are copied to the device."""
    return float(frames) * PIXEL_CHANNELS * image**2 * bytes_per_value
