"""Programs joined to one set of arrays, each entry of two small ones written down."""

from __future__ import annotations

import numpy as np
from strategies import block, workload

from simcore.step.program import Program, ProgramBuilder
from simcore.timing.points import Together, together


def first(*, by_function: bool = False) -> Program:
    """Two rank classes: two equal forwards beside a collective of three messages, a backward."""
    made = ProgramBuilder(workload([block("a", [1])]), 2, recompute=False)
    made.compute("forward", "forward", ((0, 1.0),), overlapped=True)  # host 0, computed 1 and 2
    made.compute("forward", "forward", ((0, 1.0),), overlapped=True)  # host 3, computed 4 and 5
    made.compute("backward", "backward", ((1, 2.0),))  # host 6, computed 7 and 8
    made.comm("sent", "all_reduce", [8.0, 4.0, 8.0], [1], counts=[2.0, 1.0, 3.0])  # 9
    made.misc("update", "compute", "optimizer", "optimizer_s")  # 10 and 11
    return made.finish(by_function=by_function)


def second(*, by_function: bool = False, beside: bool = True) -> Program:
    """A forward and a backward; three collectives, two of each micro-step.

    ``beside``: backward overlaps with collectives, of which the first begins before it.
    """
    made = ProgramBuilder(workload([block("b", [1])]), 2, recompute=False)
    made.compute("forward", "forward", ((0, 3.0),))  # host 0, computed 1 and 2
    made.compute("backward", "backward", ((1, 5.0),), overlapped=beside)  # host 3, 4 and 5
    made.comm("gather", "all_gather", [8.0], [1], every_micro_step=True, scope="shard")  # 6
    made.comm("scatter", "reduce_scatter", [8.0, 2.0], [5], counts=[4.0, 6.0],
              every_micro_step=True, scope="shard")  # 7  # fmt: skip
    made.comm("reduce", "all_reduce", [8.0], [5], counts=[10.0])  # 8
    made.misc("copy", "copy", "input copy", "copy_s")  # 9
    made.misc("update", "compute", "optimizer", "optimizer_s")  # 10 and 11
    return made.finish(by_function=by_function)


def rows_of(joined: Together, part: int, *tasks: int) -> list[int]:
    """The rows of the durations of a part's tasks."""
    return [int(joined.rows[part][task]) for task in tasks]


def test_compute_and_host_tasks() -> None:
    """Two phases of each program; two rank classes run each task."""
    joined = together([first(), second()])
    found = joined.computing
    assert found.at.tolist() == [*rows_of(joined, 0, 1, 2, 7, 8), *rows_of(joined, 1, 1, 2, 4, 5)]
    assert found.weights.tolist() == [
        [1, 0, 0, 0], [1, 0, 0, 0], [0, 2, 0, 0], [0, 2, 0, 0],
        [0, 0, 3, 0], [0, 0, 3, 0], [0, 0, 0, 5], [0, 0, 0, 5],
    ]  # fmt: skip
    assert [rows.tolist() for rows in found.rows] == [[0, 2, 4, 6], [1, 3, 5, 7]]
    for whole, beside in zip(found.whole, found.beside, strict=True):
        assert whole.tolist() == [[2, 2, 0, 0], [0, 0, 3, 5]]  # forward runs twice
        assert beside.tolist() == [[2, 0, 0, 0], [0, 0, 0, 5]]
    assert found.alone.tolist() == [2, 3, 4, 5] and found.slowed.tolist() == [0, 1, 6, 7]
    assert found.slowed_part.tolist() == [0, 0, 1, 1]
    assert found.host_at.tolist() == [*rows_of(joined, 0, 0, 6), *rows_of(joined, 1, 0, 3)]
    assert found.host_weights.tolist() == [
        [1, 0, 0, 0], [0, 2, 0, 0], [0, 0, 3, 0], [0, 0, 0, 5]
    ]  # fmt: skip
    assert found.host_sums.tolist() == [[2, 2, 0, 0], [0, 0, 3, 5]]


