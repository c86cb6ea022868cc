"""Memory against the ZeRO paper and hand-worked peaks."""

from __future__ import annotations

import itertools
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from strategies import PARALLELISMS, Array, block, on_by_default, strategy, workload

from simcore.base.record import Same
from simcore.base.units import GIGA, MIB
from simcore.memory.moments import held_at_ticks
from simcore.memory.parts import CUBLAS_WORKSPACE_BYTES, saved_activations, stub_bytes
from simcore.memory.terms import (
    MOMENTS,
    ROUNDING,
    Memory,
    PartSizes,
    RankJob,
    RankState,
    _flat_buffer_bytes,
    memory_of,
)
from simcore.step.parallel import PARALLELISMS as REGISTRY
from simcore.step.transients import backward_bytes, output_bytes, saved_bytes
from simcore.strategy.precision import PRECISIONS, with_main_grads
from simcore.strategy.programs import program_named
from simcore.strategy.strategy import Offload, Strategy
from simcore.timing.evaluate import program_of
from simcore.workload import ops
from simcore.workload.archs import ARCHS, load
from simcore.workload.graph import Block, Frozen, Kernel, Op, Workload
from simcore.workload.models import MODELS
from simcore.workload.saved import Saved

load("transformer")
#: Buffers that only exist once there is someone to talk to.
BUFFERS = (
    "gradient_buckets", "gathered_parameters", "replicas", "gradient_copies", "nccl_buffers",
)  # fmt: skip


def memory(
    model: Workload,
    how: Strategy,
    *,
    batch: Any = 1.0,
    accum: Any = 1.0,
    ranks: Any = 1.0,
    nodes: Any = 1.0,
    nvlink: bool = True,
    context: float = 0.0,
) -> Memory:
    """``memory_of`` with scalars allowed."""
    given = np.broadcast_arrays(*[np.atleast_1d(np.asarray(v, float))
                                  for v in (batch, accum, ranks, nodes)])  # fmt: skip
    b, a, r, n = (np.array(x) for x in given)
    return memory_of(RankJob(model, how, b, a, r, n, nvlink=nvlink, cuda_context_bytes=context))


def model_state(mem: Memory) -> Array:
    """Parameters, gradients, optimizer state."""
    t = mem.terms
    return t["parameters"] + t["gradients"] + t["optimizer_state"]


FIGURE_1 = [("ddp", 120.0), ("zero1", 31.4), ("zero2", 16.6), ("zero3", 1.9)]


@pytest.mark.parametrize(("parallelism", "gb"), FIGURE_1)
def test_zero_paper_figure_1(parallelism: str, gb: float) -> None:
    """Rajbhandari et al. 2020, figure 1: 7.5e9 parameters, 64 GPUs, mixed-precision Adam."""
    how = strategy(parallelism, "fp16", optimizer="adam")
    shards = np.array([64.0])
    model = workload([block("layer", [75_000_000])], [0] * 100)
    held = REGISTRY[parallelism].holdings(model, how, shards)
    kept = held.parameters + held.gradients + held.optimizer_state
    assert kept[0] / GIGA == pytest.approx(gb, abs=0.05)
    at_update = memory(model, how, batch=0.0, ranks=64.0, nodes=8.0)
    assert MOMENTS[at_update.moment[0]] == "optimizer step"
    assert model_state(at_update)[0] / GIGA == pytest.approx(gb, abs=0.05)


@pytest.mark.parametrize("precision", ["fp32", "tf32", "amp-fp16", "amp-bf16", "fp16", "bf16"])
def test_adam_keeps_sixteen_bytes_a_parameter(precision: str) -> None:
    """2 + 2 + 12 in half precision, 4 + 4 + 8 with fp32 weights."""
    model = workload([block("layer", [1000])])
    held = REGISTRY["ddp"].holdings(model, strategy("ddp", precision), np.array([1.0]))
    kept = held.parameters + held.gradients + held.optimizer_state
    assert kept[0] == 16.0 * 1000


