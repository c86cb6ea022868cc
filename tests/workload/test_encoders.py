"""Encoders of a diffusion model run in the step only where samples are not encoded beforehand."""

import pytest

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
