"""Op tables against the op models: known times come back with no error, bad rows are named."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from simcore import api
from simcore.base.errors import DataError
from simcore.calibrate.ops.model import op_time_s
from simcore.calibrate.ops.rows import read_op_rows
from simcore.cli.main import app
from simcore.hardware.class_figures import held_frac
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS
from simcore.validate.ops import op_figures

GEMM = "gpu,dtype,op,m,n,k,batch,time_us,timing,source\n"
AIC = "AIC/x/trtllm/1"


def write(path: Path, text: str) -> Path:
    path.write_text(text, encoding="utf-8")
    return path


def test_a_row_that_equals_the_formula_has_no_error(tmp_path: Path) -> None:
    """8192 cubed in bf16 on an H100: 2 m n k / (eff peak fill), traffic, start; all by hand."""
    found = load_profile().class_figures("gemm_tensor16", GPUS["H100-SXM-80GB"])
    n = 8192
    blocks = (n / 256) * (n / 128)  # the largest tile wins where many waves run
    waves = blocks / 132
    tail = found.wave_frac * np.ceil(waves) + (1 - found.wave_frac) * waves
    fill = waves / tail * n / (n + found.half_depth)
    compute = 2 * n**3 / (989.4e12 * found.share.value * fill)
    # Power management answers within 1 ms; figures are those of 0.33 ms.
    held = held_frac(GPUS["H100-SXM-80GB"], "tensor", 4.15e-12)
    compute /= held ** (0.55 * (compute / (compute + 1e-3) - 0.33 / 1.33))
    memory = 3 * n * n * 2 / (3.35e12 * found.memory)
    seconds = found.start_s + (compute**2 + memory**2) ** 0.5
    path = write(
        tmp_path / "gemm.csv",
        GEMM + f"H100-SXM-80GB,bf16,linear,{n},{n},{n},1,{seconds * 1e6},graph_burst,{AIC}\n"
        f"H100-SXM-80GB,bf16,linear,{n},{n},{n},1,{seconds * 2e6},graph_burst,{AIC}/2\n",
    )
    out = api.validate_ops([path])
    found_kind = out["kinds"]["gemm"]
    assert (out["rows"], out["simulated"]) == (2, 2)
    assert found_kind["n"] == 2
    assert found_kind["large"]["n"] == 2
    assert found_kind["mape_frac"] == pytest.approx((0.0 + 0.5) / 2, abs=1e-6)
    assert set(out["groups"]) == {"H100-SXM-80GB linear bf16"}
    assert out["groups"]["H100-SXM-80GB linear bf16"]["profile"] == "own"


def test_own_and_blind_figures_are_apart(tmp_path: Path) -> None:
    rows = "".join(
        f"{gpu},bf16,linear,8192,8192,8192,1,1600,graph_burst,{AIC}\n"
        for gpu in ("H100-SXM-80GB", "H200-SXM", "RTX-PRO-6000")
    )
    path = tmp_path / "gemm.csv.gz"
    path.write_bytes(gzip.compress((GEMM + rows).encode()))
    out = api.validate_ops([path])
    whose = {name.split()[0]: g["profile"] for name, g in out["groups"].items()}
    assert whose == {"H100-SXM-80GB": "own", "H200-SXM": "family", "RTX-PRO-6000": "pooled"}
    lines = {(line["profile"], line["gpus"]) for line in out["summary"]}
    assert lines == {("own", 1), ("blind", 2)}
    assert out["groups"]["H200-SXM linear bf16"]["mape_frac"] < 0.5


@pytest.mark.parametrize(
    ("row", "why"),
    [
        ("H100,bf16,linear,64,64,64,1,nan,graph_burst,s", "time_us: 'nan' must be finite"),
        ("H100,bf16,linear,64,64,x,1,5,graph_burst,s", "k: 'x' is not a number"),
        ("H100,bf16,linear,64,64,64,1,-5,graph_burst,s", "time_us: '-5' must be finite and above"),
        ("H100,bf16,linear,64,64,,1,5,graph_burst,s", "k is blank"),
        ("H100,bf16,linear,64,64,64", "has 6 of 10 fields"),
        ("H100,bf16,linear,5,8192,8192,1,8192,graph_burst,s", ""),  # slow, but small: kept
        ("H100,bf16,linear,1600,8192,8192,1,8192000,graph_burst,s", "swapped columns or unit"),
        ("H100,bf16,linear,8192,8192,8192,1,0.5,graph_burst,s", "swapped columns or unit"),
        ("H100,bf16,linear,256,256,256,1,9,graph_burst,s", "the same shape as line 2"),
    ],
)
def test_bad_rows_are_named_and_skipped_or_refused(tmp_path: Path, row: str, why: str) -> None:
    good = "H100,bf16,linear,256,256,256,1,8,graph_burst,s\n"
    path = write(tmp_path / "g.csv", GEMM + good + row + "\n")
    out = api.validate_ops([path])
    assert out["rows"] == 2
    if not why:
        assert out["simulated"] == 2 and not out["bad_rows"]
        return
    assert out["simulated"] == 1  # one bad row loses no other
    (told,) = out["bad_rows"]
    assert told.startswith("g.csv:3: ") and why in told
    assert out["skipped"][told] == 1
    with pytest.raises(DataError, match=r"bad measurements: g\.csv:3"):
        api.validate_ops([path], bad_rows="refuse")


def test_a_truncated_file_is_named_and_its_whole_rows_used(tmp_path: Path) -> None:
    rows = "".join(f"H100,bf16,linear,{64 * i},64,64,1,{5 + i},graph_burst,s\n"
                   for i in range(1, 3000))  # fmt: skip
    path = tmp_path / "g.csv.gz"
    path.write_bytes(gzip.compress((GEMM + rows).encode())[:-2000])
    out = api.validate_ops([path])
    assert 100 < out["simulated"] < 2999
    assert any("the file ends early" in told for told in out["bad_rows"])
    with pytest.raises(DataError, match="ends early"):
        api.validate_ops([path], bad_rows="refuse")


def test_unknown_devices_come_with_a_suggestion(tmp_path: Path) -> None:
    path = write(tmp_path / "g.csv", GEMM + "H100-SXM5-80GGB,bf16,linear,8,8,8,1,5,graph_burst,s\n")
    out = api.validate_ops([path])
    assert out["simulated"] == 0
    assert "did you mean" in " ".join(out["skipped"])


def test_not_an_op_table(tmp_path: Path) -> None:
    path = write(tmp_path / "x.csv", "a,b\n1,2\n")
    with pytest.raises(DataError, match="is no op table"):
        api.validate_ops([path])
    (tmp_path / "y.csv.gz").write_bytes(b"no gzip")
    with pytest.raises(DataError, match="cannot be read"):
        api.validate_ops([tmp_path / "y.csv.gz"])


def _table_of_known_devices(path: Path) -> Path:
    """Rows that two devices' shipped figures make, without noise."""
    rng = np.random.default_rng(1)
    rows = []
    for gpu in ("H100-SXM-80GB", "A100-SXM-80GB"):
        for _ in range(400):
            m, n, k = (2 ** rng.integers(7, 14, 3)).tolist()
            rows.append(f"{gpu},bf16,linear,{m},{n},{k},1,1,graph_burst,{AIC}")
    write(path, GEMM + "\n".join(dict.fromkeys(rows)) + "\n")
    times = {}
    for batch in read_op_rows(path).items:
        figures, _ = op_figures(batch, GPUS[batch.gpu], load_profile())
        seconds = op_time_s(batch, GPUS[batch.gpu], figures)
        times |= dict(zip(batch.line.tolist(), seconds.tolist(), strict=True))
    lines = path.read_text(encoding="utf-8").splitlines()
    for number, seconds in times.items():
        parts = lines[number - 1].split(",")
        parts[7] = f"{seconds * 1e6:.6g}"
        lines[number - 1] = ",".join(parts)
    return write(path, "\n".join(lines) + "\n")


