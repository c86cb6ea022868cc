"""Jobs side by side are told apart by what differs, and by nothing else."""

from __future__ import annotations

from collections.abc import Callable

from simcore import api
from simcore.report.formatting import told_apart
from simcore.report.text_of import text_of


def test_cluster_alone_where_nothing_else_differs(fake: Callable) -> None:
    assert told_apart([fake(cluster="1x8xA"), fake(cluster="2x8xA")]) == [("1x8xA",), ("2x8xA",)]


def test_answers_that_differ(fake: Callable) -> None:
    one = fake(cluster="1x8xA", strategy="ddp", offload="none", micro_batch=1)
    two = fake(cluster="1x8xA", strategy="zero3", offload="optimizer:cpu", micro_batch=1)
    assert told_apart([one, two]) == [
        ("1x8xA", "ddp", "offload none"),
        ("1x8xA", "zero3", "offload optimizer:cpu"),
    ]


def test_words_that_only_the_question_has() -> None:
    fast = api.predict("gpt2", "2x8xA100", network="ib-hdr")
    slow = fast.replace(network="eth-10")
    own = slow.replace(network=None, calibration="latte-ddp")
    names = told_apart([fast, slow, own])
    cluster = fast.cluster
    assert names == [
        (cluster, "network ib-hdr"),
        (cluster, "network eth-10"),
        (cluster, "calibration latte-ddp"),
    ]
    told = text_of(fast.compare(slow))
    assert "ib-hdr" in told and "eth-10" in told
