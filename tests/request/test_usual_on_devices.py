"""The program that a job on a TPU runs where none is named."""

from __future__ import annotations

from typing import Any

from simcore import api

JOB: dict[str, Any] = {"strategy": "zero3", "micro_batch": 1}


def test_a_language_model_on_a_tpu_runs_in_maxtext() -> None:
    found = api.predict("llama3-8b", "v6e-8", **JOB)
    named = api.predict("llama3-8b", "v6e-8", software="maxtext@tpu", **JOB)
    assert any("maxtext@tpu" in told for told in found.assumptions)
    assert found.step_time_s.value == named.step_time_s.value
    # that it is assumed widens the interval
    assert found.step_time_s.high > named.step_time_s.high


def test_other_devices_and_plain_jobs_do_not() -> None:
    for gpus, more in (("8xH100", {}), ("v6e-8", {"software": "plain"})):
        found = api.predict("llama3-8b", gpus, **JOB, **more)
        assert not any("maxtext" in told for told in found.assumptions)


def test_maxtext_is_its_release_for_the_device() -> None:
    released = api.predict("llama3-8b", "v6e-8", software="maxtext@tpu", **JOB)
    named = api.predict("llama3-8b", "v6e-8", software="maxtext", **JOB)
    assert named.step_time_s.value == released.step_time_s.value
    on_gpus = api.predict("llama3-8b", "8xH100", software="maxtext", **JOB)
    as_on_tpus = api.predict("llama3-8b", "8xH100", software="maxtext@tpu", **JOB)
    assert on_gpus.step_time_s.value != as_on_tpus.step_time_s.value


LINE = (
    "python3 -m MaxText.train MaxText/configs/base.yml model_name=llama3.1-70b "
    "max_target_length=8192 remat_policy=full attention=flash"
)


def _step_s(gpus: str, line: str, **more: Any) -> float:
    return float(api.predict("llama3-70b", gpus, launch=line, **more).step_time_s.value)


def test_a_launch_line_counts_devices_of_which_a_chip_has_two() -> None:
    """Two samples on each of the two devices of a TPU7x are four on the chip; v5p is one device."""
    assert _step_s("tpu7x-4x4x4", f"{LINE} per_device_batch_size=2") == _step_s(
        "tpu7x-4x4x4", f"{LINE} per_device_batch_size=1", micro_batch=4
    )
    assert _step_s("v5p-128", f"{LINE} per_device_batch_size=2") == _step_s(
        "v5p-128", f"{LINE} per_device_batch_size=1", micro_batch=2
    )


def test_ranks_that_share_a_sample_share_a_chip_first() -> None:
    """Eight devices to a sample are four chips."""
    line = f"{LINE} ici_context_parallelism=8 per_device_batch_size=0.125"
    assert _step_s("tpu7x-4x4x4", line) == _step_s(
        "tpu7x-4x4x4", f"{LINE} per_device_batch_size=1", micro_batch=1, cp=4
    )