@pytest.mark.parametrize(
    ("parallelism", "expected"),
    # 2 weight, 4 main grad, 4 master + 8 Adam, over 8 ranks: all whole; state / 8; gradients / 8
    [("ddp", 18.0), ("zero1", 2 + 4 + 12 / 8), ("zero2", 2 + 4 / 8 + 12 / 8)],
)
@pytest.mark.parametrize("accum", [1.0, 4.0])
def test_main_grads_are_whole_buffers_that_stay(
    parallelism: str, expected: float, accum: float
) -> None:
    how = strategy(parallelism, "bf16")
    how = replace(how, precision=with_main_grads(how.precision, "fp32"))
    # activations of forward outweigh the update, so the peak is before any gradient is made
    model = workload([block("layer", [10_000_000], saved=Saved(low=1e9))])
    found = memory(model, how, accum=accum, ranks=8.0)
    assert MOMENTS[found.moment[0]] != "optimizer step"
    assert model_state(found)[0] / 1e7 == pytest.approx(expected)
    assert found.terms["gradient_buckets"][0] == 0


@pytest.mark.parametrize(("main_grads", "width"), [("weights", 2), ("fp32", 4)])
def test_main_grads_are_what_is_reduced(main_grads: str, width: int) -> None:
    how = strategy("zero1", "bf16")
    how = replace(how, precision=with_main_grads(how.precision, main_grads))
    program = program_of(workload([block("layer", [1000])]), how, 1)
    assert [(c.op, c.sizes_bytes) for c in program.comm] == [
        ("reduce_scatter", (1000.0 * width,)), ("all_gather", (2000.0,)),
    ]  # fmt: skip


REAL = ("latte-s", "resnet-50", "bert-base", "gpt2", "mnist-cnn", "dit-xl-2", "vit-b-16")


@st.composite
def jobs(draw: st.DrawFn) -> tuple[str, dict[str, Any], Array, Array]:
    """(model name, strategy words, ranks, nodes)."""
    model = draw(st.sampled_from(REAL))
    words: dict[str, Any] = {
        "precision": draw(st.sampled_from(["fp32", "tf32", "amp-bf16", "bf16"])),
        "optimizer": draw(st.sampled_from(["adamw", "sgd", "sgd-plain"])),
        "recompute": draw(st.sampled_from(["none", "full"])),
        "ema": draw(st.booleans()),
        "step_impl": draw(st.sampled_from(["foreach", "for-loop", "fused"])),
    }
    nodes = draw(st.integers(1, 4))
    return model, words, np.array([nodes * draw(st.integers(1, 8)) * 1.0]), np.array([nodes * 1.0])


@settings(max_examples=40, deadline=None)
@given(jobs(), st.sampled_from(PARALLELISMS), st.integers(1, 64), st.integers(1, 4))
def test_terms_add_up(job: Any, name: str, batch: int, accum: int) -> None:
    model_name, words, ranks, nodes = job
    model = MODELS[model_name].build()
    mem = memory(
        model, strategy(name, **words), batch=batch, accum=accum, ranks=ranks, nodes=nodes,
        context=4e8,
    )  # fmt: skip
    assert all((v >= 0).all() for v in mem.terms.values())
    assert sum(v[0] for v in mem.terms.values()) == pytest.approx(mem.device[0], rel=1e-12)
    assert mem.allocated <= mem.reserved <= mem.device


@settings(max_examples=40, deadline=None)
@given(jobs(), st.integers(1, 16), st.integers(1, 3))
def test_sharding_more_never_needs_more(job: Any, batch: int, accum: int) -> None:
    """By stage and by ranks, but for the buffers that communication itself needs."""
    model_name, words, ranks, nodes = job
    model = MODELS[model_name].build()

    def needs(name: str, n: Array) -> tuple[float, float]:
        """All, and without the buffers: of another moment, where these move the peak."""
        mem = memory(model, strategy(name, **words), batch=batch, accum=accum, ranks=n,
                     nodes=nodes)  # fmt: skip
        whole = float(mem.allocated[0])
        return whole, whole - float(sum(mem.terms[b][0] for b in BUFFERS[:-1]))

    stages = [needs(name, ranks) for name in ("ddp", "zero1", "zero2", "zero3")]
    assert all(b[1] <= a[0] * (1 + 1e-12) for a, b in itertools.pairwise(stages)), stages
    # ZeRO-3's peak may move to where more is gathered: there the whole counts.
    several = np.maximum(ranks, 2.0)
    for name in ("zero1", "zero2", "zero3"):
        few, many = (
            memory(model, strategy(name, **words), batch=batch, accum=accum, ranks=n, nodes=nodes)
            for n in (several, 2 * several)
        )
        assert many.allocated <= few.allocated * (1 + 1e-12)


