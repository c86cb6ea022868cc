"""What the blind profile says of itself."""

from __future__ import annotations

import json

from typer.testing import CliRunner

from simcore import api
from simcore.cli.main import app
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS


def test_each_familys_figure_names_the_devices_it_is_from() -> None:
    found = api.calibration("Blind")["figures"]
    one = {(f["class"], f["family"]): f for f in found}
    streams = one["elementwise", "Ampere-GA100"]
    assert streams["devices"] == ["A100-PCIE-40GB", "A100-PCIE-80GB"]
    # What predictions read is what is shown.
    told = load_profile().class_figures("elementwise", GPUS["A100-SXM-40GB"])
    assert (told.level, told.share.value) == ("family", streams["value"])
    assert one["norm", "Ada"]["devices"] == [] and one["norm", "Ada"]["source"] == "gpu-benches"
    assert {"all others"} <= {f["family"] for f in found if f["class"] == "gemm_tensor16"}


def test_shown_as_a_table_and_as_json() -> None:
    run = CliRunner()
    shown = run.invoke(app, ["show", "calibration", "blind"])
    assert shown.exit_code == 0
    products = shown.stdout.split("\ngemm_tensor16 ", 1)[1].splitlines()
    line = next(ln for ln in products if " Hopper " in ln)
    share = load_profile().class_figures("gemm_tensor16", GPUS["H100-SXM-80GB"]).share.value
    assert f"{100 * share:.0f} %" in line and line.endswith("  H100-SXM-80GB")
    data = json.loads(run.invoke(app, ["show", "calibration", "blind", "--json"]).stdout)
    assert data["name"] == "blind" and len(data["figures"]) > 50
