"""What error correction in GDDR takes of the bandwidth, by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore.hardware.class_figures import (
    ADA_ECC_FRAC,
    INLINE_ECC_FRAC,
    carried_frac,
    ecc_frac,
)
from simcore.hardware.profile import Profile, load_profile
from simcore.hardware.spec import GPUS

TOY = """\
compute_efficiency:
  gemm_tensor16:
    pooled: {value: 0.5, sd_log: 0.3, source: t}
memory_efficiency:
  elementwise:
    pooled: {value: 0.9, sd_log: 0.1, source: t}
    by_gpu:
      T4: {value: 0.74, sd_log: 0.1, source: t}
  gemm:
    pooled: {value: 0.9, sd_log: 0.1, source: t}
"""


@pytest.mark.parametrize(
    ("gpu", "inline"),
    [
        ("T4", True),  # 15,360 of 16,384 MiB
        ("L4", True),
        ("K80", True),  # 11,441 of 12,288 MiB
        ("A6000", False),  # workstations' cards are shipped with ECC off
        ("A6000ada", False),
        ("RTX4090", False),
        ("A100-SXM-80GB", False),  # HBM
        ("H100-SXM-80GB", False),  # HBM; firmware keeps half of a hundredth
        ("RTX-PRO-6000", False),  # GDDR7
    ],
)
def test_a_sixteenth_of_the_memory_tells_of_inline_ecc(gpu: str, inline: bool) -> None:
    assert GPUS[gpu].inline_ecc is inline
    kept = ADA_ECC_FRAC if gpu == "L4" else INLINE_ECC_FRAC
    assert ecc_frac(GPUS[gpu]) == (kept if inline else 1.0)


def test_a_stream_on_l4_reaches_what_was_measured() -> None:
    """234 of 300 GB/s: median of 528 rows of NeuSight's test set of 200 MB and more, on no fit."""
    share = load_profile().memory_efficiency("elementwise", GPUS["L4"]).value
    assert share == pytest.approx(234 / 300, rel=0.02)


def test_what_is_carried_over_is_without_ecc(tmp_path: Path) -> None:
    """A stream of 0.9 elsewhere is one of 0.79 on L4; products live from L2."""
    file = tmp_path / "toy.yaml"
    file.write_text(TOY, encoding="utf-8")
    profile = Profile(name="p", origin="t", efficiency_file=file, runtime={})
    reached = {g: profile.memory_efficiency("elementwise", GPUS[g]).value
               for g in ("T4", "L4", "RTX4090")}  # fmt: skip
    assert reached == pytest.approx({"T4": 0.74, "L4": 0.792, "RTX4090": 0.9})
    assert "for its ECC" in profile.memory_efficiency("elementwise", GPUS["L4"]).source
    assert profile.class_figures("elementwise", GPUS["L4"]).share.value == pytest.approx(0.792)
    assert profile.memory_efficiency("gemm", GPUS["L4"]).value == 0.9
    assert carried_frac("elementwise", "own", GPUS["T4"]) == 1.0


def test_cards_of_one_chip_differ_by_their_ecc() -> None:
    """RTX A6000 and A40 are one chip, GA102: streams reach as much of it but for the ECC bits."""
    blind = load_profile()
    a6000, a40 = (blind.memory_efficiency("elementwise", GPUS[g]).value for g in ("A6000", "A40"))
    assert a40 / a6000 == pytest.approx(INLINE_ECC_FRAC, rel=5e-3)