@settings(max_examples=30, deadline=None)
@given(jobs(), st.sampled_from(PARALLELISMS))
def test_memory_grows_with_the_micro_batch(job: Any, name: str) -> None:
    model_name, words, ranks, nodes = job
    model = MODELS[model_name].build()
    batches = np.arange(1.0, 65.0)
    mem = memory(model, strategy(name, **words), batch=batches, ranks=ranks, nodes=nodes)
    assert (np.diff(mem.allocated) >= 0).all()  # rounding to 2 MiB may well fall
    alone = [
        memory(model, strategy(name, **words), batch=b, ranks=ranks, nodes=nodes).device[0]
        for b in (1.0, 17.0, 64.0)
    ]
    assert alone == pytest.approx(mem.device[[0, 16, 63]], rel=1e-12)


@settings(max_examples=30, deadline=None)
@given(jobs(), st.integers(1, 16))
def test_recompute_never_keeps_more_activations(job: Any, batch: int) -> None:
    model_name, words, _, _ = job
    model = MODELS[model_name].build()
    words = {k: v for k, v in words.items() if k != "recompute"}
    plain, again = (
        memory(model, strategy("ddp", recompute=r, **words), batch=batch) for r in ("none", "full")
    )
    p = strategy("ddp", **words).precision
    kept = [saved_activations(model, p, r).kept for r in (False, True)]
    assert kept[1] <= kept[0]
    for b in model.blocks:
        assert not b.recomputable or saved_bytes(b.kept_input, p) <= saved_bytes(b.saved, p)
    # The block in work counts its input twice: as what was kept and as what its first op saves.
    inputs = [b.boundary.low * p.low_bytes + b.boundary.high * p.high_bytes for b in model.blocks]
    assert again.allocated <= plain.allocated * (1 + 1e-12) + batch * max(inputs)


@pytest.mark.parametrize("target", ["cpu", "cpu-far", "nvme"])
def test_offload_moves_bytes_without_losing_any(target: str) -> None:
    """1000 bf16 parameters on 4 ranks: 12 x 250 of state, 2 x 250 of each of the others."""
    model = workload([block("a", [600]), block("b", [400])])
    there = "nvme" if target == "nvme" else "host"

    def held(stage: int, **where: str) -> Any:
        how = strategy(f"zero{stage}", "bf16", offload=Offload(**where))  # type: ignore[arg-type]
        return REGISTRY[f"zero{stage}"].holdings(model, how, np.array([4.0]))

    for stage in (1, 2, 3):
        at_home, away = held(stage), held(stage, optimizer=target)
        assert away.optimizer_state[0] == 0.0
        moved = getattr(away, there)[0]
        assert moved == at_home.optimizer_state[0] + 500.0 == 3500.0
        assert at_home.host[0] == at_home.nvme[0] == 0.0
        assert away.parameters == at_home.parameters
        assert away.gradients[0] == (0.0 if stage > 1 else 2000.0)
    both = held(3, optimizer=target, params=target)
    assert both.parameters[0] == both.gradients[0] == both.optimizer_state[0] == 0.0
    assert getattr(both, there)[0] == 4000.0


def test_offloaded_parameters_are_fetched_for_their_block_on_one_device_too() -> None:
    """One device that keeps its parameters on the host holds what a rank gathers."""
    model = workload([block("a", [10_000_000]), block("b", [20_000_000])])
    away = strategy(
        "zero3", "bf16", offload=Offload(optimizer="cpu", params="cpu"), prefetch_blocks=0
    )
    alone = memory(model, away, ranks=1.0)
    assert alone.terms["parameters"][0] == 0.0
    fetched = alone.terms["gathered_parameters"][0]
    assert fetched == (2 + 2) * 2e7  # the block in work and its gradients
    assert fetched == memory(model, away, ranks=8.0).terms["gathered_parameters"][0]
    stays = strategy("zero3", "bf16", offload=Offload(optimizer="cpu"), prefetch_blocks=0)
    assert memory(model, stays, ranks=1.0).terms["gathered_parameters"][0] == 0.0


def two_blocks(saved: tuple[float, float], work: tuple[float, float], **more: Any) -> Workload:
    """Blocks of 1000 and 3000 fp32 parameters; saved and working bytes a sample as given."""

    def make(name: str, numel: int, keep: float, busy: float) -> Block:
        op = Op(
            name="op",
            fwd=(Kernel(kind="gemm"),),
            bwd=(Kernel(kind="gemm", low=busy / 4),),
            saved=Saved(low=keep / 4),
        )
        bare = block(name, [numel], **more)
        return Block(name=name, ops=(op,), params=bare.params, boundary=bare.boundary,
                     recomputable=bare.recomputable)  # fmt: skip

    return workload(
        [make("first", 1000, saved[0], work[0]), make("second", 3000, saved[1], work[1])]
    )


