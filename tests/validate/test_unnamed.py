"""Rows without their program: what is left is the job, and the answer does not know the rest."""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore.hardware.profile import load_profile
from simcore.validate.case import Case
from simcore.validate.judge import request_of
from simcore.validate.table import read_table
from simcore.validate.unnamed import by_program, unnamed
from tests.validate.test_llm_format import HEAD, ROW


def row(tmp_path: Path, source: str, **changes: str) -> Case:
    names, cells = HEAD.strip().split(","), ROW.strip().split(",")
    filled = dict(zip(names, cells, strict=True)) | {"source": source} | changes
    path = tmp_path / "t.csv"
    path.write_text(",".join(filled) + "\n" + ",".join(filled.values()) + "\n")
    (case,) = read_table(path).cases
    return case


@pytest.mark.parametrize(
    "source", ["megatron-lm-h100", "huggingface-nanotron", "aleph-alpha", "vtrain"]
)
def test_nothing_of_a_program_is_left(tmp_path: Path, source: str) -> None:
    bare = [unnamed(row(tmp_path, s)) for s in (source, "megascale")]
    first, other = (request_of(c, load_profile()) for c in bare)
    assert first.strategy == other.strategy
    assert first.workload.blocks == other.workload.blocks
    assert first.software_assumed and first.strategy.program.name == "megatron"
    # A program without an interleaved schedule refuses the row's chunks when it is named.
    named = request_of(row(tmp_path, source, vpp="1"), load_profile())
    assert not named.software_assumed
    assert bare[0].measured == row(tmp_path, source).measured


def test_a_source_that_nobody_knows_is_asked_for_so(tmp_path: Path) -> None:
    found = row(tmp_path, "a lab of its own")
    assert request_of(found, load_profile()).software_assumed
    assert "software" not in found.options and "issuer" not in found.options
    assert found.options["tp"] == 2 and found.options["recompute"] == "full"
    told = row(tmp_path, "a lab of its own", overlaps="TP_COMM_OVERLAP")
    assert "tensor" in str(told.options["overlap"])


def test_adapters_keep_the_products_they_name(tmp_path: Path) -> None:
    found = row(tmp_path, "a lab of its own", task="lora", overlaps="")
    request_of(found, load_profile())


def test_tables_keep_their_rows(tmp_path: Path) -> None:
    row(tmp_path, "vtrain")
    table = read_table(tmp_path / "t.csv")
    bare = table.changed(unnamed)
    assert [c.id for c in bare.cases] == [c.id for c in table.cases]


def test_a_row_asked_by_its_program_says_its_job_and_the_name(tmp_path: Path) -> None:
    """What only the source's name would tell (here the type of gradients) is not said."""
    full = row(tmp_path, "megascale", variant="Megatron-LM")
    asked = by_program(full)
    assert asked.options["software"] == full.program == "megatron-lm@2023"
    assert {k: asked.options[k] for k in ("tp", "micro_batch", "recompute")} == {
        k: full.options[k] for k in ("tp", "micro_batch", "recompute")
    }
    assert full.options["main_grads"] == "fused"
    assert not {"main_grads", "issuer", "overlap"} & asked.options.keys()
    request = request_of(asked, load_profile())
    assert not request.software_assumed
    assert request.strategy.program.name == "megatron-lm@2023"


def test_a_row_asked_by_its_program_keeps_what_its_remarks_state(tmp_path: Path) -> None:
    torch = by_program(row(tmp_path, "aleph-alpha", variant="torch"))
    flash = by_program(row(tmp_path, "aleph-alpha", variant="flash_attention2"))
    assert torch.options["settings"]["attention"] == "math"  # type: ignore[index]
    assert flash.options["settings"]["attention"] == "flash"  # type: ignore[index]
