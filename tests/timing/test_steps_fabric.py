"""Predictions on a fabric: those of a network's words where both say the same; other jobs slow."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig

FLAT = "kind: fat-tree\ntiers: [{members: 16}]\n"
NARROW = "kind: fat-tree\ntiers: [{members: 4, oversubscription: 8}]\n"


def file(folder: Path, text: str) -> str:
    path = folder / "made.yaml"
    path.write_text(f"name: made\n{text}", encoding="utf-8")
    return str(path)


def step_s(**options: Any) -> float:
    job = {"model": "llama2-7b", "gpus": "16x8xH100", "micro_batch": 1, "strategy": "zero3"}
    return float(api.predict(**{**job, **options}).step_time_s)


LAYOUTS: dict[str, dict[str, Any]] = {
    "zero3": {},
    "ddp": {"strategy": "ddp", "model": "gpt2-xl"},
    "hsdp": {"strategy": "hsdp"},
    "tp8 pp4": {"strategy": "zero1", "tp": 8, "pp": 4, "global_batch": 64},
    "cp2": {"strategy": "zero1", "tp": 8, "cp": 4},
    "experts": {"model": "mixtral-8x7b", "strategy": "zero1", "ep": 8, "tp": 2},
    "PCIe": {"gpus": "16x8xL40S", "strategy": "ddp", "model": "gpt2-xl"},
    "AMD": {"gpus": "16x8xMI300X"},
    "racks": {"gpus": "2x72xGB200"},
}


@pytest.mark.parametrize("name", LAYOUTS)
def test_a_fabric_that_limits_nothing_changes_nothing(name: str, tmp_path: Path) -> None:
    fabric = file(tmp_path, FLAT)
    assert step_s(**LAYOUTS[name], fabric=fabric) == pytest.approx(
        step_s(**LAYOUTS[name]), rel=1e-9
    )


@pytest.mark.parametrize("name", ["zero3", "cp2", "experts", "PCIe", "AMD"])
@pytest.mark.parametrize("over", [2, 8])
def test_leaves_are_those_of_the_words(name: str, over: int, tmp_path: Path) -> None:
    """Rings and exchanges, whose closed forms are exact (trees only where they bind nothing)."""
    layout = {**LAYOUTS[name], "nccl_algo": "Ring"}
    fabric = file(tmp_path, NARROW.replace("8", str(over)))
    words = step_s(**layout, network=f"{over}:1 leaf=4")
    assert step_s(**layout, fabric=fabric) == pytest.approx(words, rel=1e-9)
    if over == 8:
        assert words > 1.01 * step_s(**layout)


def test_rails_are_those_of_the_words(tmp_path: Path) -> None:
    rails = file(tmp_path, NARROW.replace("fat-tree", "rail-optimised"))
    layout = {**LAYOUTS["experts"], "nccl_algo": "Ring"}
    words = step_s(**layout, network="8:1 leaf=4 rails")
    assert step_s(**layout, fabric=rails) == pytest.approx(words, rel=1e-9)


def test_pipeline_stages_share_what_is_above_their_pod(tmp_path: Path) -> None:
    """Stages of four nodes on leaves of four: all of a leaf's nodes send at once."""
    layout = LAYOUTS["tp8 pp4"]
    assert step_s(**layout, fabric=file(tmp_path, NARROW)) > 1.02 * step_s(**layout)


def test_a_job_beside_takes_its_part(tmp_path: Path) -> None:
    alone = step_s(fabric=file(tmp_path, NARROW + "job_nodes: 0-30:2\n"))
    jobs = "job_nodes: 0-30:2\njobs: [{name: other, nodes: '1-31:2', busy: BUSY}]\n"
    beside, always = (
        step_s(fabric=file(tmp_path, NARROW + jobs.replace("BUSY", busy))) for busy in ("0.3", "1")
    )
    assert alone < beside < always
    found = api.predict(
        "llama2-7b", "16x8xH100", strategy="zero3", fabric=str(tmp_path / "made.yaml")
    )
    said = [a for a in found.assumptions if a.startswith("fabric: ")]
    assert said == ["fabric: fat tree: 4 nodes a leaf at 8:1; other sends all the time"]


def test_explained_collectives_say_what_limits_them(tmp_path: Path) -> None:
    fabric = file(tmp_path, NARROW)
    told = str(
        api.explain("llama2-7b", "16x8xH100", "collectives", strategy="zero3", fabric=fabric)
    )
    assert "gets 0.5 of the network, leaf0 to spine0" in " ".join(told.split())


def test_sweeps_plans_and_comparisons_take_it(tmp_path: Path) -> None:
    fabric = file(tmp_path, NARROW)
    swept = api.sweep("llama2-7b", ["8x8xH100", "16x8xH100"], strategy="zero3", fabric=fabric)
    by_cluster = {str(p.cluster): p.step_time_s for p in swept.best}
    assert by_cluster["16x8xH100-SXM-80GB"] == pytest.approx(step_s(fabric=fabric), rel=1e-9)
    assert by_cluster["8x8xH100-SXM-80GB"] == pytest.approx(
        step_s(gpus="8x8xH100", fabric=fabric), rel=1e-9
    )
    compared = api.compare("llama2-7b", ["8x8xH100"], strategy="zero3", fabric=fabric)
    assert float(compared.columns[0].prediction.step_time_s) == pytest.approx(
        by_cluster["8x8xH100-SXM-80GB"], rel=1e-9
    )


def test_what_does_not_go_together_is_said(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfig, match="give the switches in --fabric or as words"):
        step_s(network="4:1", fabric=file(tmp_path, FLAT))
    with pytest.raises(InvalidConfig, match="has 127 nodes for a job, not 128"):
        step_s(gpus="128x8xH100", fabric="superpod-h100")


def test_one_node_needs_no_fabric(tmp_path: Path) -> None:
    one = {"gpus": "8xH100", "strategy": "zero3"}
    assert step_s(**one, fabric=file(tmp_path, NARROW)) == step_s(**one)
