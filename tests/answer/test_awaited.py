"""What a host does result waits that it waits for, while its device idles."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import resolve_model

ISSUE_S, ZEN_2 = 10e-6, 1.34
#: The same of DGX-1's Broadwell.
BROADWELL = 1.54


def of(model: str = "mask-rcnn-r50-fpn", **settings: object) -> ModelRecord:
    record = resolve_model(model)
    assert isinstance(record, ModelRecord)
    return record.model_copy(update={"config": {**record.config, **settings}})


#: How programs of today do it: detectron2, torchvision (the entry's own), NVIDIA's for PyTorch.
POLYGONS_ON_HOST = {
    "proposals": "all_levels", "mask_targets": "host_polygons", "loader_bytes_per_pixel": 3,
}  # fmt: skip
BY_LEVEL = {
    "proposals": "each_level", "mask_targets": "device_polygons", "loader_bytes_per_pixel": 12,
}  # fmt: skip


def step_s(record: ModelRecord, gpus: str, batch: int, **options: object) -> float:
    request = make_request(record, gpus, micro_batch=batch, **options)  # type: ignore[arg-type]
    return predict(request).step_time_s.value


@pytest.mark.parametrize(
    ("gpus", "slower"), [("1x1xV100", BROADWELL), ("1x1xA100", ZEN_2)], ids=["V100", "A100"]
)
@pytest.mark.parametrize("batch", [2, 16])
def test_it_adds_to_the_device_for_each_step_and_image_whatever_the_device(
    gpus: str, slower: float, batch: int
) -> None:
    """By hand, detectron2 over torchvision: 3 waits a step; of an image 2 waits and 64 polygons of
    17 us more, and 0.8 bytes fewer of each of 800 x 1216 pixels at 4 GB/s. Its host's processor
    alone decides how long that is.
    """
    ours, theirs = (step_s(of(**how), gpus, batch) for how in (POLYGONS_ON_HOST, {}))
    image_s = 2 * ISSUE_S + 64 * 17e-6 - 0.8 * 800 * 1216 / 4e9
    expected = slower * (3 * ISSUE_S + batch * image_s)
    assert ours - theirs == pytest.approx(expected, rel=0.02)


def test_a_host_that_issues_in_no_time_leaves_nothing_to_wait_for() -> None:
    request = make_request(of(**BY_LEVEL), "1x1xA100", micro_batch=12)
    host_s = predict(request).time_s["host"]
    image = 146.24 + 42 + 10 + 38 + 64 * 4 + 12 * 800 * 1216 / 4e9 / ISSUE_S
    step = 77 + 16 + 2 * 44 + 6
    assert host_s == pytest.approx(ZEN_2 * ISSUE_S * (step + 12 * (image + 2)), rel=0.03)


def test_every_micro_step_waits_again() -> None:
    one, four = (
        predict(make_request(of(**BY_LEVEL), "1x1xA100", micro_batch=2, grad_accum=n)).time_s[
            "host"
        ]
        for n in (1, 4)
    )
    assert four == pytest.approx(4 * one, rel=0.05)


def test_suppression_on_tensorflow_s_host_is_a_step_s_whatever_the_batch() -> None:
    fixed, free = of("mask-rcnn-r50-fpn-static"), of("mask-rcnn-r50-fpn-static", **BY_LEVEL)
    hosts = [predict(make_request(fixed, "1x1xV100", micro_batch=n)).time_s["host"] for n in (2, 8)]
    assert hosts == pytest.approx([BROADWELL * 23e-3] * 2, rel=0.15)
    grown = [predict(make_request(free, "1x1xV100", micro_batch=n)).time_s["host"] for n in (2, 8)]
    assert grown[1] > 3 * grown[0]


def test_it_is_told() -> None:
    told = api.explain("mask-rcnn-r50-fpn", "1x1xV100", "time.host", micro_batch=2)
    assert "result waits" in str(told)
    assert "result waits" not in str(api.explain("gpt2", "1x1xV100", "time.host"))


@pytest.mark.parametrize(
    ("setting", "known"), [("proposals", "each_level"), ("mask_targets", "host_polygons")]
)
def test_an_unknown_way_is_refused_with_those_there_are(setting: str, known: str) -> None:
    with pytest.raises(InvalidConfig, match=known):
        of(**{setting: "elsewhere"}).build()
