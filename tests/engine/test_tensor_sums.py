"""How often tensor ranks sum up in backward, by what a library's layers are."""

import numpy as np
import pytest

from simcore.engine.exchanges import exchange_passes, exchanges_s, exposed
from simcore.engine.points import Points
from simcore.engine.predict import values_of
from simcore.engine.request import make_request
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import resolve_model


@pytest.mark.parametrize(
    ("words", "backward"),
    [
        ({}, 2),
        ({"software": "scaling"}, 5),  # q, k and v, gate and up each for themselves
        # gathered once, before both; and once more for the gradients of both weights: half a sum
        ({"software": "scaling", "sequence_parallel": True}, 3),
        ({"sequence_parallel": True}, 3),
        ({"sequence_parallel": True, "lora_rank": 8}, 2),  # of a frozen base there are none
        ({"software": "deepspeed"}, 2),
    ],
)
@pytest.mark.parametrize("recompute", ["none", "full"])
def test_products_apart_of_one_input_each_sum_up_its_gradient(
    words: dict[str, object], backward: int, recompute: str
) -> None:
    asked = {"sequence_parallel": False, **words}
    request = make_request(
        "llama3-8b", "1x8xA100-SXM-80GB", tp=8, strategy="zero1", recompute=recompute, **asked
    )
    assert request.placed is not None
    again = 2 if recompute == "full" else 0
    assert exchange_passes(request.placed)["tensor parallel"] == (2, backward + again)


def test_what_is_gathered_again_hides_under_the_gradient_of_the_input() -> None:
    """Korthikanti et al. 2022, 4.2.2. Kept whole it is not gathered; nothing else changes."""

    def exchange(overlap: str, whole: bool) -> float:
        record = resolve_model("llama3-8b")
        assert isinstance(record, ModelRecord)
        config = {**record.config, "gathered_inputs": whole}
        request = make_request(
            record.model_copy(update={"config": config}), "1x8xA100-SXM-80GB", tp=8,
            strategy="zero1", micro_batch=4, overlap=overlap, sequence_parallel=True,
        )  # fmt: skip
        placed = request.placed
        assert placed is not None
        points = Points.of(values_of(request), 1)
        seconds = exchanges_s(points, placed, 32)
        return float(exposed(seconds, placed, np.ones(1), np.zeros(1))["tensor parallel"][0])

    bare, again = exchange("none", whole=True), exchange("none", whole=False)
    assert again == pytest.approx(bare * 5 / 4)  # four sums a layer, and two halves
    assert exchange("dgrad", whole=False) == pytest.approx(exchange("dgrad", whole=True))
    assert exchange("dgrad", whole=False) == pytest.approx(bare * 3 / 4)


def test_one_product_of_an_input_sums_up_once() -> None:
    """GPT's MLP has no gate."""
    request = make_request(
        "gpt2-xl", "1x5xA100-SXM-80GB", tp=5, software="scaling", sequence_parallel=False,
        strategy="zero1",
    )  # fmt: skip
    assert request.placed is not None
    assert exchange_passes(request.placed)["tensor parallel"] == (2, 2)
