"""Which streams tell how fast memory is."""

from __future__ import annotations

from typing import cast

import pytest

from simcore.calibrate.bench.case import Device, World
from simcore.calibrate.bench.memory_bound import STREAMS, cases, from_memory_bytes
from tests.bench_fakes import FakeClock, FakeDevice

MIB = 2**20


def device(cache_bytes: int) -> Device:
    return cast(Device, FakeDevice(FakeClock(), cache_bytes=cache_bytes))


def test_streams_count_from_twice_the_cache_on() -> None:
    assert from_memory_bytes(device(32 * MIB)) == 64 * MIB


@pytest.mark.parametrize("cache_mib", [1, 32, 100, 480, 2000])
def test_some_stream_counts_whatever_cache_a_virtual_machine_names(cache_mib: int) -> None:
    host = device(cache_mib * MIB)
    least = from_memory_bytes(host)
    first = [c for c in cases(host, World()) if c.first and c.cold]
    assert {c.columns["op"] for c in first} == set(STREAMS)
    assert all(float(c.columns["bytes"]) >= least for c in first)
    assert least <= 4096 * 4096 * 4 * 2  # a copy of the largest stream in fp32
