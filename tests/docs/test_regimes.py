"""The table of regimes belongs to the report beside it, and sorts rows as its lines say."""

from __future__ import annotations

from pathlib import Path

import pytest
import regimes

ROOT = Path(__file__).resolve().parents[2]


def test_totals_are_those_of_the_report() -> None:
    report = (ROOT / "validate" / "REPORT.md").read_text(encoding="utf-8")
    blind = regimes.report_totals(report)
    assert len(blind) == len(regimes.FILES)
    assert regimes.totals(regimes.PAGE.read_text(encoding="utf-8")) == blind, (
        "run with SIMCORE_TABLES set: python docs/_ext/outputs.py"
    )
    assert not regimes.stale()


@pytest.mark.parametrize(
    ("table", "columns", "names"),
    [
        (
            regimes.DATA_PARALLEL,
            {"gpus": "16", "nodes": "2", "precision": "amp-fp16", "gpu_type": "RTX-A4500"},
            {"several nodes", "16 bit by autocast", "workstation cards"},
        ),
        (
            regimes.DATA_PARALLEL,
            {"gpus": "1", "nodes": "1", "precision": "tf32/fp32", "family": "GNMT-LSTM"},
            {"one GPU", "TF32", "recurrent and Transformer-XL"},
        ),
        (
            regimes.LANGUAGE,
            {"gpus": "1024", "moe_experts": "", "precision": "mxfp8", "tp": "8", "pp": "1",
             "gpu_type": "GB200-NVL72-192GB"},
            {"dense, 129 to 1,024 GPUs", "fp8", "tensor parallel, no pipeline",
             "B200, GB200, B300, GB300"},
        ),
        (
            regimes.LANGUAGE,
            {"gpus": "64", "moe_experts": "8", "precision": "bf16", "tp": "", "pp": "", "ep": "8",
             "gpu_type": "MI300X-192GB"},
            {"mixture of experts", "bf16, fp16", "AMD"},
        ),
    ],
)  # fmt: skip
def test_rows_fall_where_they_belong(
    table: tuple[regimes.Regime, ...], columns: dict[str, str], names: set[str]
) -> None:
    assert {name for name, belongs in table if belongs(columns)} == names
