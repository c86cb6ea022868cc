"""The moments of a step at which memory may peak, against loops over every tensor."""

from __future__ import annotations

from itertools import permutations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import block, on_by_default, strategy, workload

from simcore.base.record import Same
from simcore.memory.moments import (
    COPY,
    GRADIENT,
    SAVED,
    WORKING,
    Tensor,
    Walked,
    _undominated,
    candidates,
    gathering_of,
    held_at_ticks,
    moments_of,
)
from simcore.step.transients import saved_bytes
from simcore.workload.graph import Affine, Block, Kernel, Op, Workload
from simcore.workload.models import MODELS
from simcore.workload.saved import Saved

P = strategy("ddp", "amp-bf16").precision
HELD, WORK, GRADS, CAST, WINDOW, WHOLE, FORWARD = 0, 1, 2, 3, 6, 7, 8


def every_moment(model: Workload, recompute: bool) -> list[tuple[float, ...]]:
    """(bytes per sample, gradients, copies) at each op of each instance, by a loop."""
    found = []
    saved = copies = 0.0
    redone = [recompute and b.recomputable for b in model.blocks]
    ticks: dict[Any, Any] = {}

    def ticks_of(b: int, pins: bool, again: bool) -> Any:
        key = b, pins, again
        if key not in ticks:
            ticks[key] = held_at_ticks(Same(model.blocks[b]), P, pins=pins, again=again)
        return ticks[key]

    for b in model.order:
        held, again = ticks_of(b, not redone[b], False), redone[b]
        kept = saved_bytes(model.blocks[b].kept_input, P) if again else 0.0
        for row in held[: len(held) // 2]:
            found.append((saved + kept + row[SAVED] + row[WORKING], 0.0, copies + row[COPY]))
        saved += kept if again else held[len(held) // 2][SAVED]
        copies += held[len(held) // 2 - 1][COPY]
    copies = sum(op.gemm_weight for b in model.order if not redone[b] for op in model.blocks[b].ops)
    gradients = 0.0
    for b in reversed(model.order):
        held, again = ticks_of(b, True, redone[b]), redone[b]
        kept = saved_bytes(model.blocks[b].kept_input, P) if again else 0.0
        saved -= kept if again else held[len(held) // 2][SAVED]
        copies -= 0.0 if again else held[len(held) // 2][COPY]
        for row in held[0 if again else len(held) // 2 :]:
            found.append(
                (saved + kept + row[SAVED] + row[WORKING], gradients + row[GRADIENT],
                 copies + row[COPY])
            )  # fmt: skip
        gradients += model.blocks[b].numel
    return found


@pytest.mark.parametrize("recompute", [False, True])
@pytest.mark.parametrize("name", ["gpt2", "resnet-18", "bert-base", "latte-s", "vgg-16"])
def test_the_peak_is_that_of_every_op(name: str, recompute: bool) -> None:
    model = MODELS[name].build()
    every = np.array(every_moment(model, recompute))
    found = moments_of([Walked(model, recompute, 1)], P, False, 0, 0.0)[0]
    assert len(found.held) < len(every)
    rng = np.random.default_rng(1)
    numel = float(model.trainable_numel)
    for batch in (0.0, 1.0, 3.0, 100.0):
        for grads, cast in rng.exponential(size=(20, 2)) * 4.0:
            mine = batch * (found.held + found.working) + grads * numel * found.grads
            truth = batch * every[:, 0] + grads * every[:, 1] + cast * every[:, 2]
            assert (mine + cast * found.cast).max() == pytest.approx(truth.max(), rel=1e-9)


def three(**more: Any) -> Workload:
    """A layer of 10 parameters that runs three times between others of 4 and 6."""
    layer = block("layer", [10], saved=Saved(low=1.0), recomputable=True, **more)
    return workload([block("in", [4]), layer, block("out", [5, 1])], [0, 1, 1, 1, 2])


def test_parameters_are_gathered_with_those_of_the_next_blocks() -> None:
    none = gathering_of(three(), P, 0, False, 0)
    assert none.windows(1).tolist() == [4.0, 10.0, 10.0, 10.0, 6.0]
    one = gathering_of(three(), P, 1, False, 0)
    assert one.windows(1).tolist() == [14.0, 20.0, 20.0, 16.0, 6.0]
    assert one.windows(-1).tolist() == [4.0, 14.0, 20.0, 20.0, 16.0]
    assert gathering_of(three(), P, 9, False, 0).windows(1).tolist() == [40, 36, 26, 16, 6]
    assert none.gradients.tolist() == [4.0, 10.0, 10.0, 10.0, 6.0] and none.step == 0.0


def test_what_is_outside_the_layers_is_gathered_for_the_step() -> None:
    found = gathering_of(three(), P, 1, True, 0)
    assert found.step == 10.0
    assert found.windows(1).tolist() == [20.0, 30.0, 30.0, 20.0, 10.0]


def test_tensors_are_gathered_one_by_one() -> None:
    """Two of the largest tensor at a time, whatever is fetched ahead."""
    found = gathering_of(three(), P, 3, False, 2)
    assert found.windows(1).tolist() == [8.0, 20.0, 20.0, 20.0, 10.0]
    assert found.gradients.tolist() == [4.0, 10.0, 10.0, 10.0, 5.0]


def test_whole_gradients_wait_for_their_reduction() -> None:
    """Of 4, 10, 10, 10 and 6, beside its own: those made last, up to 20 elements together."""
    found = gathering_of(three(), P, 1, True, 0, 20.0)
    assert found.whole_gradients().tolist() == [24.0, 30.0, 26.0, 16.0, 6.0]
    assert gathering_of(three(), P, 1, True, 0).whole_gradients().tolist() == [4, 10, 10, 10, 6]


def test_a_frozen_base_is_gathered_too() -> None:
    model = MODELS["llama3.2-1b"].build(lora_rank=8, quantised_base="nf4")
    p = strategy("zero3", "bf16").precision
    layer = next(b for b in model.blocks if b.recomputable)
    found = gathering_of(model, p, 0, False, 0)
    at = model.order.index(model.blocks.index(layer))
    base = layer.base_bytes(p.base_bytes) / p.param_bytes
    assert base > 0.0
    assert found.parameters[at] == layer.numel + base
    assert found.gradients[at] == layer.numel


def test_candidates_of_three_instances() -> None:
    """No op has operands: what is saved, the gradients made, and gathered parameters."""
    table = candidates([Walked(three(), False, 1)], P)[0]
    # instances between the ends of a straight line are left out: of three layers two stay
    forward, backward = table[table[:, FORWARD] == 1.0], table[table[:, FORWARD] == 0.0]
    assert len(table) == len(forward) + len(backward)
    assert forward[:, WINDOW].max() == 20.0 and not forward[:, GRADS].any()
    assert not forward[:, WHOLE].any()
    assert backward[0, WHOLE] == 6.0 and backward[-1, WHOLE] == 4.0
    assert backward[0, WINDOW] == 6.0 + 10.0 and backward[-1, WINDOW] == 4.0  # and that before it
    assert backward[0, GRADS] == 0.0 and backward[-1, GRADS] == 36.0  # made when a block ends
    assert backward[:, GRADS].tolist() == sorted(backward[:, GRADS])
    width = 2.0
    assert forward[:, HELD].max() == backward[:, HELD].max() == 3 * width
    assert (np.diff(backward[:, HELD]) <= 0.0).all()


def busy(name: str, numel: int, *, saves: float, writes: float, **more: Any) -> Block:
    """A block whose forward writes more than it saves; its backward holds nothing."""
    sample = Affine(per_sample=1.0)
    op = Op(
        name="op", fwd=(Kernel(kind="gemm", m=sample, n=Affine(writes)),), bwd=(),
        saved=Saved(low=saves),
    )  # fmt: skip
    return Block(name=name, ops=(op,), params=block(name, [numel]).params, **more)


def test_moments_are_in_the_order_of_the_step() -> None:
    layer = busy("layer", 10, saves=3.0, writes=50.0, recomputable=True, boundary=Saved(low=1.0))
    model = workload([busy("in", 4, saves=1.0, writes=2.0), layer], [0, 1, 1, 0, 1])
    table = candidates([Walked(model, True, 0)], P)[0]
    assert table[:, FORWARD].tolist() == sorted(table[:, FORWARD], reverse=True)
    backward = table[table[:, FORWARD] == 0.0]
    assert 1 < len(backward) < len(table) - 1
    assert backward[:, GRADS].tolist() == sorted(backward[:, GRADS])


def test_forward_that_runs_again_may_be_the_peak() -> None:
    """The layer writes 100 bytes beside the 6 that it saves, with the gradients of the others."""
    layer = busy("layer", 10, saves=3.0, writes=50.0, recomputable=True, boundary=Saved(low=1.0))
    model = workload([layer, busy("head", 90, saves=1.0, writes=1.0)], [0, 1])
    found = moments_of([Walked(model, True, 0)], P, False, 0, 0.0)[0]
    again = (found.forward == 0.0) & (found.grads == 0.9)
    assert (found.held + found.working)[again].max() == 2.0 + 6.0 + 100.0


def test_the_instance_before_a_large_block_is_looked_at() -> None:
    """Of equal blocks it has the large one's parameters fetched ahead."""
    small, large = (
        busy(n, k, saves=1.0, writes=w) for n, k, w in (("a", 1, 500.0), ("b", 90, 1.0))
    )
    found = candidates([Walked(workload([small, large], [0, 0, 0, 1, 0, 0, 0]), False, 1)], P)[0]
    working = found[found[:, WORK] >= 1000.0]
    assert working[:, WINDOW].max() == 91.0
    assert sorted(set(working[:, WINDOW].tolist())) == [1.0, 2.0, 91.0]


def test_recomputed_layers_keep_their_input() -> None:
    model = three(boundary=Saved(low=4.0))
    table = candidates([Walked(model, True, 1)], P)[0]
    assert table[:, HELD].max() == 3 * 8.0
    assert table[:, WORK].max() == 2.0  # the layer in work saves its own again


def test_parts_of_any_length_are_walked_together_as_alone() -> None:
    """Checkpointed or not, with blocks fetched ahead, or with checkpoints' inputs that stay."""
    large, small = MODELS["gpt2"].build(), MODELS["resnet-18"].build()
    walks = [Walked(large, True, 1, stay=True), Walked(small, False, 2), Walked(three(), True, 0),
             Walked(large, False, 0)]  # fmt: skip
    for together, walk in zip(candidates(walks, P, True), walks, strict=True):
        assert np.array_equal(together, candidates([walk], P, True)[0])


def test_no_moment_is_reached_by_another_in_every_column() -> None:
    found = moments_of([Walked(MODELS["gpt2"].build(), False, 1)], P, False, 0, 0.0)[0]
    table = np.column_stack(
        [found.held + found.working, found.grads, found.cast, found.stub, found.early,
         found.window, found.whole]
    )  # fmt: skip
    for at, row in enumerate(table):
        others = np.delete(table, at, axis=0)
        assert not (others >= row).all(axis=1).any()


def test_a_tensor_is_neither_late_nor_kept_by_default() -> None:
    assert on_by_default(Tensor, Walked) == {}


@given(st.lists(st.tuples(*[st.integers(0, 3)] * 3), min_size=1, max_size=12))
def test_every_row_is_reached_by_one_that_is_kept(rows: list[tuple[int, ...]]) -> None:
    """And none is kept that one with a larger first column reaches, or an equal one."""
    found = [rows[n] for n in _undominated(np.array(rows, dtype=np.float64))]
    reaches = lambda a, b: all(x >= y for x, y in zip(a, b, strict=True))  # noqa: E731
    assert all(any(reaches(kept, row) for kept in found) for row in rows)
    assert len(set(found)) == len(found)
    assert not any(reaches(a, b) for a, b in permutations(found, 2) if a[0] > b[0])


def test_two_rows_of_which_neither_reaches_the_other_both_stay() -> None:
    assert sorted(_undominated(np.array([[1.0, 2.0], [2.0, 1.0]]))) == [0, 1]
    assert _undominated(np.array([[1.0, 1.0], [2.0, 1.0]])).tolist() == [1]


@pytest.mark.parametrize("n_bytes", [1.0, 2.0, 64.0])
def test_what_a_blocks_first_op_saves_is_no_output_of_the_block(n_bytes: float) -> None:
    """Before it no op has made a tensor that it could have taken, whatever its size."""
    block = Block(name="b", ops=(Op(name="o", fwd=(), bwd=(), saved=Saved(raw_bytes=n_bytes)),))
    held = held_at_ticks(Same(block), P, pins=True, again=False)
    assert [row[SAVED] for row in held] == [n_bytes, n_bytes]
    assert [row[WORKING] for row in held] == [0.0, 0.0]
