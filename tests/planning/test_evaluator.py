"""However a space is cut into pieces, each point is answered once, as ``predict`` answers it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simcore import api
from simcore.planning import evaluator as module
from simcore.planning.evaluator import Evaluator
from simcore.planning.space import make_space
from simcore.request.make import look_up

COUNTS = st.lists(st.integers(1, 9), min_size=1, max_size=3, unique=True)


@st.composite
def spaces(draw: st.DrawFn) -> dict[str, Any]:
    """Words of a small space of Transformers, with forms and clusters that cannot be."""
    some = draw(st.sampled_from([{"grad_accum": "1..9"}, {"grad_accum": "3,1"},
                                 {"global_batch": "32,48,96"}]))  # fmt: skip
    return {
        "gpus": f"H100:{','.join(map(str, draw(COUNTS)))}x8,1x4xA100",
        "strategy": draw(st.sampled_from(["zero1,dp", "ddp,zero3", "manual,zero2"])),
        "tp": draw(st.sampled_from(["1", "1,3", "2,8"])),
        "pp": draw(st.sampled_from(["1", "2,5"])),
        "micro_batch": draw(st.sampled_from(["1", "2,1", "1..3"])),
        "precision": "bf16",
        **some,
    }


@settings(
    max_examples=12, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(words=spaces(), call=st.integers(1, 60), seed=st.integers(0, 2**32 - 1))
def test_cuts_change_nothing(
    monkeypatch: pytest.MonkeyPatch, words: dict[str, Any], call: int, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    words = dict(words)
    space = make_space("llama3.2-1b", words.pop("gpus"), **words)
    whole = list(Evaluator(space).batches(0, len(Evaluator(space))))
    with monkeypatch.context() as patch:
        patch.setattr(module, "MAX_CALL", call)
        found, other = Evaluator(space), Evaluator(space)
    middle = int(rng.integers(0, len(found) + 1))
    cut = [*found.batches(0, middle), *other.batches(middle, len(found))]
    assert [found.number(b.unit, b.piece) for b in cut] == list(range(len(found)))
    for some in (whole, cut):
        assert sum(b.n_points for b in some) == len(space)
        for b in some:
            fit = int(b.fits.sum()) if len(b) else 0
            assert b.n_points == fit + sum(b.invalid.values())
    for name in ("cluster", "micro_batch", "grad_accum", "step_time_s", "memory_bytes"):
        one, many = (
            np.concatenate([np.array([]), *(getattr(b, name) for b in some if len(b))])
            for some in (whole, cut)
        )
        assert np.allclose(one, many, rtol=1e-12, atol=0.0), name
    full = [b for b in cut if len(b)]
    if not full:
        return
    batch = full[int(rng.integers(len(full)))]
    i = int(rng.integers(len(batch)))
    assert batch.form is not None
    said = api.predict(
        batch.form.model, str(space.clusters[int(batch.cluster[i])]),  # type: ignore[index]
        micro_batch=int(batch.micro_batch[i]),  # type: ignore[index]
        grad_accum=int(batch.grad_accum[i]),  # type: ignore[index]
        **dict(batch.form.options),
    )  # fmt: skip
    assert batch.step_time_s[i] == pytest.approx(said.step_time_s.value, rel=1e-9)  # type: ignore[index]
    assert batch.memory_bytes[i] == pytest.approx(said.memory.device_bytes, rel=1e-9)  # type: ignore[index]


@pytest.mark.parametrize(("together", "words"), [
    (3, {"tp": "1,2", "pp": "1,4", "strategy": "zero1,zero3", "global_batch": "32,64"}),
    (3, {"pp": "4", "vpp": "1,2", "grad_accum": "4,9", "recompute_layers": "0,3"}),
    (9, {"tp": "1,2", "pp": "1,2,4", "strategy": "zero1", "global_batch": "32,64"}),
])  # fmt: skip
def test_forms_together_are_what_each_is_alone(
    monkeypatch: pytest.MonkeyPatch, together: int, words: dict[str, Any]
) -> None:
    """Also their lower bounds, and which points lack too much memory to be timed."""
    space = make_space("llama3.2-1b", "H100:1,2x8", recompute="all", precision="bf16", **words)
    assert space.forms_together == together
    found = [b for b in Evaluator(space, twice="inter").batches(0, 12) if len(b)]
    short = np.concatenate([b.least_bytes - b.capacity_bytes for b in found])  # type: ignore[operator]
    evaluator = Evaluator(space, twice="inter", lacking=float(np.median(short)))
    batches = list(evaluator.batches(0, len(evaluator)))
    monkeypatch.setattr(module, "FEW_POINTS", 0)
    for one, alone in zip(batches, evaluator.batches(0, len(evaluator)), strict=True):
        assert (one.unit, one.form, one.invalid) == (alone.unit, alone.form, alone.invalid)
        for name in ("step_time_s", "faster_s", "busy_frac", "balanced_s", "least_bytes",
                     "memory_bytes", "needed_bytes"):  # fmt: skip
            if len(one):
                expected = getattr(alone, name)
                np.testing.assert_allclose(getattr(one, name), expected, rtol=1e-12, err_msg=name)
    times = np.concatenate([batch.step_time_s for batch in batches])
    assert np.isnan(times).any() and np.isfinite(times).any()


def test_a_range_of_pieces_changes_no_bit() -> None:
    """A range that begins or ends between forms that are evaluated together."""
    space = make_space("llama3.2-1b", "H100:1,2x8", recompute="all", tp="1,2", pp="1,2")
    evaluator = Evaluator(space)
    whole = [b.step_time_s.tolist() for b in evaluator.batches(0, len(evaluator))]
    for cut in range(1, len(evaluator)):
        found = [*evaluator.batches(0, cut), *evaluator.batches(cut, len(evaluator))]
        assert [b.step_time_s.tolist() for b in found] == whole


def test_every_form_has_its_number() -> None:
    space = make_space(
        ["latte-s", "latte-l"], "A6000ada:1..2x8", strategy="ddp,zero1", recompute="none,full"
    )
    forms = list(space.forms())
    assert len(forms) == space.n_forms == 8
    assert [m for m, _ in forms] == ["latte-s"] * 4 + ["latte-l"] * 4
    told = [(f["strategy"], f["recompute"]) for _, f in forms[:4]]
    assert told == [("ddp", "none"), ("ddp", "full"), ("zero1", "none"), ("zero1", "full")]


def test_what_makes_a_workload_turns_slowest() -> None:
    """Else a space of many lengths finds the kernels of each anew for every strategy."""
    words = {"strategy": "ddp,zero1", "seq_len": "512,1024", "tp": "1,2"}
    space = make_space("llama3.2-1b", "H100:1..2x8", **words)
    assert [f["seq_len"] for _, f in space.forms()] == [512] * 4 + [1024] * 4


def test_forms_that_differ_in_recompute_are_looked_up_once(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also those that no cluster can run: they are looked up once a cluster."""
    asked: list[dict[str, Any]] = []

    def counted(*job: Any, **words: Any) -> Any:
        asked.append(words)
        return look_up(*job, **words)

    monkeypatch.setattr(module, "look_up", counted)
    space = make_space(
        "llama3.2-1b", "H100:2,4x8", strategy="zero3,hsdp", tp="1,8", recompute="none,full",
        precision="bf16",
    )  # fmt: skip
    found = Evaluator(space)
    whole = list(found.batches(0, len(found)))
    assert sum(b.n_points for b in whole) == len(space) == 16
    valid = [b for b in whole if len(b)]
    assert len(valid) == 6  # hsdp needs several ranks of a node beside tp 8
    assert len(asked) == 3 + 2  # the last on each cluster


def test_micro_batches_that_decide_about_kernels_are_priced_with_their_own() -> None:
    """Megatron's fused softmax takes multiples of 4 scores: heads of a rank times samples."""
    words = {"tp": 8, "strategy": "ddp", "recompute": "full"}  # 2 of GPT-2 medium's 16 heads a rank
    found = api.sweep("gpt2-medium", "8xA100", micro_batch="1..4", top=4, **words)
    times = {point.micro_batch: point.step_time_s for point in found.best}
    alone = {b: api.predict("gpt2-medium", "8xA100", micro_batch=b, **words) for b in times}
    assert times == pytest.approx({b: p.step_time_s.value for b, p in alone.items()}, rel=1e-12)
    assert times[1] == times[3] > times[2] == times[4]  # host-bound: kernels of their own are more
