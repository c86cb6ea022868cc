"""Fitted on few rows, judged on the rest: what the choice and the predictions may know."""

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.report.html.validation import validation_page
from simcore.validate.few_rows import judge_few_rows
from simcore.validate.table import read_table

HEAD = "id,model,gpus,strategy,micro_batch,network,step_time_s,source,note\n"
#: Batches at which the device binds, not the host: a host much slower than stated is hidden too.
JOBS = [
    (model, gpus, batch)
    for model in ("gpt2", "gpt2-medium")
    for gpus in ("1x1xA100", "1x8xA100", "2x8xA100")
    for batch in (16, 32)
]


def table(folder: Path, factor: Callable[[int, str, str], float], name: str = "t") -> Path:
    """Steps that take ``factor`` of what is predicted blind."""
    lines = []
    for i, (model, gpus, batch) in enumerate(JOBS):
        blind = api.predict(model, gpus, strategy="ddp", micro_batch=batch).step_time_s.value
        seconds = blind * factor(i, model, gpus)
        network = "" if gpus.startswith("1x") else "8xib-hdr"
        lines.append(f"r-{i},{model},{gpus},ddp,{batch},{network},{seconds:.6g},us,\n")
    path = folder / f"{name}.csv"
    path.write_text(HEAD + "".join(lines), encoding="utf-8")
    return path


def slower(i: int, model: str, gpus: str) -> float:
    """A machine 25 % slower than described; 2 % of noise."""
    return 1.25 * math.exp(0.02 * math.sin(7.0 * i))


