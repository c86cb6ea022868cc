"""Buckets and stretches of backward, by hand and as invariants."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from strategies import block, workload

from simcore.base.units import MIB
from simcore.step.program import Bucket, backward_stretches, gradient_buckets
from simcore.workload.graph import Workload


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
