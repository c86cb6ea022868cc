"""Interleaved stages take as many micro-batches as stages or more, as Megatron's schedule does."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig

JOB: dict[str, Any] = {"tp": 8, "pp": 8, "vpp": 2}


@pytest.mark.parametrize("software", ["megatron", "megatron-lm", "precision-aware"])
def test_megatron_refuses_fewer_micro_batches_than_stages(software: str) -> None:
    with pytest.raises(InvalidConfig) as err:
        api.predict("llama3-70b", "8x8xH100", **{**JOB, "tp": 3}, grad_accum=4, software=software)
    assert len(err.value.violations) == 3, "with all other rules that are broken"
    assert "grad-accum 4: try grad-accum 8" in err.value.violations[-1]
    api.predict("llama3-70b", "8x8xH100", **JOB, grad_accum=8, software=software)


def test_where_it_is_assumed_it_is_told() -> None:
    few = api.predict("llama3-70b", "8x8xH100", **JOB, grad_accum=4)
    assert "Megatron would refuse this" in few.assumptions[0]
    odd = api.predict("llama3-70b", "8x8xH100", **JOB, grad_accum=12)
    assert "no whole rounds of pp=8" in odd.assumptions[0]
    for words in ({**JOB, "grad_accum": 16}, {**JOB, "vpp": 1}, {**JOB, "software": "internevo"}):
        told = api.predict("llama3-70b", "8x8xH100", **words).assumptions
        assert not any("Megatron would" in a or "rounds" in a for a in told)


def test_a_sweep_leaves_out_what_a_prediction_refuses() -> None:
    found = api.sweep("llama3-70b", "8x8xH100", tp=8, pp=(4, 8), vpp=(1, 2), recompute="full",
                      grad_accum=(2, 4, 8), software="megatron")  # fmt: skip
    table = found.to_pandas()
    assert len(table) == 9 and sum(found.invalid.values()) == 3
    assert (table.grad_accum >= table.pp)[table.vpp > 1].all()
    free = api.sweep("llama3-70b", "8x8xH100", tp=8, pp=8, vpp=2, recompute="full",
                     grad_accum=(2, 8))  # fmt: skip
    assert len(free.to_pandas()) == 2, "where the program is assumed, so is its rule"
