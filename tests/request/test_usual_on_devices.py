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
