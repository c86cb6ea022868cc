"""Host and device as two queues: a step beside the exact queue of all its blocks in order."""

from __future__ import annotations

from dataclasses import replace
from itertools import groupby

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import points, rates, strategy, workload

from simcore.step.parallel import FORWARD_PARTS
from simcore.strategy.programs import program_named
from simcore.timing.compute import launch_s
from simcore.timing.evaluate import Job, evaluate
from simcore.workload.graph import Block, Kernel, Op, Param, Workload

FLAT = replace(strategy("ddp", "fp32", optimizer="sgd-plain"), compiled=True)
ALONE = {"n_ranks": 1.0, "n_nodes": 1.0, "micro_batch": 1.0}


def of_blocks(*sizes: tuple[float, float], order: list[int]) -> Workload:
    """Blocks of (kernels, seconds of the device) forward, twice the seconds backward.

    Nothing is trained; the update is one kernel without work.
    """
    blocks = [
        Block(name=f"b{i}", ops=(Op(name="op", fwd=(kernel(n, s),), bwd=(kernel(n, 2.0 * s),)),))
        for i, (n, s) in enumerate(sizes)
    ]
    return workload(blocks, order)


def kernel(launches: float, seconds: float) -> Kernel:
    return Kernel(kind="copy", launches=launches, weight=seconds / 4.0)


def queue_s(sizes: tuple[tuple[float, float], ...], order: list[int], issue_s: float) -> float:
    """The end of the last kernel where each starts once it is issued and the one before is over.

    The kernels of a block are equally long. The host waits for backward before it issues the
    update's kernel.
    """
    passes = [(sizes[b][0], sizes[b][1]) for b in order]
    passes += [(sizes[b][0], 2.0 * sizes[b][1]) for b in reversed(order)]
    issued = end = 0.0
    for n, seconds in passes:
        for _ in range(int(n)):
            issued += issue_s
            end = max(end, issued) + seconds / n
    return end + issue_s


def predicted_s(sizes: tuple[tuple[float, float], ...], order: list[int], issue_s: float) -> float:
    device = rates(host_issue_s=issue_s, bytes_per_s=1.0)
    job = Job(of_blocks(*sizes, order=order), FLAT, (device,))
    return float(evaluate(job, points(**ALONE)).step_s[0])


@pytest.mark.parametrize(
    ("sizes", "order"),
    [
        # a device-bound end of forward after host-bound layers: embedding, 12 layers, head
        (((20.0, 1.0), (40.0, 10.0), (20.0, 200.0)), [0, *[1] * 12, 2]),
        # large images first, then many small ones
        (((20.0, 90.0), (20.0, 40.0), (20.0, 8.0), (20.0, 2.0)), [*[0] * 3, *[1] * 4, *[2] * 6, 3]),
        (((20.0, 25.0),), [0] * 10),
        (((20.0, 15.0),), [0] * 10),
    ],
)  # fmt: skip
def test_a_step_ends_where_the_queue_does(
    sizes: tuple[tuple[float, float], ...], order: list[int]
) -> None:
    exact = queue_s(sizes, order, 1.0)
    assert predicted_s(sizes, order, 1.0) == pytest.approx(exact, rel=0.06)


def test_the_larger_of_two_sums_is_too_short_where_they_take_turns() -> None:
    sizes, order = ((20.0, 1.0), (40.0, 10.0), (20.0, 200.0)), [0, *[1] * 12, 2]
    host = 2.0 * sum(sizes[b][0] for b in order)
    device = 3.0 * sum(sizes[b][1] for b in order)
    assert queue_s(sizes, order, 1.0) > 1.15 * max(host, device)


@given(
    st.lists(st.tuples(st.integers(2, 20), st.floats(0.1, 60.0)), min_size=1, max_size=6),
    st.lists(st.integers(0, 5), min_size=1, max_size=20),
)
def test_a_step_lies_between_the_sums_and_the_queue(
    sizes: list[tuple[int, float]], order: list[int]
) -> None:
    """No shorter than either sum; never longer than the queue: tasks only leave waits out."""
    used = [b % len(sizes) for b in order]
    kinds = tuple((float(n), s) for n, s in sizes)
    found = predicted_s(kinds, used, 1.0)
    sums = (
        1.0 + 2.0 * sum(kinds[b][0] for b in used),
        3.0 * sum(kinds[b][1] for b in used),
    )
    assert found >= max(sums) * (1.0 - 1e-9)
    assert found <= queue_s(kinds, used, 1.0) * (1.0 + 1e-9)


