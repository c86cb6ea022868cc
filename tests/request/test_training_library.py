"""Which library runs a job that names none, and what it does then."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from simcore import api
from simcore.answer.request import make_request
from simcore.base.errors import UsageError
from simcore.request.model_settings import layout_of
from simcore.request.resolved import Request
from simcore.request.training_library import library_of
from simcore.workload.resolve import model_of

CUT: dict[str, Any] = {"tp": 4, "pp": 2, "micro_batch": 1, "global_batch": 64}


def software(model: str, gpus: str = "8x8xH100", **words: Any) -> tuple[str, bool]:
    request = make_request(model, gpus, **words)
    return request.strategy.program.name, request.software_assumed


def products(request: Request) -> int:
    """Matrix products of a layer's forward."""
    layer = next(b for b in request.workload.blocks if b.name == "layer")
    return sum(k.kind == "gemm" for op in layer.ops for k in op.fwd)


@pytest.mark.parametrize(
    "words",
    [{"tp": 2}, {"pp": 2}, {"cp": 2}, {"tp": 2, "strategy": "zero1"}, {"precision": "mxfp8"}],
)
def test_a_cut_language_model_is_megatron_s_unless_said(words: dict[str, Any]) -> None:
    assert software("llama3-8b", **words) == ("megatron", True)
    told = make_request("llama3-8b", "8x8xH100", **words).assumptions
    assert any(a.startswith("software: megatron") for a in told)
    assert software("llama3-8b", **words, software="plain") == ("plain", False)
    assert software("llama3-8b", **words, software="megatron") == ("megatron", False)


@pytest.mark.parametrize(
    ("model", "words"),
    [
        ("llama3-8b", {}),  # nothing is cut
        ("llama3-8b", {"precision": "fp8-dynamic"}),  # torchao's
        ("llama3-8b", {"strategy": "zero3"}),
        ("llama3-8b", {"strategy": "zero3", "tp": 2}),  # PyTorch's own composition
        ("llama3-8b", {"tp": 2, "issuer": "torch"}),
        ("dit-xl/2", {"pp": 2}),  # not one of its decoders
    ],
)
def test_other_jobs_run_as_they_did(model: str, words: dict[str, Any]) -> None:
    assert software(model, **words) == ("plain", False)


def test_a_file_s_program_is_known_by_it(tmp_path: Path) -> None:
    file = tmp_path / "job.toml"
    file.write_text("[parallelism]\ntensor_parallel_degree = 2\n")
    assert software("llama3-8b", launch=str(file)) == ("torchtitan@2025", False)
    flags = "--micro-batch-size 1 --tensor-model-parallel-size 2 --bf16"
    assert software("llama3-8b", launch=flags) == ("megatron", False)


def test_megatron_lm_s_own_scripts_hide_what_a_file_of_its_flags_does() -> None:
    """arguments.py: what recipes overlap is off there unless a flag says so."""
    flags = (
        "--micro-batch-size 1 --global-batch-size 16 --tensor-model-parallel-size 4 --bf16 "
        "--sequence-parallel --pipeline-model-parallel-size 2 --use-distributed-optimizer "
        "--num-layers 32 --num-layers-per-virtual-pipeline-stage 4"
    )
    words = {"tp": 4, "pp": 2, "vpp": 4, "strategy": "zero1", "precision": "bf16",
             "micro_batch": 1, "global_batch": 16}  # fmt: skip

    def of(**options: Any) -> Any:
        return make_request("llama3-8b", "2x8xH100", **options).strategy

    own, read = of(**words, software="megatron-lm"), of(launch=flags)
    assert str(own.overlap) == str(read.overlap) == "dgrad,pipeline"
    assert (own.issuer, own.recompute) == (read.issuer, read.recompute)
    assert own.precision.grad_bytes == read.precision.grad_bytes == 4.0
    assert str(of(**words, software="megatron").overlap) == "grads,params,tensor,pipeline"
    assert str(of(**words, software="megatron-lm", overlap="tensor").overlap) == "tensor"


def test_it_says_how_it_runs_where_nothing_is_said() -> None:
    found = make_request("llama3-70b", "8x8xH100", **CUT).strategy
    assert (found.issuer, found.recompute) == ("megatron_graphs", "none")
    named = make_request("llama3-70b", "8x8xH100", **CUT, software="megatron").strategy
    assert named.issuer == "megatron"  # its modules, as they are
    assert str(found.overlap) == "grads,params,tensor"
    assert found.precision.main_grads and found.precision.grad_bytes == 4.0
    words = {"issuer": "graph", "recompute": "full", "overlap": "grads", "main_grads": "weights"}
    said = make_request("llama3-70b", "8x8xH100", **CUT, **words).strategy
    assert (said.issuer, said.recompute, str(said.overlap)) == ("graph", "full", "grads")
    assert not said.precision.main_grads
    assert (
        make_request("llama3-70b", "8x8xH100", **CUT, precision="fp16").strategy.recompute == "none"
    )


