"""The frozen autoencoder against sd-vae-ft-ema's figures and a torch twin."""

from __future__ import annotations

import pytest
import torch
from reference.encoders import Decoder, Encoder
from reference.meter import KernelMeter, LiveMeter
from torch.utils.flop_counter import FlopCounterMode

from simcore.base.units import GIGA
from simcore.workload.archs.layers import LayerList
from simcore.workload.graph import Frozen, Kernel
from simcore.workload.models import MODELS

autoencoder_kl_encoder = LayerList("autoencoder_kl_encoder")


def kernels(frozen: Frozen) -> list[Kernel]:
    return [k for op in frozen.ops for k in op.fwd]


def flop(frozen: Frozen) -> float:
    return sum(k.flop for k in kernels(frozen))


def test_parameters_match_the_modules() -> None:
    with torch.device("meta"):
        encoder, decoder = (sum(p.numel() for p in m().parameters()) for m in (Encoder, Decoder))
    assert (encoder, decoder) == (34_163_664, 49_490_199)
    assert autoencoder_kl_encoder(name="vae").resident_numel == 83_653_863 == encoder + decoder


@pytest.mark.parametrize(("image", "published"), [(256, 272.7 * GIGA), (512, 1_116.7 * GIGA)])
def test_flop_match_the_flop_counter(image: int, published: float) -> None:
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        Encoder()(torch.empty(1, 3, image, image))
    ours = flop(autoencoder_kl_encoder(name="vae", image=image))
    assert ours == pytest.approx(counter.get_total_flops(), rel=1e-9)
    assert ours == pytest.approx(published, rel=1e-3)


def test_every_frame_is_encoded() -> None:
    one, clip = (autoencoder_kl_encoder(name="vae", frames=f) for f in (1, 16))
    assert flop(clip) == 16 * flop(one)
    assert sum(k.launches for k in kernels(clip)) == sum(k.launches for k in kernels(one))


@pytest.mark.parametrize(("image", "frames", "base"), [(64, 3, 32), (128, 1, 64)])
def test_peak_of_live_elements_matches_the_module(image: int, frames: int, base: int) -> None:
    """Five full-resolution tensors in the first level: 671 million elements for a 16-frame clip."""
    torch.manual_seed(0)
    x, module = torch.randn(frames, 3, image, image), Encoder(base)
    with torch.no_grad(), LiveMeter() as meter:
        module(x)
    ours = autoencoder_kl_encoder(name="vae", image=image, frames=frames, base_channels=base)
    assert ours.transient_low == meter.peak == 5 * base * frames * image**2


def test_launches_and_traffic_match_the_dispatcher() -> None:
    x, module = torch.randn(3, 3, 64, 64), Encoder(32)
    with torch.no_grad(), KernelMeter() as meter:
        module(x)
    ours = kernels(autoencoder_kl_encoder(name="vae", image=64, frames=3, base_channels=32))
    assert sum(k.launches for k in ours) == meter.n_launches
    moved = sum(k.low + k.high + k.weight for k in ours)
    assert moved == pytest.approx(meter.n_elems, rel=0.02)


def test_the_clip_of_latte_needs_two_and_a_half_gigabytes_in_fp32() -> None:
    (vae,) = MODELS["latte-l"].build().frozen
    assert vae.transient_low * 4 == pytest.approx(2.684 * GIGA, rel=1e-3)


def test_image_must_divide() -> None:
    with pytest.raises(ValueError, match="multiple of 8"):
        autoencoder_kl_encoder(name="vae", image=100)