def test_peak_at_the_start_of_backward_by_hand() -> None:
    """Second block's backward: all 1000 + 5000 saved, its 400 of work, no gradient yet."""
    mem = memory(two_blocks((1e6, 5e6), (100e3, 400e3)), strategy(), batch=3.0)
    assert MOMENTS[mem.moment[0]] == "backward"
    assert mem.terms["activations"][0] == 3 * 6e6
    assert mem.terms["working_set"][0] == 3 * 400e3
    assert mem.terms["gradients"][0] == 0.0
    state = 4000 * (4 + 8 + 4)  # parameters, two moments, DDP's buckets
    assert mem.allocated[0] == state + 3 * 6.4e6 + CUBLAS_WORKSPACE_BYTES


def test_peak_in_the_first_block_by_hand() -> None:
    """6000 + 400 of the second block's, against 1000 + 8000 in the first, where the gradients
    of the second (3000 x 4 bytes) exist already."""
    mem = memory(two_blocks((1e6, 5e6), (8e6, 400e3)), strategy(), batch=1.0)
    assert mem.terms["activations"][0] == 1e6
    assert mem.terms["working_set"][0] == 8e6
    assert mem.terms["gradients"][0] == 12_000.0


def test_gradients_are_there_from_the_start_when_they_accumulate() -> None:
    model = two_blocks((1e6, 5e6), (100e3, 400e3))
    mem = memory(model, strategy(), batch=1.0, accum=np.array([1.0, 2.0]))
    assert mem.terms["gradients"].tolist() == [0.0, 16_000.0]


def test_peak_at_the_update_by_hand() -> None:
    """Nothing saved: all gradients, and one fp32 temporary a parameter of foreach AdamW."""
    mem = memory(two_blocks((0.0, 0.0), (0.0, 0.0)), strategy())
    assert MOMENTS[mem.moment[0]] == "optimizer step"
    assert mem.terms["gradients"][0] == mem.terms["working_set"][0] == 16_000.0
    fused = memory(two_blocks((0.0, 0.0), (0.0, 0.0)), strategy(step_impl="fused"))
    assert fused.terms["working_set"][0] == 0.0


def test_peak_in_a_frozen_network() -> None:
    """Its 2 MB a sample of transient elements (fp32) against 1.2 MB in backward."""
    frozen = Frozen(name="vae", resident_numel=1000, ops=(), transient_low=5e5)
    model = two_blocks((5e5, 5e5), (1e5, 2e5)).replace(frozen=(frozen,))
    mem = memory(model, strategy(), batch=2.0)
    assert MOMENTS[mem.moment[0]] == "frozen forward"
    assert mem.terms["working_set"][0] == 4e6
    assert mem.terms["activations"][0] == mem.terms["gradients"][0] == 0.0
    assert mem.terms["frozen_models"][0] == 4000.0


def test_recompute_by_hand() -> None:
    """Two inputs of 40 kB stay; the block in work holds its own 5 MB again."""
    model = two_blocks((1e6, 5e6), (100e3, 400e3), recomputable=True, boundary=Saved(low=1e4))
    mem = memory(model, strategy(recompute="full"), batch=1.0)
    assert mem.terms["activations"][0] == 80e3
    assert mem.terms["working_set"][0] == 5e6 + 400e3


def test_autocast_keeps_copies_of_matrix_weights_in_backward() -> None:
    op = Op(name="op", fwd=(), bwd=(), saved=Saved(low=1e9), gemm_weight=700.0)
    model = workload([Block(name="a", ops=(op,), params=block("a", [1000]).params)])
    assert memory(model, strategy("ddp", "amp-bf16")).terms["autocast_weights"][0] == 1400.0
    assert memory(model, strategy("ddp", "fp32")).terms["autocast_weights"][0] == 0.0


@pytest.mark.parametrize(
    ("mib", "waste_mib"),
    [(1.0, 0.0), (10.0, 0.0), (10.5, 1.5), (11.0, 1.0), (12.0, 0.0), (13.25, 0.75), (200.0, 0.0)],
)
def test_allocator_rounds_large_blocks_to_two_mib(mib: float, waste_mib: float) -> None:
    """Above 10 MiB a segment is a multiple of 2 MiB (c10/cuda/CUDACachingAllocator)."""
    model = two_blocks((mib * MIB, mib * MIB), (0.0, 0.0))
    mem = memory(model, strategy(), batch=1.0)
    assert mem.terms[ROUNDING][0] == 2 * waste_mib * MIB
    assert mem.reserved[0] - mem.allocated[0] == mem.terms[ROUNDING][0]


