"""A launch file beside a request: what is given wins, the batch identity holds, all is told."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from simcore.answer.predict import predict
from simcore.answer.request import make_request
from simcore.base.errors import DataError, InvalidConfig
from simcore.base.names import Changed
from simcore.request.emit import launch_file
from simcore.request.launch import with_launch

MODEL = "gpt2-xl"


def deepspeed(folder: Path, **data: object) -> str:
    path = folder / "ds.json"
    path.write_text(json.dumps(data))
    return str(path)


def test_the_file_fills_in_what_is_not_given(tmp_path: Path) -> None:
    name = deepspeed(
        tmp_path, train_batch_size=256, train_micro_batch_size_per_gpu=4,
        gradient_accumulation_steps=2, bf16={"enabled": True}, gradient_clipping=1.0,
        optimizer={"type": "SGD"},
        zero_optimization={"stage": 2, "overlap_comm": True, "reduce_bucket_size": 10**8},
    )  # fmt: skip
    request = make_request(MODEL, "4x8xA100", launch=name)
    s = request.strategy
    assert (s.parallelism, s.precision.name, s.optimizer.name) == ("zero2", "bf16", "sgd-plain")
    assert (request.micro_batch, request.grad_accum, s.grad_clip) == (4, 2, True)
    assert s.buckets.zero_numel == 10**8
    assert s.buckets.cap_bytes == 2 * 10**8
    assert {d.split()[0] for d in request.defaults} == {"recompute"}
    told = [a for a in request.assumptions if name in a]
    assert any("(DeepSpeed): strategy zero2, micro-batch 4" in a for a in told)


def test_what_is_given_wins_and_that_is_told(tmp_path: Path) -> None:
    name = deepspeed(tmp_path, train_micro_batch_size_per_gpu=4, zero_optimization={"stage": 3})
    request = make_request(MODEL, "8xA100", launch=name, strategy="zero1", micro_batch=2)
    assert request.strategy.parallelism == "zero1" and request.micro_batch == 2
    wins = [a for a in request.assumptions if "wins over" in a]
    assert wins == [
        f"--strategy zero1 wins over zero_optimization.stage of {name} (zero3)",
        f"--micro-batch 2 wins over train_micro_batch_size_per_gpu of {name} (4)",
    ]
    same = make_request(MODEL, "8xA100", launch=name, strategy="zero3")
    assert not [a for a in same.assumptions if "wins over" in a]


@pytest.mark.parametrize(
    ("stated", "expected"),
    [  # train_batch_size, micro, accumulation: DeepSpeed's own table, on 16 GPUs
        ((256, 4, 4), (4, 4)),
        ((256, 4, None), (4, 4)),
        ((256, None, 4), (4, 4)),
        ((256, None, None), (16, 1)),
        ((None, 4, None), (4, 1)),
        ((None, 4, 3), (4, 3)),
    ],
)
def test_batch_identity(stated: tuple, expected: tuple, tmp_path: Path) -> None:
    keys = ("train_batch_size", "train_micro_batch_size_per_gpu", "gradient_accumulation_steps")
    data = {k: v for k, v in zip(keys, stated, strict=True) if v is not None}
    request = make_request(MODEL, "2x8xA100", launch=deepspeed(tmp_path, **data))
    assert (request.micro_batch, request.grad_accum) == expected


def test_a_batch_that_does_not_add_up_is_refused(tmp_path: Path) -> None:
    name = deepspeed(tmp_path, train_batch_size=256, train_micro_batch_size_per_gpu=4,
                     gradient_accumulation_steps=4)  # fmt: skip
    with pytest.raises(InvalidConfig, match="train_batch_size = 256 is not 4 x 4 x 8 GPUs = 128"):
        make_request(MODEL, "8xA100", launch=name)
    request = make_request(MODEL, "8xA100", launch=name, grad_accum=8)
    assert request.grad_accum == 8
    name = deepspeed(tmp_path, train_batch_size=100, train_micro_batch_size_per_gpu=4)
    with pytest.raises(InvalidConfig, match="100 is no multiple of 4 x 8 GPUs"):
        make_request(MODEL, "8xA100", launch=name)


def test_another_micro_batch_keeps_the_global_batch() -> None:
    flags = "--micro-batch-size 4 --global-batch-size 256 --bf16"
    assert make_request(MODEL, "8xA100", launch=flags).grad_accum == 8
    request = make_request(MODEL, "8xA100", launch=flags, micro_batch=8)
    assert (request.micro_batch, request.grad_accum) == (8, 4)
    assert any("grad-accum 4 keeps the batch of 256" in a for a in request.assumptions)
    most = make_request(MODEL, "8xA100", launch=flags, micro_batch="max")
    assert any("does not hold" in a for a in most.assumptions)


def test_counts_come_from_the_line_unless_gpus_has_them() -> None:
    line = "torchrun --nnodes 2 --nproc-per-node 4 train.py"
    assert str(make_request(MODEL, "A100", launch=line).cluster).startswith("2x4x")
    assert make_request(MODEL, "A100", launch=line, nproc_per_node=8).cluster.n_gpus == 16
    over = make_request(MODEL, "4x8xA100", launch=line)
    assert over.cluster.n_gpus == 32
    assert any("is for 8 GPUs; --gpus 4x8xA100 (32)" in a for a in over.assumptions)


def test_torchtitan_degrees_must_be_the_world(tmp_path: Path) -> None:
    path = tmp_path / "job.toml"
    path.write_text("[parallelism]\ndata_parallel_replicate_degree = 8\n"
                    "[activation_checkpoint]\nmode = 'none'\n")  # fmt: skip
    request = make_request("llama-2-7b", "8xA100", launch=str(path))
    assert request.strategy.parallelism == "ddp"
    with pytest.raises(InvalidConfig, match="HSDP"):
        make_request("llama-2-7b", "2x8xA100", launch=str(path))
    assert make_request("llama-2-7b", "2x8xA100", launch=str(path), strategy="zero3")
    with pytest.raises(InvalidConfig, match="NODESxGPUSxA100"):
        make_request("llama-2-7b", "A100", launch=str(path), strategy="zero3")


def test_degrees_cut_the_replicas_that_share_the_batch() -> None:
    flags = (
        "--tensor-model-parallel-size 4 --sequence-parallel --pipeline-model-parallel-size 2 "
        "--micro-batch-size 1 --global-batch-size 64 --bf16 --use-distributed-optimizer"
    )
    request = make_request("llama-2-7b", "4x8xA100", launch=flags)
    assert request.placed is not None
    layout = request.placed.layout
    assert (layout.tp, layout.pp, layout.sequence_parallel) == (4, 2, True)
    assert request.data_ranks == 4 and request.grad_accum == 64 // 4
    wider = make_request("llama-2-7b", "4x8xA100", launch=flags, tp=8)
    assert wider.data_ranks == 2 and wider.grad_accum == 32
    with pytest.raises(InvalidConfig, match="64 is no multiple of 3 x 4 replicas"):
        make_request("llama-2-7b", "4x8xA100", launch=flags, micro_batch=3)


def test_a_global_batch_that_is_given_wins() -> None:
    flags = "--micro-batch-size 4 --global-batch-size 256 --bf16"
    request = make_request(MODEL, "8xA100", launch=flags, global_batch=128)
    assert request.grad_accum == 4
    assert any("--global-batch 128 wins over 256" in a for a in request.assumptions)


def test_another_model_is_noticed() -> None:
    flags = "--micro-batch-size 1 --num-layers 24 --hidden-size 1600 --num-attention-heads 25"
    told = make_request(MODEL, "8xA100", launch=flags).assumptions
    assert [a for a in told if "--model decides" in a] == [
        "launch line has layers 24, the model has 48: --model decides"
    ]


def test_all_problems_at_once(tmp_path: Path) -> None:
    name = deepspeed(tmp_path, train_micro_batch_size_per_gpu="auto",
                     fp16={"enabled": "auto"},
                     zero_optimization={"stage": 3, "zero_quantized_weights": True})  # fmt: skip
    with pytest.raises(InvalidConfig) as caught:
        make_request("gpt2-xll", "8xA1000", launch=name)
    text = "\n".join(caught.value.violations)
    for part in ("gpt2-xll", "A1000", "train_micro_batch_size_per_gpu",
                 "zero_quantized_weights",
                 "fp16.enabled"):  # fmt: skip
        assert part in text


def test_a_missing_file_is_said(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such launch file"):
        with_launch(str(tmp_path / "no.json"), "8xA100", {})


def test_no_launch_file_changes_nothing() -> None:
    assert make_request(MODEL, "8xA100") == make_request(MODEL, "8xA100", launch=None)


@pytest.mark.parametrize(
    ("dialect", "options"),
    [
        ("megatron", {"recompute": "selective"}),
        ("megatron", {"recompute": "selective", "recompute_modules": "layernorm+core_attn"}),
        ("megatron", {"recompute": "full", "recompute_layers": 12}),
        ("torchtitan", {"recompute": "selective", "recompute_modules": "operators"}),
    ],
)
def test_partial_recompute_goes_out_and_comes_back(
    dialect: str, options: dict, tmp_path: Path
) -> None:
    asked = make_request(MODEL, "8xA100", strategy="zero3", precision="bf16", software=dialect,
                         **options)  # fmt: skip
    file = tmp_path / f"launch{'.py' if dialect == 'torchtitan' else '.txt'}"
    file.write_text(launch_file(dialect, asked, 1024).text)
    back = make_request(MODEL, "8xA100", launch=str(file))
    assert back.workload.blocks == asked.workload.blocks
    assert back.workload.order == asked.workload.order
    assert back.strategy.recompute_modules == asked.strategy.recompute_modules
    none = make_request(MODEL, "8xA100", launch=str(file), recompute="none")
    assert none.strategy.recompute_modules == () and none.strategy.recompute_layers == 0


WHOLE: dict[str, tuple[str, str, dict]] = {
    "megatron": ("mixtral-8x7b", "4x8xH100", {
        "strategy": "zero1", "precision": "bf16", "main_grads": "fp32", "tp": 2, "ep": 4,
        "expert_tp": 2, "dispatcher": "deepep", "attention": "cudnn", "issuer": "megatron_graphs",
        "overlap": "grads,params,dgrad", "micro_batch": 1, "software": "megatron",
        "recompute": "none", "grad_clip": True}),
    "torchtitan": ("llama3-8b", "4x8xH100", {
        "strategy": "zero3", "precision": "bf16", "shard_ranks": 8, "software": "torchtitan",
        "micro_batch": 1, "recompute": "none", "grad_clip": True, "optimizer_impl": "fused"}),
    "deepspeed": ("llama3-8b", "4x8xH100", {
        "strategy": "zero2", "precision": "bf16", "software": "deepspeed", "micro_batch": 1,
        "recompute": "full", "optimizer": "adamw", "grad_clip": True}),
}  # fmt: skip


@pytest.mark.parametrize("dialect", WHOLE)
def test_what_a_file_says_comes_back_whole(dialect: str, tmp_path: Path) -> None:
    model, gpus, words = WHOLE[dialect]
    asked = make_request(model, gpus, **words)
    made = launch_file(dialect, asked, 4096, words.get("attention"))
    assert made.implied == ()
    ending = {"torchtitan": ".py", "deepspeed": ".json"}.get(dialect, ".txt")
    file = tmp_path / f"launch{ending}"
    file.write_text(made.text)
    seq_len = {} if dialect != "deepspeed" else {"seq_len": 4096}
    back = make_request(model, gpus, launch=str(file), **seq_len)
    whole = make_request(model, gpus, **words, seq_len=4096)
    assert replace(back.strategy, buckets=whole.strategy.buckets) == whole.strategy
    assert back.workload == whole.workload
    assert predict(back).step_time_s == predict(whole).step_time_s
    if whole.placed is not None:
        assert back.placed is not None and back.placed.layout == whole.placed.layout


def test_what_no_file_says_is_told() -> None:
    words = {"nccl_algo": "Ring", "launch_blocking": True, "growing_segments": "on",
             "overlap": "grads,params", "strategy": "zero1", "precision": "bf16"}  # fmt: skip
    asked = make_request("llama3-8b", "8xH100", **words)
    for dialect in ("megatron", "deepspeed", "slurm"):
        made = launch_file(dialect, asked, 8192)
        assert set(made.left) >= {"nccl-algo Ring", "launch-blocking on"}
        exported = "PYTORCH_ALLOC_CONF=expandable_segments:True" in made.text
        assert ("growing-segments on" in made.left) is not exported
        assert exported is (dialect == "slurm")
        assert ("overlap grads,params" in made.left) is (dialect != "megatron")
    assert launch_file("megatron", asked, 8192).implied == (
        "software megatron", "issuer megatron",
    )  # fmt: skip


def test_what_megatron_hides_by_itself_is_told() -> None:
    words = {"strategy": "zero1", "precision": "bf16", "tp": 2}
    assert launch_file("megatron", make_request("llama3-8b", "8xH100", **words), 8192).implied == ()
    asked = make_request("llama3-8b", "8xH100", software="plain", **words)
    made = launch_file("megatron", asked, 8192)
    assert made.implied == ("software megatron", "issuer megatron", "overlap grads,dgrad")
    back = make_request("llama3-8b", "8xH100", launch=" ".join(made.text.split()))
    assert str(back.strategy.overlap) == "grads,dgrad"


def test_another_program_s_file_says_what_that_runs() -> None:
    asked = make_request("llama3-8b", "8xH100", strategy="zero3", precision="bf16",
                         software="deepspeed", issuer="megatron")  # fmt: skip
    assert launch_file("torchtitan", asked, 8192).implied == (
        "software torchtitan", "issuer torch",
    )  # fmt: skip
    assert launch_file("slurm", asked, 8192).implied == ("issuer torch",)  # of DeepSpeed's file


@pytest.mark.parametrize("model", ["resnet-50", "bert-base"])
def test_a_kernel_of_attention_is_heeded_where_the_model_names_one(model: str) -> None:
    flags = "--micro-batch-size 2 --attention-backend fused"
    request = make_request(model, "8xH100", launch=flags)
    assert request.workload == make_request(model, "8xH100").workload
    words = {"attention": "cudnn", "software": "megatron"}
    named = make_request("gpt2", "8xH100", launch=flags)
    assert named.workload == make_request("gpt2", "8xH100", **words).workload


@pytest.mark.parametrize(
    ("main_grads", "narrow"), [("fused", True), ("weights", True), ("fp32", False)]
)
def test_sums_of_gradients_keep_their_width(main_grads: str, narrow: bool) -> None:
    """A buffer of the weights' width is not one in fp32 (--grad-reduce-in-bf16)."""
    asked = make_request(
        "gpt2", "8xA100", strategy="zero1", precision="bf16", main_grads=main_grads
    )
    assert ("--grad-reduce-in-bf16" in launch_file("megatron", asked, 1024).text) is narrow


