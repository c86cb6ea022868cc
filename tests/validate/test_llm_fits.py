"""Tables of runs that ran out of memory."""

import os
from pathlib import Path

import pytest

from simcore.report.verdict import render_verdict
from simcore.validate.judge import judge
from simcore.validate.table import read_table

HEAD = (
    "source,source_ref,label,layers,hidden,ffn,heads,vocab,seq_len,global_batch,micro_batch,gpus,"
    "gpu_type,tp,pp,dp,recompute,precision,kernel,sequence_parallel\n"
)
#: 40 layers on one rank each, and one layer cut over 8 ranks.
ROWS = (
    "aleph-alpha,x,OOM,40,5120,13824,40,32000,2048,64,1,64,A100-SXM4-80GB,1,1,64,none,bf16,"
    "flash_attention2,\n"
    "aleph-alpha,x,fits,1,5120,13824,40,32000,2048,8,1,64,A100-SXM4-80GB,8,1,8,full,bf16,"
    "flash_attention2,\n"
    "aleph-alpha,x,maybe,1,5120,13824,40,32000,2048,8,1,64,A100-SXM4-80GB,8,1,8,full,bf16,"
    "flash_attention2,\n"
)
TABLES = os.environ.get("SIMCORE_TABLES")


def table(tmp_path: Path, rows: str = ROWS):
    path = tmp_path / "oom.csv"
    path.write_text(HEAD + rows, encoding="utf-8")
    return read_table(path)


def test_rows_say_whether_they_ran_and_nothing_else(tmp_path: Path) -> None:
    found = table(tmp_path)
    assert found.format == "llm_fits"
    assert [dict(c.measured) for c in found.cases] == [{"ran": 0.0}, {"ran": 1.0}]
    assert found.cases[0].options["tp"] == 1
    assert "neither OOM nor fits" in found.skipped[0].reason


def test_what_fits_and_what_does_not(tmp_path: Path) -> None:
    # 65 B parameters on one GPU: 130 GB of weights alone
    big = ROWS.splitlines(keepends=True)[0].replace(",40,5120,13824,40,", ",80,8192,22016,64,")
    rows = big + ROWS.splitlines(keepends=True)[1]
    verdict = judge([table(tmp_path, rows)])
    assert verdict.fits() == {
        "ran": 1, "out_of_memory": 1, "fits_precision_frac": 1.0, "fits_recall_frac": 1.0,
        "out_of_memory_found_frac": 1.0,
    }  # fmt: skip
    text = render_verdict(verdict.to_dict())
    assert "100 % of 1 rows out of memory are predicted not to fit" in text


@pytest.mark.skipif(not TABLES, reason="SIMCORE_TABLES names no folder of measured tables")
def test_published_runs_out_of_memory() -> None:
    found = judge([read_table(Path(str(TABLES)) / "steps" / "llm_fits_or_not.csv")]).fits()
    assert found["out_of_memory"] == 289
    assert (found["out_of_memory_found_frac"] or 0) > 0.95