def test_an_update_is_issued_while_backward_runs_unless_the_host_waits() -> None:
    """A device that needs 30 s for both passes of one tensor's block, a host that needs 2 for them
    and 1/30 for the update of one kernel."""
    block = Block(
        name="b", ops=(Op(name="op", fwd=(kernel(1, 10.0),), bwd=(kernel(1, 20.0),)),),
        params=(Param("w", 1),),
    )  # fmt: skip
    trained = workload([block])
    device = rates(host_issue_s=1.0, bytes_per_s=1.0)
    waiting, ahead = (
        float(evaluate(Job(trained, how, (device,)), points(**ALONE)).step_s[0])
        for how in (FLAT, replace(FLAT, waits_for_gradients=False))
    )
    assert ahead == pytest.approx(30.0)
    assert waiting > ahead


def test_forward_is_cut_where_blocks_differ() -> None:
    order = [0, *[1] * 12, 2]
    program = Job(of_blocks((1, 1.0), (1, 1.0), (1, 1.0), order=order), FLAT, (rates(),)).program
    forward = [t for t in program.graph.tasks if t.term == "forward"]
    assert len(forward) == len(list(groupby(order))) == 3
    many = list(range(20))
    blocks = [(1.0, 1.0)] * 20
    cut = Job(of_blocks(*blocks, order=many), FLAT, (rates(),)).program
    assert sum(t.term == "forward" for t in cut.graph.tasks) <= FORWARD_PARTS
    assert np.array(cut.weights).sum(axis=0).tolist() == [1.0] * 40


def test_one_interpreter_issues_the_kernels_of_all_its_devices() -> None:
    """Two kernels forward and two backward a device at a second each, and the update's one."""
    model, n = of_blocks((2.0, 0.0), order=[0]), np.array([1.0, 2.0, 8.0])
    at = points(3, n_ranks=n, n_nodes=1.0, intra_bw_bytes_per_s=np.inf)
    for issue, launch, eager in ((1.0, 0.0, False), (0.0, 1.0, True)):
        how = replace(strategy("dp", optimizer="sgd-plain"), compiled=not eager)
        job = Job(model, how, (rates(host_issue_s=issue, host_launch_s=launch),))
        one, two, eight = evaluate(job, at).step_s
        assert two - one == pytest.approx(4.0, abs=1e-3)
        assert eight - one == pytest.approx(28.0, abs=1e-3)


def test_a_quicker_host_launches_sooner() -> None:
    """Half the seconds of a launch with twice the host, none without it."""
    classes = (rates(host_launch_s=3.0), rates(host_launch_s=2.0))
    at = points(3, host=np.array([1.0, 2.0, 1.0]), use_host=np.array([1.0, 1.0, 0.0]))
    assert launch_s(classes, at).tolist() == [3.0, 1.5, 0.0]


def test_terms_are_those_of_the_slowest_kind_of_ranks() -> None:
    """Column by column: of 6 FLOP at 1 and 2 a second, then at 4 and 2."""
    op = Op(name="op", fwd=(Kernel(kind="gemm", flop=2.0),), bwd=(Kernel(kind="gemm", flop=4.0),))
    job = Job(workload([Block(name="b", ops=(op,))]), FLAT, (rates(), rates()))
    speeds = np.array([[1.0, 4.0], [2.0, 2.0]])
    found = evaluate(job, points(2, class_compute=speeds, use_comm=0.0))
    assert found.terms_s["forward"].tolist() == [2.0, 1.0]
    assert found.terms_s["backward"].tolist() == [4.0, 2.0]
    assert found.step_s.tolist() == pytest.approx([6.0, 3.0])
    one = evaluate(Job(job.workload, FLAT, (rates(),)), points(2, use_comm=0.0))
    assert one.terms_s["forward"].tolist() == [2.0, 2.0]


def test_a_single_rank_issues_nothing_for_its_units() -> None:
    """Host work of FSDP's units is there from two ranks on, in each pass."""
    layer = Block(name="l", ops=(Op(name="op", fwd=(kernel(1.0, 0.0),), bwd=(kernel(1.0, 0.0),)),),
                  params=(Param("w", 10),), recomputable=True)  # fmt: skip
    how = replace(strategy("zero3", "bf16", optimizer="sgd-plain", program=program_named("fsdp")),
                  compiled=False)  # fmt: skip
    job = Job(workload([layer, layer]), how, (rates(host_issue_s=1.0),))
    n = np.array([1.0, 2.0, 4.0])
    one, two, four = evaluate(job, points(3, n_ranks=n, n_nodes=n, use_comm=0.0)).host_micro_s
    assert job.table.unit_issues_per_phase.sum() > 0.0
    assert two - one == pytest.approx(job.table.unit_issues_per_phase.sum()) and four == two
