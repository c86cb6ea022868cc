"""The tasks of a step, buckets and stretches of backward, by hand and as invariants."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import block, on_by_default, workload

from simcore.base.units import MIB
from simcore.step.program import (
    Bucket,
    CommCost,
    ProgramBuilder,
    backward_stretches,
    gradient_buckets,
    outline,
    recomputing,
    summed,
)
from simcore.timing.points import together
from simcore.workload.graph import Frozen, Kernel, Op, Workload
from simcore.workload.saved import NOTHING, Saved


@st.composite
def models(draw: st.DrawFn) -> Workload:
    """Up to six blocks of up to four tensors, some blocks bare, some run more than once."""
    numels = st.lists(st.integers(1, 3_000_000), max_size=4)
    blocks = [block(f"b{i}", draw(numels)) for i in range(draw(st.integers(1, 6)))]
    order = draw(st.lists(st.integers(0, len(blocks) - 1), min_size=1, max_size=12))
    return workload(blocks, order)


def test_three_buckets_by_hand() -> None:
    """First cap 100 bytes, then 1000. Backward meets c (50 + 200), b (800), a (300, 40)."""
    three = workload([block("a", [10, 75]), block("b", [200]), block("c", [50, 12])])
    # In bytes, reversed: c 48, 200 | b 800 | a 300, 40. 48 + 200 passes 100; 800 + 300 passes 1000.
    assert gradient_buckets(three, 4, 1000, 100) == [
        Bucket(248.0, 2, 0, 1.0),
        Bucket(1100.0, 2, 2, 75 / 85),
        Bucket(40.0, 1, 2, 1.0),
    ]


def test_a_bucket_closes_at_its_cap_exactly() -> None:
    exact = workload([block("a", [25, 25, 25])])
    assert [b.n_bytes for b in gradient_buckets(exact, 4, 100, 100)] == [100.0, 100.0, 100.0]
    assert [b.n_bytes for b in gradient_buckets(exact, 4, 101, 101)] == [200.0, 100.0]


def test_default_caps_of_equal_layers() -> None:
    """4 MiB tensors: the first alone passes 1 MiB, then seven of them pass 25 MiB."""
    net = workload([block(f"l{i}", [MIB]) for i in range(16)])
    sizes = [b.n_bytes / MIB for b in gradient_buckets(net, 4, 25 * MIB, MIB)]
    assert sizes == [4.0, 28.0, 28.0, 4.0]


@given(models(), st.integers(1, 20 * MIB), st.integers(1, 20 * MIB))
def test_buckets_hold_every_gradient_once(net: Workload, cap: int, first: int) -> None:
    buckets = gradient_buckets(net, 4, cap, first)
    assert sum(b.n_bytes for b in buckets) == 4 * net.trainable_numel
    assert sum(b.n_tensors for b in buckets) == sum(len(b.params) for b in net.instances())
    for i, bucket in enumerate(buckets[:-1]):
        assert bucket.n_bytes >= (cap if i else first)
    ready = [(b.instance, b.share) for b in buckets]
    assert ready == sorted(ready)


@given(models(), st.integers(1, 20 * MIB))
def test_stretches_conserve_the_work_of_backward(net: Workload, cap: int) -> None:
    """The shares of a block add up to how often it runs, in backward order."""
    buckets = gradient_buckets(net, 4, cap, cap)
    stretches = backward_stretches(net, buckets)
    assert len(stretches) in (len(buckets), len(buckets) + 1)
    total = dict.fromkeys(range(len(net.blocks)), 0.0)
    walked: list[int] = []
    for stretch in stretches:
        for index, share in stretch:
            assert 0 <= share <= 1
            total[index] += share
            if not walked or walked[-1] != index:
                walked.append(index)
    for index, share in total.items():
        assert share == pytest.approx(net.count(index))
    order = list(reversed(net.order))
    runs = [b for i, b in enumerate(order) if i == 0 or order[i - 1] != b]
    assert walked == runs


@given(models(), st.integers(1, 20 * MIB))
def test_a_bucket_is_ready_no_sooner_than_its_last_gradient(net: Workload, cap: int) -> None:
    """Work done by the end of stretch i is what bucket i's position says."""
    buckets = gradient_buckets(net, 4, cap, cap)
    done = 0.0
    for bucket, stretch in zip(buckets, backward_stretches(net, buckets), strict=False):
        done += sum(share for _, share in stretch)
        assert done == pytest.approx(bucket.instance + bucket.share)


