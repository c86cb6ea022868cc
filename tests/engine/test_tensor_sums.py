"""How often tensor ranks sum up in backward, by what a library's layers are."""

import pytest

from simcore.engine.layout import exchange_passes
from simcore.engine.request import make_request


@pytest.mark.parametrize(
    ("words", "backward"),
    [
        ({}, 2),
        ({"software": "scaling"}, 5),  # q, k and v, gate and up each for themselves
        ({"software": "scaling", "sequence_parallel": True}, 2),  # gathered once, before both
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


def test_one_product_of_an_input_sums_up_once() -> None:
    """GPT's MLP has no gate."""
    request = make_request(
        "gpt2-xl", "1x5xA100-SXM-80GB", tp=5, software="scaling", sequence_parallel=False,
        strategy="zero1",
    )  # fmt: skip
    assert request.placed is not None
    assert exchange_passes(request.placed)["tensor parallel"] == (2, 2)
