"""Published rates of products become figures that reproduce them, and no op table's rows."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest

from simcore.base.units import MILLI, TERA
from simcore.calibrate.ops.published import PUBLISHED, add_published, flop_of, typical_share
from simcore.calibrate.pooling import figure
from simcore.hardware.class_figures import held_frac
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS

BESIDE = {"memory": 0.8, "wave": 0.0, "depth": 0.0, "start": "1 us"}
LIMIT = 3.3e-12


def compute() -> dict[str, Any]:
    pooled = figure(0.96, 0.13, "power-fit", 9) | BESIDE | {"limit_j_per_flop": LIMIT}
    return {"gemm_tensor16": {"pooled": pooled}}


def test_share_reproduces_the_rate_of_its_shapes() -> None:
    # Written out on its own: the five long products fill 304 units, the five short ones hardly
    # count, and memory adds to the shallowest: the share is a little above rate over peak.
    rate, gpu = PUBLISHED[0], GPUS["MI325X"]
    plain = rate.flop_per_s / (gpu.peak("bf16") or 0.0)
    assert 1.0 < typical_share(rate, gpu, BESIDE) / plain < 1.2
    # Slower memory, and more of what remains is the units'.
    slow = typical_share(rate, gpu, BESIDE | {"memory": 0.6})
    assert slow > typical_share(rate, gpu, BESIDE)


def test_step_of_gpt_counts_what_its_parameters_say() -> None:
    # 6 FLOP a parameter and token: 24 blocks of 12 x 1024^2, 50,304 words; 197.85 ms of kernels.
    rate = next(r for r in PUBLISHED if r.gpu == "V100-SXM-32GB")
    flop = 6.0 * 8 * 1024 * (24 * 12 * 1024**2 + 50304 * 1024)
    assert flop_of(rate.shapes) == flop
    assert rate.flop_per_s == pytest.approx(flop / (593.55 * MILLI / 3), rel=1e-3)


def test_two_benches_agree_on_volta_and_others_lie_around_it() -> None:
    # One profiled a training, the other called torch.mm: neither knows of the other's rate.
    step, squares = (
        typical_share(r, GPUS[r.gpu], BESIDE) for r in PUBLISHED if r.gpu.startswith("V100")
    )
    assert step == pytest.approx(squares, rel=0.05)
    # Best products of others, in TFLOP/s: 83 (Markidis et al. 2018), 95 to 100 on PCIe in CUDA 12.9
    # (lablup/mlxcel issue 1654). Pooled from newer devices it would be 96 of 112.
    share = load_profile().compute_efficiency("gemm", "fp16", GPUS["V100-PCIE-32GB"]).value
    assert 83 < share * 112 < 95


def test_shapes_matter_as_on_devices_whose_instructions_are_alike() -> None:
    found = compute()
    kin = figure(0.96, 0.13, "power-fit", 9) | BESIDE | {"wave": 0.4, "depth": 90.0}
    found["gemm_tensor16"]["by_kin"] = {"registers": kin}
    add_published(found)
    table = found["gemm_tensor16"]
    for place in (table["by_gpu"]["V100-SXM-32GB"], table["by_family"]["Volta"]):
        assert (place["wave"], place["depth"]) == (0.4, 90.0)
    assert table["by_gpu"]["MI325X"]["wave"] == BESIDE["wave"]  # another vendor's: as all
    # Whoever loses more to waves and depth reaches more beside them.
    plain = compute()
    add_published(plain)
    own = plain["gemm_tensor16"]["by_gpu"]["V100-SXM-32GB"]["value"]
    assert table["by_gpu"]["V100-SXM-32GB"]["value"] > own


def test_sustained_figure_of_a_device_is_the_published_one() -> None:
    # The tables hold bursts; a step is priced at sustained clocks, as the rate was taken.
    profile, gpu = load_profile(), GPUS["MI325X"]
    sustained = profile.compute_efficiency("gemm", "bf16", gpu).value
    assert sustained == pytest.approx(616.4 * TERA / (gpu.peak("bf16") or 0.0), rel=0.1)
    other = profile.compute_efficiency("gemm", "bf16", GPUS["MI300X"]).value
    assert other / sustained == pytest.approx(708 / 843, rel=0.01)  # as their best products


def test_family_is_the_mean_of_its_devices_and_follows_power() -> None:
    found = compute()
    found["gemm_tensor16"]["by_gpu"] = {"MI210": figure(0.7, 0.1, "llmcompass", 20)}
    add_published(found)
    table = found["gemm_tensor16"]
    at_full = [
        leaf["value"] / held_frac(GPUS[g], "tensor", LIMIT)
        for g, leaf in table["by_gpu"].items()
        if GPUS[g].vendor == "AMD"
    ]
    family = table["by_family"]["CDNA"]
    expected = math.exp(float(np.mean(np.log(at_full))))
    assert family["value"] / family["held"] == pytest.approx(expected, rel=0.01)
    assert family["source"] == "amd+llmcompass"
    assert table["by_gpu"]["MI210"]["value"] == 0.7  # what was measured stays


def test_rates_alone_are_marked_where_no_table_has_the_family() -> None:
    found = compute()
    found["gemm_tensor16"]["by_gpu"] = {"MI210": figure(0.7, 0.1, "llmcompass", 20)}
    add_published(found)
    table = found["gemm_tensor16"]
    assert table["by_gpu"]["V100-SXM-16GB"]["rates_only"]
    assert table["by_gpu"]["V100-SXM-32GB"]["rates_only"]
    assert table["by_family"]["Volta"]["rates_only"]
    assert "rates_only" not in table["by_gpu"]["MI325X"] | table["by_family"]["CDNA"]


def test_nothing_is_told_without_a_law_of_power() -> None:
    found = {"gemm_tensor16": {"pooled": figure(0.9, 0.1, "pooled", 3)}}
    add_published(found)
    assert set(found["gemm_tensor16"]) == {"pooled"}
