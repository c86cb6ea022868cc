"""One step of each kind of pipeline stage: how its parts add up, with and without a slow host."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from simcore.answer.request import make_request
from simcore.request.resolved import Request
from simcore.timing.exchanges import TRANSFER, alone_frac, exchanges_of, tied_s
from simcore.timing.points import Points
from simcore.timing.stage_steps import StageSteps, _last, stage_steps
from simcore.timing.steps import divided, values_of

#: 16 micro-batches over 4 stages of 4 layers, two tensor and two data ranks; the first stage, the
#: two in the middle and the last are of three kinds.
ACCUM, LAYERS, TENSOR = 16, 4, "tensor parallel"


def request(**words: Any) -> Request:
    found = make_request(
        "llama3.2-1b", "2x8xH100", tp=2, pp=4, global_batch=32, strategy="zero1",
        precision="bf16", **words,
    )  # fmt: skip
    assert found.placed is not None and found.grad_accum == ACCUM
    return found


def stages(of: Request, terms: tuple[str, ...] | None = None, **changes: float) -> list[StageSteps]:
    """Steps of the three kinds, without the host unless told otherwise."""
    axis = Points.of({**values_of(of), "use_host": 0.0, **changes}, 1)
    return each(stage_steps([divided(of)], axis, keep_timeline=False, terms=terms))


def each(steps: StageSteps) -> list[StageSteps]:
    return [steps.of(kind) for kind in range(len(steps.busy_s))]


def test_totals_of_a_stage() -> None:
    """10 s of its own job, exchanges of 2 and 3, a tied table's of 4, and 5 for shared NICs."""
    one = np.ones(1)
    steps: Any = SimpleNamespace(step_s=10.0 * one)
    stage = StageSteps(
        steps=steps, busy_s=one, forward_frac=one, passing_s=one, messages_hidden_s=one,
        exchanges_s={}, in_step_s={TENSOR: 2.0 * one, TRANSFER: 3.0 * one}, exchanged_s=one,
        tied_s=4.0 * one, shared_s=5.0 * one,
    )  # fmt: skip
    assert stage.spent_s.tolist() == [9.0] and stage.total_s.tolist() == [24.0]


def test_exchanges_of_the_last_micro_step() -> None:
    """Compute of 3 s and 1.5 s before it; the host takes 7 s, so 2.5 of tensor ranks' 4 are free.

    The second configuration sends gradients beside its backward, and nothing is free; nor is the
    pipeline's transfer, for which the next stage waits.
    """
    ranks = SimpleNamespace(name=TENSOR, host_waits=False, layers_frac=1.0)
    placed: Any = SimpleNamespace(dimensions=(ranks,))
    steps: Any = SimpleNamespace(
        terms_s={"input copy": np.ones(2), "frozen": 0.5 * np.ones(2), "optimizer": np.ones(2)},
        host_micro_s=np.array([7.0, 7.0]),
        comm_beside_s=np.array([0.0, 2.0]),
    )
    exchange = {TENSOR: np.array([4.0, 4.0]), TRANSFER: np.array([1.0, 1.0])}
    found = _last(exchange, placed, np.array([3.0, 3.0]), steps)
    assert {name: x.tolist() for name, x in found.items()} == {
        TENSOR: [1.5, 4.0], TRANSFER: [1.0, 1.0]
    }  # fmt: skip


def test_a_stage_without_inputs_has_no_work_before_its_last_micro_step() -> None:
    """The host takes 4 s, of which compute takes 3: of the tensor ranks' 4 one is free."""
    ranks = SimpleNamespace(name=TENSOR, host_waits=False, layers_frac=1.0)
    placed: Any = SimpleNamespace(dimensions=(ranks,))
    steps: Any = SimpleNamespace(
        terms_s={}, host_micro_s=4.0 * np.ones(1), comm_beside_s=np.zeros(1)
    )
    found = _last({TENSOR: 4.0 * np.ones(1)}, placed, 3.0 * np.ones(1), steps)
    assert found[TENSOR].tolist() == [3.0]


def test_a_stage_repeats_its_exchanges_in_every_micro_step() -> None:
    of = request()
    for stage in stages(of):
        for name, exposed in stage.exchanges_s.items():
            assert stage.in_step_s[name] == pytest.approx(ACCUM * exposed)
        assert [*stage.exchanges_s] == [TENSOR, TRANSFER]
        spent = sum(stage.exchanges_s.values())
        # The micro-batch meets average ranks: less than the slowest rank's compute, and exchanges.
        assert spent < stage.passing_s < stage.busy_s + spent
        assert stage.passing_s > 0.9 * stage.busy_s + spent
        assert stage.messages_hidden_s == 0.0 and stage.shared_s == 0.0


