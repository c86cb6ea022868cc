"""YOLOv8 against what its own configuration states (ultralytics/cfg/models/v8/yolov8.yaml)."""

from __future__ import annotations

import pytest

from simcore.base.errors import InvalidConfig
from simcore.workload.models import MODELS

#: Parameters with gradients, and GFLOP of an image of 640 x 640, by the size of the model.
PUBLISHED = {
    "n": (3_157_184, 8.9), "s": (11_166_544, 28.8), "m": (25_902_624, 79.3),
    "l": (43_691_504, 165.7), "x": (68_229_632, 258.5),
}  # fmt: skip


@pytest.mark.parametrize("scale", PUBLISHED)
def test_parameters_and_work_are_those_that_ultralytics_states(scale: str) -> None:
    numel, gflop = PUBLISHED[scale]
    built = MODELS[f"yolov8{scale}"].build()
    assert sum(p.numel for i in built.order for p in built.blocks[i].params) == numel
    assert built.forward_flop / 1e9 == pytest.approx(gflop, rel=0.02)


def test_images_are_multiples_of_32_and_classes_widen_the_head() -> None:
    with pytest.raises(InvalidConfig, match="650 is not a multiple of 32"):
        MODELS["yolov8n"].build(image=650)
    few, many = (MODELS["yolov8n"].build(classes=n).forward_flop for n in (1, 100))
    assert many > few
