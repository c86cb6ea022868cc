"""One GPU: gradient buckets are held where the script wraps the model in DDP there too.

Most scripts wrap it only under torchrun; Latte's and DiT's ``train.py`` always do.
"""

from __future__ import annotations

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig

FP32 = 4
#: One model whose script wraps only under torchrun, one whose script always wraps.
PLAIN, ALWAYS = "resnet-50", "latte-s"


def buckets(found: api.Prediction) -> float:
    return found.memory.terms.get("gradient_buckets", 0.0)


def test_a_default_wraps_nothing_on_one_gpu() -> None:
    plain = api.predict(PLAIN, "1xA100")
    wrapped = api.predict(PLAIN, "1xA100", strategy="ddp")
    assert buckets(plain) == 0
    assert buckets(wrapped) == FP32 * wrapped.n_params
    less = wrapped.memory.allocated_bytes - plain.memory.allocated_bytes
    assert less == pytest.approx(FP32 * plain.n_params, rel=0.01)
    assert plain.step_time_s == wrapped.step_time_s  # priced alone either way


@pytest.mark.parametrize("model", ["latte-s", "latte-b", "latte-l", "latte-xl", "dit-s-2"])
def test_a_script_that_always_wraps_holds_its_buckets_on_one_gpu(model: str) -> None:
    found = api.predict(model, "1xH200", micro_batch=1)
    assert buckets(found) == FP32 * found.n_params
    assert found.memory == api.predict(model, "1xH200", micro_batch=1, strategy="ddp").memory


@pytest.mark.parametrize("model", [PLAIN, ALWAYS])
def test_single_wraps_nothing(model: str) -> None:
    alone = api.predict(model, "1xA100", strategy="single")
    wrapped = api.predict(model, "1xA100", strategy="ddp")
    assert buckets(alone) == 0
    less = wrapped.memory.allocated_bytes - alone.memory.allocated_bytes
    assert less == pytest.approx(FP32 * alone.n_params, rel=0.01)
    assert "one process," in str(alone)


def test_single_is_refused_on_several_gpus() -> None:
    with pytest.raises(InvalidConfig, match="one process on one GPU, not 2 GPUs: use ddp"):
        api.predict(PLAIN, "2xA100", strategy="single")


def test_several_gpus_are_wrapped() -> None:
    assert buckets(api.predict(PLAIN, "2xA100")) > 0


def test_the_title_says_so() -> None:
    assert "one process (default)" in str(api.predict(PLAIN, "1xA100"))
    assert "one process" not in str(api.predict(PLAIN, "1xA100", strategy="ddp"))
    assert "ddp (default)" in str(api.predict(PLAIN, "2xA100"))
    assert "ddp (default)" in str(api.predict(ALWAYS, "1xA100"))


@pytest.mark.parametrize("model", [PLAIN, ALWAYS])
def test_a_sweep_over_both_agrees(model: str) -> None:
    found = api.sweep(model, "A100:1x1..2").to_pandas().set_index("n_gpus")
    for n in (1, 2):
        held = api.predict(model, f"{n}xA100").memory.device_bytes
        assert found.loc[n, "memory_bytes"] == pytest.approx(held)


def test_a_sweep_takes_single_by_name_and_all_leaves_it_out() -> None:
    both = api.sweep(PLAIN, "A100:1x1..2", strategy="single,ddp").to_pandas()
    assert sorted(zip(both["strategy"], both["n_gpus"], strict=True)) == [
        ("ddp", 1), ("ddp", 2), ("single", 1)
    ]  # fmt: skip
    every = api.sweep(PLAIN, "1xA100", strategy="all").to_pandas()
    assert "single" not in set(every["strategy"])


# -- the seed documents' verdicts ------------------------------------------------------------------


def test_latte_xl_does_not_fit_one_4090() -> None:
    """The seed document on Latte: no single 4090 holds Latte-XL; one holds Latte-L at batch 1."""
    assert not api.predict("latte-xl", "1xRTX4090", micro_batch=1).fits
    assert api.predict("latte-l", "1xRTX4090", micro_batch=1).fits


@pytest.mark.parametrize("gpus", ["1xA6000ada", "1x8xA6000ada"])
def test_two_is_the_largest_batch_of_latte_xl_on_an_a6000ada(gpus: str) -> None:
    assert api.predict("latte-xl", gpus, micro_batch=2).fits
    assert not api.predict("latte-xl", gpus, micro_batch=3).fits
    assert api.predict("latte-xl", gpus, micro_batch="max").micro_batch == 2


def test_latte_l_on_one_4090_holds_what_was_measured() -> None:
    """18.9 GB by nvidia-smi at batch 1, within 5 %."""
    found = api.predict("latte-l", "1xRTX4090", micro_batch=1)
    assert found.memory.device_bytes == pytest.approx(18.9e9, rel=0.05)
