"""Encoders of a diffusion model run in the step only where samples are not encoded beforehand."""

import pytest

from simcore.memory.parts import live_bytes
from simcore.strategy.precision import PRECISIONS
from simcore.workload.models import MODELS


@pytest.mark.parametrize("name", ["flux.1-dev", "sdxl", "sd3-medium", "sd3.5-large", "sd-v1.5"])
def test_encoders_run_unless_samples_are_encoded_beforehand(name: str) -> None:
    record = MODELS[name]
    apart, within = (record.build(encoded=encoded) for encoded in (True, False))
    named = {f.name for f in record.frozen}
    assert named and not named & {f.name for f in apart.frozen}
    assert named <= {f.name for f in within.frozen}
    held = sum(f.resident_numel for f in within.frozen if f.name in named)
    assert held == sum(f.params.value for f in record.frozen)
    assert [b.params for b in apart.blocks] == [b.params for b in within.blocks]


@pytest.mark.parametrize("name", ["flux.1-dev", "sdxl", "sd3-medium", "sd-v1.5"])
def test_of_captions_encoded_beforehand_the_autoencoder_alone_is_left(name: str) -> None:
    record = MODELS[name]
    made = record.build(encoded=False, captions_encoded=True)
    images = {f.name for f in record.frozen if f.arch == "autoencoder_kl_encoder"}
    assert {f.name for f in made.frozen} & {f.name for f in record.frozen} == images
    assert all(f.ops for f in made.frozen if f.name in images)


@pytest.mark.parametrize("name", ["flux.1-dev", "sdxl"])
def test_encoders_that_stay_run_no_more(name: str) -> None:
    record = MODELS[name]
    made = record.build(encoded=False, captions_encoded=True, encoders_held=True)
    assert {f.name for f in record.frozen} <= {f.name for f in made.frozen}
    ran = {f.name: sum(k.flop for op in f.ops for k in op.fwd) for f in made.frozen}
    assert [n for n, flop in ran.items() if flop] == [record.frozen[-1].name]


def test_an_autoencoder_in_fp32_has_fp32_activations() -> None:
    """SDXL's: five maps of 128 channels and 1,024 x 1,024 pixels, in fp32 beside fp16's U-Net."""
    maps = 5 * 128 * 1024**2
    vae = MODELS["sdxl"].build(encoded=False).frozen[-1]
    assert vae.transient_low == maps
    assert live_bytes(vae, PRECISIONS["amp-fp16"]) == 4
    other = MODELS["flux.1-dev"].build(encoded=False).frozen[-1]
    assert live_bytes(other, PRECISIONS["amp-bf16"]) == 2