def test_models_with_mamba_layers_are_run_in_graphs() -> None:
    """NVIDIA's recipes replay such layers; a word of the job still wins."""
    job = {"ep": 8, "software": "megatron", "micro_batch": 1}
    assert make_request("nemotron-3-nano-30b-a3b", "8xGB200", **job).strategy.issuer == (
        "megatron_graphs"
    )
    said = make_request("nemotron-3-nano-30b-a3b", "8xGB200", issuer="megatron", **job)
    assert said.strategy.issuer == "megatron"
    mixture = make_request("qwen3-30b-a3b", "8xGB200", **job)
    assert mixture.strategy.issuer == "megatron"


def test_a_program_that_trains_modules_for_further_tokens_has_them() -> None:
    job = {"ep": 64, "micro_batch": 1}
    trained = make_request("nemotron-3-super-120b-a12b", "64xGB300", software="megatron", **job)
    plain = make_request("nemotron-3-super-120b-a12b", "64xGB300", software="megatron-lm", **job)
    assert len(trained.workload.order) == len(plain.workload.order) + 2
    none = {"next_tokens": 0}
    without = make_request(
        "nemotron-3-super-120b-a12b", "64xGB300", software="megatron", settings=none, **job
    )
    assert len(without.workload.order) == len(plain.workload.order)


def test_a_fact_can_depend_on_how_tokens_are_dispatched() -> None:
    """NeMo AutoModel's experts with DeepEP: no look-ups of rows, weights in the activation."""
    job = {"ep": 8, "software": "nemo-automodel", "strategy": "zero3", "micro_batch": 4}

    def gathered(dispatcher: str) -> float:
        made = make_request("qwen3-30b-a3b", "8xH100", dispatcher=dispatcher, **job)
        layer = next(b for b in made.workload.blocks if any(o.part == "exchange" for o in b.ops))
        kernels = [k for op in layer.ops for k in (*op.fwd, *op.bwd) if k.kind == "gather"]
        return sum(k.low * k.launches for k in kernels)

    assert gathered("deepep") < 0.8 * gathered("alltoall")


def test_it_writes_the_layers_anew() -> None:
    """q, k and v are one product, not three; gate and up one, not two."""
    job = {"tp": 2, "micro_batch": 1}
    plain = make_request("llama3-8b", "8xH100", **job, software="plain")
    megatron = make_request("llama3-8b", "8xH100", **job)
    assert products(plain) - products(megatron) == 2 + 1
    attention = make_request("llama3-8b", "8xH100", **job, attention="flash")
    assert attention.workload != megatron.workload  # what is said wins: Megatron's is cuDNN's


def test_adapters_stay_on_the_products_they_name() -> None:
    words = {"tp": 2, "lora_rank": 16, "lora_targets": "q_proj,v_proj"}
    assert software("llama3-8b", "8xH100", **words) == ("megatron", True)


def test_latent_attention_keeps_its_products() -> None:
    assert software("deepseek-v3", "32x8xH100", ep=16, pp=16, micro_batch=1)[0] == "megatron"


def test_a_search_that_cuts_has_one_library() -> None:
    found = api.sweep("llama3-8b", "1x8xH100", tp="1,2,8", strategy="zero1", micro_batch=1)
    assert {str(m) for m in found.columns()["more"]} == {"software auto"}
    alone = api.predict("llama3-8b", "1x8xH100", strategy="zero1", micro_batch=1, software="auto")
    at = list(found.columns()["tp"]).index(1)
    assert found.columns()["step_time_s"][at] == pytest.approx(alone.step_time_s.value)


def test_a_misspelt_library_is_told() -> None:
    with pytest.raises(UsageError, match="did you mean 'megatron'"):
        make_request("llama3-8b", "8xH100", tp=2, software="megatrn")


def test_a_comparison_says_it_once() -> None:
    from simcore.report.compare import sources

    found = api.compare("llama3-8b", ["1x8xH100"], tp="2,4", micro_batch=1)
    told = [text for what, text in sources(found) if what == "assumed"]
    assert len(told) == 1 and told[0].startswith("megatron, ")


