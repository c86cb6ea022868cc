"""What a library's update moves of all that a rank holds."""

from dataclasses import replace

import pytest

from simcore.engine.predict import predict
from simcore.engine.request import Request, make_request


def optimizer_s(request: Request) -> float:
    return predict(request).time_s["optimizer"]


def test_scaling_moves_its_gradients_several_times_whatever_its_shard() -> None:
    """A100's memory serves 34 bytes a parameter at its rate of plain streams; alone none move."""

    def added_s(gpus: str) -> tuple[float, float]:
        asked = make_request("gpt2-xl", gpus, strategy="zero1", software="scaling")
        plain = replace(asked.strategy.software, update_passes_bytes=0.0)
        still = replace(asked, strategy=replace(asked.strategy, software=plain))
        parameters = float(asked.workload.trainable_numel)
        return optimizer_s(asked) - optimizer_s(still), 34.0 * parameters

    few, n_bytes = added_s("1x2xA100-SXM-80GB")
    many, _ = added_s("1x8xA100-SXM-80GB")
    assert few == pytest.approx(many)
    assert 0.75 * 2.039e12 < n_bytes / few < 2.039e12
    assert added_s("1x1xA100-SXM-80GB")[0] == 0.0