def test_messages_of_a_part_are_counted_once() -> None:
    """Five messages, of which the first sends 8 bytes 2 + 3 times.

    A reduce-scatter has the price of an all-gather: 8 bytes over the shard's ranks are one message.
    Equal sizes of different parts are two, since parts differ in their links.
    """
    joined = together([first(), second()])
    found = joined.sending
    # 0: 8 bytes, 1: 4 bytes; of the second part 2: 8 and 3: 2 over the shard, 4: 8 over all
    assert found.message_part.tolist() == [0, 0, 1, 1, 1]
    messages = [(op, scope, sizes.tolist(), at.tolist()) for op, scope, sizes, at in found.messages]
    assert messages == [
        ("all_reduce", "all", [[8.0], [4.0], [8.0]], [0, 1, 4]),
        ("all_gather", "shard", [[8.0], [2.0]], [2, 3]),
    ]
    assert found.sent_at.tolist() == [*rows_of(joined, 0, 9), *rows_of(joined, 1, 6)]
    assert found.sent_task_counts.tolist() == [[5, 1, 0, 0, 0], [0, 0, 1, 0, 0]]
    assert found.after_at.tolist() == rows_of(joined, 1, 7, 8)
    assert found.after_counts.tolist() == [[0, 0, 4, 6, 0], [0, 0, 0, 0, 10]]
    assert found.sent_counts.tolist() == [[5, 1, 0, 0, 0], [0, 0, 1, 0, 0]]
    assert found.micro_counts.tolist() == [[0, 0, 0, 0, 0], [0, 0, 5, 6, 0]]
    assert found.all_counts.tolist() == [[5, 1, 0, 0, 0], [0, 0, 5, 6, 10]]


def test_collectives_priced_as_themselves() -> None:
    """The job restricts NCCL for one collective: its all-gather and its reduce-scatter differ."""
    found = together([first(by_function=True), second(by_function=True)]).sending
    assert [(op, at.tolist()) for op, _, _, at in found.messages] == [
        ("all_reduce", [0, 1, 5]), ("all_gather", [2]), ("reduce_scatter", [3, 4])
    ]  # fmt: skip


def test_collectives_of_every_micro_step_hide_behind_compute() -> None:
    """They do where the part has some and compute overlaps with them."""
    assert together([first(), second()]).sending.hides.tolist() == [[False], [True]]
    assert together([first(), second(beside=False)]).sending.hides.tolist() == [[False], [False]]


def test_named_durations_know_their_part() -> None:
    joined = together([first(), second()])
    assert [(name, rank_class, rows.tolist(), part.tolist())
            for name, rank_class, rows, part in joined.misc] == [
        ("optimizer_s", 0, [*rows_of(joined, 0, 10), *rows_of(joined, 1, 10)], [0, 1]),
        ("optimizer_s", 1, [*rows_of(joined, 0, 11), *rows_of(joined, 1, 11)], [0, 1]),
        ("copy_s", 0, rows_of(joined, 1, 9), [1]),
    ]  # fmt: skip


def layers() -> Program:
    """Of four layers two are equal but for rounding, one runs beside a collective, one is larger.

    Two equal collectives.
    """
    made = ProgramBuilder(workload([block("a", [1])]), 1, recompute=False)
    for share, beside in ((0.1 + 0.2, False), (0.3, False), (0.3, True), (0.4, False)):
        row = made.backward_row([(0, share)])
        made.compute("backward", "backward", row, overlapped=beside)  # hosts 0, 2, 4, 6
    made.comm("sent", "all_reduce", [8.0], [1])  # 8
    made.comm("sent", "all_reduce", [8.0], [3])  # 9
    return made.finish()


def test_tasks_of_equal_duration_share_a_row() -> None:
    """Equal tasks of another program have rows of their own: it may run at another rate."""
    joined = together([layers(), layers()])
    one, other = (rows.tolist() for rows in joined.rows)
    assert one[1] == one[3] and len({one[1], one[5], one[7]}) == 3
    assert one[0] == one[2] == one[4] != one[6] and one[8] == one[9]
    assert not set(one) & set(other)
    assert joined.n_rows == 2 * 6
    assert joined.computing.weights[:3, 1].tolist() == [0.3, 0.3, 0.4]
    np.testing.assert_allclose(joined.computing.whole[0], [[0, 1.3, 0, 0], [0, 0, 0, 1.3]])
    names, counts = joined.term_counts[-1]  # all tasks are on a stream that classes share
    assert names == ("backward", "communication")
    assert counts.sum(axis=2).tolist() == [[4, 4], [2, 2]] and counts[0, 0, one[1]] == 2
