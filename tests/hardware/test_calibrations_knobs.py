"""Where a calibration's knobs apply: by any name of the place, and never nowhere in silence."""

from __future__ import annotations

import pytest

from simcore.base.errors import InvalidConfig
from simcore.hardware.calibrations import Calibration, Knob, MeasuredDevice, placed_knobs
from simcore.hardware.cluster import parse_cluster
from simcore.hardware.paths import places
from simcore.hardware.profile import load_profile, profile_of
from simcore.hardware.spec import GPUS


def calibration(*knobs: Knob) -> Calibration:
    return Calibration(name="mine", origin="my runs", rows=3, knobs=knobs)


def knob(**where: str) -> Knob:
    kind = "compute" if "gpu" in where else "intra" if "node" in where else "inter"
    return Knob(knob=kind, value=0.5, sd_log=0.1, **where)  # type: ignore[arg-type]


def test_every_place_that_there_is_not_is_told_with_the_nearest() -> None:
    with pytest.raises(InvalidConfig) as told:
        profile_of(calibration(knob(link="ib-hrd"), knob(node="dgx-a10"), knob(gpu="A6000adda")))
    link, node, gpu = told.value.violations
    assert link.startswith("calibration 'mine', knob 1 (inter): unknown link 'ib-hrd'")
    assert "did you mean 'ib-hdr'" in link
    assert "knob 2 (intra)" in node and "did you mean 'dgx-a100'" in node
    assert "knob 3 (compute)" in gpu and "did you mean 'A6000ada'" in gpu


def test_any_name_of_a_place_will_do() -> None:
    gpu = GPUS["H100-SXM-80GB"]
    own, alias = (profile_of(calibration(knob(gpu=name))) for name in (gpu.name, "h100"))
    blind = load_profile()
    for found in (own, alias):
        assert found.compute_efficiency("gemm", "bf16", gpu).value == pytest.approx(
            0.5 * blind.compute_efficiency("gemm", "bf16", gpu).value
        )


@pytest.mark.parametrize("network", ["25 Gbit/s", "8xib-ndr", "ib-hdr"])
@pytest.mark.parametrize("node", [None, "8x4090-pcie:no-p2p"])
def test_what_a_cluster_calls_its_places_is_known(network: str, node: str | None) -> None:
    place, link = places(parse_cluster("2x8xRTX4090", network=network, node=node))
    knobs = (knob(link=link), knob(node=place))
    assert placed_knobs(calibration(*knobs)) == knobs


def test_a_measured_machine_has_a_node_of_its_own() -> None:
    figure = {"value": 0.5, "sd_log": 0.1, "rows": 3, "leave_one_out_mape_frac": 0.1, "valid": "1"}
    link = {"node": "my-box", "ranks": 2, "efficiency": figure, "hop": figure | {"value": "5 us"}}
    measured = MeasuredDevice.model_validate({"gpu": "my-gpu", "link": link})
    own = (knob(node="my-box"), knob(gpu="my-gpu"))
    assert placed_knobs(calibration(*own).model_copy(update={"measured": measured})) == own
    with pytest.raises(InvalidConfig, match="unknown node"):
        placed_knobs(calibration(*own[:1]))


@pytest.mark.parametrize(
    ("kind", "where", "said"),
    [("loader", {"gpu": "H100"}, "has 'gpu', but may only name a workload"),
     ("compute", {"workload": "latte-l"}, "has 'workload', but may only name a gpu"),
     ("overlap", {"node": "dgx-a100"}, "has 'node', but applies everywhere")],
)  # fmt: skip
def test_a_word_that_a_knob_is_not_of_is_told(kind: str, where: dict[str, str], said: str) -> None:
    made = Knob(knob=kind, value=0.5, sd_log=0.1, **where)  # type: ignore[arg-type]
    with pytest.raises(InvalidConfig, match=said):
        placed_knobs(calibration(made))
