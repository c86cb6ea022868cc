"""A measurement stands beside a prediction of that job, and beside no other."""

from __future__ import annotations

from typing import Any

import pytest

from simcore import api
from simcore.answer.request import FILE, tables_folder
from simcore.base.database import read_yaml
from simcore.validate.known import measured_steps


def _sources(**words: Any) -> set[str]:
    return {m.source for m in api.predict("latte-l", "2x8xA6000ada", **words).measured}


def test_the_job_as_it_was_run() -> None:
    assert _sources(micro_batch=1) == {"latte-08"}
    assert _sources(micro_batch=1, strategy="ddp", precision="tf32") == {"latte-08"}
    assert _sources(micro_batch=2) == {"latte-09"}


@pytest.mark.parametrize(
    "changed",
    [
        {"network": "eth-10"},
        {"precision": "amp-bf16"},
        {"recompute": "full"},
        {"optimizer": "sgd"},
        {"strategy": "zero1"},
        {"grad_accum": 2},
        {"micro_batch": 3},
    ],
    ids=str,
)
def test_another_job_has_no_measurement(changed: dict[str, Any]) -> None:
    assert _sources(**{"micro_batch": 1, **changed}) == set()


def test_another_calibration_is_still_the_job() -> None:
    assert _sources(micro_batch=1, calibration="latte-ddp") == {"latte-08"}


def test_the_shipped_list_is_what_the_tables_say() -> None:
    assert read_yaml(tables_folder() / FILE) == measured_steps()
    assert measured_steps().keys() == {"latte-l", "latte-xl", "stdit-xl-2"}