@pytest.mark.parametrize(
    ("line", "wrapped"),
    [  # accelerate/state.py, PartialState: DDP where LOCAL_RANK is set, which torchrun does
        ("python run_clm.py --model_name_or_path gpt2", False),
        ("accelerate launch --num_processes 1 run_clm.py --model_name_or_path gpt2", False),
        ("torchrun --nproc_per_node 1 run_clm.py --model_name_or_path gpt2", True),
    ],
)
def test_a_process_alone_has_no_buckets_but_under_torchrun(line: str, wrapped: bool) -> None:
    request = make_request("gpt2", "1xH100", launch=line)
    assert request.strategy.parallelism == "ddp"
    assert request.strategy.buckets.wraps_alone is wrapped


@pytest.mark.parametrize(
    ("gpu", "stated", "precision"),
    [("T4", "", "fp16"), ("A100", "", "bf16"), ("T4", ", dtype=torch.bfloat16", "bf16"),
     ("A100", ", dtype=torch.float16", "fp16")],
)  # fmt: skip
def test_the_gpu_s_own_16_bit_format(gpu: str, stated: str, precision: str, tmp_path: Path) -> None:
    """Unsloth takes fp16 where a GPU has no bf16, unless the script says which."""
    text = (
        f"FastModel.from_pretrained('unsloth/Llama-3.2-1B'{stated})\nFastModel.get_peft_model(m)\n"
    )
    (path := tmp_path / "run.py").write_text(f"{text}SFTTrainer(model=m)\n")
    launched = with_launch(str(path), gpu, {})
    assert launched.launch.model == "unsloth/Llama-3.2-1B"
    assert (launched.options["precision"], launched.problems) == (precision, ())
    assert with_launch(str(path), gpu, {"precision": "fp32"}).options["precision"] == "fp32"


