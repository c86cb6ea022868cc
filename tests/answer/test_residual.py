"""The residual of a job: what adds to it, and what an interval does with it."""

from __future__ import annotations

import math
from itertools import pairwise

import pytest

from simcore import api
from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.answer.residual import PARTS, part_weights, step_residual, untimed_slowdown
from simcore.base.database import read_yaml, shipped_root
from simcore.hardware.calibrations import Knob
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS
from simcore.memory.spread import is_foreign, program_kind
from simcore.strategy.options import Options
from simcore.strategy.programs import program_named
from simcore.timing.rates import knob_spread_of

JOBS: list[tuple[str, str, Options]] = [
    ("gpt2", "8xA100", {"strategy": "zero3"}),
    ("llama3-8b", "2x8xH100", {"strategy": "zero1", "tp": 8, "issuer": "megatron"}),
    ("mixtral-8x7b", "4x8xH100", {"strategy": "zero1", "ep": 8, "recompute": "full"}),
    ("resnet-50", "T4", {}),
    ("vgg-16", "8xV100", {"precision": "amp-fp16"}),
    ("bert-base", "1x2xA100+1x3xT4", {"network": "eth-10"}),
    ("latte-xl", "4x8xA6000ada", {}),
    ("mnist-cnn", "4xV100", {"strategy": "dp"}),
]


def _weights(model: str, gpus: str, options: Options) -> dict[str, float]:
    return dict(zip(PARTS, part_weights(make_request(model, gpus, **options)), strict=True))


def test_a_layout_whose_library_nobody_named_is_less_sure() -> None:
    job: Options = {"strategy": "zero1", "tp": 8}
    assert _weights("llama3-8b", "2x8xH100", job)["assumed"] == 1.0
    for software in ("megatron", "plain", "nanotron"):
        named = _weights("llama3-8b", "2x8xH100", {**job, "software": software})
        assert named["assumed"] == 0.0


def test_parts_are_what_the_job_is() -> None:
    equal = _weights("gpt2", "8xA100", {})
    assert equal["any"] == 1.0
    assert equal["unlayered"] < 0.35  # embeddings and head alone lie outside the layers
    assert equal["unnamed"] == 1.0
    assert equal["foreign"] == equal["routed"] == equal["old_libraries"] == 0.0
    assert _weights("gpt2", "8xA100", {"issuer": "megatron"})["unnamed"] == 0.0
    assert _weights("vgg-16", "A100", {})["unlayered"] == 1.0  # no two layers alike
    assert _weights("mixtral-8x7b", "4x8xH100", {"ep": 8})["routed"] == 1.0
    # products in 16 bit on Volta: no table has its family, a rate over many shapes is known
    assert _weights("gpt2", "V100", {"precision": "amp-fp16"})["foreign"] == 1.0


def test_kernels_that_benchmarks_of_the_gpu_timed_are_not_unknown() -> None:
    """The project's H200 timed kernels of every kind; of H100 only products have tables."""
    assert _weights("vgg-16", "H200", {})["unlayered"] == 0.0
    assert _weights("vgg-16", "1x2xH200+1x3xH100", {"network": "ib-ndr"})["unlayered"] == 1.0


def test_plain_pytorch_on_one_timed_gpu_is_what_the_benchmarks_ran() -> None:
    own = _weights("vgg-16", "H200", {})
    assert own["timed"] == 1.0
    assert own["any"] == own["unnamed"] == 0.0
    assert step_residual(make_request("vgg-16", "H200")).sd_log == pytest.approx(
        load_profile().step_residual["timed"].value
    )
    for gpus, options in (("H100", {}), ("8xH200", {}), ("H200", {"issuer": "megatron"})):
        other = _weights("gpt2", gpus, options)
        assert other["timed"] == 0.0
        assert other["any"] == 1.0


def test_traffic_is_uncertain_where_nothing_is_known_of_l2() -> None:
    profile, traffic = load_profile(), 0.15
    for gpu, known in (("H100", True), ("A6000ada", True), ("V100", False), ("MI250X", False)):
        request = make_request("gpt2", gpu, precision="fp32")
        figure = profile.memory_efficiency("elementwise", request.cluster.groups[0].gpu)
        spread = knob_spread_of(
            profile, request.cluster, request.strategy.precision, request.workload
        )["memory"]
        assert spread == pytest.approx(math.hypot(figure.sd_log, traffic * (not known)))


@pytest.mark.parametrize(("model", "gpus", "options"), JOBS)
def test_parts_add_in_squares(model: str, gpus: str, options: Options) -> None:
    found = step_residual(make_request(model, gpus, **options))
    assert all(0.0 <= w <= 1.0 for w in _weights(model, gpus, options).values())
    assert found.sd_log == pytest.approx(math.sqrt(sum(v**2 for _, v in found.parts)))
    assert found.sd_log >= load_profile().step_residual["any"].value  # none is on one timed GPU


@pytest.mark.parametrize(("model", "gpus", "options"), JOBS)
def test_intervals_hold_the_estimate_and_widen_with_the_residual(
    model: str, gpus: str, options: Options
) -> None:
    found = []
    for residual in (0.0, 0.05, 0.2, 0.8):
        profile = load_profile().with_knobs((), "test", "a test", residual)
        t = predict(make_request(model, gpus, **{**options, "profile": profile})).step_time_s
        assert math.isfinite(t.low) and math.isfinite(t.high)
        assert 0.0 < t.low <= t.value <= t.high
        found.append(t)
    assert len({t.value for t in found}) == 1  # it moves no prediction
    for narrow, wide in pairwise(found):
        assert wide.low < narrow.low and wide.high > narrow.high


