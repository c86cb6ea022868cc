"""What libraries, formats and the host add to a method's memory, against counts by hand."""

from dataclasses import replace
from typing import Any

import numpy as np
import pytest
from strategies import Array, block, strategy, workload

from simcore import api
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig, SimcoreError
from simcore.memory.job import memory_over, stage_allocated_bytes
from simcore.memory.parts import saved_activations
from simcore.memory.terms import Memory, RankJob, memory_of
from simcore.step.transients import backward_bytes, output_bytes, saved_bytes
from simcore.strategy.layout import Layout
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.precision import with_main_grads
from simcore.strategy.programs import program_named
from simcore.strategy.strategy import Strategy
from simcore.timing.rates import class_rates
from simcore.workload import ops
from simcore.workload.archs.lm_mlp import gate_product
from simcore.workload.graph import Workload
from simcore.workload.models import MODELS
from simcore.workload.recompute import offloaded
from simcore.workload.saved import Saved
from simcore.workload.sharding import (
    buffered,
    pipeline_stages,
    sequence_parallel,
    tensor_overrides,
)

P = 3_000_000
ONE = np.ones(1)
LLAMA: dict[str, Any] = {"precision": "bf16", "strategy": "zero1", "micro_batch": 1}


def model() -> Workload:
    """Two tensors, the larger of two thirds."""
    return workload([block("layer", [P // 3, 2 * P // 3], saved=Saved(low=1e6))])


def fp32_sums(software: str, precision: str = "bf16") -> Strategy:
    how = strategy("zero1", precision, step_impl="fused", program=program_named(software))
    return replace(how, precision=with_main_grads(how.precision, "fp32"))


def memory(how: Strategy, ranks: float = 8.0) -> Memory:
    job = RankJob(model(), how, ONE, 2 * ONE, ranks * ONE, ONE, True, cuda_context_bytes=0.0)
    return memory_of(job)


def total(found: Memory, *terms: str) -> float:
    return float(sum(found.terms[t][0] for t in terms)) / P


def test_gradients_that_stay_between_steps_are_there_all_through_backward() -> None:
    """Of a step of one micro-batch; ``zero1`` hands them on in buffers of its own."""
    trainer = strategy("ddp", "fp32", program=program_named("transformers-2022"))

    def gradients(how: Strategy) -> float:
        found = memory_of(
            RankJob(model(), how, ONE, ONE, ONE, ONE, nvlink=True, cuda_context_bytes=0)
        )
        return float(found.terms["gradients"][0])

    later = replace(trainer, program=program_named("transformers-2023"))
    assert trainer.keeps_grads and not later.keeps_grads
    assert not replace(trainer, parallelism="zero1").keeps_grads
    assert gradients(trainer) == 4 * P
    peaks = [
        api.predict("bert-large", "1xV100-SXM-16GB", software=name)
        for name in ("transformers-2022", "transformers-2023")
    ]
    held = [p.memory.terms["gradients"] for p in peaks]
    assert held[0] == pytest.approx(4 * 335_143_938, rel=1e-3)
    assert held[1] < held[0]
    # CUDA before 11.7 has all kernels of its libraries in the context
    assert peaks[0].memory.terms["cuda_context"] > 2 * peaks[1].memory.terms["cuda_context"]


@pytest.mark.parametrize(
    ("software", "bytes_each"),
    [
        ("plain", 2 + 4 + 12 / 8),
        ("deepspeed", 2 + 4 + 2 + 12 / 8),  # 16-bit gradients stay beside the sums
        ("nanotron", 2 + 4 + 12 / 8),  # no DDP, and so no buckets, with a sharded optimizer
        ("fsdp", 2 + 4 + 4 + 12 / 8),  # the one layer's sums, flat for their reduction
    ],
)
def test_bytes_a_parameter(software: str, bytes_each: float) -> None:
    found = memory(fp32_sums(software))
    kept = ("parameters", "gradients", "gradient_buckets", "optimizer_state")
    assert total(found, *kept) == pytest.approx(bytes_each)


@pytest.mark.parametrize("precision", ["bf16", "bf16-true"])
@pytest.mark.parametrize(("software", "whole"), [("fsdp", False), ("fsdp-no-sync", True)])
def test_sums_that_are_not_reduced_stay_whole(software: str, whole: bool, precision: str) -> None:
    """FSDP without a sync keeps what backward made, unsharded; with one micro-step it makes no
    difference. What is reduced is as wide as the shard, fp32 beside bf16 products."""
    big = workload([block("layer", [P // 3, 2 * P // 3], saved=Saved(low=1e8))])
    plain = strategy("zero3", precision, step_impl="fused")

    def gradients(software: str, accum: float, ranks: float = 8.0) -> float:
        how = replace(plain, program=program_named(software))
        job = RankJob(big, how, ONE, accum * ONE, ranks * ONE, ONE, True, cuda_context_bytes=0.0)
        found = memory_of(job)
        assert found.moment[0] != 2  # not in the update, where there are shards
        return float(found.terms["gradients"][0]) / P

    shard = 4.0 if precision == "bf16" else 2.0
    assert gradients(software, 4.0) == pytest.approx(2.0 if whole else shard / 8)
    assert gradients(software, 4.0, ranks=1.0) == pytest.approx(2.0 if whole else shard)
    assert gradients(software, 1.0) == gradients("fsdp", 1.0)


def test_segments_of_fsdp_s_reductions_stay_though_no_gradient_is_there() -> None:
    """They are of streams of their own: at the peak, where no gradient is, what is reserved holds 4
    bytes a parameter of the shard, and the flat tensor of 2 bytes a parameter into which a unit is
    gathered and from which it is copied; one rank has nothing to reduce or gather."""
    whole = 2.0**26  # elements of 16 bit that fill their segments
    big = workload([block("layer", [P // 3, 2 * P // 3], saved=Saved(low=whole))])
    how = replace(strategy("zero3", "bf16", step_impl="fused"), program=program_named("fsdp"))
    for ranks, beyond in ((8.0, 4.0 * P / 8 + 2.0 * P), (1.0, 0.0)):
        found = memory_of(
            RankJob(big, how, ONE, ONE, ranks * ONE, ONE, True, cuda_context_bytes=0.0)
        )
        assert found.moment[0] != 2 and found.terms["gradients"][0] == 0.0
        assert found.cached[0] - found.reserved[0] == pytest.approx(beyond)


@pytest.mark.parametrize(("micro_batch", "gib"), [(4, 37.41), (8, 41.035), (16, 56.165)])
def test_all_weights_under_fsdp_as_published(micro_batch: int, gib: float) -> None:
    """foundation-model-stack/fms-acceleration, scripts/benchmarks/refs/a100_80gb_liger.csv 12ebdb9:
    Llama 3 8B under Accelerate's FSDP in bf16 on four A100, Liger-Kernel's loss, torch's peak.

    The smallest is that of the update: 16 bytes a parameter of the shard and foreach's 4.
    """
    record = MODELS["llama3-8b"]
    fused = {"norm": "rmsnorm", "fused_rope": True, "loss": "chunked", "upcast_loss": False}
    found = api.predict(
        record.model_copy(update={"config": {**record.config, **fused}}), "1x4xA100-SXM-80GB",
        strategy="zero3", precision="bf16", seq_len=4096, micro_batch=micro_batch,
        recompute="full", software="transformers-2024", overlap="grads,params",
    )  # fmt: skip
    assert found.memory.allocated_bytes / 2**30 == pytest.approx(gib, rel=0.03)


def test_seventy_billion_whole_sums_over_four_tensor_ranks() -> None:
    """70.6e9 / 4 parameters of fp32 sums, less what the last micro-step has cut by then."""
    job: dict[str, Any] = {
        "model": "llama3-70b", "gpus": "8x4xH200", "strategy": "zero3", "tp": 4, "grad_accum": 4,
        "precision": "bf16-true", "main_grads": "fp32", "recompute": "full", "micro_batch": 2,
    }  # fmt: skip
    late, soon = (
        api.predict(**job, software=s).memory.terms["gradients"] for s in ("fsdp-no-sync", "fsdp")
    )
    assert late == pytest.approx(70.55e9 / 4 * 4, rel=0.02)
    assert soon == pytest.approx(70.55e9 / 4 / 8 * 4, rel=0.02)


def test_nanotron_has_buckets_under_ddp() -> None:
    """In the weights' width, beside sums in fp32; nothing is sharded."""
    found = memory(replace(fp32_sums("nanotron"), parallelism="ddp"))
    kept = ("parameters", "gradients", "gradient_buckets", "optimizer_state")
    assert total(found, *kept) == pytest.approx(2 + 4 + 2 + 12)


def test_a_bucket_is_reduced_in_a_copy_of_full_width() -> None:
    """scaling joins 16-bit gradients and casts what it joined to fp32: 2 + 4 bytes."""
    how = strategy("zero1", "bf16", step_impl="fused", program=program_named("scaling"))
    assert total(memory(how), "gradient_buckets") == 6
    assert total(memory(replace(how, program=program_named("plain"))), "gradient_buckets") == 2
    assert total(memory(how, ranks=1.0), "gradient_buckets") == 0


def test_buckets_of_the_update_are_not_there_in_backward() -> None:
    """scaling joins and reduces gradients in its optimizer's step, when activations are gone."""
    how = strategy("zero1", "bf16", step_impl="fused", program=program_named("scaling"))
    grads = replace(how.program.gradients, buckets_after_backward=False)
    early = replace(how, program=replace(how.program, gradients=grads))
    full = workload([block("layer", [P // 3, 2 * P // 3], saved=Saved(low=1e8))])

    def held(strategy: Strategy) -> Memory:
        batch, ranks = 2 * ONE, 8.0 * ONE
        return memory_of(
            RankJob(full, strategy, batch, ONE, ranks, ONE, True, cuda_context_bytes=0)
        )

    late, before = held(how), held(early)
    assert late.moment[0] == before.moment[0] != 2  # the end of forward
    assert late.terms["gradient_buckets"][0] == 0
    assert before.allocated[0] - late.allocated[0] == 6 * P
    # in the update they are, where its copies are no more
    assert memory(how).moment[0] == 2
    assert total(memory(how), "gradient_buckets", "gradient_copies") == 6


@pytest.mark.parametrize(("ranks", "numel"), [(1.0, 2 * P / 3), (8.0, P / 8)])
def test_a_norm_in_double_needs_a_block_of_its_own(ranks: float, numel: float) -> None:
    """8 bytes an element of the largest gradient, cut at the shard; what the update joins and
    widens lies in that block as far as it fits."""
    plain = strategy("zero1", "fp16", step_impl="fused")
    norm, joined, wide = 8 * numel, 2 * P / ranks, 4 * P / ranks
    fresh = norm + (0 if joined <= norm else joined)
    fresh += 0 if wide <= norm - (joined if joined <= norm else 0) else wide
    found = memory(replace(plain, program=program_named("deepspeed")), ranks)
    usual = memory(plain, ranks)
    assert found.allocated[0] == usual.allocated[0]
    assert found.cached[0] - usual.cached[0] == pytest.approx(fresh - (joined + wide), abs=1.0)


@pytest.mark.parametrize(("precision", "saved"), [("bf16", 2.0), ("fp16", 0.0), ("fp32", 0.0)])
def test_bf16_weights_are_half_of_their_masters(precision: str, saved: float) -> None:
    """Adam's 12 bytes a parameter become 10: 2 of the master are the weight (NVIDIA/apex,
    distributed_fused_adam.py, store_param_remainders); fp16 is no part of fp32."""
    words = {"precision": precision, "strategy": "zero1", "micro_batch": 1}
    plain, found = (
        api.predict("gpt2-xl", "1x8xA100", **words, software=name).memory.terms
        for name in ("plain", "precision-aware")
    )
    numel = MODELS["gpt2-xl"].build().trainable_numel
    assert plain["optimizer_state"] - found["optimizer_state"] == pytest.approx(saved * numel / 8)
    assert plain["parameters"] == found["parameters"]


@pytest.mark.parametrize(
    ("software", "impl", "state", "at_update"),
    [
        # 4 of the fp32 master or 2 beside bf16 weights, 2 + 2 of the moments; Transformer Engine
        # computes both moments in fp32 temporaries, torch's fused kernel in registers
        ("plain", "foreach", 4 + 2 + 2, 2 * 4), ("precision-aware", "foreach", 2 + 2 + 2, 2 * 4),
        ("plain", "fused", 4 + 2 + 2, 0),
    ],
)  # fmt: skip
def test_moments_in_16_bits(software: str, impl: str, state: int, at_update: int) -> None:
    words: dict[str, Any] = {
        "precision": "bf16", "strategy": "zero1", "micro_batch": 1, "main_grads": "fp32",
        "software": software, "optimizer_impl": impl,
    }  # fmt: skip
    # (taken from the precision when a request is made, so not of the toy)
    remainders = software == "precision-aware"
    numel = MODELS["gpt2-xl"].build().trainable_numel
    found, wide = (
        api.predict("gpt2-xl", "1x2xA100", **words, optimizer=name).memory
        for name in ("adamw-bf16", "adamw")
    )
    assert found.terms["optimizer_state"] == pytest.approx(state * numel / 2)
    assert wide.terms["optimizer_state"] == pytest.approx((state + 4) * numel / 2)
    toy = replace(fp32_sums(software), optimizer=OPTIMIZERS["adamw-bf16"], step_impl=impl)
    of_toy = memory(toy)
    if at_update:  # the toy's fullest moment
        assert of_toy.moment[0] == 2
        assert total(of_toy, "working_set") == pytest.approx(at_update / 8)
    assert total(of_toy, "optimizer_state") == pytest.approx((state + 2 * remainders) / 8)


def test_bf16_moments_take_less_of_a_job() -> None:
    """DeepSeek-V3's recipe: 4 bytes a parameter of the shard less, 3.75 GB of 7.5 G on 8 GPUs."""
    words: dict[str, Any] = {"precision": "bf16", "strategy": "zero1", "recompute": "full"}
    wide, narrow = (
        api.predict("llama2-7b", "1x8xH100", **words, optimizer=o, optimizer_impl="fused").memory
        for o in ("adamw", "adamw-bf16")
    )
    numel = MODELS["llama2-7b"].build().trainable_numel
    assert wide.device_bytes - narrow.device_bytes == pytest.approx(4 * numel / 8, rel=1e-3)


def test_an_unknown_library_names_the_nearest() -> None:
    with pytest.raises(InvalidConfig, match="did you mean 'deepspeed'"):
        api.predict("gpt2", "1x1xA100", software="deepsped")


def test_zero3_of_deepspeed_leaves_gathered_parameters_in_place() -> None:
    """Up to 1e9 of them (stage3_max_live_parameters), and a bucket of 5e8 gradients, which is
    copied into one tensor that has them in the order of the shards (reduce_scatter_coalesced)."""
    words: dict[str, Any] = {"precision": "bf16", "strategy": "zero3", "micro_batch": 4}
    plain = api.predict("llama2-7b", "1x8xH100", **words).memory
    found = api.predict("llama2-7b", "1x8xH100", software="deepspeed", **words).memory
    assert found.terms["gradient_buckets"] == 2 * 5e8 * 2
    assert found.terms["gathered_parameters"] >= 1e9 * 2 > plain.terms["gathered_parameters"]


def test_a_model_that_is_whole_before_it_is_sharded_may_be_the_peak() -> None:
    """2 bytes a parameter of every parameter, and nothing of a step; else the step is the peak."""
    short, long = (
        api.predict(
            "llama3-8b", "1x8xH200", software="transformers-deepspeed@liger", strategy="zero3",
            precision="bf16", recompute="full", micro_batch=1, offload="optimizer",
            settings={"seq_len": tokens},
        ).memory
        for tokens in (1024, 65_536)
    )  # fmt: skip
    numel = MODELS["llama3-8b"].build().trainable_numel
    assert short.moment == "set-up" and long.moment == "backward"
    terms = {name: term for name, term in short.terms.items() if term}
    assert terms.pop("parameters") == pytest.approx(2 * numel)
    assert {*terms} == {"workspace", "nccl_buffers", "cuda_context"}


def test_weights_in_8_bits_are_those_of_the_layers() -> None:
    plain, cut = (api.predict("llama3-8b", "1x8xB200", **LLAMA, fp8_params=on).memory
                  for on in (False, True))  # fmt: skip
    layers = 32 * (4096 * (6144 + 4096 + 3 * 14336) + 2 * 4096)
    assert plain.terms["parameters"] - cut.terms["parameters"] == layers
    assert cut.terms["optimizer_state"] == plain.terms["optimizer_state"]


@pytest.mark.parametrize(("gpu", "precision"), [("H100", "fp8"), ("B200", "mxfp8")])
def test_weights_in_8_bits_are_there_twice_where_products_need_both_layouts(
    gpu: str, precision: str
) -> None:
    words = {**LLAMA, "precision": precision}
    plain, twice = (api.predict("llama3-8b", f"1x8x{gpu}", **words, fp8_params=on).memory
                    for on in (False, True))  # fmt: skip
    assert plain.terms["parameters"] == twice.terms["parameters"]


def test_activations_on_the_host_are_not_held() -> None:
    """16 of 32 equal layers away: half of the layers' activations; the work is the same."""
    words = {**LLAMA, "recompute": "none"}
    plain, away = (api.predict("llama3-8b", "1x8xH100", **words, offload_layers=n).memory
                   for n in (0, 16))  # fmt: skip
    record = MODELS["llama3-8b"]
    whole = record.build()
    layer = next(b for b in whole.blocks if b.recomputable)
    each = 2 * (layer.saved.low + layer.saved.matmul + layer.saved.high) + layer.saved.raw_bytes
    assert plain.terms["activations"] - away.terms["activations"] == pytest.approx(16 * each)
    assert offloaded(whole, 16).forward_flop == whole.forward_flop
    assert offloaded(whole, 0) is whole


def test_gathered_keys_and_values_are_of_all_tokens_whatever_the_ranks() -> None:
    """8 heads of 128 of k and v in 16 bit for each of 2^20 tokens, and in backward their gradients.

    The layer in work of a ring holds none of them; both hold the same besides.
    """
    tokens = 2**20
    words: dict[str, Any] = {**LLAMA, "software": "fsdp", "strategy": "zero3", "recompute": "full"}

    def working(cp: int, comm: str) -> float:
        found = api.predict(
            "llama3-8b", f"{cp // 8}x8xH100", **words, seq_len=tokens, cp=cp, cp_comm=comm,
            settings="loss=chunked",
        )  # fmt: skip
        return found.memory.terms["working_set"]

    both = 2 * (2 * tokens * 2 * 8 * 128)
    assert working(8, "all-gather") - working(8, "ring") <= both
    # of so many ranks that what a rank's own tokens need is little
    assert working(64, "all-gather") > both > working(64, "ring")


@pytest.mark.parametrize("recompute", ["none", "full"])
def test_offload_of_activations_is_that_of_every_layer(recompute: str) -> None:
    words: dict[str, Any] = {**LLAMA, "recompute": recompute}
    every, named = (
        api.predict("llama3-8b", "1x8xH100", **words, **more)
        for more in ({"offload_layers": 32}, {"offload": "activations"})
    )
    assert named.memory.terms == every.memory.terms
    assert named.step_time_s.value == every.step_time_s.value
    assert named.offload == "activations:cpu"
    both = api.predict(
        "llama3-8b", "1x8xH100", **{**words, "strategy": "zero3"},
        offload="optimizer+params+activations",
    )  # fmt: skip
    assert both.offload == "optimizer:cpu,params:cpu,activations:cpu"
    with pytest.raises(SimcoreError, match="nvme"):
        api.predict("llama3-8b", "1x8xH100", **words, offload="activations:nvme")


def test_fp8_products_of_bf16_weights_hold_two_bytes_of_8_bit_weights() -> None:
    """Weights, gradients and both moments in bf16, 8 bytes a parameter; 8-bit copies either way."""
    held = api.predict("phi-3-mini", "1xH100", precision="fp8-true", seq_len=4096, recompute="none")
    terms, matrices = held.memory.terms, 3_821_079_552 - 32_064 * 3072 - 65 * 3072
    assert held.n_params == 3_821_079_552
    assert terms["parameters"] == 2 * held.n_params
    assert terms["optimizer_state"] == 4 * held.n_params
    assert terms["autocast_weights"] == pytest.approx(2 * matrices, rel=1e-3)


def test_a_frozen_base_is_offloaded_with_all_parameters() -> None:
    """ZeRO-3 and FSDP offload every parameter of a module, trained or not, and fetch it anew."""
    words: dict[str, Any] = {"strategy": "zero3", "precision": "bf16", "recompute": "full"}
    here, away, full = (
        api.predict("llama3-8b", "1x8xH100", **words, **more)
        for more in (
            {"lora_rank": 16},
            {"lora_rank": 16, "offload": "optimizer+params"},
            {"offload": "optimizer+params"},
        )
    )
    base = 2 * here.n_frozen_params / 8
    assert here.memory.terms["frozen_models"] == pytest.approx(base, rel=1e-3)
    assert "frozen_models" not in away.memory.terms
    adapters = 16 * here.n_params / 8  # weights 2, gradients 2, fp32 weights and moments 12
    assert away.memory.host_bytes == pytest.approx(base + adapters, rel=1e-3)
    assert away.memory.device_bytes < full.memory.device_bytes
    # one GPU, few tokens: the base crosses a PCIe 5 link of 64 GB/s in forward and in backward
    words |= {"lora_rank": 16, "offload": "optimizer+params", "seq_len": 16}
    alone = api.predict("llama3-8b", "1x1xH100", **words)
    assert alone.step_time_s.value > 2 * 2 * here.n_frozen_params / 64e9


def test_swapped_blocks_of_a_frozen_base_live_on_the_host() -> None:
    """kohya's block swapping: a block of Llama 3 8B has 218,112,000 weights (4096, 1024, 14336)."""
    words: dict[str, Any] = {"precision": "bf16", "recompute": "full", "lora_rank": 16,
                             "seq_len": 16}  # fmt: skip
    here = api.predict("llama3-8b", "1x1xH100", **words)
    away = api.predict("llama3-8b", "1x1xH100", **words, offload="blocks:12")
    swapped = 12 * 2 * (2 * 4096 * (4096 + 1024) + 3 * 4096 * 14336 + 2 * 4096)
    fewer = here.memory.terms["frozen_models"] - away.memory.terms["frozen_models"]
    assert (fewer, away.memory.host_bytes) == pytest.approx((swapped, swapped))
    # forward and backward each bring them all, and take as many away, over a link of 64 GB/s
    assert away.step_time_s.value > 4 * swapped / 64e9 > here.step_time_s.value
    twice = api.predict("llama3-8b", "1x1xH100", **words, offload="blocks:12", grad_accum=2)
    assert twice.step_time_s.value > 8 * swapped / 64e9


@pytest.mark.parametrize(
    ("words", "why"),
    [
        ({"offload": "blocks:12"}, "needs a frozen base"),
        ({"offload": "blocks:33", "lora_rank": 8}, "more than the 32 blocks"),
        ({"offload": "blocks", "lora_rank": 8}, "write blocks:18"),
        ({"offload": "blocks:0", "lora_rank": 8}, "write blocks:18"),
        ({"offload": "blocks:2", "lora_rank": 8, "strategy": "zero3"}, "whole copies"),
        ({"offload": "blocks:2+params", "lora_rank": 8, "strategy": "zero3"}, "not both"),
    ],
)
def test_blocks_that_cannot_be_swapped_are_refused(words: dict[str, Any], why: str) -> None:
    with pytest.raises(InvalidConfig, match=why):
        api.predict("llama3-8b", "1x8xH100", **words)


def test_joined_logits_are_whole_on_every_tensor_rank() -> None:
    record = MODELS["llama3-8b"]
    joined = record.model_copy(update={"config": {**record.config, "gathered_logits": True}})

    def loss_bytes(tp: int) -> Array:
        part = joined.build(**tensor_overrides(joined, tp, 1))
        saved = [op.saved for op in part.blocks[-1].ops if op.name.startswith("loss")]
        return np.array([2 * s.low + 4 * s.high + s.raw_bytes for s in saved])

    assert loss_bytes(4).tolist() == loss_bytes(1).tolist()
    cut = record.build(**tensor_overrides(record, 4, 1)).blocks[-1]
    assert max(op.saved.low for op in cut.ops) < max(
        op.saved.low for op in joined.build(**tensor_overrides(joined, 4, 1)).blocks[-1].ops
    )


def test_gathered_inputs_stay_whole_under_sequence_parallelism() -> None:
    record = MODELS["llama3-8b"]
    part = record.build(**tensor_overrides(record, 4, 1))

    def kept(gathered: bool) -> float:
        cut = sequence_parallel(part, 4, gathered)
        layer = next(b for b in cut.blocks if b.recomputable)
        return float(layer.saved.matmul + layer.saved.low + layer.saved.high)

    hidden = 4096 * record.build().tokens_per_sample
    # the inputs of qkv and of the gated layer: three quarters more of each
    assert kept(True) - kept(False) == pytest.approx(2 * hidden * 3 / 4)


def test_a_frozen_base_is_cut_over_stages() -> None:
    adapted = MODELS["llama3-8b"].build(lora_rank=8)
    base = sum(net.resident_numel for net in adapted.frozen)
    stages = pipeline_stages(adapted, 4)
    parts = [sum(net.resident_numel for net in s.workload.frozen) for s in stages]
    assert sum(parts) == pytest.approx(base, rel=1e-6) and max(parts) < 0.26 * base


@pytest.mark.parametrize(
    ("degrees", "ranks"),
    [({"tp": 1, "ep": 8}, 8.0), ({"tp": 4, "ep": 8}, 2.0), ({"tp": 8, "ep": 4}, 0.5),
     ({"tp": 4, "ep": 8, "expert_tp": 4}, 8.0), ({"tp": 4}, 1.0)],
)  # fmt: skip
def test_experts_lie_over_tensor_ranks_first(degrees: dict[str, Any], ranks: float) -> None:
    """A set of ep experts' parts on ep x expert_tp ranks spans so many data ranks."""
    assert Layout(**degrees).data_ranks_of_expert == ranks


def test_the_backward_of_a_loss_holds_one_gradient() -> None:
    """Of r V logits in 16 bit: the saved ones are counted apart, the loss itself is a number."""
    p = strategy("ddp", "bf16").precision
    loss, _ = ops.loss_compiled("loss", 10.0, 1000)
    assert backward_bytes(loss, p).held == pytest.approx(2 * 10 * 1000, rel=0.01)


def test_a_job_needs_the_holes_that_stay() -> None:
    """0.065 of what comes and goes where equal layers follow; none where segments grow."""
    plain = api.predict("llama3-8b", "1x8xH100", **LLAMA, recompute="none").memory
    grown = api.predict(
        "llama3-8b", "1x8xH100", **LLAMA, recompute="none", growing_segments=True
    ).memory
    loose = plain.terms["activations"] + plain.terms["working_set"]
    assert plain.needed_bytes - plain.device_bytes == pytest.approx(0.065 * loose)
    assert grown.needed_bytes == grown.device_bytes == plain.device_bytes
    assert plain.margin_frac == pytest.approx(1 - plain.needed_bytes / plain.capacity_bytes)


def test_holes_are_those_of_the_kind_of_job() -> None:
    """Stages 0.14, unlike layers 0.058; full recompute 0.22 of all but the layers' inputs."""
    staged = api.predict("llama3-8b", "1x8xH100", **LLAMA, recompute="none", pp=2,
                         software="plain").memory  # fmt: skip
    loose = staged.terms["activations"] + staged.terms["working_set"]
    assert staged.needed_bytes - staged.device_bytes == pytest.approx(0.14 * loose)

    job = {**LLAMA, "strategy": "zero3", "micro_batch": 4}
    again = api.predict("llama3-8b", "1x8xH100", **job, recompute="full").memory
    inputs = 2.0 * 32 * 4 * 8192 * 4096  # 16 bit, layers, batch, tokens, hidden
    terms = ("activations", "working_set", "gathered_parameters")
    loose = sum(again.terms[t] for t in terms) - inputs
    assert again.needed_bytes - again.device_bytes == pytest.approx(0.22 * loose, rel=1e-3)

    # With gradients from the start the op with most memory is that with most that comes and goes.
    flat = api.predict("vgg-16", "1xA100", micro_batch=32, grad_accum=2).memory
    loose = sum(flat.terms.get(t, 0.0) for t in ("activations", "working_set", "autocast_weights"))
    assert flat.needed_bytes - flat.device_bytes == pytest.approx(0.058 * loose)
    # Holes of that op stay, whichever gradients exist when memory is fullest.
    once = api.predict("vgg-16", "1xA100", micro_batch=32).memory
    assert once.needed_bytes - once.device_bytes == pytest.approx(0.058 * loose)


def test_pipeline_buffers_hold_what_stages_exchange() -> None:
    """DeepSpeed: received and sent hidden states, and on the last stage two fp32 logits."""
    record = MODELS["llama3-8b"]
    config = {**record.config, "loss": "vocab_parallel"}
    stages = pipeline_stages(record.model_copy(update={"config": config}).build(), 4)
    p = strategy("ddp", "bf16").precision
    more = [
        saved_bytes(b.workload.blocks[0].saved, p)
        for b in buffered(stages, 1, 1, 8.0)
    ]  # fmt: skip
    seq = record.build().tokens_per_sample
    hidden, logits = 2 * 4096 * seq, 8 * 128256 * seq
    assert more == [hidden, 2 * hidden, 2 * hidden, hidden + logits]
    assert buffered(stages, 0, 0, 0.0) is stages


def test_pipeline_buffers_wait_with_their_micro_batch() -> None:
    """Stage 0 of four with four micro-batches in flight: four outputs more."""
    words = {**LLAMA, "recompute": "full", "pp": 4, "global_batch": 64, "settings": "dropout=0"}
    words["stages"] = "4x8"
    requests = [
        make_request("llama3-8b", "1x8xA100-SXM-80GB", **words, software=name)
        for name in ("plain", "scaling")
    ]
    each = (4 * ONE[:1], 32 * ONE[:1], 8 * ONE[:1], ONE[:1])
    plain, buffers = (memory_over(r, *each)[0].terms["activations"][0] for r in requests)
    seq = MODELS["llama3-8b"].build().tokens_per_sample
    assert buffers - plain == pytest.approx(4 * (4 * 2 * 4096 * seq))


def test_a_gated_activation_keeps_its_input_in_8_bits() -> None:
    record = MODELS["llama3-8b"]
    p = strategy("ddp", "bf16").precision

    def kept(fp8: bool) -> float:
        made = record.build(fused_pointwise=True, fp8_activation_input=fp8)
        return saved_bytes(next(b for b in made.blocks if b.recomputable).saved, p)

    tokens = record.build().tokens_per_sample
    assert kept(False) - kept(True) == 2 * 14336 * tokens  # gate and up, a byte each


def test_rank_0_is_on_the_first_stage() -> None:
    """The last stage has the head: its weights are not on the first."""
    words = {**LLAMA, "pp": 4, "vpp": 1, "global_batch": 2, "recompute": "full"}
    request = make_request("llama3-8b", "1x8xH100", **words)
    first = stage_allocated_bytes(request, 0)
    assert first < api.predict("llama3-8b", "1x8xH100", **words).memory.allocated_bytes


def test_of_recomputed_layers_the_inputs_alone_go_to_the_host() -> None:
    """One input a layer less on the device, and as much on its way, whatever the layer keeps."""
    words = {**LLAMA, "recompute": "full"}
    plain, away = (api.predict("llama3-8b", "1x8xH100", **words, offload_layers=n)
                   for n in (0, 32))  # fmt: skip
    whole = MODELS["llama3-8b"].build()
    layer = next(b for b in whole.blocks if b.recomputable)
    each = 2 * (layer.boundary.high + layer.boundary.low)
    p = strategy("ddp", "bf16").precision
    sent = offloaded(whole, 32, checkpointed=True)
    before, after = (saved_activations(w, p, True).kept for w in (whole, sent))
    assert before - after == 32 * each
    assert [saved_bytes(b.offloaded, p) for b in sent.blocks if b.recomputable] == [each]
    assert away.memory.allocated_bytes <= plain.memory.allocated_bytes
    assert away.step_time_s.value < 1.1 * plain.step_time_s.value


def test_activations_on_the_host_cost_time_once_they_do_not_hide() -> None:
    """Few layers' copies hide under compute; all of them take at least there and back."""
    words: dict[str, Any] = {**LLAMA, "recompute": "none"}
    plain, few, every = (
        api.predict("llama3-8b", "1x8xH100", **words, offload_layers=n) for n in (0, 4, 32)
    )
    assert few.step_time_s.value == pytest.approx(plain.step_time_s.value)
    assert few.memory.device_bytes < plain.memory.device_bytes
    layer = next(b for b in MODELS["llama3-8b"].build().blocks if b.recomputable)
    gone = 32 * saved_bytes(layer.saved, strategy("ddp", "bf16").precision)
    request = make_request("llama3-8b", "1x8xH100", **words, offload_layers=32)
    (group,) = request.cluster.groups
    rate = class_rates(group, request.strategy.precision, request.profile).h2d_bytes_per_s
    assert every.step_time_s.value > 2 * gone / rate
    assert every.step_time_s.value < plain.step_time_s.value + 2 * gone / rate


@pytest.mark.parametrize("strategy_name", ["ddp", "zero1", "zero2", "zero3"])
def test_more_layers_on_the_host_never_go_faster(strategy_name: str) -> None:
    words = {**LLAMA, "strategy": strategy_name, "recompute": "none", "grad_accum": 3}
    times = [
        api.predict("llama3-8b", "1x8xH100", **words, offload_layers=n).step_time_s.value
        for n in (0, 8, 16, 24, 32)
    ]
    assert min(np.diff(times)) > -1e-9 and times[-1] > 1.2 * times[0]


def test_of_two_operands_one_tensor_comes() -> None:
    """A sum and a product write as much as one of what they read, not half of all they move."""
    p = strategy("ddp", "bf16").precision
    (product,) = gate_product("swiglu", 100.0, fused=True)
    for op in (ops.binary("sum", 100.0), ops.binary("product", 100.0, saves=200.0), product):
        assert output_bytes(op, p) == 2 * 100
    assert output_bytes(ops.binary("sum", 100.0, high=True), p) == p.high_bytes * 100