def _builder(n_classes: int = 1) -> ProgramBuilder:
    """Blocks 0 (recomputable) and 1, and one frozen network: five phases."""
    model = workload([block("a", [10], recomputable=True), block("b", [5])]).replace(
        frozen=(Frozen(name="f", resident_numel=1, ops=()),)
    )
    return ProgramBuilder(model, n_classes, recompute=False)


def test_rows_of_phases_by_hand() -> None:
    """Forward of a and b, backward of a and b, the frozen network."""
    plain = _builder()
    assert plain.forward_row([0, 1, 1]) == ((0, 1.0), (1, 2.0))
    assert plain.backward_row([(1, 1.0), (0, 0.25)]) == ((2, 0.25), (3, 1.0))
    assert plain.frozen_row() == ((4, 1.0),)
    thirds = summed([(1, 0.1), (0, 0.25), (1, 0.2)])  # 0.1 + 0.2 differs from 0.3 by rounding
    assert thirds == ((0, 0.25), (1, 0.3))


def test_a_checkpointed_block_runs_forward_again_before_its_backward() -> None:
    """Block a does, block b must not."""
    builder = _builder()
    builder.compute("forward", "forward", builder.forward_row([0, 1]))
    builder.compute("backward", "backward", builder.backward_row([(1, 1.0), (0, 0.25)]))
    plain = builder.finish()
    again = recomputing(plain, builder.workload)
    assert plain.weights.tolist() == [[1, 1, 0, 0, 0], [0, 0, 0.25, 1, 0]]
    for weights in (again.weights, again.host_weights):
        assert weights.tolist() == [[1, 1, 0, 0, 0], [0.25, 0, 0.25, 1, 0]]
    assert again.graph is plain.graph


def test_one_compute_task_a_rank_class_and_one_host_task() -> None:
    builder = _builder(2)
    row = builder.forward_row([0])
    assert builder.host("early", row) == 0
    assert builder.compute("forward", "forward", row, [0], issued_by=0) == [1, 2]
    twice = summed([*row, *row])
    assert builder.compute("backward", "backward", twice, [1, 2], overlapped=True) == [4, 5]
    names = [(t.name, t.stream, t.term, t.deps, t.finish_after) for t in builder.tasks]
    assert names == [
        ("issue early", "host", "host", (), ()),
        ("forward", "compute 0", "forward", (0,), (0,)),
        ("forward", "compute 1", "forward", (0,), (0,)),
        ("issue backward", "host", "host", (), ()),
        ("backward", "compute 0", "backward", (1, 2), (3,)),
        ("backward", "compute 1", "backward", (1, 2), (3,)),
    ]
    made = builder.finish()
    assert made.n_classes == 2
    assert made.compute_tasks == [1, 2, 4, 5]
    assert made.rows.tolist() == [4, 0, 1, 5, 2, 3] and made.n_rows == 6
    assert made.compute_class.tolist() == [0, 1, 0, 1]
    assert made.weights[:, 0].tolist() == [1, 1, 2, 2]
    assert made.compute_counts.tolist() == [1, 1, 1, 1] and made.host_counts.tolist() == [1, 1]
    assert made.host_weights[:, 0].tolist() == [1, 2]
    assert made.overlapped.tolist() == [False, False, True, True]
    assert [made.phases_run(of_class)[0] for of_class in (0, 1)] == [3, 3]


