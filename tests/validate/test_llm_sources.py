"""Releases of programs, told by the row."""

import pytest

from simcore.strategy.software import Program
from simcore.strategy.software.labs import MEGASCALE, NANOTRON
from simcore.strategy.software.megatron import BRIDGE_BENCHMARKS, BRIDGE_BENCHMARKS_BF16
from simcore.strategy.software.pytorch import (
    FOUNDRY,
    FOUNDRY_TORCH_1,
    TORCHTITAN,
    TORCHTITAN_2024,
)
from simcore.validate.formats.llm_sources import SOURCES, cluster_state_of, source_of

ROW = {"source": "", "precision": "bf16", "sharding": "zero1"}


@pytest.mark.parametrize(
    ("changes", "program"),
    [
        ({"source": "pytorch-torchtitan", "source_ref": "a_202412_b"}, TORCHTITAN_2024),
        ({"source": "pytorch-torchtitan", "source_ref": "a_202505_b"}, TORCHTITAN),
        ({"source": "pytorch-torchtitan"}, TORCHTITAN),
        ({"source": "mosaicml-llm-foundry", "notes": "mixed_precision=PURE"}, FOUNDRY_TORCH_1),
        ({"source": "mosaicml-llm-foundry", "notes": "mixed_precision=DEFAULT"}, FOUNDRY),
        ({"source": "nvidia-megatron-bridge"}, BRIDGE_BENCHMARKS_BF16),
        ({"source": "nvidia-megatron-bridge", "precision": "mxfp8"}, BRIDGE_BENCHMARKS),
        ({"source": "nvidia-megatron-bridge", "sharding": "fsdp"}, BRIDGE_BENCHMARKS),
        ({"source": "megascale", "variant": "MegaScale"}, MEGASCALE),
        ({"source": "huggingface-nanotron"}, NANOTRON),
        ({"source": "a lab of its own"}, Program()),
    ],
)
def test_a_row_is_of_a_release(changes: dict[str, str], program: Program) -> None:
    assert source_of(ROW | changes).program == program


def test_what_a_source_says_is_of_its_jobs_alone() -> None:
    """Two sources on one release: what the one states is not the other's."""
    bubble, selective = SOURCES["zero-bubble"], SOURCES["korthikanti-recompute"]
    assert bubble.program is selective.program
    assert bubble.settings == {"vocab": 32_000} and not selective.settings


def test_a_source_says_which_of_its_rows_no_others_compare_with() -> None:
    row = {"source": "bigscience-bloom", "variant": "pre_numa_fix"}
    assert cluster_state_of(row)
    assert not cluster_state_of(row | {"variant": "post_numa_fix"})
    assert not cluster_state_of(row | {"source": "vtrain"})