@pytest.mark.parametrize(
    ("name", "impl"),
    [
        ("transformers", "fused"),
        ("transformers-2023", "foreach"),
        ("transformers-2022", "for-loop"),
    ],
)
def test_the_trainer_clips_and_updates_as_its_arguments_default_to(name: str, impl: str) -> None:
    """transformers, training_args.py: max_grad_norm and default_optim; what is told comes first."""
    run = make_request("bert-base", "1xA100", software=name).strategy
    assert (run.grad_clip, run.step_impl) == (True, impl)
    told = make_request("bert-base", "1xA100", software=name, grad_clip=False).strategy
    assert not told.grad_clip
    plain = make_request("bert-base", "1xA100").strategy
    assert not plain.grad_clip


def test_transformers_runs_its_own_norms() -> None:
    """RMS norms in tensor operations, as its config.json is read; other norms as they are."""

    def layer_kernels(model: str, **words: Any) -> float:
        workload = make_request(model, "H100", **words).workload
        (layer,) = (b for b in workload.blocks if b.name == "layer")
        return sum(k.launches for op in layer.ops for k in op.fwd)

    plain, own = (layer_kernels("llama3-8b", software=s) for s in ("plain", "transformers"))
    assert own > plain
    assert layer_kernels("bert-base", software="transformers") == layer_kernels("bert-base")


def test_transformers_writes_out_the_activation_of_gpt2() -> None:
    """Eight kernels in the place of one (activations.py, NewGELUActivation)."""

    def launches(**words: Any) -> float:
        workload = make_request("gpt2", "H100", **words).workload
        (layer,) = (b for b in workload.blocks if b.name == "layer")
        return sum(k.launches for op in layer.ops for k in op.fwd)

    assert launches(software="transformers") == launches() + 7


def attention_kernel(model: str, words: dict[str, Any]) -> str:
    """The kind of a layer's kernel of fused attention."""
    workload = make_request(model, "H100", **words).workload
    (layer,) = (b for b in workload.blocks if b.name == "layer")
    kinds = {k.kind for op in layer.ops for k in op.fwd}
    (kind,) = (k for k in kinds if k.startswith("attention"))
    return kind


@pytest.mark.parametrize(
    ("words", "kernel"),
    [
        ({"seq_len": 4096}, "attention_masked"),
        ({"seq_len": 4096, "settings": {"torch": "2.9"}}, "attention_v1"),  # cuDNN comes last
        ({"seq_len": 2047}, "attention"),  # nothing to mask but the future
        ({"seq_len": 4096, "attention": "flash"}, "attention"),  # flash_attention_2
        ({"seq_len": 4096, "software": "plain"}, "attention"),
    ],
)
def test_transformers_hands_sdpa_a_mask_of_its_window(words: dict[str, Any], kernel: str) -> None:
    """Phi-3 mini sees 2,047 tokens."""
    assert attention_kernel("phi-3-mini", {"software": "transformers", **words}) == kernel


@pytest.mark.parametrize(
    ("words", "kernel"),
    [
        ({"software": "transformers"}, "attention_masked"),
        ({"software": "transformers", "settings": {"torch": "2.13"}}, "attention_masked"),
        ({"software": "transformers", "settings": {"torch": "2.14"}}, "attention"),
        ({"software": "transformers", "compile": "off"}, "attention"),
        ({"software": "transformers@2025"}, "attention"),  # before 4.53
        ({"software": "plain"}, "attention"),
        ({}, "attention"),
    ],
)
def test_compiled_layers_of_transformers_hand_sdpa_a_causal_mask(
    words: dict[str, Any], kernel: str
) -> None:
    """masking_utils.py, _ignore_causal_mask_sdpa, before torch 2.14."""
    assert attention_kernel("gpt2", {"compile": "on", **words}) == kernel


def test_a_config_s_layers_are_those_of_transformers_in_a_plain_loop_too(tmp_path: Path) -> None:
    keys = {"hidden_size": 256, "num_hidden_layers": 2, "num_attention_heads": 4, "vocab_size": 512}
    text = {"model_type": "mistral", **keys, "intermediate_size": 512, "sliding_window": 128}
    (tmp_path / "config.json").write_text(json.dumps(text))
    model = str(tmp_path)
    assert attention_kernel(model, {"seq_len": 512}) == "attention_masked"
    assert attention_kernel(model, {"seq_len": 64}) == "attention"
    assert attention_kernel(model, {"seq_len": 64, "compile": "on"}) == "attention_masked"


