"""What convolutions compute in where products compute in fp32, against what PyTorch documents."""

from __future__ import annotations

import numpy as np
import pytest

from simcore.engine.predict import predict
from simcore.engine.rates import class_rates, conv_peak_for
from simcore.engine.request import make_request
from simcore.engine.result import Prediction
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS
from simcore.step.kernels import KINDS
from simcore.strategy.precision import PRECISIONS


def asked(model: str, gpu: str, precision: str) -> Prediction:
    return predict(make_request(model, f"1x{gpu}", precision=precision, micro_batch=32))


def told(p: Prediction) -> bool:
    return any("convolutions in TF32" in text for text in p.assumptions)


def test_fp32_convolutions_take_tf32_as_pytorch_lets_them() -> None:
    """torch.backends.cudnn.allow_tf32 is True by default, torch.backends.cuda.matmul's False."""
    plain, strict = (asked("resnet-50", "A100", p) for p in ("fp32", "fp32-ieee"))
    tf32 = asked("resnet-50", "A100", "tf32")
    assert plain.step_time_s.value < 0.7 * strict.step_time_s.value
    # The classifier is all that remains in fp32.
    assert plain.step_time_s.value == pytest.approx(tf32.step_time_s.value, rel=0.02)
    assert told(plain) and not told(strict) and not told(tf32)
    assert plain.memory.device_bytes == strict.memory.device_bytes


@pytest.mark.parametrize("gpu", ["V100-SXM-16GB", "RTX2080Ti", "MI300X"])
def test_without_cudnn_and_tf32_fp32_is_fp32(gpu: str) -> None:
    plain, strict = (asked("resnet-50", gpu, p) for p in ("fp32", "fp32-ieee"))
    assert plain.step_time_s == strict.step_time_s
    assert not told(plain)


def test_products_stay_in_fp32() -> None:
    plain, strict = (asked("gpt2", "A100", p) for p in ("fp32", "fp32-ieee"))
    assert plain.step_time_s.value == strict.step_time_s.value
    assert not told(plain)


def test_utilisation_is_of_the_peaks_that_are_used() -> None:
    plain, tf32 = (asked("resnet-50", "A100", p) for p in ("fp32", "tf32"))
    assert plain.mfu_frac == pytest.approx(tf32.mfu_frac, rel=0.03)


@pytest.mark.parametrize("gpu", [n for n in GPUS.names() if GPUS[n].vendor == "NVIDIA"])
def test_winograd_saves_no_more_than_its_multiplications(gpu: str) -> None:
    """F(2x2, 3x3) makes 16 for 36 (Lavin & Gray 2016); power and issue bound what is left."""
    share = load_profile().compute_efficiency
    fast, products = (share(k, "fp32", GPUS[gpu]).value for k in ("conv_winograd", "gemm"))
    assert products < fast <= 36 / 16 * products * (1 + 1e-9)


@pytest.mark.parametrize("gpu", [n for n in GPUS.names() if GPUS[n].peak("tf32")])
def test_tf32_is_allowed_not_asked_for(gpu: str) -> None:
    """cuDNN keeps its fp32 kernels beside those in TF32, so that allowing it never costs."""
    group = parse_cluster(f"1x{gpu}").groups[0]
    allowed, never = (
        class_rates(group, PRECISIONS[p], load_profile()) for p in ("fp32", "fp32-ieee")
    )
    convolutions = [KINDS.index("conv"), KINDS.index("conv_winograd")]
    assert np.all(allowed.flop_per_s[convolutions] >= never.flop_per_s[convolutions])
    products = KINDS.index("gemm")
    assert allowed.flop_per_s[products] == never.flop_per_s[products]
    nvidia = GPUS[gpu].vendor == "NVIDIA"
    assert conv_peak_for(GPUS[gpu], PRECISIONS["fp32"])[0] == ("tf32" if nvidia else "fp32")
