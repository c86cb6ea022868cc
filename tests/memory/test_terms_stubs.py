"""Stubs that autograd gets in place of gradients that a kernel has added up, by hand."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategies import strategy

from simcore.answer.request import make_request
from simcore.memory.moments import Gathering
from simcore.memory.parts import parts_of
from simcore.memory.terms import rank_state
from simcore.strategy.precision import with_main_grads
from simcore.strategy.programs import program_named
from simcore.strategy.strategy import Strategy


def _how(name: str, main: str = "fp32", stub: bool = True) -> Strategy:
    plain = program_named("plain")
    program = replace(plain, gradients=replace(plain.gradients, stub_after_fused_sum=stub))
    how = strategy(name, "bf16", program=program)
    return replace(how, precision=with_main_grads(how.precision, main))


def test_megatron_has_stubs_since_it_reduces_under_backward() -> None:
    """Before August 2023 backward returns None for such a weight."""
    stubs = {
        year: program_named(f"megatron-lm@{year}").gradients.stub_after_fused_sum
        for year in (2021, 2022, 2023, 2024)
    }
    assert stubs == {2021: False, 2022: False, 2023: True, 2024: True}


@pytest.mark.parametrize(
    ("how", "stubs"), [(_how("zero1"), True), (_how("zero1", stub=False), False)]
)
def test_one_stub_stays_for_each_shape_of_a_layers_weights(how: Strategy, stubs: bool) -> None:
    """GPT-2: q, k and v of 768 to 2,304, the output, up to 3,072 and down again, in bf16."""
    model, how = make_request("gpt2", "1xA100").workload, _how("zero1", stub=stubs)
    sizes = parts_of((model,), how).sizes
    one: Any = np.ones(1)
    held = rank_state(sizes, how, one, 8.0 * one, 1.0).terms["gradient_stubs"]
    whole = 2.0 * 768 * (2304 + 768 + 3072 + 3072)
    assert float(np.ravel(held)[0]) == pytest.approx(whole if stubs else 0.0)


def test_gradients_that_wait_for_their_reduction() -> None:
    """Of 5, 3, 4 and 2 that backward makes from the last on, up to 6 wait: 2 and 4, 4, 2, none."""
    numel = np.array([5.0, 3.0, 4.0, 2.0])
    waits = Gathering(step=0.0, parameters=numel, gradients=numel, ahead=1, queued=6.0)
    assert waits.whole_gradients().tolist() == [5.0 + 3.0, 3.0 + 6.0, 4.0 + 2.0, 2.0]
    at_once = waits._replace(queued=0.0)
    assert at_once.whole_gradients().tolist() == numel.tolist()
    small = Gathering(step=0.0, parameters=numel, gradients=numel, ahead=1, queued=1.0)
    assert small.whole_gradients().tolist() == numel.tolist(), "the next one alone is too large"
    assert waits.windows(1).tolist() == [8.0, 7.0, 6.0, 2.0]
    assert waits.windows(-1).tolist() == [5.0, 8.0, 7.0, 6.0]
