"""What holds for every layout: hypothesis looks for one where it does not."""

from dataclasses import replace
from functools import lru_cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig
from simcore.timing.points import Points
from simcore.timing.steps import steps_of, values_on
from simcore.workload.models import MODELS
from simcore.workload.sharding import pipeline_stages, tensor_overrides

MODEL = "gpt2-medium"  # 16 heads, 24 layers
POWERS = st.sampled_from([1, 2, 4, 8])
LAYOUTS = st.fixed_dictionaries(
    {
        "tp": POWERS, "pp": POWERS, "vpp": st.sampled_from([1, 3]), "cp": st.sampled_from([1, 2]),
        "grad_accum": st.sampled_from([1, 8, 24]),
        "strategy": st.sampled_from(["ddp", "zero1", "zero2", "zero3"]),
        "overlap": st.sampled_from(["none", "grads", "grads,params", "grads,params,tensor"]),
        "recompute": st.sampled_from(["none", "selective", "full"]),
        "shard_ranks": st.sampled_from([None, 2]),
    }
)  # fmt: skip


def request(layout, gpus="2x8xA100", **more):
    options = {**layout, **more}
    if options["pp"] == 1:
        options["vpp"] = 1
    if options["strategy"] == "ddp":
        options["shard_ranks"] = None
    return make_request(MODEL, gpus, micro_batch=1, precision="bf16", seq_len=512, **options)


def step_s(job, **knobs):
    values = {**values_on(job, job.cluster), **knobs}
    return float(steps_of(job, Points.of(values, 1)).step_s[0])


@settings(max_examples=40, deadline=None)
@given(LAYOUTS, st.floats(1.1, 20.0), st.sampled_from(["intra", "inter"]))
def test_a_slower_link_never_shortens_the_step(layout, factor, link):
    try:
        job = request(layout)
    except InvalidConfig:
        return
    assert step_s(job, **{link: 1.0 / factor}) >= step_s(job) * (1 - 1e-12)


def of_equal_devices(job):
    """The job on devices of which none is slower than the others."""
    spread = {**job.profile.runtime["device_spread"], "value": 0.0}
    runtime = {**job.profile.runtime, "device_spread": spread}
    return replace(job, profile=replace(job.profile, runtime=runtime))


@settings(max_examples=25, deadline=None)
@given(LAYOUTS)
def test_without_traffic_replicas_scale_perfectly(layout):
    """Twice the nodes take twice the samples in the same time, but for the slowest device."""
    fixed = {"use_comm": 0.0}
    try:
        # gathered parameters and sharded updates are fewer with more ranks: not with ddp
        one = of_equal_devices(request({**layout, "strategy": "ddp"}, "2x8xA100"))
        two = of_equal_devices(request({**layout, "strategy": "ddp"}, "4x8xA100"))
    except InvalidConfig:
        return
    assert step_s(two, **fixed) == pytest.approx(step_s(one, **fixed), rel=1e-12)


@lru_cache
def record(name):
    return MODELS[name]


def layer_flop(workload):
    return sum(k.flop for b in workload.instances() if b.recomputable for op in b.ops
               for k in (*op.fwd, *op.bwd))  # fmt: skip


@settings(max_examples=30, deadline=None)
@given(POWERS, st.sampled_from([1, 2, 3, 4, 6, 8, 12, 24]))
def test_flop_are_conserved_over_tensor_and_pipeline_ranks(tp, pp):
    whole = record(MODEL).build(seq_len=512)
    part = record(MODEL).build(seq_len=512, **tensor_overrides(record(MODEL), tp, 1))
    stages = pipeline_stages(part, pp)
    assert sum(s.n_layers for s in stages) == 24
    assert tp * sum(layer_flop(s.workload) for s in stages) == pytest.approx(layer_flop(whole))


@settings(max_examples=20, deadline=None)
@given(st.sampled_from([1, 2, 4]), st.sampled_from([1, 2, 4, 8, 16]))
def test_flop_of_experts_are_conserved_over_expert_and_tensor_ranks(tp, ep):
    """Each rank routes its share of the tokens to all experts and gets as many rows back."""
    deep = record("deepseek-v2-lite")
    whole = deep.build(seq_len=512)
    part = deep.build(seq_len=512, **tensor_overrides(deep, tp, ep))

    def routed(workload):
        return sum(k.flop for b in workload.instances() for op in b.ops
                   if op.name.startswith("experts.") for k in (*op.fwd, *op.bwd))  # fmt: skip

    assert tp * routed(part) == pytest.approx(routed(whole))
    held = sum(p.numel for b in part.instances() for p in b.params if "experts." in p.name)
    every = sum(p.numel for b in whole.instances() for p in b.params if "experts." in p.name)
    assert held * ep == every


@settings(max_examples=30, deadline=None)
@given(st.sampled_from([2, 3, 4, 6, 8]), st.sampled_from([1, 3]), st.sampled_from([1, 4, 16, 64]))
def test_bubble_of_equal_stages_is_the_closed_form(pp, vpp, m):
    """(pp - 1)/vpp micro-steps: GPipe and 1F1B with vpp 1 (Huang et al. 2019; Narayanan et al.
    2021, 2.2), interleaved above; the schedule of fewer micro-batches than stages is played in
    tests/physics/test_pipeline.py. A vocabulary of 64 makes the stages equal but for a trifle."""
    known = record(MODEL)
    equal = known.model_copy(update={"config": {**known.config, "vocab": 64}})
    options = {"micro_batch": 8, "precision": "bf16", "seq_len": 512, "pp": pp, "grad_accum": m}
    if 24 % (pp * vpp):
        return

    def run(**more):
        job = make_request(equal, f"1x{pp}xA100", **options, vpp=vpp, **more)
        values = {**values_on(job, job.cluster), "use_comm": 0.0, "use_host": 0.0}
        return steps_of(job, Points.of(values, 1))

    bubble = run().terms_s["pipeline bubble"][0]
    micro = run().terms_s["forward"][0] + run().terms_s["backward"][0]
    if m > 1:
        micro = run().terms_s["accumulation"][0] / (m - 1)
    few = min(m, pp)  # one micro-batch takes all stages in turn, whatever their chunks
    assert bubble == pytest.approx((pp - few + (few - 1) / vpp) * micro, rel=0.05)


@pytest.mark.parametrize(
    ("gpus", "words"),
    [
        ("1x4xA100", {"strategy": "zero2", "offload": "optimizer"}),  # waits for its state
        ("1x4xA100+1x4xV100", {"strategy": "ddp"}),  # kinds of ranks wait for each other
        ("2x4xA100", {"strategy": "zero3", "grad_accum": 4}),
        ("1x4xA100", {"strategy": "ddp", "pp": 2, "grad_accum": 8}),
    ],
)
def test_terms_add_up_to_the_step(gpus, words):
    """All but what hides; compute is the sum of its own parts."""
    found = predict(make_request(MODEL, gpus, micro_batch=2, precision="fp16", **words))
    terms = dict(found.time_s)
    terms.pop("communication_hidden")
    parts = ("forward", "backward", "frozen_networks", "accumulation")
    assert terms.pop("compute") == pytest.approx(sum(terms[p] for p in parts))
    assert sum(terms.values()) == pytest.approx(found.step_time_s.value, rel=1e-6)
    assert (terms["offload"] > 0.0) == ("offload" in words)