def test_only_what_communicates_has_buffers() -> None:
    model = two_blocks((0.0, 0.0), (0.0, 0.0))
    alone = memory(model, strategy()).terms["nccl_buffers"][0]
    node = memory(model, strategy(), ranks=8.0).terms["nccl_buffers"][0]
    two = memory(model, strategy(), ranks=16.0, nodes=2.0).terms["nccl_buffers"][0]
    assert alone == 0.0 < node < two


def test_data_parallel_master_holds_a_replicas_gradients() -> None:
    model = two_blocks((0.0, 0.0), (0.0, 0.0))
    mem = memory(model, strategy("dp"), ranks=np.array([1.0, 2.0, 8.0]))
    assert mem.terms["replicas"].tolist() == [0.0, 16_000.0, 16_000.0]
    assert mem.terms["gradient_buckets"].tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize(
    ("recompute", "kept", "inputs", "storages"),
    [(False, 200.0, 0.0, {40.0: 1, 80.0: 2}), (True, 56.0, 16.0, {40.0: 1, 8.0: 2})],
)
def test_what_is_saved_of_each_instance(
    recompute: bool, kept: float, inputs: float, storages: dict[float, float]
) -> None:
    repeated = block("b", [300], saved=Saved(low=20.0), recomputable=True, boundary=Saved(low=2.0))
    model = workload([block("a", [100], saved=Saved(low=10.0)), repeated], [0, 1, 1])
    found = saved_activations(model, strategy().precision, recompute)
    assert found == (kept, inputs, storages)


def test_micro_batches_in_flight_wait_with_their_activations_alone() -> None:
    """Three in flight: 3 x 10 MB saved, but one working set (2 MB) and one set of gradients."""
    op = Op(
        name="op", fwd=(Kernel(kind="gemm"),), bwd=(Kernel(kind="gemm", low=1e6),),
        saved=Saved(low=5e6),
    )  # fmt: skip
    model = workload([Block(name="b", ops=(op,), params=block("b", [1000]).params)])
    how = strategy("ddp", "bf16", step_impl="fused")
    one = np.array([1.0])
    words: dict[str, Any] = {"nvlink": True, "cuda_context_bytes": 0.0}
    job = RankJob(model, how, one, 4 * one, one, one, **words)
    alone, waiting = memory_of(job), memory_of(job, in_flight=3.0)
    assert alone.terms["activations"][0] == 10e6
    assert waiting.terms["activations"][0] == 30e6
    assert waiting.terms["working_set"][0] == alone.terms["working_set"][0] == 2e6
    assert waiting.terms["gradients"][0] == alone.terms["gradients"][0]


def test_experts_state_is_shared_by_fewer_replicas() -> None:
    """8 ranks, experts over 4: 12 B x (1e6 / 8 + 3e6 / 2) of state for 1e6 dense parameters and
    3e6 of this rank's experts."""
    made = block("layer", [1_000_000, 3_000_000])
    named = replace(made, params=(made.params[0], replace(made.params[1], routed=True)))
    model = workload([named])
    held = REGISTRY["zero1"].holdings(model, strategy("zero1", "bf16"), np.array([8.0]), 4)
    assert held.optimizer_state[0] == pytest.approx(12 * (1e6 / 8 + 3e6 / 2))
    whole = REGISTRY["zero1"].holdings(model, strategy("zero1", "bf16"), np.array([8.0]))
    assert whole.optimizer_state[0] == pytest.approx(12 * 4e6 / 8)


@pytest.mark.parametrize(
    ("parallelism", "main_grads", "copies"),
    [
        ("ddp", "weights", 4.0),  # of every parameter, on every rank
        ("ddp", "fused", 4.0),
        ("ddp", "fp32", 0.0),
        ("zero1", "weights", (4 + 2) / 8),  # of the shard, and the flat 16-bit tensor
        ("zero1", "fused", 4 / 8),  # tensor by tensor: nothing is joined
        ("zero1", "fp32", 0.0),
    ],
)
def test_gradients_are_copied_to_fp32_for_the_update(
    parallelism: str, main_grads: str, copies: float
) -> None:
    how = strategy(parallelism, "fp16", step_impl="fused")
    how = replace(how, precision=with_main_grads(how.precision, main_grads))
    model = workload([block("layer", [10_000_000])])
    found = memory(model, how, ranks=8.0)
    assert found.terms["gradient_copies"][0] == pytest.approx(copies * 1e7)


