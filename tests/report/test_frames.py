"""Tables for pandas: rows, units in names, figures as they are."""

from __future__ import annotations

import re

import pandas as pd
import pytest

from simcore import api
from simcore.base.errors import UsageError

#: A column of figures ends in a unit, or is a count, a batch or a ratio by its name.
UNIT = re.compile(
    r"_(?:s|bytes|frac|per_s|per_s_per_gpu|usd|j|w|probability)$|_per_million_samples$"
)
PLAIN = {
    "n_gpus", "n_nodes", "micro_batch", "grad_accum", "global_batch", "speedup_vs_1gpu",
    "speedup", "speedup_low", "speedup_high", "event", "seq_len", "tp", "pp", "vpp", "cp", "ep",
    "n_steps", "failures", "straggler_factor",
}  # fmt: skip


def results() -> list[tuple[str, object]]:
    ask = ("latte-xl", "4x8xA6000ada")
    answer = api.predict(*ask)
    return [
        ("prediction", answer),
        ("memory", answer.memory),
        ("over step", api.memory_timeline("gpt2", "8xA100")),
        ("timeline", api.timeline(*ask)),
        ("sweep", api.sweep("gpt2", ["8xA100", "2x8xA100"], strategy=("ddp", "dp"))),
        ("scaling", api.scaling(*ask)),
        ("comparison", api.compare("latte-xl", ("8xA100", "8xH100"))),
        ("plan", api.plan("gpt2", "A100:1..2x8", samples=1e6, deadline="30d")),
        ("goodput", api.goodput("gpt2", "8xA100", work_s=1e6)),
    ]


@pytest.mark.parametrize(("name", "result"), results())
def test_figures_carry_their_unit(name: str, result: api.Prediction) -> None:
    frame = result.to_pandas()
    assert len(frame) > 0
    for column in frame.select_dtypes("number").columns:
        assert UNIT.search(column) or column in PLAIN, f"{name}: {column}"


def test_values_are_those_of_the_result() -> None:
    answer = api.predict("latte-xl", "4x8xA6000ada")
    row = answer.to_pandas().iloc[0]
    assert row["step_time_s"] == answer.step_time_s.value
    assert row["memory_activations_bytes"] == answer.memory.terms["activations"]
    memory = answer.memory.to_pandas()
    assert memory["memory_bytes"].sum() == pytest.approx(answer.memory.device_bytes)
    assert memory["share_frac"].sum() == pytest.approx(1.0)
    line = api.timeline("latte-xl", "4x8xA6000ada")
    tasks = line.to_pandas()
    assert tasks["finish_s"].max() == line.makespan_s[0]
    assert (tasks["duration_s"] >= 0).all()
    found = api.sweep("gpt2", ["8xA100", "2x8xA100"], strategy=("ddp", "dp"))
    swept = found.to_pandas()
    assert len(swept) == found.n_evaluated == 3
    assert sum(found.invalid.values()) == 1, "what cannot be is counted, and is no row"
    assert swept[swept.strategy == "dp"].cluster.tolist() == ["1x8xA100-SXM-80GB"]
    assert set(swept[swept.on_front].cluster) == {"1x8xA100-SXM-80GB", "2x8xA100-SXM-80GB"}
    both = api.compare("latte-l", "1x8xH100,2x8xH100", strategy="dp,ddp").to_pandas()
    wrong = both[both.reason != ""]
    assert len(both) == 4 and len(wrong) == 1
    assert wrong[["step_time_s", "memory_device_bytes", "forward_s"]].isna().all(axis=None)
    scaled = api.scaling("latte-xl", "4x8xA6000ada").to_pandas().set_index("n_gpus")
    assert scaled.loc[8, "measured_samples_per_s"] == pytest.approx(13.28, rel=1e-4)
    assert pd.isna(scaled.loc[2, "measured_samples_per_s"])


def test_without_pandas_one_sentence_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pandas", None)
    with pytest.raises(UsageError, match=r"\.\[frames\]"):
        api.predict("gpt2", "8xA100").to_pandas()