def test_a_calibration_without_steps_leaves_the_residual_of_blind_steps() -> None:
    blind = load_profile()
    links = blind.with_knobs((Knob(knob="intra", value=0.9, sd_log=0.05),), "links", "a log", None)
    of = [step_residual(make_request("gpt2", "8xA100", profile=p)).sd_log for p in (blind, links)]
    assert of[0] == of[1]
    steps = blind.with_knobs((), "steps", "ten steps", 0.06)
    assert step_residual(make_request("vgg-16", "8xA100", profile=steps)).sd_log == 0.06


def test_memory_readings_with_segments_are_less_sure_than_tensors() -> None:
    memory = predict(make_request("gpt2", "8xA100")).memory
    assert memory.holes_sd_bytes > memory.tensors_sd_bytes > 0.0
    assert memory.low_bytes < memory.device_bytes < memory.high_bytes


def test_memory_of_programs_without_figures_is_less_sure() -> None:
    """All that they hold is, state too; a library with figures has none of that spread."""
    words: Options = {"strategy": "ddp", "precision": "bf16"}
    foreign, known = (
        make_request("gpt2", "8xA100", software=f"megatron-lm{release}", **words)
        for release in ("@2024-overlaps", "@2024")
    )
    assert is_foreign(foreign) and not is_foreign(known)
    assert program_kind(make_request("gpt2", "8xA100", software="fsdp")) == "fsdp"
    wide, narrow = predict(foreign).memory, predict(known).memory
    assert wide.allocated_bytes == narrow.allocated_bytes
    width = load_profile().memory_sd_log("memory_foreign").value
    assert wide.tensors_sd_bytes == pytest.approx(
        math.hypot(narrow.tensors_sd_bytes, width * narrow.allocated_bytes)
    )
    assert wide.high_bytes > narrow.high_bytes and wide.holes_sd_bytes == narrow.holes_sd_bytes


def test_memory_of_a_program_that_nobody_named_is_less_sure() -> None:
    """Named, the same library with the same tensors has figures."""
    words: Options = {"tp": 4, "pp": 2, "global_batch": 64}
    assumed, named = (
        make_request("llama3-8b", "8xH100", software=s, **words) for s in (None, "megatron")
    )
    wide, narrow = predict(assumed).memory, predict(named).memory
    assert wide.allocated_bytes == narrow.allocated_bytes
    less, more = (load_profile().memory_sd_log(f"memory_{k}").value for k in ("foreign", "assumed"))
    apart = math.sqrt(more**2 - less**2) * narrow.allocated_bytes
    assert wide.tensors_sd_bytes == pytest.approx(math.hypot(narrow.tensors_sd_bytes, apart))
    told = str(api.explain("llama3-8b", "8xH100", "memory.device", **words))
    assert "assumed, not named" in told


def test_what_explains_memory_names_the_kind_of_program() -> None:
    foreign, known = (
        str(api.explain("gpt2", "8xA100", "memory.device", software=who))
        for who in ("fsdp", "megatron-lm@2024")
    )
    assert "fsdp: no published figures" in foreign
    assert "megatron-lm@2024: published figures" in known


def test_the_kinds_with_figures_are_kinds_of_program() -> None:
    for kind in load_profile().runtime["memory_kinds"]:
        program = kind.removesuffix(", experts")
        assert program_named(program).name == program


def test_rows_of_one_gpu_make_no_other_sure() -> None:
    """Neither narrower nor called calibrated: of an H100, rows of an A6000ada say nothing."""
    knobs = (Knob(knob="compute", value=0.9, sd_log=0.04, gpu="A6000ada"),)
    profile = load_profile().with_knobs(knobs, "mine", "12 runs of mine", 0.05)
    blind = api.predict("gpt2", "8xH100").step_time_s
    other = api.predict("gpt2", "8xH100", profile=profile).step_time_s
    assert (other.value, other.low, other.high) == (blind.value, blind.low, blind.high)
    assert other.origin == "12 runs of mine; none of H100-SXM-80GB"
    own = api.predict("gpt2", "8xA6000ada", profile=profile).step_time_s
    assert own.origin == "12 runs of mine"
    assert own.high / own.low < other.high / other.low
    mixed = api.predict("gpt2", "1x4xA6000ada+1x4xH100", profile=profile).step_time_s
    assert mixed.origin == other.origin
    of_all = (Knob(knob="compute", value=0.9, sd_log=0.04),)
    told = load_profile().with_knobs(of_all, "mine", "12 runs of mine", 0.05)
    assert api.predict("gpt2", "8xH100", profile=told).step_time_s.origin == "12 runs of mine"


def test_vendors_that_no_op_table_times_may_be_slower() -> None:
    """Those called timed are of blind.yaml's devices; steps of the others may be longer."""
    blind = load_profile()
    entries = read_yaml(shipped_root() / "hardware_db" / "calibrations" / "blind.yaml")
    classes = [c for table in entries.values() if isinstance(table, dict) for c in table.values()]
    named = {str(name) for c in classes if isinstance(c, dict) for name in c.get("by_gpu", {})}
    timed = {GPUS[name].vendor for name in named if GPUS.path(name)}
    assert set(blind.runtime["untimed_vendor"]["timed"]) == timed
    assert untimed_slowdown(blind, GPUS["A100-SXM-80GB"]) == 1.0
    assert untimed_slowdown(blind, GPUS["MTT-S4000"]) == 6.0
    halved = Knob(knob="compute", value=0.5, sd_log=0.1, gpu="MTT-S4000")
    own = blind.with_knobs((halved,), "x", "y", None)
    assert untimed_slowdown(own, GPUS["MTT-S4000"]) == 1.0