def test_what_the_allocator_caches() -> None:
    """Holes are a share of what comes and goes; ZeRO's flat copies fit no freed activation."""
    model = workload([block("layer", [10_000_000], saved=Saved(low=1e9))])
    one = np.array([1.0])
    words: dict[str, Any] = {"nvlink": True, "cuda_context_bytes": 0.0}
    how = strategy("zero1", "fp16", step_impl="fused")
    found = memory_of(RankJob(model, how, one, one, 8 * one, one, **words), holes_frac=0.25)
    loose = found.terms["activations"][0] + found.terms["working_set"][0]
    fresh = (4 + 2) * 1e7 / 8
    assert found.cached[0] == pytest.approx(found.allocated[0] + fresh + 0.25 * loose)


def test_stubs_of_fused_gradient_sums() -> None:
    """One 16-bit tensor a shape of a layer's weights, however many layers: Llama-3-8B's fused
    products are 4096 x 6144, 4096 x 4096, 4096 x 28672 and 14336 x 4096."""
    model = ARCHS["transformer"](
        name="x", layers=4, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256,
        seq_len=64, norm="rmsnorm", mlp="swiglu", positions="rope", bias=False, tied=False,
        fused_gate_up=True,
    )  # fmt: skip
    elems = 4096 * 6144 + 4096 * 4096 + 4096 * 28672 + 14336 * 4096
    bf16 = strategy("zero1", "bf16").precision
    for main_grads, bytes_each in (("weights", 0), ("fused", 2), ("fp32", 2)):
        p = with_main_grads(bf16, main_grads)
        assert stub_bytes(model, p) == bytes_each * elems


@pytest.mark.parametrize("fused", [False, True])
def test_vocab_parallel_loss_keeps_one_fp32_copy_of_the_logits(fused: bool) -> None:
    """Forward: 2 + 4 bytes a logit; kept: 4; backward: the fp32 gradient in its place and 2."""
    rows, vocab = 128, 1000
    found = ops.loss_vocab_parallel("loss", rows, vocab, fused=fused)
    bf16 = strategy("ddp", "bf16").precision
    assert sum(saved_bytes(op.saved, bf16) for op in found) == 4 * rows * vocab
    assert backward_bytes(found[1], bf16).held == 0  # in place
    assert backward_bytes(found[0], bf16).held == 6 * rows * vocab


def test_a_copied_shift_is_a_second_fp32_tensor_with_the_same_traffic() -> None:
    """nanotron subtracts the maximum into a tensor of its own: 4 + 4 bytes a logit in forward."""
    rows, vocab = 128, 1000
    bf16 = strategy("ddp", "bf16").precision
    plain = ops.loss_vocab_parallel("loss", rows, vocab)
    copied = ops.loss_vocab_parallel("loss", rows, vocab, copied=True)
    assert [output_bytes(op, bf16) for op in copied[:2]] == [4 * rows * vocab] * 2
    assert sum(saved_bytes(op.saved, bf16) for op in copied) == 4 * rows * vocab
    kernels = [sorted(k.raw_bytes for op in found for k in op.fwd) for found in (plain, copied)]
    assert kernels[0] == kernels[1]


def test_the_compiled_vocab_parallel_loss_clones_what_backward_changes() -> None:
    """Most at once: the saved fp32 tensor, its clone, and the 16-bit gradient; else 4 + 2 bytes."""
    rows, vocab = 128, 1000
    bf16 = strategy("ddp", "bf16").precision
    most = [
        held_at_ticks(Same(replace(block("head", [1]), ops=found)), bf16, pins=True, again=False)
        .sum(axis=1)
        .max()
        for found in (ops.loss_vocab_parallel("x", rows, vocab, fused=f) for f in (False, True))
    ]
    assert most == pytest.approx([6 * rows * vocab, 10 * rows * vocab], rel=1e-3)


def test_a_loss_in_place_holds_one_16_bit_tensor_of_the_logits() -> None:
    """Transformer Engine's: the gradient lies over the logits; two numbers a row are kept."""
    rows, vocab = 128, 1000
    found = ops.loss_in_place("loss", rows, vocab)
    bf16 = strategy("ddp", "bf16").precision
    assert sum(saved_bytes(op.saved, bf16) for op in found) == 2 * rows * vocab + 8 * rows
    assert all(backward_bytes(op, bf16).held == 0 for op in found)