@pytest.mark.parametrize(
    ("model", "script", "followed"),
    [("t5-base", "run_translation.py", False), ("gpt2", "run_clm.py", True)],
)
def test_compilation_that_is_not_followed_is_a_warning(
    model: str, script: str, followed: bool
) -> None:
    line = f"python {script} --model_name_or_path {model} --torch_compile True"
    request = make_request(model, "1xA100", launch=line)
    told = [a for a in request.assumptions if "--torch_compile" in a and "not followed" in a]
    assert request.compiled is followed
    assert [isinstance(a, Changed) for a in told] == [True] * (not followed)
    alone = make_request(model, "1xA100", launch=line.replace("True", "False"))
    assert not any("not followed" in a for a in alone.assumptions)


def test_sources_and_targets_of_a_translation_have_their_own_lengths() -> None:
    line = (
        "python run_translation.py --model_name_or_path t5-base --max_source_length 256 "
        "--max_target_length 64"
    )
    stated = make_request("t5-base", "1xA100", launch=line)
    asked = make_request("t5-base", "1xA100", seq_len=256, settings=["target_len=64"])
    for request in (stated, asked):
        assert request.workload.tokens_per_sample == 256 + 64


def test_a_layout_of_a_program_is_dropped_where_the_model_has_none() -> None:
    """timm's script states channels first without --channels-last; a ViT has no such choice."""
    line = (
        "python train.py --model vit_base_patch16_224 --data-dir /imagenet -b 64 --amp --model-ema"
    )
    words = {"launch": line, "gpus": "A100-80GB"}
    plain = make_request("vit_base_patch16_224", **words)
    last = make_request("vit_base_patch16_224", **{**words, "launch": f"{line} --channels-last"})
    assert plain.micro_batch == last.micro_batch == 64
    said = "channels last is not followed"
    assert [any(said in told for told in r.assumptions) for r in (plain, last)] == [False, True]
