"""What the pictures show: the data of their artists, never their pixels."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from matplotlib.colors import to_hex
from matplotlib.container import BarContainer

from simcore import api
from simcore.base.errors import UsageError
from simcore.planning.goodput import Reliability, shares_over
from simcore.report.plots import canvas, draw
from simcore.report.plots.canvas import BLUE, SKY
from simcore.report.terms import HIDDEN

ASK = ("latte-xl", "4x8xA6000ada")


@pytest.fixture(scope="module")
def answer() -> api.Prediction:
    return api.predict(*ASK)


def bars(axes: Any) -> dict[str, BarContainer]:
    return {c.get_label(): c for c in axes.containers if isinstance(c, BarContainer)}


def lines(axes: Any) -> dict[str, Any]:
    return {line.get_label(): line for line in axes.get_lines()}


def test_time_bars_add_up_to_the_step(answer: api.Prediction) -> None:
    (axes,) = answer.plot("time").axes
    parts = bars(axes)
    assert sum(b[0].get_width() for b in parts.values()) == pytest.approx(
        answer.step_time_s.value, rel=1e-6
    )
    assert parts["backward"][0].get_width() == pytest.approx(answer.time_s["backward"])
    assert "comm. hidden" not in parts and HIDDEN in answer.time_s
    ends = [b[0].get_x() + b[0].get_width() for b in parts.values()]
    starts = [b[0].get_x() for b in parts.values()]
    assert starts[1:] == pytest.approx(ends[:-1]), "one on the other"
    assert lines(axes)["measured (latte-19)"].get_xdata() == pytest.approx([1.96078])


def test_memory_bars_add_up_and_show_the_limit(answer: api.Prediction) -> None:
    (axes,) = answer.plot("memory").axes
    total = sum(b[0].get_width() for b in bars(axes).values())
    assert total == pytest.approx(answer.memory.device_bytes / 1e9)
    assert lines(axes)["device limit, 51.0 GB"].get_xdata() == pytest.approx(
        [answer.memory.capacity_bytes / 1e9] * 2
    )
    (same,) = answer.memory.plot().axes
    assert sum(b[0].get_width() for b in bars(same).values()) == pytest.approx(total)


def test_the_overview_is_both(answer: api.Prediction) -> None:
    above, below = answer.plot().axes
    assert above.get_xlabel().startswith("step time")
    assert below.get_xlabel() == "memory [GB]"


def test_every_term_has_a_fill_of_its_own() -> None:
    """One that the breakdown gains needs one here: white crosses are what nobody named."""
    from simcore.report.terms import MEMORY, TIME

    assert set(TIME) - {"compute", HIDDEN} <= set(canvas.TIME_ORDER)
    assert set(MEMORY) <= set(canvas.MEMORY_ORDER)
    for order in (canvas.TIME_ORDER, canvas.MEMORY_ORDER):
        fills = [canvas.FILLS[t] for t in order]
        assert len(set(fills)) == len(fills)


def test_neighbours_in_every_stack_differ_without_colour(answer: api.Prediction) -> None:
    for order in (canvas.TIME_ORDER, canvas.MEMORY_ORDER):
        hatches = [canvas.FILLS[t][1] for t in order]
        assert all(a != b for a, b in pairwise(hatches)), order
    for kind in ("time", "memory"):
        (axes,) = answer.plot(kind).axes
        drawn = [b[0].get_hatch() for b in bars(axes).values()]
        assert all(a != b for a, b in pairwise(drawn))


def test_a_comparison_names_what_differs() -> None:
    found = api.compare("latte-xl", ("8xA100", "8xH100"))
    (axes,) = found.plot("time").axes
    names = [t.get_text() for t in axes.get_yticklabels()]
    assert names == [p.cluster for p in found.predictions]
    for i, p in enumerate(found.predictions):
        total = sum(b[i].get_width() for b in bars(axes).values())
        assert total == pytest.approx(p.step_time_s.value, rel=1e-6) or total == pytest.approx(
            p.step_time_s.value * 1e3, rel=1e-6
        )
    mixed = draw("time", [p for s in ("ddp", "zero2") for p in
                          api.compare("gpt2", ("8xA100",), strategy=s).predictions])  # fmt: skip
    assert [t.get_text().split("\n")[1] for t in mixed.axes[0].get_yticklabels()] == [
        "ddp", "zero2",
    ]  # fmt: skip


def test_scaling_has_curve_band_and_measured_points() -> None:
    curve = api.scaling(*ASK)
    left, right = curve.plot().axes
    gpus = [p.n_gpus for p in curve.points]
    assert list(lines(left)["predicted"].get_xdata()) == gpus
    assert lines(left)["predicted"].get_ydata() == pytest.approx(
        [p.speedup.value for p in curve.points]
    )
    assert lines(right)["predicted"].get_ydata() == pytest.approx(
        [100 * p.efficiency_frac.value for p in curve.points]
    )
    band = left.collections[0].get_paths()[0].vertices
    assert band[:, 1].max() == pytest.approx(max(p.speedup.high for p in curve.points))
    assert lines(left)["ideal"].get_ydata() == pytest.approx(gpus)
    seen = lines(left)["measured, over the predicted one GPU"]
    assert list(seen.get_xdata()) == [8, 32]
    assert seen.get_ydata() == pytest.approx([m.speedup for m in curve.measured])


def test_scaling_crosses_out_what_does_not_fit() -> None:
    curve = api.scaling("latte-xl", "1x2xRTX4090")
    (left, _) = curve.plot().axes
    assert list(lines(left)["does not fit"].get_xdata()) == [1, 2]


def test_roofline_has_every_op_with_flop_below_the_roof() -> None:
    data = api.roofline(*ASK)
    (axes,) = draw("roofline", data).axes
    points = np.concatenate([np.asarray(c.get_offsets()) for c in axes.collections])
    expected = sorted(
        (op.intensity_flop_per_byte, op.achieved_flop_per_s / 1e12) for op in data.ops if op.flop
    )
    assert np.allclose(sorted(map(tuple, points)), expected)
    roof = next(line for name, line in lines(axes).items() if name.startswith("datasheet"))
    assert max(roof.get_ydata()) == pytest.approx(data.peak_flop_per_s / 1e12)
    markers = {c.get_label().split(",")[0]: c.get_paths()[0] for c in axes.collections}
    shapes = {kind: path.vertices.shape for kind, path in markers.items()}
    assert len(set(shapes.values())) == len(shapes), "kinds differ in shape"
    (told,) = [t.get_text() for t in axes.texts if t.get_text().startswith("ops that take")]
    longest, total_s = max(data.ops, key=lambda op: op.time_s), sum(op.time_s for op in data.ops)
    share = 100 * longest.time_s / total_s
    assert f"{longest.name} {longest.part}, {share:.1f} %" in told


def test_timeline_covers_what_every_stream_does() -> None:
    line = api.timeline(*ASK)
    (axes,) = line.plot().axes
    assert [t.get_text() for t in axes.get_yticklabels()] == list(line.graph.streams)
    ends = [p.vertices[:, 0].max() for c in axes.collections for p in c.get_paths()]
    assert max(ends) == pytest.approx(line.makespan_s[0] * 1e3)
    busy = sum(
        float(line.finish_s[i, 0] - line.start_s[i, 0])
        for i, t in enumerate(line.graph.tasks) if t.stream == "compute"
    )  # fmt: skip
    row = line.graph.streams.index("compute")
    drawn = sum(
        np.ptp(p.vertices[:, 0]) for c in axes.collections for p in c.get_paths()
        if p.vertices[:, 1].min() > row - 0.5 and p.vertices[:, 1].max() < row + 0.5
    )  # fmt: skip
    assert drawn == pytest.approx(busy * 1e3, rel=0.01)


def test_the_wait_for_data_is_told_only_where_there_is_one(answer: api.Prediction) -> None:
    def words(p: api.Prediction) -> str:
        return " ".join(t.get_text() for t in p.plot("timeline").axes[0].texts)

    assert "data loading" in words(answer)
    assert "data loading" not in words(api.predict("gpt2", "8xA100"))
    few = api.predict("llama-3-8b", "1x4xH100", pp=4, schedule="dualpipe", grad_accum=4)
    assert "exchanges and bubble" in words(few)  # no schedule of so few: one stage is drawn


def test_a_pipeline_has_a_row_a_stage() -> None:
    p = api.predict("llama-3-8b", "1x4xH100", tp=2, pp=2, grad_accum=4, keep_timeline=True)
    assert p.pipeline is not None
    (axes,) = p.plot("timeline").axes
    assert [t.get_text() for t in axes.get_yticklabels()] == ["stage 0", "stage 1"]
    ends = [x.vertices[:, 0].max() for c in axes.collections for x in c.get_paths()]
    assert max(ends) == pytest.approx(p.pipeline.finish_s * 1e3)
    assert max(ends) == pytest.approx(p.step_time_s.value * 1e3, rel=0.01)


def test_forward_and_backward_of_many_micro_batches_have_a_half_of_their_row_each() -> None:
    few, many = (
        api.predict("gpt2", "1x2xH100", pp=2, grad_accum=n, micro_batch=1, keep_timeline=True)
        for n in (8, 256)
    )

    def lows(p: api.Prediction, colour: str) -> set[float]:
        (axes,) = p.plot("timeline").axes
        return {
            round(float(path.vertices[:, 1].min()) % 1, 2)
            for c in axes.collections if to_hex(c.get_facecolor()[0]) == colour.lower()
            for path in c.get_paths()
        }  # fmt: skip

    assert lows(few, SKY) == {0.64} and 0.64 in lows(few, BLUE)
    assert lows(many, SKY) == {0.64} and lows(many, BLUE) == {0.88}
    (axes,) = many.plot("timeline").axes
    assert sum(len(c.get_paths()) for c in axes.collections) < 200


def test_sensitivity_spans_half_and_twice() -> None:
    centre, swings = api.sensitivity(*ASK)
    (axes,) = draw("sensitivity", (centre, swings)).axes
    half, twice = bars(axes)["half of it"], bars(axes)["twice of it"]
    for bar, swing in zip(half, swings, strict=True):
        assert bar.get_x() + bar.get_width() == pytest.approx(swing.half_s)
    for bar, swing in zip(twice, swings, strict=True):
        assert bar.get_x() + bar.get_width() == pytest.approx(swing.double_s)
    assert half[0].get_hatch() != twice[0].get_hatch()


def test_pareto_front_is_of_what_fits() -> None:
    swept = api.sweep("gpt2-xl", ["1x1xA100", "1x8xA100", "2x8xA100"], strategy=("ddp", "zero3"),
                      micro_batch=(1, 4, 64))  # fmt: skip
    (axes,) = swept.plot().axes
    front = lines(axes)["Pareto front of what fits"]
    x, y = np.asarray(front.get_xdata()), np.asarray(front.get_ydata())
    assert (np.diff(x) > 0).all() and (np.diff(y) > 0).all()
    table = swept.to_pandas()
    for n in table.n_gpus.unique():
        best = table.tokens_per_s[table.fits & (table.n_gpus <= n)].max()
        assert y[x <= n].max() == pytest.approx(best)
    assert (~table.fits).any() and "hollow: does not fit" in lines(axes)


def test_on_one_cluster_the_front_is_over_memory() -> None:
    swept = api.sweep("gpt2-xl", "1x8xA100", strategy="ddp,zero3", micro_batch="1..8*2")
    (axes,) = swept.plot().axes
    assert axes.get_xlabel() == "memory a GPU [GB]"
    table = swept.to_pandas()
    on_front = table[table.on_front].sort_values("memory_bytes")
    assert lines(axes)["Pareto front of what fits"].get_xdata() == pytest.approx(
        on_front.memory_bytes / 1e9
    )
    for row in on_front.itertuples():
        less = table[table.fits & (table.memory_bytes <= row.memory_bytes)]
        assert row.samples_per_s == less.samples_per_s.max()


def test_a_sweep_that_kept_nothing_says_where_its_points_are(tmp_path: Path) -> None:
    swept = api.sweep("gpt2", "1x8xA100", output=tmp_path / "points.csv")
    for show in (swept.plot, swept.to_pandas):
        with pytest.raises(UsageError, match=r"points\.csv"):
            show()
    assert "configurations" in swept._repr_html_()


def test_a_plan_is_drawn_as_its_front_within_its_limits() -> None:
    found = api.plan("llama3.2-1b", "H100:1..4x8,A100:1..4x8", tokens=1e10, deadline="20d")
    (axes,) = found.plot().axes
    drawn = lines(axes)
    front = drawn["Pareto front of what meets all limits"]
    ends = sorted((o.time_s / 86400, o.cost_usd / 1e3) for o in found.front)
    assert front.get_xdata() == pytest.approx([days for days, _ in ends])
    assert front.get_ydata() == pytest.approx([cost for _, cost in ends])
    assert max(front.get_xdata()) <= 20
    assert any(label.startswith("deadline, 20 days") for label in drawn)
    named = {text.get_text() for text in axes.texts}
    assert f"TAKE {found.best[0].cluster}, {found.best[0].form.strategy}" in named
    taken = found.best[0]
    step = taken.prediction.step_time_s
    bars = [line.get_xdata() * 86400 for line in axes.lines if len(line.get_xdata()) == 2]
    whole = [taken.time_s * step.low / step.value, taken.time_s * step.high / step.value]
    assert any(bar == pytest.approx(whole) for bar in map(np.asarray, bars))
    nothing = found.replace(deadline="1min")
    assert not nothing.feasible
    assert "nothing meets" in nothing.plot().texts[0].get_text()


def test_lost_time_is_least_at_the_exact_interval_and_its_parts_add_up() -> None:
    found = api.goodput("llama3.1-405b", "2048x8xH100", reliability=Reliability(slow_prob=0.01,
                        slow_frac=0.1))  # fmt: skip
    every_s = np.geomspace(found.exact_s / 20, found.exact_s * 20, 4001)
    shares = shares_over(found, every_s)
    assert sum(shares.values()) == pytest.approx(np.ones(len(every_s)))
    assert every_s[shares["useful"].argmax()] == pytest.approx(found.exact_s, rel=0.01)
    assert shares_over(found, np.array([found.interval_s]))["lost"] == [
        pytest.approx(found.lost_frac)
    ]
    assert (shares_over(found, every_s, 2.0)["useful"] < shares["useful"]).all()
    (axes,) = found.plot().axes
    mark = axes.get_lines()[-1]
    assert list(mark.get_xdata()) == [found.interval_s]
    assert mark.get_ydata() == pytest.approx([100 * (1 - found.goodput_frac)])
    labels = {t.get_text() for t in axes.get_legend().get_texts()}
    assert {"restarts", "writing checkpoints", "waiting for slow nodes"} < labels


def _row(name: str, measured: float, predicted: float, flag: str = "") -> dict[str, Any]:
    return {"id": name, "quantity": "step_time", "predicted": predicted, "low": predicted / 2,
            "high": predicted * 2, "measured": measured, "flag": flag,
            "error_frac": predicted / measured - 1}  # fmt: skip


def test_measured_rows_stand_at_measured_and_predicted() -> None:
    verdict = {"rows": 3, "simulated": 3, "mode": "blind", "suspects": {},
               "per_row": [_row("a-1", 1.0, 1.1), _row("a-2", 2.0, 1.9),
                           _row("b-1", 3.0, 9.0, "x")],
               "step_time": {"mape_frac": 0.7, "coverage80_frac": 2 / 3}}  # fmt: skip
    (axes,) = draw("measured", verdict).axes
    points = {
        (x, y): line.get_markerfacecolor()
        for line in axes.get_lines()
        if line.get_marker() not in ("None", None, "")
        for x, y in zip(line.get_xdata(), line.get_ydata(), strict=True)
    }
    assert set(points) == {(1.0, 1.1), (2.0, 1.9), (3.0, 9.0)}
    assert points[3.0, 9.0] == "white", "flagged rows are hollow"
    assert points[1.0, 1.1] != "white"
    assert "MAPE 70 %" in axes.get_title(loc="left")


def test_a_verdict_without_rows_is_drawn_too() -> None:
    empty = draw("measured", {"rows": 0, "simulated": 0, "per_row": []})
    assert "no row" in empty.texts[0].get_text()