def test_products_keep_their_inputs_in_fp8() -> None:
    """A layer's linear keeps 1 byte an input element with Transformer Engine, 2 with torchao."""
    op = ops.linear("up", 64.0, 100, 200, formatted=True)
    kept = {n: saved_bytes(op.saved, PRECISIONS[n]) for n in ("bf16", "fp8", "fp8-dynamic")}
    assert kept == {"bf16": 12800.0, "fp8": 6400.0, "fp8-dynamic": 12800.0}


def test_a_chunked_loss_keeps_no_logits() -> None:
    found = ops.loss_chunked("head", 128, 64, 50000)
    bf16 = strategy("ddp", "bf16").precision
    assert sum(saved_bytes(op.saved, bf16) for op in found) == 2 * 128 * 64


def test_a_loss_cut_over_tensor_ranks_holds_three_fp32_tensors() -> None:
    """torch's loss_parallel: minus ones, the exponential and their sum; eager: two gradients."""
    rows, vocab = 128, 1000
    bf16 = strategy("ddp", "bf16").precision
    found = ops.loss_parallel("loss", rows, vocab)
    eager = ops.lm_loss("loss", rows, vocab, upcast=True)
    assert max(backward_bytes(op, bf16).held for op in found) == 12 * rows * vocab
    kept = [sum(saved_bytes(op.saved, bf16) for op in each) for each in (found, eager)]
    assert kept == [(2 + 4) * rows * vocab + 8 * rows] * 2


def test_a_loss_that_shifts_its_logits_holds_them_beside_their_copy() -> None:
    """ForCausalLMLoss of transformers 4.48: 16-bit logits, fp32 ones, their shift, log-softmax."""
    rows, vocab = 128, 1000
    bf16 = strategy("ddp", "bf16").precision
    ends = [
        replace(
            block("head", [1]),
            ops=ops.lm_loss("x", rows, vocab, upcast=True, held=False, shifted=s),
        )
        for s in (False, True)
    ]
    ticks = [held_at_ticks(Same(b), bf16, pins=True, again=False).sum(axis=1) for b in ends]
    middle = [len(b.ops) for b in ends]
    forward = [t[:n].max() for t, n in zip(ticks, middle, strict=True)]
    backward = [t[n:].max() for t, n in zip(ticks, middle, strict=True)]
    small = pytest.approx(0, abs=50 * rows)  # labels and the loss itself
    assert [f - w * rows * vocab for f, w in zip(forward, (4 + 4, 2 + 12), strict=True)] == [
        small
    ] * 2
    assert backward[1] == pytest.approx(backward[0], rel=1e-3)


def test_a_chunked_loss_makes_its_weights_gradient_in_forward() -> None:
    """Of 5e7 x 64: the gradient and a part of it in 16 bit, the part in fp32; no gradient later."""
    head = ops.loss_chunked("head", 1, 64, 50_000_000)
    model = workload([replace(block("head", [3_200_000_000]), ops=head)])
    found = memory(model, strategy("zero3", "bf16", step_impl="fused"), ranks=1e9)
    assert found.terms["working_set"][0] == pytest.approx(8 * 3.2e9, rel=1e-3)
    assert MOMENTS[found.moment[0]] == "forward"


def test_a_root_unit_is_gathered_for_the_whole_step() -> None:
    """Embedding and head of 1e8 each, layers of 1e7: all of both beside two layers."""
    layer = replace(block("layer", [10_000_000], saved=Saved(low=1e9)), recomputable=True)
    ends = [block(name, [100_000_000]) for name in ("in", "out")]
    model = Workload(
        name="x", sample_unit="sample", blocks=(ends[0], layer, ends[1]), order=(0, 1, 1, 1, 2)
    )
    how = strategy("zero3", "bf16", step_impl="fused")
    one, root = (
        memory(model, replace(how, program=program_named(n)), ranks=1e9).terms[
            "gathered_parameters"
        ][0]
        for n in ("plain", "fsdp")
    )
    gradients = 2 * 1e8  # of the head, when its backward begins
    # FSDP2 copies them to the flat tensor that is reduced
    assert root == pytest.approx(2 * (2e8 + 2e7) + 2 * gradients, rel=0.1)
    assert one == pytest.approx(2 * (1e8 + 1e7) + gradients, rel=0.1)


