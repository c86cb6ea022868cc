"""Programs joined to one set of arrays, each entry of two small ones written down."""

from __future__ import annotations

from typing import Any

import numpy as np

from simcore.step.graph import StepGraph, Task
from simcore.step.program import CommCost, Program
from simcore.step.together import Together, together


def program(n_tasks: int, **parts: Any) -> Program:
    """Rank classes 0 and 1 compute; ``beside``: compute tasks that overlap with collectives."""
    overlapped = np.zeros(n_tasks, dtype=bool)
    overlapped[list(parts.pop("beside", ()))] = True
    weights, hosts = np.array(parts.pop("weights")), np.array(parts.pop("host_weights"))
    return Program(
        graph=StepGraph(tuple(Task(f"t{i}", "s", "forward") for i in range(n_tasks))),
        n_classes=2,
        compute_tasks=np.array(parts.pop("compute_tasks")),
        compute_class=np.array(parts.pop("compute_class")),
        weights=weights,
        host_tasks=np.array(parts.pop("host_tasks")),
        host_weights=hosts,
        comm=parts.pop("comm"),
        misc=parts.pop("misc"),
        overlapped=overlapped,
        by_function=parts.pop("by_function", False),
        comm_beside=np.array(parts.pop("comm_beside")),
    )


def first(**more: Any) -> Program:
    """Seven tasks, two phases: three computed, one by class 1; one collective beside them."""
    return program(
        7, weights=[[1.0, 0.0], [0.0, 2.0], [0.5, 4.0]], compute_tasks=[1, 2, 3],
        compute_class=[0, 1, 0], host_tasks=[0, 6], host_weights=[[1.0, 2.0], [3.0, 5.0]],
        comm=(CommCost(4, "all_reduce", (8.0, 4.0, 8.0), (2.0, 1.0, 3.0)),), comm_beside=[True],
        misc=((5, "optimizer", 0),), beside=(1,), **more,
    )  # fmt: skip


def second(**more: Any) -> Program:
    """Seven tasks, one phase: two computed; three collectives, two of each micro-step."""
    return program(
        7, weights=[[3.0], [5.0]], compute_tasks=[0, 1], compute_class=[0, 1],
        host_tasks=[2], host_weights=[[7.0]],
        comm=(
            CommCost(3, "all_gather", (8.0,), (1.0,), every_micro_step=True, scope="shard"),
            CommCost(4, "reduce_scatter", (8.0, 2.0), (4.0, 6.0), every_micro_step=True,
                     scope="shard"),
            CommCost(5, "all_reduce", (8.0,), (10.0,)),
        ),
        comm_beside=[True, False, False], misc=((6, "optimizer", 0), (2, "copy", 1)), **more,
    )  # fmt: skip


def rows_of(joined: Together, *tasks: int) -> list[int]:
    """The rows of durations of tasks, which are numbered through all programs."""
    rows = [row for of_program in joined.rows for row in of_program]
    return [rows[task] for task in tasks]


def test_compute_and_host_tasks() -> None:
    """Three phases in all: two of the first program and one of the second, whose tasks are +7."""
    joined = together([first(), second()])
    found = joined.computing
    assert found.at.tolist() == rows_of(joined, 1, 2, 3, 7, 8)
    assert found.weights.tolist() == [[1, 0, 0], [0, 2, 0], [0.5, 4, 0], [0, 0, 3], [0, 0, 5]]
    assert [rows.tolist() for rows in found.rows] == [[0, 2, 3], [1, 4]]
    assert [sums.tolist() for sums in found.whole] == [
        [[1.5, 4, 0], [0, 0, 3]], [[0, 2, 0], [0, 0, 5]]
    ]  # fmt: skip
    # beside collectives: only task 1, of the first program and of class 0
    assert [sums.tolist() for sums in found.beside] == [
        [[1, 0, 0], [0, 0, 0]], [[0, 0, 0], [0, 0, 0]]
    ]  # fmt: skip
    assert found.alone.tolist() == [1, 2, 3, 4] and found.slowed.tolist() == [0]
    assert found.slowed_part.tolist() == [0]
    # another quantity of the second program also names task 9 (its third), and is priced last
    assert found.host_at.tolist()[:2] == rows_of(joined, 0, 6)
    assert found.host_weights.tolist() == [[1, 2, 0], [3, 5, 0], [0, 0, 7]]
    assert found.host_sums.tolist() == [[4, 7, 0], [0, 0, 7]]


def test_the_part_of_slowed_tasks() -> None:
    found = together([first(), second(beside=(0, 1))]).computing
    assert found.slowed.tolist() == [0, 3, 4]
    assert found.slowed_part.tolist() == [0, 1, 1]
    assert found.alone.tolist() == [1, 2]


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
    assert found.sent_at.tolist() == rows_of(joined, 4, 10)
    assert found.sent_task_counts.tolist() == [[5, 1, 0, 0, 0], [0, 0, 1, 0, 0]]
    assert found.after_at.tolist() == rows_of(joined, 11, 12)
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
    """They do where the part has some and compute overlaps with them: neither part alone."""
    assert together([first(), second()]).sending.hides.tolist() == [[False], [False]]
    assert together([first(), second(beside=(1,))]).sending.hides.tolist() == [[False], [True]]


def test_named_durations_know_their_part() -> None:
    joined = together([first(), second()])
    assert [(name, rank_class, rows.tolist(), part.tolist())
            for name, rank_class, rows, part in joined.misc] == [
        ("optimizer", 0, rows_of(joined, 5, 13), [0, 1]), ("copy", 1, rows_of(joined, 9), [1])
    ]  # fmt: skip


def test_tasks_of_equal_duration_share_a_row() -> None:
    """Of four layers two are equal but for rounding, one runs beside a collective, one is larger.

    Equal tasks of another program have rows of their own: it may run at another rate.
    """
    layers = [[0.1 + 0.2], [0.3], [0.3], [0.4]]
    of_layers: dict[str, Any] = {
        "weights": layers, "compute_tasks": [0, 1, 2, 3], "compute_class": [0, 0, 0, 0],
        "host_tasks": [4, 5], "host_weights": [[1.0], [1.0]], "beside": (2,),
        "comm": tuple(CommCost(6 + i, "all_reduce", (8.0,), (1.0,)) for i in range(2)),
        "comm_beside": [True, True], "misc": (),
    }  # fmt: skip
    joined = together([program(8, **dict(of_layers)), program(8, **dict(of_layers))])
    one, other = joined.rows
    assert one[0] == one[1] and len({one[0], one[2], one[3]}) == 3
    assert one[4] == one[5] and one[6] == one[7]
    assert not set(one) & set(other)
    assert joined.n_rows == 10
    assert joined.computing.weights[:3, 0].tolist() == [0.1 + 0.2, 0.3, 0.4]
    assert joined.computing.whole[0].tolist() == [[0.1 + 0.2 + 0.3 + 0.3 + 0.4, 0.0],
                                                  [0.0, 0.1 + 0.2 + 0.3 + 0.3 + 0.4]]  # fmt: skip
    names, counts = joined.term_counts[-1]  # all tasks are on a stream that classes share
    assert names == ("forward",)
    assert counts.sum() == 2 * 8 and counts[0, 0].sum() == 8 and counts[0, 0, one[0]] == 2
