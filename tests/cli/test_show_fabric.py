"""``simcore show fabric``: what is printed adds up, and bad jobs end in one sentence."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from simcore.answer.fabric_groups import fabric_view, job_of
from simcore.base.errors import InvalidConfig
from simcore.hardware.fabrics.record import read_fabric
from simcore.report.links import render_fabric

pytest.importorskip("networkx")

TWO = """name: two
kind: fat-tree
tiers: [{members: 4, oversubscription: 4}]
job_nodes: 0-14:2
jobs: [{name: neighbour, nodes: '1-15:2', sends: all-to-all, busy: 0.5}]
"""


def test_it_says_links_bisection_jobs_and_shares() -> None:
    text = render_fabric(fabric_view(read_fabric(TWO, "two.yaml"), "8x8xH100 tp4"))
    for part in (
        "16: 8 of 8x8xH100 tp4, 8 of other jobs",
        "16 x node to leaf, 384 GB/s",
        "4 x leaf to spine, 384 GB/s",
        "768 GB/s from half",
        "0.25 of what",
        "oversubscribed 4:1",
        "neighbour on nodes 1-15:2: all-to-all, 50 % of the time",
    ):
        assert part in " ".join(text.split())
    ring = next(line for line in text.splitlines() if line.startswith("data   ring"))
    # (1 + 7/19) / 2 of the network of a GPU, 48 GB/s; GPUs 0 and 4 are a group
    assert ring.split() == [
        *("data", "ring", "16", "8", "1", "0", "4", "0.684", "32.8", "leaf0", "to", "spine0")
    ]


def test_a_fabric_without_tiers_states_no_oversubscription() -> None:
    """Its bisection says it: each of 2 x 2 nodes reaches the others over one link of four."""
    mesh = read_fabric("name: mesh\nkind: torus\nshape: [2, 2]\n", "mesh.yaml")
    text = render_fabric(fabric_view(mesh, "4x8xH100 tp8"))
    assert "oversubscribed" not in text and "routing by-dimension" in text


def test_groups_follow_from_the_layout() -> None:
    view = fabric_view(read_fabric(TWO.split("job_")[0], ""), "16x8xH100 tp8 pp4 cp2 ep2")
    found = {(g.name, g.sends): (g.n_ranks, g.n_nodes, g.apart, g.nics) for g in view.groups}
    assert found == {
        ("context", "ring"): (2, 2, 1, (0,)),
        ("data", "ring"): (4, 4, 1, (0,)),
        ("data", "tree"): (4, 4, 1, (0,)),
        ("pipeline", "chain"): (4, 4, 4, (0,)),
    }  # tensor and expert groups stay within a node
    shares = {g.sends: g.share for g in view.groups if g.name != "context"}
    assert shares["ring"] == 1.0  # leaves of four
    assert shares["chain"] == pytest.approx(1 / 4)  # all nodes of a leaf send to the next


def test_the_command_prints_json_and_draws(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pytest.importorskip("matplotlib")
    from simcore.cli.main import run

    file, picture = tmp_path / "two.yaml", tmp_path / "two.svg"
    file.write_text(TWO, encoding="utf-8")
    assert not run(["show", "fabric", str(file), "--json", "--plot", str(picture)])
    found = json.loads(capsys.readouterr().out)
    assert found["bisection_frac"] == pytest.approx(0.25)
    assert found["groups"][0]["limited_by"] == "leaf0 to spine0"
    assert found["other_jobs"][0]["busy"] == 0.5
    drawn = picture.read_text(encoding="utf-8")
    assert "node of another job" in drawn
    assert "data, ring" in drawn
    assert not run(["list", "fabrics"])
    assert "llama3-24k" in capsys.readouterr().out


@pytest.mark.parametrize(
    "kind",
    [
        "torus\nshape: [4, 4]",
        "dragonfly\ngroups: 4\nswitches: 4\nswitch_nodes: 4",
        "fat-tree\ntiers: [{members: 8}]",
    ],
)
def test_fabrics_of_every_shape_are_drawn(kind: str) -> None:
    pytest.importorskip("matplotlib")
    from simcore.report.plots import draw

    view = fabric_view(read_fabric(f"name: a\nkind: {kind}\n", ""), "16x8xH100 tp8 pp2")
    figure = draw("fabric", view)
    graph, bars = figure.axes
    assert "node of the job" in [t.get_text() for t in graph.get_legend().get_texts()]
    assert [b.get_width() for b in bars.patches] == pytest.approx([g.share for g in view.groups])


def test_bad_jobs_are_said() -> None:
    record = read_fabric(TWO, "")
    assert job_of("2x8xH100 TP2 pp=2")[1].pp == 2
    for job, says in (
        ("8x8xH100 xp2", "no degree such as tp8"), ("H100", "is one"),
        ("8x8xH100 tp3", "does not divide"), ("9x8xH100", "has 8 nodes for a job, not 9"),
    ):  # fmt: skip
        with pytest.raises(InvalidConfig, match=says):
            fabric_view(record, job)
