"""Megatron's flags from scripts, texts and YAML."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from simcore.strategy.dialects import Job, emit, read_launch

SAMPLES = Path(__file__).parent / "samples"


def test_script_with_variables_arrays_and_torchrun() -> None:
    launch = read_launch(str(SAMPLES / "megatron_gpt.sh"))
    assert launch.words() == {
        "strategy": "zero1", "micro_batch": 4, "precision": "bf16", "recompute": "full",
        "optimizer": "adamw", "offload": "none", "seq_len": 1024, "nnodes": 4,
        "nproc_per_node": 8, "grad_clip": True, "main_grads": "fp32", "issuer": "megatron",
        "software": "megatron",
        "overlap": "grads,params", "optimizer_impl": "fused",
    }  # fmt: skip
    assert launch.global_batch == 512
    assert launch.shape == {"layers": 48, "hidden": 1600, "heads": 25}
    assert launch.violations() == [] and launch.unknown == ()
    assert any("rampup" in a for a in launch.approximated)
    assert launch.keys["main_grads"] == "--bf16"


def test_degrees_and_all_that_is_not_supported() -> None:
    launch = read_launch(str(SAMPLES / "megatron_3d.txt"))
    assert (launch.tp, launch.pp, launch.cp, launch.ep) == (8, 4, 2, None)
    assert launch.vpp == 96 // 4 // 2  # layers a stage, two a chunk
    assert launch.sequence_parallel is False
    assert launch.precision == "fp8"
    (offload,) = launch.violations()
    assert "--optimizer-offload-fraction 0.5" in offload
    assert launch.violations({"offload"}) == []
    assert (launch.recompute, launch.recompute_modules) == ("selective", "core_attn")
    assert launch.keys["recompute"] == "--recompute-activations"
    assert "did you mean '--micro-batch-size'" in launch.unknown[0]


def test_yaml_with_sections() -> None:
    launch = read_launch(str(SAMPLES / "megatron_args.yaml"))
    assert launch.words() == {
        "strategy": "ddp", "micro_batch": 2, "precision": "bf16", "recompute": "none",
        "optimizer": "sgd-plain", "offload": "none", "seq_len": 2048, "grad_clip": False,
        "main_grads": "fp32", "issuer": "megatron", "software": "megatron", "overlap": "none",
        "optimizer_impl": "fused",
    }  # fmt: skip
    assert launch.global_batch == 128 and launch.shape["layers"] == 24


@pytest.mark.parametrize(
    ("flags", "word", "expected"),
    [
        ("", "precision", "fp32"),
        ("--fp16", "precision", "fp16"),
        ("", "strategy", "ddp"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads", "strategy", "zero2"),
        ("--use-custom-fsdp --data-parallel-sharding-strategy=optim_grads_params", "strategy",
         "zero3"),
        ("--use-torch-fsdp2", "strategy", "zero3"),
        ("--use-torch-fsdp2 --torch-fsdp2-no-reshard-after-forward", "strategy", "zero2"),
        ("--use-distributed-optimizer --optimizer-cpu-offload", "offload", "optimizer:cpu"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 24 "
         "--num-layers 24", "recompute", "full"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 4 "
         "--num-layers 24", "recompute_layers", 4),
        ("--recompute-granularity selective", "recompute_modules", "core_attn"),
        ("--recompute-granularity selective --recompute-modules moe_act layernorm mla_up_proj",
         "recompute_modules", "moe_act,layernorm,mla_up_proj"),
        ("--clip-grad 0.0", "grad_clip", False),
        ("--bf16", "main_grads", "fp32"),
        ("--bf16 --grad-reduce-in-bf16", "main_grads", None),
        ("--fp16", "main_grads", None),
        ("--fp16 --accumulate-allreduce-grads-in-fp32", "main_grads", "fp32"),
        ("--ddp-bucket-size 40000000", "bucket_numel", 40_000_000),
        ("--optimizer sgd", "optimizer", "sgd"),
        ("--optimizer dist_muon", "optimizer", "muon"),
        ("--seq_length 4096", "seq_len", 4096),
        ("--bf16 --fp4-format e2m1", "precision", "nvfp4"),
        ("--num-virtual-stages-per-pipeline-rank 4", "vpp", 4),
        ("--tensor-model-parallel-size 4 --sequence-parallel", "sequence_parallel", True),
        ("--cuda-graph-impl local --cuda-graph-scope full_iteration", "issuer", "graph"),
        ("--cuda-graph-impl transformer_engine --cuda-graph-scope attn moe_router", "issuer",
         "megatron_graphs"),
        ("--cuda-graph-impl local --cuda-graph-modules moe_router moe_preprocess", "issuer",
         "megatron_routing_graphs"),
        ("--attention-backend fused", "attention", "cudnn"),
        ("--attention-backend auto", "attention", None),
        ("--transformer-impl local", "attention", "fused_softmax"),
        ("--transformer-impl transformer_engine", "attention", None),
        ("--transformer-impl local --attention-backend flash", "attention", "flash"),
        ("--transformer-impl local", "software", "megatron@local"),
        ("--deterministic-mode", "software", "megatron@deterministic"),
        ("--transformer-impl local --deterministic-mode", "software",
         "megatron@local-deterministic"),
        ("--recompute-granularity selective --recompute-modules [moe_act]", "recompute_modules",
         "moe_act"),
        ("--use-flash-attn", "attention", "flash"),
        ("--tensor-model-parallel-size 2 --expert-model-parallel-size 4", "expert_tp", 2),
        ("--tensor-model-parallel-size 2 --expert-model-parallel-size 4 "
         "--expert-tensor-parallel-size 1", "expert_tp", 1),
        ("--tensor-model-parallel-size 2 --num-experts 8", "expert_tp", None),
        ("--tensor-model-parallel-size 2 --expert-model-parallel-size 4 "
         "--expert-tensor-parallel-size 4", "expert_tp", 4),
        ("--defer-embedding-wgrad-compute", "deferred_heads", 10**6),  # no limit: all of them
        ("--defer-embedding-wgrad-compute --wgrad-deferral-limit 0", "deferred_heads", 10**6),
        ("--defer-embedding-wgrad-compute --wgrad-deferral-limit 3", "deferred_heads", 3),
        ("--wgrad-deferral-limit 3", "deferred_heads", None),
        ("--cuda-graph-scope attn", "issuer", "megatron"),  # --cuda-graph-impl: none by default
        ("--expert-model-parallel-size 4 --moe-token-dispatcher-type flex --moe-enable-deepep",
         "dispatcher", "deepep"),
        ("--expert-model-parallel-size 4 --moe-token-dispatcher-type flex "
         "--moe-flex-dispatcher-backend hybridep", "dispatcher", "hybridep"),
        ("--expert-model-parallel-size 4 --moe-token-dispatcher-type alltoall", "dispatcher",
         "alltoall"),
        ("--moe-expert-capacity-factor 1.25", "expert_capacity", 1.25),
        ("--moe-expert-capacity-factor 1.25", "expert_padding", False),
        ("--moe-expert-capacity-factor 1 --moe-pad-expert-input-to-capacity", "expert_padding",
         True),
        ("--moe-expert-capacity-factor -1", "expert_capacity", None),
        ("--use-rotary-position-embeddings --add-qkv-bias --bert-binary-head", "tp", None),
        ("--micro-batch-size 2", "micro_batch", 2),  # the last one counts, as in argparse
    ],
)  # fmt: skip
def test_flags(flags: str, word: str, expected: object) -> None:
    launch = read_launch(f"--micro-batch-size 8 {flags}")
    assert launch.violations() == [] and launch.unknown == ()
    assert getattr(launch, word) == expected


@pytest.mark.parametrize(
    ("flags", "said", "word"),
    [
        ("--recompute-granularity selective --recompute-modules core_atn",
         "did you mean 'core_attn'", "recompute"),
        ("--recompute-granularity selective --recompute-modules operators",
         "'operators' is unknown", "recompute"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 4 "
         "--num-layers 24 --pipeline-model-parallel-size 2", "4 layers a stage", "recompute"),
        ("--bf16 --fp16", "are both on", "precision"),
        ("--fine-grained-activation-offloading", "host memory", "offload_layers"),
        ("--perform-rl-step", "reinforcement learning", None),
        ("--global-batch-size $GBS", "$GBS is not set in the text", "grad_accum"),
        ("--tensor-model-parallel-size 2 --expert-tensor-parallel-size 3", "parallelism of experts",
         None),
        ("--fp16 --fp8-format hybrid", "without --bf16", "precision"),
        ("--pipeline-model-parallel-size 2 --num-layers-per-virtual-pipeline-stage 2",
         "needs --num-layers beside it", "vpp"),
        ("--optimizer-cpu-offload", "not sharded", "offload"),
        ("--moe-pad-expert-input-to-capacity", "needs --moe-expert-capacity-factor",
         "expert_capacity"),
        ("--moe-expert-capacity-factor much", "--moe-expert-capacity-factor", None),
    ],
)  # fmt: skip
def test_refused(flags: str, said: str, word: str | None) -> None:
    launch = read_launch(f"--micro-batch-size 8 {flags}")
    assert len(launch.violations()) == 1 and said in launch.violations()[0]
    assert len(launch.violations({word} if word else set())) == (0 if word else 1)


@pytest.mark.parametrize("main_grads", [None, "fp32"])
@pytest.mark.parametrize("precision", ["bf16", "fp16", "fp8", "mxfp8", "nvfp4"])
def test_main_grads_go_out_and_come_back(precision: str, main_grads: str | None) -> None:
    job = Job(
        model="gpt2-xl", strategy="zero1", micro_batch=4, grad_accum=2, precision=precision,
        recompute="none", optimizer="adamw", offload="none", nnodes=1, nproc_per_node=8,
        main_grads=main_grads,
    )  # fmt: skip
    launch = read_launch(emit("megatron", job).text.replace("\n", " "))
    assert (launch.precision, launch.main_grads) == (precision, main_grads)


LAUNCH = "--tensor-model-parallel-size 2 --micro-batch-size 1 --global-batch-size 16 --bf16"


@pytest.mark.parametrize(
    ("pp", "flags", "stages", "vpp"),
    [
        (4, "--decoder-first-pipeline-num-layers 19 --decoder-last-pipeline-num-layers 17",
         "19,rest,17", None),
        (4, "--decoder-first-pipeline-num-layers 11", "11,rest", None),
        (4, "--decoder-last-pipeline-num-layers 11", "rest,11", None),
        (2, "--decoder-first-pipeline-num-layers 5 --decoder-last-pipeline-num-layers 7", "5,7",
         None),
        (4, "--pipeline-model-parallel-layout Et*11|t*11|t*11|t*10mL", "3x11,10", None),
        # its documentation's example: DeepSeek-V3, 61 layers on 16 stages of two chunks
        (16, '--pipeline-model-parallel-layout "Et*3|(tt|)*29,m|L"', "5,13x4,2x2", 2),
        (8, "--pipeline-model-parallel-layout Et*2|(tt|)*22t|(tt|)*7mL", "7x8,5", 4),
    ],
)  # fmt: skip
def test_unequal_stages(pp: int, flags: str, stages: str, vpp: int | None) -> None:
    launch = read_launch(f"{LAUNCH} --pipeline-model-parallel-size {pp} {flags}")
    assert launch.violations() == []
    assert (launch.stages, launch.vpp) == (stages, vpp)


@pytest.mark.parametrize(
    "layout", ["Et*11|t*11|t*11", "Ett|tt||L", "Ext|t|t|tL", "(t*999999|)*9L", "tE|t|t|L"]
)
def test_layouts_that_cannot_be(layout: str) -> None:
    launch = read_launch(
        f"{LAUNCH} --pipeline-model-parallel-size 4 --pipeline-model-parallel-layout {layout}"
    )
    (told,) = launch.violations()
    assert "--pipeline-model-parallel-layout" in told
    assert launch.violations({"stages"}) == []


def expand(layout: str) -> list[str]:
    """The chunks of an emitted layout, which has no repetitions."""
    return layout.strip('"').split("|")


@pytest.mark.parametrize(
    ("stages", "vpp", "flag"),
    [
        ("19,2x21,19", None, "--decoder-first-pipeline-num-layers 19"),
        ("19,20,21,20", None, '--pipeline-model-parallel-layout "E'),
        ("19,2x21,19", 4, '--pipeline-model-parallel-layout "E'),
    ],
)
def test_unequal_stages_are_written_as_they_are_read(
    stages: str, vpp: int | None, flag: str
) -> None:
    job = Job(
        model="llama3-70b", strategy="zero1", micro_batch=1, grad_accum=8, precision="bf16",
        recompute="none", optimizer="adamw", offload="none", nnodes=2, nproc_per_node=8, tp=2,
        pp=4, vpp=vpp, stages=stages, sequence_parallel=True,
    )  # fmt: skip
    text = emit("megatron", job).text
    assert flag in text
    assert ("--num-virtual" in text) is False, "Megatron refuses it beside a layout"
    launch = read_launch(text)
    assert launch.vpp == vpp
    if vpp:
        (line,) = [x for x in text.splitlines() if "layout" in x]
        chunks = expand(line.split()[1])
        assert len(chunks) == 16
        sizes = [len(c.strip("EL")) for c in chunks]
        assert (sizes[0], sizes[4], sizes[-1]) == (4, 5, 4), "19 in four chunks: 4, 5, 5, 5"
    read = launch.stages or ""
    assert read in (stages, stages.replace("2x21", "rest"))


_TP = "--tensor-model-parallel-size 4"
_CHUNKS = "--pipeline-model-parallel-size 4 --num-virtual-stages-per-pipeline-rank 2"
_ZERO1 = "--use-distributed-optimizer --overlap-grad-reduce"


@pytest.mark.parametrize(
    ("flags", "hidden"),
    [
        ("", "none"),
        ("--overlap-grad-reduce", "grads"),
        ("--overlap-grad-reduce --overlap-param-gather", "grads"),  # there is nothing to gather
        (f"{_ZERO1} --overlap-param-gather", "grads,params"),
        (_TP, "dgrad"),
        (f"{_TP} --no-async-tensor-model-parallel-allreduce", "none"),
        (f"{_TP} --sequence-parallel --no-async-tensor-model-parallel-allreduce", "dgrad"),
        (f"{_TP} --sequence-parallel --tp-comm-overlap {_ZERO1}", "grads,tensor"),
        ("--tp-comm-overlap", "none"),
        ("--use-torch-fsdp2", "grads"),
        ("--use-megatron-fsdp --data-parallel-sharding-strategy optim_grads_params", "grads"),
        (f"--expert-model-parallel-size 8 --overlap-moe-expert-parallel-comm {_ZERO1}",
         "grads,experts"),
        (_CHUNKS, "pipeline"),
        (f"{_CHUNKS} --no-overlap-p2p-communication", "none"),
        ("--pipeline-model-parallel-size 4", "none"),
    ],
)  # fmt: skip
def test_what_megatron_hides_by_flag_and_by_itself(flags: str, hidden: str) -> None:
    launch = read_launch(f"--micro-batch-size 1 --bf16 --train-iters 9 {flags}")
    assert launch.overlap == hidden
    assert not launch.unknown and not any("overlap" in a for a in launch.approximated)


def test_messages_in_filling() -> None:
    flags = f"--micro-batch-size 1 --bf16 --train-iters 9 {_CHUNKS}"
    filling = read_launch(f"{flags} --overlap-p2p-communication-warmup-flush")
    assert filling.overlap == "pipeline"
    assert any("filling" in a for a in filling.approximated)


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 1", None),
        ("--recompute-granularity full --recompute-method uniform --recompute-num-layers 2",
         "all inputs are kept"),
        ("--recompute-granularity full --recompute-method block --recompute-num-layers 24 "
         "--num-layers 24", None),
        ("--cuda-graph-impl local --cuda-graph-scope mamba", "as eager"),
        ("--cuda-graph-impl nvidia", "is unknown"),
        ("--use-precision-aware-optimizer --exp-avg-dtype fp8", "moments are predicted in fp32"),
        ("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype bf16", None),
        ("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype fp16", None),
        ("--use-precision-aware-optimizer --exp-avg-dtype bf16 --exp-avg-sq-dtype fp32",
         "moments are predicted in fp32"),
    ],
)  # fmt: skip
def test_what_is_followed_in_part_is_told(flags: str, told: str | None) -> None:
    common = "--micro-batch-size 1 --bf16 --use-distributed-optimizer"
    found = read_launch(f"{common} {flags}").approximated
    assert len(found) == (told is not None)
    assert told is None or told in found[0]


@pytest.mark.parametrize(("layers", "method", "counted"), [(None, "uniform", 1), (4, "block", 4)])
def test_layers_that_run_again_are_written_as_counts_of_a_method(
    layers: int | None, method: str, counted: int
) -> None:
    """uniform: every layer by itself; block: so many from the first on (arguments.py)."""
    full = Job(
        model="llama3-8b", strategy="zero1", micro_batch=1, grad_accum=1, precision="bf16",
        recompute="full", optimizer="adamw", offload="none", nnodes=1, nproc_per_node=8,
        recompute_layers=layers,
    )  # fmt: skip
    words = emit("megatron", full).text.split()
    stated = dict(pairwise(words))
    assert stated["--recompute-method"] == method
    assert stated["--recompute-num-layers"] == str(counted)


def test_what_makes_results_repeat_is_told_to_cost_time() -> None:
    plain, repeats = (
        read_launch(f"--micro-batch-size 1 --bf16 {flag}") for flag in ("", "--deterministic-mode")
    )
    assert not plain.approximated
    (told,) = repeats.approximated
    assert "--deterministic-mode" in told and "slower" in told


@pytest.mark.parametrize(("said", "hidden"), [("true", "pipeline"), ("false", "none")])
def test_messages_in_yaml(tmp_path: Path, said: str, hidden: str) -> None:
    text = (SAMPLES / "megatron_args.yaml").read_text(encoding="utf-8")
    line = "  pipeline_model_parallel_size: 1\n"
    assert line in text
    more = f"  num_virtual_stages_per_pipeline_rank: 2\n  overlap_p2p_comm: {said}\n"
    path = tmp_path / "args.yaml"
    path.write_text(text.replace(line, line.replace("1", "4") + more), encoding="utf-8")
    assert read_launch(str(path)).overlap == hidden


@pytest.mark.parametrize("strategy", ["ddp", "zero1", "zero3"])
@pytest.mark.parametrize(
    ("overlap", "degrees"),
    [
        (None, {}), ("none", {}), ("grads,params", {}), ("grads,tensor", {"tp": 4}),
        ("dgrad", {"tp": 4}), ("none", {"tp": 4, "sequence_parallel": False}),
        (None, {"tp": 4, "sequence_parallel": True}), ("grads,params,experts", {"ep": 8}),
        ("grads,tensor,experts", {}), (None, {"pp": 4, "vpp": 2}),
        ("grads", {"pp": 4, "vpp": 2}), ("grads,pipeline", {"pp": 4}),
    ],
)  # fmt: skip
def test_what_is_written_is_read_as_what_the_writer_says(
    strategy: str, overlap: str | None, degrees: dict[str, Any]
) -> None:
    asked = Job(
        model="llama3-8b", strategy=strategy, micro_batch=1, grad_accum=1, precision="bf16",
        recompute="none", optimizer="adamw", offload="none", nnodes=2, nproc_per_node=8,
        overlap=overlap, **degrees,
    )  # fmt: skip
    made = emit("megatron", asked)
    assert read_launch(" ".join(made.text.split())).overlap == made.program["overlap"]
    if (strategy, overlap) in {("ddp", "none"), ("zero1", "grads,params"), ("zero1", "dgrad")}:
        assert made.program["overlap"] == overlap


@pytest.mark.parametrize(("layers", "chunks"), [(24, None), (12, 2), (6, 4)])
def test_layers_of_a_chunk_that_is_a_whole_stage_are_no_chunks(
    layers: int, chunks: int | None
) -> None:
    """96 layers on 4 stages: 24 a stage."""
    launch = read_launch(
        "torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 1 --num-layers 96 "
        f"--pipeline-model-parallel-size 4 --num-layers-per-virtual-pipeline-stage {layers}"
    )
    assert (launch.pp, launch.vpp) == (4, chunks)


@pytest.mark.parametrize(
    ("before", "grows"),
    [("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n", True),
     ("export PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:64\n", None), ("", None)],
)  # fmt: skip
def test_a_script_says_whether_segments_grow(
    tmp_path: Path, before: str, grows: bool | None
) -> None:
    path = tmp_path / "run.sh"
    path.write_text(
        f"{before}torchrun --nproc_per_node 8 pretrain_gpt.py --micro-batch-size 2 --bf16\n"
    )
    assert read_launch(f"megatron:{path}").growing_segments is grows