def test_refit_judges_shapes_and_families_that_it_has_not_seen(tmp_path: Path) -> None:
    path = _table_of_known_devices(tmp_path / "gemm.csv")
    everything = api.validate_ops([path])
    shapes = api.validate_ops([path], refit="shapes")
    family = api.validate_ops([path], refit="family")
    assert 0.2 < shapes["simulated"] / everything["simulated"] < 0.4
    (own,), (blind,) = shapes["summary"], family["summary"]
    assert (own["profile"], blind["profile"]) == ("own", "blind")
    assert own["mape_frac"] < 0.02  # the formula made the rows
    # Each is predicted by the other, whose figures differ.
    assert own["mape_frac"] < blind["mape_frac"] < 0.5


def test_command_line(tmp_path: Path) -> None:
    path = write(tmp_path / "g.csv", GEMM + "H100,bf16,linear,8192,8192,8192,1,1700,graph_burst,s\n"
                 "H100,bf16,linear,1,1,1,1,nan,graph_burst,s\n")  # fmt: skip
    run = CliRunner()
    text = run.invoke(app, ["validate", "ops", str(path)])
    assert text.exit_code == 0
    assert "products of 1 GFLOP and more bf16  own" in text.stdout
    assert "g.csv:3: time_us" in text.stdout
    found = json.loads(run.invoke(app, ["validate", "ops", str(path), "--json"]).stdout)
    assert found["groups"]["H100-SXM-80GB linear bf16"]["n"] == 1


def test_backward_of_attention_takes_longer_than_its_flop_say(tmp_path: Path) -> None:
    head = (
        "gpu,dtype,batch,heads,kv_heads,seq_q,seq_kv,head_dim,causal,pass,time_us,timing,kernel,"
        "source\n"
    )
    row = "A100-PCIE-80GB,bf16,1,32,32,4096,4096,128,1,{},1000,derived_from_eff,TE,SimuMax/a.json\n"
    path = write(tmp_path / "attention.csv", head + row.format("fwd") + row.format("bwd"))
    profile = load_profile()
    shares = {
        b.op: op_figures(b, GPUS[b.gpu], profile)[0].eff_compute for b in read_op_rows(path).items
    }
    over = profile.attention_backward_frac(GPUS["A100-PCIE-80GB"]).value
    assert shares["attention_bwd"] / shares["attention"] == pytest.approx(over)
    assert over == pytest.approx(2.5 / 2.94, rel=0.01)
