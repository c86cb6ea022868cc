"""The scaling curve: its clusters, its intervals, its measured points."""

from __future__ import annotations

from dataclasses import replace

import pytest

from simcore import api
from simcore.answer.result import Single
from simcore.answer.scaling import clusters_up_to, speedup_of, words_for
from simcore.base.errors import InvalidConfig
from simcore.base.lookup import Later
from simcore.hardware.cluster import parse_cluster


@pytest.mark.parametrize(
    ("cluster", "nodes", "per_node", "counts"),
    [
        ("4x8xA100", 4, 8, ["1x1", "1x2", "1x4", "1x8", "2x8", "3x8", "4x8"]),
        ("1x1xT4", 1, 1, ["1x1"]),
        ("1x6xV100", 1, 6, ["1x1", "1x2", "1x4", "1x6"]),
        ("20x4xA100", 20, 4, ["1x1", "1x2", "1x4", "2x4", "3x4", "4x4", "8x4", "16x4", "20x4"]),
    ],
)
def test_clusters_double_and_end_at_the_whole(
    cluster: str, nodes: int, per_node: int, counts: list[str]
) -> None:
    name = cluster.split("x", 2)[2]
    assert clusters_up_to(cluster, nodes, per_node) == [f"{c}x{name}" for c in counts]


@pytest.mark.parametrize("gpus", ["2xp5.48xlarge", "2xa3-megagpu-8g", "1xp4d.24xlarge"])
def test_a_machine_by_name_scales_on_its_own_nodes(gpus: str) -> None:
    curve = api.scaling("gpt2", gpus)
    assert curve.points[-1].samples_per_s.value == api.predict("gpt2", gpus).samples_per_s


@pytest.mark.parametrize(
    ("text", "node", "words"),
    [
        ("2xp5.48xlarge", None, ("p5-aws", None)),
        ("2xa3-megagpu-8g", None, ("hgx-h100", "8xroce-200")),
        ("2xp4d.24xlarge", "no-p2p", ("p4d-aws:no-p2p", None)),
        ("2x8xH100", None, (None, None)),
        ("2x8xH100", "p5-aws", ("p5-aws", None)),
        ("1xp5.48xlarge+1x8xA100", None, (None, None)),  # no option names two nodes
    ],
)
def test_a_machine_is_asked_for_again_by_its_node(
    text: str, node: str | None, words: tuple[str | None, str | None]
) -> None:
    assert tuple(words_for(parse_cluster(text, node=node), node, None).values()) == words


def test_every_point_is_the_prediction_of_its_cluster() -> None:
    curve = api.scaling("latte-xl", "4x8xA6000ada")
    assert [p.n_gpus for p in curve.points] == [1, 2, 4, 8, 16, 24, 32]
    for point in curve.points:
        alone = api.predict("latte-xl", point.cluster)
        assert point.samples_per_s.value == alone.samples_per_s
        assert point.speedup.value == alone.speedup_vs_1gpu
        assert point.efficiency_frac.value == alone.scaling_efficiency_frac
        assert point.samples_per_s.low == alone.global_batch / alone.step_time_s.high
        assert point.efficiency_frac.high <= 1.0 + 1e-12
    assert curve.points[0].speedup.low == curve.points[0].speedup.high == 1.0


def test_measured_points_say_what_they_are_against() -> None:
    nobody_measured_one = api.scaling("latte-xl", "4x8xA6000ada").measured
    assert {m.over for m in nobody_measured_one} == {"predicted"}
    assert {m.n_gpus: m.samples_per_s for m in nobody_measured_one} == pytest.approx(
        {8: 13.28, 32: 32.64}, rel=1e-4
    )
    with_one = {m.n_gpus: m for m in api.scaling("latte-l", "2x8xA6000ada").measured}
    assert {m.over for m in with_one.values()} == {"measured"}
    assert with_one[8].speedup == pytest.approx(18.64 / 3.22, rel=1e-3)  # the seed's own column


def test_the_interval_is_the_relative_one_of_the_step_below_the_ideal() -> None:
    p = api.predict("latte-xl", "1x8xA6000ada")
    found = speedup_of(p)
    assert found.low == pytest.approx(found.value * p.step_time_s.value / p.step_time_s.high)
    assert found.high == pytest.approx(
        min(8.0, found.value * p.step_time_s.value / p.step_time_s.low)
    )
    single = Single(gpu="A6000ada", speedup=0.8, efficiency_frac=0.1)
    slow = replace(p, later_single=Later(lambda: single))
    assert speedup_of(slow).high == pytest.approx(0.8 * p.step_time_s.value / p.step_time_s.low)


def test_a_layout_starts_where_it_fits_and_a_mixed_cluster_has_no_curve() -> None:
    curve = api.scaling("llama-3-8b", "1x8xH100", tp=2, pp=2, global_batch=64)
    assert [p.n_gpus for p in curve.points] == [4, 8]
    assert {p.grad_accum for p in curve.predictions} == {32}
    with pytest.raises(InvalidConfig, match="one type"):
        api.scaling("bert-base", "1x2xA100+1x3xT4")