def test_each_of_fsdps_streams_keeps_the_blocks_of_its_own_peak() -> None:
    """A layer of 1e7 that saves 4 GB and a loss that saves none: all activations exist when no
    gradient does. The allocator still holds blocks for both, since streams do not share them.
    """
    layer = block("layer", [10_000_000], saved=Saved(low=2e8))
    model = Workload(
        name="x", sample_unit="sample", blocks=(replace(layer, recomputable=True),),
        order=(0,) * 10,
    )  # fmt: skip
    how = strategy("zero3", "bf16", step_impl="fused")
    held = memory(model, replace(how, program=program_named("fsdp")), ranks=10.0)
    gradients = 4 * 1e8 / 10  # fp32 shards of 1e8 parameters on 10 ranks
    assert held.terms["gradients"][0] < gradients
    assert held.terms["activations"][0] == pytest.approx(10 * 2 * 2e8, rel=0.1)
    apart = gradients - held.terms["gradients"][0]
    flat = 2 * 1e7  # what a layer is gathered to before its parameters are copied out
    assert held.cached[0] == pytest.approx(held.allocated[0] + apart + flat, rel=1e-3)


@pytest.mark.parametrize(
    ("joined", "wide", "found"),
    [
        (300.0, 50.0, 400.0),  # the norm's buffer holds both
        (300.0, 100.0, 400.0), (300.0, 101.0, 501.0),
        (400.0, 0.0, 400.0), (401.0, 0.0, 801.0), (500.0, 400.0, 900.0), (500.0, 401.0, 1301.0),
    ],
)  # fmt: skip
def test_flat_buffers_of_an_update(joined: float, wide: float, found: float) -> None:
    """Eight ranks, 800 parameters, the largest of 120: a shard of 100 copied in fp32 for a norm."""
    plain = program_named("plain")
    program = replace(plain, gradients=replace(plain.gradients, norm_copy_bytes=4))
    sizes = cast("PartSizes", SimpleNamespace(largest_param_numel=120.0, trainable_numel=800.0))
    of = {"joined": np.array([joined]), "wide": np.array([wide]), "shards": np.array([8.0])}
    state = cast("RankState", SimpleNamespace(**of))

    def flat(name: str, precision: str = "bf16", **words: Any) -> float:
        how = strategy(name, precision, program=program, **words)
        return float(_flat_buffer_bytes(state, how, sizes)[0])

    assert flat("zero1") == flat("zero2") == found
    assert flat("zero3") == joined + wide  # norms of shards are of the tensors themselves
    assert flat("ddp") == flat("zero1", offload=Offload(optimizer="cpu")) == 0.0
    small = cast("PartSizes", SimpleNamespace(largest_param_numel=60.0, trainable_numel=800.0))
    norm = strategy("zero1", "bf16", program=program)
    assert float(_flat_buffer_bytes(state, norm, small)[0]) >= 240.0
    main = replace(norm, precision=with_main_grads(norm.precision, "fp32"))
    assert float(_flat_buffer_bytes(state, main, sizes)[0]) == joined


def test_a_rank_holds_all_experts_and_nothing_is_stuck_by_default() -> None:
    assert on_by_default(RankJob) == {"cublas_bytes": 2 * 8_519_680, "expert_ranks": 1.0}


@pytest.mark.parametrize("parallelism", ["ddp", "zero2", "zero3"])
def test_a_point_of_an_axis_holds_what_it_holds_alone(parallelism: str) -> None:
    """With one rank nothing is gathered or reduced; peaks lie in other moments."""
    model = workload([block("a", [10_000_000], saved=Saved(low=1e6)),
                      block("b", [20_000_000], saved=Saved(low=3e6))], [0, 1, 1])  # fmt: skip
    how = strategy(parallelism, "bf16")
    axis = {
        "batch": [1.0, 1.0, 64.0, 64.0],
        "ranks": [1.0, 8.0, 8.0, 1.0],
        "accum": [1.0, 2.0, 1.0, 3.0],
    }
    together = memory(model, how, **axis)
    for n in range(4):
        alone = memory(model, how, **{name: values[n] for name, values in axis.items()})
        assert {k: v[n] for k, v in together.terms.items()} == {
            k: v[0] for k, v in alone.terms.items()
        }
        for name in ("allocated", "reserved", "cached", "device", "needed", "moment"):
            assert getattr(together, name)[n] == getattr(alone, name)[0], name
