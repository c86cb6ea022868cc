"""Releases of programs, told by the row."""

import pytest

from simcore.strategy.programs import program_named
from simcore.validate.formats.llm_sources import SOURCES, cluster_state_of, source_of

ROW = {"source": "", "precision": "bf16", "sharding": "zero1"}


@pytest.mark.parametrize(
    ("changes", "program"),
    [
        ({"source": "pytorch-torchtitan", "source_ref": "a_202412_b"}, "torchtitan@2024"),
        ({"source": "pytorch-torchtitan", "source_ref": "a_202505_b"}, "torchtitan"),
        ({"source": "pytorch-torchtitan"}, "torchtitan"),
        (
            {"source": "mosaicml-llm-foundry", "notes": "mixed_precision=PURE"},
            "llm-foundry@torch-1",
        ),
        ({"source": "mosaicml-llm-foundry", "notes": "mixed_precision=DEFAULT"}, "llm-foundry"),
        ({"source": "nvidia-megatron-bridge"}, "megatron-bridge@benchmarks-bf16"),
        ({"source": "nvidia-megatron-bridge", "precision": "mxfp8"}, "megatron-bridge@benchmarks"),
        ({"source": "nvidia-megatron-bridge", "sharding": "fsdp"}, "megatron-bridge@benchmarks"),
        ({"source": "megascale", "variant": "MegaScale"}, "megascale"),
        ({"source": "huggingface-nanotron"}, "nanotron"),
        ({"source": "a lab of its own"}, "plain"),
    ],
)
def test_a_row_is_of_a_release(changes: dict[str, str], program: str) -> None:
    assert source_of(ROW | changes).program == program
    assert source_of(ROW | changes).record is program_named(program)


def test_what_a_source_says_is_of_its_jobs_alone() -> None:
    """Two sources on one release: what the one states is not the other's."""
    bubble, selective = SOURCES["zero-bubble"], SOURCES["korthikanti-recompute"]
    assert bubble.record is selective.record
    assert bubble.settings == {"vocab": 32_000} and not selective.settings


def test_a_source_says_which_of_its_rows_no_others_compare_with() -> None:
    row = {"source": "bigscience-bloom", "variant": "pre_numa_fix"}
    assert cluster_state_of(row)
    assert not cluster_state_of(row | {"variant": "post_numa_fix"})
    assert not cluster_state_of(row | {"source": "vtrain"})