def test_named_durations_are_of_each_class_on_the_compute_stream_alone() -> None:
    builder = _builder(2)
    assert builder.misc("copy", "copy", "input copy", "copy_s") == [0]
    assert builder.misc("update", "compute", "optimizer", "update_s", [0], bounds=[0]) == [1, 2]
    made = builder.finish()
    assert made.misc == (("copy_s", 0, 0), ("update_s", 0, 1), ("update_s", 1, 2))
    assert made.rows.tolist() == [0, 1, 2]
    assert [(t.stream, t.deps, t.finish_after) for t in builder.tasks] == [
        ("copy", (), ()), ("compute 0", (0,), (0,)), ("compute 1", (0,), (0,)),
    ]  # fmt: skip


def test_one_class_has_the_plain_stream() -> None:
    builder = _builder()
    builder.compute("forward", "forward", builder.forward_row([0]))
    assert builder.tasks[1].stream == "compute"


def test_lines_of_the_breakdown_leave_out_the_host() -> None:
    """Each class's own tasks, and last those of streams that all share."""
    builder = _builder(2)
    row = builder.forward_row([0])
    builder.compute("forward", "forward", row)  # issue 0, then 1 and 2
    builder.compute("again", "forward", row)  # issue 3, then 4 and 5
    builder.comm("send", "all_reduce", [8.0], [4, 5])  # 6
    joined = together([builder.finish()])
    (rows,), (first, second, shared) = joined.rows, joined.term_counts
    assert first[0] == second[0] == ("forward",) and shared[0] == ("communication",)
    # both forwards of a class take equally long: the line has that duration twice
    for (_, counts), tasks, times in ((first, (1, 4), 2), (second, (2, 5), 2), (shared, (6,), 1)):
        (row,) = {rows[task] for task in tasks}
        assert counts.tolist() == [[[times * (n == row) for n in range(joined.n_rows)]]]


def test_collectives_that_start_before_the_last_overlapped_compute_run_beside_it() -> None:
    builder = _builder()
    row = builder.backward_row([(0, 1.0)])
    (first,) = builder.compute("backward", "backward", row)
    (last,) = builder.compute("backward", "backward", row, overlapped=True)
    early = builder.comm("gather", "all_gather", [1.0], [])
    beside = builder.comm("bucket 0", "all_reduce", [1.0, 2.0], [first], counts=[3.0, 1.0])
    after = builder.comm("bucket 1", "reduce_scatter", [4.0], [last], every_micro_step=True,
                         scope="shard")  # fmt: skip
    made = builder.finish(by_function=True)
    assert made.sent.beside.tolist() == [True, True, False]
    assert [made.rows[task] for task in (early, beside, after)] == [3, 4, 5]  # after two, and one
    assert made.comm == (
        CommCost(early, "all_gather", (1.0,), (1.0,)),
        CommCost(beside, "all_reduce", (1.0, 2.0), (3.0, 1.0)),
        CommCost(after, "reduce_scatter", (4.0,), (1.0,), every_micro_step=True, scope="shard"),
    )
    sent = made.sent
    assert sent.messages == (
        ("all_gather", "all", 1.0), ("all_reduce", "all", 1.0), ("all_reduce", "all", 2.0),
        ("reduce_scatter", "shard", 4.0),
    )  # fmt: skip
    assert sent.counts.tolist() == [[1, 0, 0, 0], [0, 3, 1, 0], [0, 0, 0, 1]]
    assert sent.beside_counts.tolist() == [1, 3, 1, 0]
    assert sent.micro_counts.tolist() == [0, 0, 0, 1]
    assert sent.all_counts.tolist() == [1, 3, 1, 1]
    nothing = _builder()
    nothing.comm("gather", "all_gather", [1.0], [])
    assert nothing.finish().sent.beside.tolist() == [False]  # no compute to run beside


