"""YOLOv5 and YOLOX against what their programs state: summaries and tables of README files."""

from __future__ import annotations

import pytest

from simcore.base.errors import InvalidConfig
from simcore.workload.models import MODELS

#: Parameters (exact where a summary prints them, else rounded) and GFLOP of an image.
PUBLISHED = {
    "yolov5n": (1_872_157, 4.5), "yolov5s": (7_235_389, 16.5), "yolov5m": (21_190_557, 49.0),
    "yolov5l": (46_563_709, 109.1), "yolov5x": (86_749_405, 205.7), "yolox-tiny": (5.06e6, 6.45),
    "yolox-s": (8.97e6, 26.8), "yolox-m": (25.3e6, 73.8), "yolox-l": (54.2e6, 155.6),
    "yolox-x": (99.1e6, 281.9),
}  # fmt: skip


@pytest.mark.parametrize("name", PUBLISHED)
def test_parameters_and_work_are_those_that_their_programs_state(name: str) -> None:
    numel, gflop = PUBLISHED[name]
    built = MODELS[name].build()
    counted = sum(p.numel for i in built.order for p in built.blocks[i].params)
    assert counted == (numel if isinstance(numel, int) else pytest.approx(numel, abs=5e4))
    assert built.forward_flop / 1e9 == pytest.approx(gflop, rel=0.01)


def test_images_are_multiples_of_32_and_classes_widen_the_head() -> None:
    with pytest.raises(InvalidConfig, match="650 is not a multiple of 32"):
        MODELS["yolov5n"].build(image=650)
    for name in ("yolov5n", "yolox-s"):
        few, many = (MODELS[name].build(classes=n).forward_flop for n in (1, 100))
        assert many > few