def test_exchanges_with_their_hidden_time() -> None:
    """16 times those of a stage's layers; the tied table's once, on both ends."""
    of = request()
    assert of.placed is not None
    axis = Points.of(values_of(of), 1)
    each = sum(exchanges_of(axis, of.placed).collectives_s(LAYERS).values())
    tied = tied_s(axis, of.placed)
    found = stages(of)
    assert tied[0] > 0.0
    assert [s.tied_s.tolist() for s in found] == [tied.tolist(), [0.0], tied.tolist()]
    for stage in found:
        assert stage.exchanged_s == pytest.approx(ACCUM * each + stage.tied_s)
        assert stage.spent_s == pytest.approx(sum(stage.in_step_s.values()) + stage.tied_s)


def test_nothing_is_spent_without_communication() -> None:
    for stage in stages(request(), use_comm=0.0):
        assert stage.spent_s == stage.exchanged_s == stage.tied_s == 0.0
        assert stage.total_s == stage.steps.step_s
        assert 0.9 * stage.busy_s < stage.passing_s < stage.busy_s


def test_a_slow_host_hides_what_it_does_not_wait_for() -> None:
    """A hundred times slower than usual; gradients sent in the last backward hide nothing."""
    usual, slow = stages(request()), stages(request(), use_host=1.0, host=0.01)
    for before, after in zip(usual, slow, strict=True):
        assert after.steps.host_micro_s > 10.0 * after.busy_s
        assert after.exchanges_s[TENSOR] == 0.0
        assert after.exchanges_s[TRANSFER] == pytest.approx(before.exchanges_s[TRANSFER])
        assert after.passing_s == pytest.approx(
            after.steps.host_micro_s + after.exchanges_s[TRANSFER]
        )
        assert after.steps.comm_beside_s > 0.0
        assert after.in_step_s[TENSOR] == pytest.approx(before.exchanges_s[TENSOR])
        assert after.in_step_s[TRANSFER] == pytest.approx(ACCUM * before.exchanges_s[TRANSFER])


def test_messages_hidden_behind_compute() -> None:
    """Two chunks send twice as often: half hides behind forward, half behind backward.

    On its way a micro-batch waits for every message; in the whole step it waits for what is not
    hidden. On a tenfold slower network half the messages take longer than a forward and less than a
    backward, so that what hides is the forward and that half, in the same share of the time. On a
    network slower by ten again all of the compute hides messages.
    """
    plain, chunks = stages(request()), stages(request(vpp=2))
    slow = stages(request(vpp=2), inter=0.1)
    slowest = stages(request(vpp=2), inter=0.01)
    for one, two, slower, last in zip(plain[:2], chunks[:2], slow[:2], slowest[:2], strict=True):
        sent = two.exchanges_s[TRANSFER] + two.messages_hidden_s
        assert sent == pytest.approx(2.0 * one.exchanges_s[TRANSFER])
        assert two.passing_s - one.passing_s == pytest.approx(0.5 * sent)
        assert two.in_step_s[TRANSFER] == pytest.approx(ACCUM * two.exchanges_s[TRANSFER])
        share = two.messages_hidden_s / sent
        half = 0.5 * (slower.exchanges_s[TRANSFER] + slower.messages_hidden_s)
        forward = slower.busy_s * slower.forward_frac
        assert forward < half < slower.busy_s - forward
        assert slower.messages_hidden_s == pytest.approx(share * (forward + half))
        assert last.messages_hidden_s == pytest.approx(share * last.busy_s)
    # the last stage is full for longest, the first for the shortest time
    shares = [s.messages_hidden_s / s.exchanges_s[TRANSFER] for s in chunks]
    assert shares[0] < shares[1] < shares[2]


def test_timelines_are_kept_where_they_are_wanted() -> None:
    of = request()
    assert all(s.steps.timeline is None for s in stages(of))
    kept = stage_steps([divided(of)], Points.of(values_of(of), 1), keep_timeline=True)
    ends = [s.steps.timeline.makespan_s for s in each(kept) if s.steps.timeline is not None]
    assert ends == [s.steps.makespan_s for s in each(kept)]