@pytest.fixture(scope="module")
def sound(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return table(tmp_path_factory.mktemp("few"), slower)


def test_three_rows_teach_the_other_nine(sound: Path) -> None:
    found = api.validate([sound], calibrate=3, by=["model"])
    assert found["step_time"]["n"] == 9 and found["blind"]["step_time"]["n"] == 9
    assert found["blind"]["step_time"]["mape_frac"] == pytest.approx(0.2, abs=0.03)
    assert found["step_time"]["mape_frac"] < 0.07
    fitted = set(found["calibration"]["rows_of_fit"])
    assert len(fitted) == 3 and not fitted & {r["id"] for r in found["per_row"]}
    assert set(found["groups"]["model"]) == {"gpt2", "gpt2-medium"}
    told = {k["parameter"]: k["identified"] for k in found["calibration"]["identified"]}
    # All are slower alike: where compute is known well, memory takes most of it.
    assert (told["compute"] or told["memory"]) and not told["host"] and not told["loader"]


def test_what_is_judged_teaches_nothing_and_chooses_nothing(sound: Path, tmp_path: Path) -> None:
    """Other times of rows that are not in the fit: the same choice, the same predictions."""
    first = api.validate([sound], calibrate=3)
    fitted = set(first["calibration"]["rows_of_fit"])
    changed = table(
        tmp_path, lambda i, m, g: slower(i, m, g) * (1.0 if f"r-{i}" in fitted else 1.0 + 0.1 * i)
    )
    again = api.validate([changed], calibrate=3)
    assert set(again["calibration"]["rows_of_fit"]) == fitted
    told = [{r["id"]: r["predicted"] for r in x["per_row"]} for x in (first, again)]
    assert told[0] == pytest.approx(told[1])
    assert again["step_time"]["mape_frac"] != pytest.approx(first["step_time"]["mape_frac"])


def test_draws_are_by_lot_and_repeat_themselves(sound: Path) -> None:
    runs = [judge_few_rows([read_table(sound)], 3, 3) for _ in range(2)]
    assert runs[0].spread() == runs[1].spread()
    assert len({d.chosen for d in runs[0].draws}) > 1
    errors = [d.mape_frac for d in runs[0].draws]
    assert runs[0].draw.mape_frac == np.median(errors)


def test_one_gpu_is_enough_for_what_only_computes(tmp_path: Path) -> None:
    """Devices slower than described are told by rows of one of them; those rows are not judged."""
    found = api.validate([table(tmp_path, slower)], calibrate="one-gpu")
    assert found["step_time"]["n"] == 8
    assert found["step_time"]["mape_frac"] < 0.5 * found["blind"]["step_time"]["mape_frac"]


def test_what_a_work_errs_by_on_one_gpu_it_errs_by_on_several(tmp_path: Path) -> None:
    """Every model and batch is off by a factor of its own, the same on any number of devices."""
    own = {
        ("gpt2", 16): 1.4, ("gpt2", 32): 1.0, ("gpt2-medium", 16): 1.0, ("gpt2-medium", 32): 0.7,
    }  # fmt: skip
    off = table(tmp_path, lambda i, model, _: own[model, JOBS[i][2]])
    found = api.validate([off], calibrate="one-gpu")
    assert found["blind"]["step_time"]["mape_frac"] > 0.15
    assert found["step_time"]["mape_frac"] < 0.03


def test_nothing_left_to_judge_is_said(sound: Path) -> None:
    with pytest.raises(InvalidConfig, match="no row is left to judge"):
        api.validate([sound], calibrate=40)
    with pytest.raises(InvalidConfig, match="did you mean 'us'"):
        api.validate([sound], only={"source": "uz"})
    assert api.validate([sound], only={"model": "gpt2"})["rows"] == 6


def test_the_page_is_one_file_without_script_or_address(sound: Path) -> None:
    page = validation_page(api.validate([sound], calibrate=3, by=["model"]), ["t<b>.csv"])
    assert "<script" not in page and "://" not in page and "t&lt;b&gt;.csv" in page
    assert len(page) < 1_000_000
    assert page.count("<svg") == 2
    for words in ("inside 80 %", "blind", "multipliers alone", "Largest errors", "By model"):
        assert words in page


#: Gradients of which a network of two adapters, where the usual node has eight, hides few.
NETWORKED = [
    (model, gpus, batch)
    for model in ("gpt2", "gpt2-medium")
    for gpus in ("1x8xA100-SXM-80GB", "2x8xA100-SXM-80GB", "8x8xA100-SXM-80GB")
    for batch in (4, 16)
]


def networked(folder: Path, stated: str) -> Path:
    """Steps over two adapters a node, in a table that says ``stated`` of them."""
    lines = []
    for i, (model, gpus, batch) in enumerate(NETWORKED):
        network = None if gpus.startswith("1x") else "2xib-hdr"
        found = api.predict(model, gpus, network=network, strategy="ddp", micro_batch=batch)
        name, seconds = stated if network else "", found.step_time_s.value
        lines.append(f"n-{i},{model},{gpus},ddp,{batch},{name},{seconds:.6g},us\n")
    head = "id,model,gpus,strategy,micro_batch,network,step_time_s,source\n"
    path = folder / f"n{len(stated)}.csv"
    path.write_text(head + "".join(lines), encoding="utf-8")
    return path


def test_a_network_that_nobody_stated_is_found_where_a_stated_one_is_believed(
    tmp_path: Path,
) -> None:
    """Two of eight adapters: a quarter of the usual node's bandwidth, told by two rows."""
    unstated, stated = (networked(tmp_path, network) for network in ("", "8xib-hdr"))
    found, believed = (api.validate([path], calibrate=2) for path in (unstated, stated))
    told = {k["parameter"]: k for k in found["calibration"]["identified"]}
    rest = {k["parameter"]: k for k in believed["calibration"]["identified"]}
    assert told["network"]["identified"] and "network" not in rest
    together = told["network"]["value"] * told["inter"]["value"]
    assert math.log(together) == pytest.approx(math.log(0.25), abs=0.25)
    assert found["step_time"]["mape_frac"] < 0.03
    assert believed["step_time"]["mape_frac"] > 0.08


def test_the_order_of_what_is_judged_is_told(sound: Path) -> None:
    """Slower by one factor but for 2 %: the order of ten rows that are far apart is kept."""
    found = api.validate([sound], calibrate=1)
    order = found["rank_correlation"]
    assert order["families"] == 0  # four rows a model and cluster at most
    assert set(order) == set(found["blind"]["rank_correlation"])