@pytest.mark.parametrize(
    ("model", "words", "kernel"),
    [
        ("baichuan2-13b", {}, "attention_masked"),
        ("baichuan2-13b", {"software": "transformers"}, "attention_masked"),
        ("baichuan2-13b", {"software": "deepspeed"}, "attention_masked"),
        ("baichuan2-13b", {"attention": "flash2"}, "attention_v2"),  # flash-attn's alibi_slopes
        ("baichuan2-13b", {"software": "megatron"}, "attention_cudnn"),
        ("baichuan2-7b", {}, "attention"),
    ],
)
def test_alibi_s_biases_are_a_mask_for_torch(
    model: str, words: dict[str, Any], kernel: str
) -> None:
    workload = make_request(model, "8xH100", strategy="zero2", seq_len=2048, **words).workload
    (layer,) = (b for b in workload.blocks if b.name == "layer")
    kinds = {k.kind for op in layer.ops for k in op.fwd}
    assert {k for k in kinds if k.startswith("attention")} == {kernel}


@pytest.mark.parametrize(
    ("name", "library"),
    [
        ("axolotl", "axolotl"), ("TRL", "trl"), ("llama_factory", "llama-factory"),
        ("trainer-2022", "transformers@2022"), ("liger", "transformers-liger"),
        ("nemo", "nemo"), ("mcore", "megatron"), ("fsdp2", "fsdp"), ("torchtune", "torchtune"),
        ("FlagScale", "megatron-lm"),
    ],
)  # fmt: skip
def test_programs_around_a_library(name: str, library: str) -> None:
    assert software("llama3-8b", "8xH100", software=name) == (library, False)


def test_selective_recompute_is_the_library_s_own() -> None:
    """torchtitan's recipes choose by operator (train_configs: selective_ac_option = "op"), whose
    experts keep far less than with attention alone run again."""
    words = {"strategy": "zero3", "recompute": "selective", "micro_batch": 1}

    def modules(**more: Any) -> tuple[str, ...]:
        return make_request("qwen3-30b-a3b", "8xB200", **words, **more).strategy.recompute_modules

    assert modules(software="torchtitan") == ("operators",)
    assert modules(software="torchtitan", recompute_modules="mlp") == ("mlp",)
    assert modules(software="megatron") == modules() == ("core_attn",)


def test_torchtitan_by_name_runs_as_its_program() -> None:
    run = make_request("llama3-8b", "8xH100", software="torchtitan", strategy="zero3")
    assert run.strategy.precision.grad_bytes == 4  # mixed_precision_reduce
    assert run.growing_segments


def test_a_named_program_brings_its_dropout_its_loss_and_how_its_ranks_divide_a_layer() -> None:
    """Records: megatron-lm@2021 drops out 0.1 and does not cut the sequence; torchtitan@2024 cuts
    the loss over tensor ranks."""
    words: dict[str, Any] = {"tp": 8, "precision": "bf16", "strategy": "zero1"}
    old = make_request("llama2-7b", "8xA100", software="megatron-lm@2021", **words)
    new = make_request("llama2-7b", "8xA100", software="megatron-lm@2024", **words)
    assert old.placed is not None and new.placed is not None
    assert not old.placed.layout.sequence_parallel and new.placed.layout.sequence_parallel

    def names(request: Any) -> set[str]:
        return {op.name for block in request.workload.blocks for op in block.ops}

    assert {n for n in names(old) - names(new) if "dropout" in n}
    assert old.strategy.step_impl == "fused"
    said = make_request(
        "llama2-7b", "8xA100", software="megatron-lm@2021", sequence_parallel=True,
        optimizer_impl="foreach", settings="dropout=0", **words,
    )  # fmt: skip
    assert said.placed is not None and said.placed.layout.sequence_parallel
    assert said.strategy.step_impl == "foreach"
    assert not {n for n in names(said) if "dropout" in n}


def test_fp8_is_the_format_of_the_named_program() -> None:
    titan = make_request("llama3-8b", "8xH100", software="torchtitan@2025", precision="fp8")
    assert titan.strategy.precision.name == "fp8-dynamic"


@pytest.mark.parametrize(
    ("model", "released", "program"),
    [
        ("gpt3-175b", 2020, "megatron-lm@2021"),  # as when such models were made
        ("gpt3-175b", 2022, "megatron"),  # on Hopper
        ("gpt3-175b", 0, "megatron"),  # nothing known of the cards
        ("llama3-70b", 2020, "megatron"),
    ],
)
def test_a_model_and_cards_of_an_earlier_time_have_its_program(
    model: str, released: int, program: str
) -> None:
    options = {"tp": 8}
    found = library_of(options, model_of(model), layout_of(options, []), released=released)
    assert found.assumed and found.program.name == program
    assert ("CUDA graphs" in found.told()[0]) == (program == "megatron")