def test_jobs_that_differ_in_recompute_are_what_each_is_alone() -> None:
    """Also in their exchanges, of which recompute repeats those of forward."""
    jobs = [request(recompute=how) for how in ("none", "full", "selective")]
    axis = Points.of(values_of(jobs[0]) | {"micro_batch": np.array([1.0, 2.0, 4.0])}, 3)
    found = stage_steps([divided(job) for job in jobs], axis, keep_timeline=False)
    for n, job in enumerate(jobs):
        alone = stage_steps([divided(job)], axis, keep_timeline=False)
        kinds = len(alone.busy_s)
        for name in ("busy_s", "passing_s", "total_s", "exchanged_s", "spent_s"):
            own = getattr(found, name)[n * kinds : (n + 1) * kinds]
            assert own == pytest.approx(getattr(alone, name), rel=1e-12)
    none, full, selective = np.split(found.total_s, len(jobs))
    assert (none < selective).all() and (selective < full).all()


def test_only_lines_that_are_wanted_and_those_of_a_micro_step() -> None:
    lines = [*stages(request(), terms=("optimizer",))[0].steps.terms_s]
    assert {"forward", "backward", "accumulation", "input copy", "optimizer"} == set(lines)
    assert [*stages(request(), terms=())[0].steps.terms_s] == [x for x in lines if x != "optimizer"]


def mixture(**words: Any) -> Request:
    found = make_request(
        "mixtral-8x7b", "1x8xH100", ep=4, strategy="zero1", precision="bf16", micro_batch=1,
        seq_len=2048, recompute="none", **words,
    )  # fmt: skip
    assert found.placed is not None
    return found


@pytest.mark.parametrize(
    ("layout", "micro_batches"),
    [({}, 4), ({}, 1), ({"pp": 2}, 6), ({"pp": 2, "vpp": 2}, 4), ({"pp": 2, "vpp": 4}, 8)],
)
def test_passes_alone_are_the_forwards_before_the_first_backward(
    layout: dict[str, int], micro_batches: int
) -> None:
    """As many backwards follow the last forward, so the share of both is that of the forwards."""
    placed = mixture(grad_accum=micro_batches, overlap="grads,experts", **layout).placed
    assert placed is not None
    order = placed.schedule.order(placed.layout, placed.layout.pp - 1, micro_batches)
    kinds = [work.kind for cell in order for work in cell]
    expected = kinds.index("backward") / kinds.count("forward")
    assert alone_frac(placed, np.array([float(micro_batches)]))[0] == pytest.approx(expected)


def test_experts_exchanges_hide_beside_another_micro_batch_alone() -> None:
    """Of four micro-batches three forwards run beside a backward; of one nothing runs beside it."""
    spent = {
        (count, overlap): stages(mixture(grad_accum=count, overlap=overlap))[0]
        for count in (1, 4)
        for overlap in ("grads", "grads,experts")
    }
    name = "expert parallel"
    bare = spent[4, "grads"].in_step_s[name][0]
    assert bare > 0.0 and spent[1, "grads,experts"].in_step_s[name][0] == pytest.approx(bare / 4)
    # NVLink carries them within the compute beside them; hidden time slows that down by 12.6 %
    slowed = 0.25 + 0.75 * 0.126
    assert spent[4, "grads,experts"].in_step_s[name][0] == pytest.approx(slowed * bare)


def test_a_filling_pipeline_passes_on_with_exposed_exchanges() -> None:
    """The micro-step that other stages wait for has all exchanges; the stage's average has not."""
    for count in (2, 16):
        hidden, bare = (
            stages(mixture(grad_accum=count, pp=2, overlap=overlap))[0]
            for overlap in ("grads,experts", "grads")
        )
        assert hidden.passing_s[0] == pytest.approx(bare.passing_s[0])
        spent = [sum(x[0] for x in one.exchanges_s.values()) for one in (bare, hidden)]
        assert hidden.messages_hidden_s[0] == pytest.approx(spent[0] - spent[1])
        assert hidden.total_s[0] < bare.total_s[0]


def test_less_overlap_costs_hidden_exchanges_more() -> None:
    """Hidden seconds cost the slowdown over the overlap: twice the overlap, half the cost."""
    of = request(overlap="grads,dgrad")
    one, two, four = (stages(of, overlap=o)[0].exchanges_s[TENSOR][0] for o in (1.0, 2.0, 4.0))
    assert one > two > four > 0.0
    assert one - two == pytest.approx(2.0 * (two - four))
