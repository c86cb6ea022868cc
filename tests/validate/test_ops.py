"""Op tables against the op models: known times come back with no error, bad rows are named."""

import gzip
from pathlib import Path

import pytest

from simcore import api
from simcore.base.errors import DataError
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS

GEMM = "gpu,dtype,op,m,n,k,batch,time_us,timing\n"


def test_a_row_that_equals_the_formula_has_no_error(tmp_path: Path) -> None:
    """4096 cubed in bf16 on an H100: 2 m n k / (eff peak), traffic, start; all by hand."""
    gpu, profile = GPUS["H100-SXM-80GB"], load_profile()
    n = 4096
    compute = 2 * n**3 / (989.4e12 * profile.compute_efficiency("gemm", "bf16", gpu,
                                                              sustained=False).value)  # fmt: skip
    memory = 3 * n * n * 2 / (3.35e12 * profile.memory_efficiency("gemm", gpu).value)
    seconds = profile.kernel_start_s(gpu).value + (compute**2 + memory**2) ** 0.5
    path = tmp_path / "gemm.csv"
    path.write_text(
        GEMM + f"H100-SXM-80GB,bf16,linear,{n},{n},{n},1,{seconds * 1e6},graph_burst\n"
        f"H100-SXM-80GB,bf16,linear,{n},{n},{n},1,{seconds * 2e6},graph_burst\n",
        encoding="utf-8",
    )
    out = api.validate_ops([path])
    found = out["kinds"]["gemm"]
    assert (out["rows"], out["simulated"]) == (2, 2)
    assert found["n"] == 2
    assert found["large"]["n"] == 2
    assert found["mape_frac"] == pytest.approx((0.0 + 0.5) / 2, abs=1e-9)
    assert set(out["groups"]) == {"H100-SXM-80GB linear bf16"}


def test_gpus_without_a_profile_are_predicted_blind(tmp_path: Path) -> None:
    path = tmp_path / "gemm.csv.gz"
    path.write_bytes(
        gzip.compress((GEMM + "H200-SXM,bf16,linear,8192,8192,8192,1,1600,graph_burst\n").encode())
    )
    found = api.validate_ops([path])["kinds"]["gemm"]
    assert found["n"] == 1
    assert found["mape_frac"] < 0.5


def test_bad_rows_are_counted_with_file_and_line(tmp_path: Path) -> None:
    path = tmp_path / "g.csv"
    path.write_text(
        GEMM + "H100,bf16,linear,1,1,1,1,nan,graph_burst\n"
        "H100,bf16,linear,1,1,x,1,5,graph_burst\n"
        "H100,bf16,linear,8,8,8,1,-5,graph_burst\n"
        "H100-SXM5-80GGB,bf16,linear,8,8,8,1,5,graph_burst\n",
        encoding="utf-8",
    )
    out = api.validate_ops([path])
    assert (out["rows"], out["simulated"]) == (4, 0)
    reasons = " ".join(out["skipped"])
    assert "g.csv:2: time_us: 'nan'" in reasons
    assert "g.csv:3: k: 'x' is not a number" in reasons
    assert "g.csv:4: time_us: '-5'" in reasons
    assert "did you mean" in reasons


def test_not_an_op_table(tmp_path: Path) -> None:
    path = tmp_path / "x.csv"
    path.write_text("a,b\n1,2\n", encoding="utf-8")
    with pytest.raises(DataError, match="is no op table"):
        api.validate_ops([path])
    (tmp_path / "y.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="cannot be read"):
        api.validate_ops([tmp_path / "y.csv.gz"])