def test_tasks_that_send_the_same_have_one_duration_and_count_each() -> None:
    """Two buckets of three messages each, one of them in every micro-step, and one of a size."""
    builder = _builder()
    first, second = (
        builder.comm(name, "all_reduce", [2.0, 8.0], [], counts=[2.0, 1.0], every_micro_step=each)
        for name, each in (("a", True), ("b", False))
    )
    other = builder.comm("c", "all_reduce", [8.0], [])
    made = builder.finish()
    assert made.rows[first] == made.rows[second] != made.rows[other]
    assert made.sent.messages == (("all_reduce", "all", 2.0), ("all_reduce", "all", 8.0))
    assert made.sent.counts.tolist() == [[2, 1], [0, 1]]
    assert made.sent.micro_counts.tolist() == [2, 1]
    assert made.sent.all_counts.tolist() == [4, 3]
    assert made.sent.beside_counts.tolist() == [0, 0]


def test_stretches_by_hand() -> None:
    """Backward of c, b, a in buckets that end at all of c, half of b, and a quarter of a."""
    three = workload([block("a", [1]), block("b", [1]), block("c", [1])])
    buckets = [Bucket(1.0, 1, 0, 1.0), Bucket(1.0, 1, 1, 0.5), Bucket(1.0, 1, 2, 0.25)]
    assert backward_stretches(three, buckets) == [
        [(2, 1.0)], [(1, 0.5)], [(1, 0.5), (0, 0.25)], [(0, 0.75)],
    ]  # fmt: skip
    whole = [Bucket(1.0, 3, 2, 1.0)]
    assert backward_stretches(three, whole) == [[(2, 1.0), (1, 1.0), (0, 1.0)]]
    same = [Bucket(1.0, 1, 0, 0.5), Bucket(1.0, 1, 0, 0.5)]  # ready at the same time
    assert backward_stretches(three, same)[:2] == [[(2, 0.5)], [(2, 0.0)]]


def test_gradients_of_routed_experts_are_counted_apart() -> None:
    """Of 40 + 400 bytes a bucket, 400 are of experts; bare blocks are passed over."""
    made = block("a", [10, 100])
    routed = replace(made, params=(made.params[0], replace(made.params[1], routed=True)))
    two = workload([routed, block("bare", [])], [0, 1, 0])
    assert gradient_buckets(two, 4, 440, 440) == [
        Bucket(440.0, 2, 0, 1.0, 400.0), Bucket(440.0, 2, 2, 1.0, 400.0),
    ]  # fmt: skip
    assert gradient_buckets(two, 4, 1e9, 1e9) == [Bucket(880.0, 4, 2, 1.0, 800.0)]
    assert gradient_buckets(workload([block("bare", [])]), 4, 1, 1) == []


def test_models_that_differ_in_ops_alone_have_one_outline() -> None:
    """The graph of a step knows blocks, their parameters and order, but no kernels."""
    small = block("a", [10, 20])
    longer = replace(small, ops=(Op(name="o", fwd=(Kernel(kind="copy", low=9.0),)),),
                     boundary=Saved(low=7.0), recomputed=Saved(low=5.0))  # fmt: skip
    frozen = Frozen(name="f", resident_numel=9, ops=longer.ops)
    parts = {"buffers_numel": 3, "n_buffers": 2, "sync_norms": 1}
    one, other = (workload([b, block("z", [5])], [0, 1, 0], frozen=(frozen,), **parts)
                  for b in (small, longer))  # fmt: skip
    found = outline(other)
    assert found is outline(one)
    assert found.order == (0, 1, 0) and [b.params for b in found.blocks] == [
        b.params for b in other.blocks
    ]
    assert (found.buffers_numel, found.n_buffers, found.sync_norms) == (3, 2, 1)
    first = found.blocks[0]
    assert not first.ops and not found.frozen[0].ops
    assert first.boundary == first.recomputed == NOTHING
    assert outline(workload([small, block("z", [6])])) is not found


def test_a_message_runs_once_a_step_and_a_bucket_holds_no_experts_by_default() -> None:
    assert on_by_default(CommCost, Bucket) == {}
