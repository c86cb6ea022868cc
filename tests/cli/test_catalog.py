"""``list`` and ``show``: every record can be listed and shown, each figure with its source."""

from __future__ import annotations

import json
from collections.abc import Callable

import pytest

from simcore.cli.names import LISTS
from simcore.report.catalog import DATABASES, figure_text, render_record, unit_of


@pytest.mark.parametrize("kind", LISTS)
def test_lists_in_text_and_json_agree(kind: str, simcore: Callable) -> None:
    text, data = simcore("list", kind), json.loads(simcore("list", kind, "--json").out)
    assert text.code == 0
    lines = text.out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == [entry["name"] for entry in data]


@pytest.mark.parametrize("word", ["gpu", "gpus", "strategy", "Models", "precision"])
def test_singular_and_plural(word: str, simcore: Callable) -> None:
    assert simcore("list", word).code == 0


def test_show_names_the_source_of_each_figure(simcore: Callable) -> None:
    shown = simcore("show", "gpus", "RTX-6000-Ada").out  # an alias
    assert shown.startswith("A6000ada: ")
    assert "960 GB/s  [datasheet]" in shown and "364.2 TFLOP/s  [whitepaper]" in shown
    data = json.loads(simcore("show", "gpu", "A6000ada", "--json").out)
    assert data["figures"]["memory_bw_bytes_per_s"]["value"] == 960e9
    assert data["figures"]["tdp_w"]["value"] == 300
    assert all(f["source"] for f in data["figures"].values())


@pytest.mark.parametrize("kind", DATABASES)
def test_every_record_can_be_shown(kind: str) -> None:
    for record in DATABASES[kind].all():
        text = render_record(record)
        assert record.full_name in text
        for key, figure in record.figures().items():
            assert figure_text(key, figure.value) in text
            assert f"[{figure.source}]" in text


@pytest.mark.parametrize(
    ("key", "unit"),
    [
        ("memory_bw", "bytes_per_s"), ("cpu.dram_bw_per_socket", "bytes_per_s"),
        ("nvme.read_bw", "bytes_per_s"), ("bw", "bytes_per_s"), ("l2_size", "bytes"),
        ("memory_visible", "bytes"), ("latency", "s"), ("dataset.sample_load", "s"),
        ("peak_flop_per_s.int8", "flop_per_s"), ("tdp", "w"), ("boost_clock", "hertz"),
        ("base_clock", "hertz"), ("sm_count", ""), ("payload_frac", ""), ("frozen[0].params", ""),
    ],
)  # fmt: skip
def test_units(key: str, unit: str) -> None:
    assert unit_of(key) == unit
