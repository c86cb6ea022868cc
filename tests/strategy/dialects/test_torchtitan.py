"""torchtitan: TOML of 2025, Python configurations, and lines that name one."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from simcore.base.errors import DataError
from simcore.strategy.dialects import DIALECTS, Job, Launch, emit, read_launch
from simcore.strategy.dialects.source import Source
from simcore.strategy.dialects.torchtitan import LENGTH, TOKENS, _write

SAMPLES = Path(__file__).parent / "samples"


def read(text: str) -> Launch:
    return DIALECTS["torchtitan"].read(Source(text, "job.toml"))


def line(words: str) -> Launch:
    return read_launch(f"torchrun --nproc_per_node 8 -m torchtitan.train {words}")


def python(folder: Path, body: str) -> Launch:
    """A file with one function, given as the statements before ``return config``."""
    lines = "".join(f"    {text}\n" for text in [*body.strip().split("\n"), "return config"])
    file = folder / "mine.py"
    file.write_text(f"def mine() -> Trainer.Config:\n{lines}", encoding="utf-8")
    return read_launch(str(file))


@pytest.mark.parametrize(
    ("tokens", "sequences", "told"), [(16384, 2, False), (20000, 2, True), (4096, 1, True)]
)
def test_tokens_of_a_pass_are_whole_sequences(tokens: int, sequences: int, told: bool) -> None:
    words = f"--training.num_tokens_per_microbatch_per_dp_rank={tokens}"
    launch = line(f"--module llama3 --config llama3_8b {words}")
    assert launch.micro_batch == sequences
    assert any("is no multiple of" in a for a in launch.approximated) == told


@pytest.mark.parametrize(
    ("said", "stated"),
    [
        ("num_tokens_per_train_step = 65536", {"micro_batch": 2, "global_batch": 16}),
        ("num_tokens_per_train_step = 4096", {"micro_batch": 2, "global_batch": 1}),
        # none, and 0 or less: as many as one pass of all ranks
        ("", {"micro_batch": 2, "grad_accum": 1}),
        ("num_tokens_per_train_step = 0", {"micro_batch": 2, "grad_accum": 1}),
        ("num_tokens_per_train_step = -1", {"micro_batch": 2, "grad_accum": 1}),
    ],
)
def test_tokens_of_a_step_are_a_global_batch(said: str, stated: dict[str, int]) -> None:
    head = "[training]\nseq_len = 4096\nnum_tokens_per_microbatch_per_dp_rank = 8192\n"
    launch = read(head + said)
    found = {"micro_batch": launch.micro_batch, "global_batch": launch.global_batch,
             "grad_accum": launch.grad_accum}  # fmt: skip
    assert {k: v for k, v in found.items() if v is not None} == stated


@pytest.mark.parametrize(("tokens", "length"), [("'many'", "4096"), ("8192", "'long'")])
def test_tokens_or_a_length_that_are_no_number_state_no_batch(tokens: str, length: str) -> None:
    launch = read(
        f"[training]\nseq_len = {length}\nnum_tokens_per_microbatch_per_dp_rank = {tokens}\n"
    )
    assert launch.micro_batch is None and len(launch.violations()) == 1


def test_new_sections() -> None:
    launch = read_launch(str(SAMPLES / "torchtitan_llama3.toml"))
    assert launch.words() == {
        "strategy": "zero2", "micro_batch": 2, "precision": "bf16", "recompute": "full",
        "optimizer": "adamw", "offload": "none", "seq_len": 8192, "grad_clip": True,
        "software": "torchtitan@2025", "compile": True, "optimizer_impl": "fused",
        "main_grads": "fp32", "growing_segments": True,
    }  # fmt: skip
    assert (launch.global_batch, launch.n_gpus) == (64, 8)
    assert launch.violations() == [] and launch.unknown == ()
    assert "job" in launch.ignored and "checkpoint" in launch.ignored


def test_old_sections_with_replicas_of_shards() -> None:
    launch = read_launch(str(SAMPLES / "torchtitan_old.toml"))
    assert launch.violations() == []
    # with a pipeline, weights stay gathered
    assert (launch.strategy, launch.shard_ranks) == ("zero1", 8)
    assert (launch.recompute, launch.recompute_modules) == ("selective", "operators")
    assert (launch.tp, launch.pp, launch.cp, launch.sequence_parallel) == (2, 2, None, True)
    assert launch.n_gpus == 4 * 8 * 2 * 2
    assert launch.precision == "fp8-dynamic"
    # With a pipeline the local batch of 4 runs through it in micro-batches of 1.
    assert (launch.micro_batch, launch.grad_accum) == (1, 4)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", ("zero3", "bf16")),  # FSDP over all ranks, bfloat16
        ("[parallelism]\ndata_parallel_shard_degree = 1", ("ddp", "amp-bf16")),
        ("[parallelism]\ndata_parallel_replicate_degree = 8", ("ddp", "amp-bf16")),
        ("[parallelism]\nfsdp_reshard_after_forward = 'never'", ("zero2", "bf16")),
        ("[training]\nmixed_precision_param = 'float32'", ("zero3", "fp32")),
        ("[training]\ndtype = 'bfloat16'", ("zero3", "bf16-true")),
        ("[model]\nconverters = ['quantize.linear.float8']", ("zero3", "fp8-dynamic")),
        (
            "[model]\nconverters = ['quantize.linear.float8']\n"
            "[quantize.linear.float8]\nrecipe_name = 'rowwise'",
            ("zero3", "fp8-rowwise"),
        ),
        ("[model]\nconverters = ['quantize.linear.mx']", ("zero3", "mxfp8")),
        ("[training]\ndata_parallel_degree = -1", ("zero3", "bf16")),
    ],
)
def test_degrees_and_precision(text: str, expected: tuple[str, str]) -> None:
    launch = read(text)
    assert launch.violations() == []
    assert (launch.strategy, launch.precision) == expected


def test_replicas_on_more_gpus_would_be_hsdp() -> None:
    for copies in (2, 8):
        launch = read(f"[parallelism]\ndata_parallel_replicate_degree = {copies}")
        assert launch.n_gpus == copies and "HSDP" in launch.whole_world
        assert launch.strategy == "ddp"
        alone = read(
            f"[parallelism]\ndata_parallel_replicate_degree = {copies}\n"
            "data_parallel_shard_degree = 1"
        )
        assert (alone.n_gpus, alone.strategy, alone.whole_world) == (copies, "ddp", "")
        assert alone.shard_ranks is None
    one = read("[parallelism]\ndata_parallel_replicate_degree = 1")
    assert one.n_gpus is None and one.strategy == "zero3"


@pytest.mark.parametrize(
    ("text", "micro_batch", "grad_accum"),
    [
        ("", 8, 1),  # the default local batch (config_manager.py)
        ("[parallelism]\npipeline_parallel_degree = 2", 1, 8),
        ("[training]\nlocal_batch_size = 6\n[parallelism]\npipeline_parallel_degree = 2\n"
         "pipeline_parallel_microbatch_size = 3", 3, 2),
        ("[training]\nlocal_batch_size = 6\n[parallelism]\npipeline_parallel_microbatch_size = 3",
         6, 1),
    ],
)  # fmt: skip
def test_with_a_pipeline_the_local_batch_passes_in_pieces(
    text: str, micro_batch: int, grad_accum: int
) -> None:
    launch = read(text)
    assert (launch.micro_batch, launch.grad_accum) == (micro_batch, grad_accum)


def test_a_local_batch_less_than_a_piece_is_one_piece() -> None:
    launch = read(
        "[training]\nlocal_batch_size = 2\n[parallelism]\npipeline_parallel_degree = 2\n"
        "pipeline_parallel_microbatch_size = 4"
    )
    assert any("is no multiple of" in text for text in launch.violations())
    assert (launch.micro_batch, launch.grad_accum) == (4, 1)


def test_two_copies_of_four_shards_are_eight_gpus() -> None:
    launch = read(
        "[parallelism]\ndata_parallel_replicate_degree = 2\ndata_parallel_shard_degree = 4"
    )
    assert (launch.strategy, launch.shard_ranks, launch.n_gpus) == ("zero3", 4, 8)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (
            "[model]\nconverters = ['float8']\n[parallelism]\ndata_parallel_shard_degree = 1",
            "over amp-bf16 is not supported yet",
        ),
        ("[parallelism]\nexpert_tensor_parallel_degree = 2", "tensor parallelism of experts"),
        (
            "[training]\nlocal_batch_size = 5\n[parallelism]\npipeline_parallel_degree = 2\n"
            "pipeline_parallel_microbatch_size = 2",
            "is no multiple of",
        ),
        ("[training]\nseq_len = 'long'", "seq_len = 'long'"),
        (
            "[activation_checkpoint]\nmode = 'selective'\nselective_ac_option = '2'",
            "every n-th layer",
        ),
        ("[activation_checkpoint]\nmode = 'selective'", "default differs between versions"),
        ("[optimizer]\nname = 'Shampoo'", "'Shampoo' is unknown"),
    ],
)
def test_refused(text: str, said: str) -> None:
    violations = read(text).violations()
    assert len(violations) == 1 and said in violations[0]


def test_unknown_key_names_the_nearest() -> None:
    assert "did you mean 'training.local_batch_size'" in read(
        "[training]\nlocal_batchsize = 4").unknown[0]  # fmt: skip


@pytest.mark.parametrize(
    ("schedule", "said", "chunks"),
    [("1F1B", "1f1b", None), ("GPipe", "gpipe", None), ("Interleaved1F1B", None, 2),
     ("ZBVZeroBubble", None, None)],
)  # fmt: skip
def test_schedules_by_name(schedule: str, said: str | None, chunks: int | None) -> None:
    """torch.distributed.pipelining's names; a looped one has two stages a rank."""
    launch = read(
        f"[parallelism]\npipeline_parallel_degree = 2\npipeline_parallel_schedule = '{schedule}'"
    )
    assert (launch.schedule, launch.vpp) == (said, chunks)
    told = [text for text in launch.approximated if "pipeline_parallel_schedule" in text]
    assert bool(told) is (said is chunks)


@pytest.mark.parametrize("order", [1, -1])
def test_options_override_the_job_file(order: int) -> None:
    file = SAMPLES / "torchtitan_llama3.toml"
    own = [f"--job.config_file {file}", "--training.seq_len 77"][::order]
    launch = line(" ".join(own))
    expected = {**read_launch(str(file)).words(), "nnodes": 1, "nproc_per_node": 8, "seq_len": 77}
    expected.pop("growing_segments")  # run_train.sh sets it
    assert launch.words() == expected


def test_a_configuration_by_name() -> None:
    """models/llama3/config_registry.py, llama3_8b: one sequence of 8,192, selective by operator."""
    launch = line("--module llama3 --config llama3_8b")
    assert launch.words() == {
        "strategy": "zero3", "micro_batch": 1, "grad_accum": 1, "precision": "bf16",
        "optimizer": "adamw", "recompute": "selective", "recompute_modules": "operators",
        "seq_len": 8192, "offload": "none", "software": "torchtitan", "nnodes": 1,
        "nproc_per_node": 8, "issuer": "graph", "optimizer_impl": "fused", "grad_clip": True,
        "main_grads": "fp32",
    }  # fmt: skip
    assert launch.violations() == [] and launch.unknown == ()
    assert launch.model == "llama3-8b" and not launch.fills
    assert read_launch(str(SAMPLES / "torchtitan_llama3.toml")).model == "llama3-8b"


def test_a_loss_over_whole_logits(tmp_path: Path) -> None:
    for switch, loss in (("False", "eager"), ("True", "compiled")):
        body = (
            "config = llama3_8b()\nconfig.loss = CrossEntropyLoss.Config()\n"
            f"config.compile.enable = {switch}"
        )
        assert python(tmp_path, body).settings == {"loss": loss}


def test_a_loss_compiled_alone_leaves_the_model_as_it_is() -> None:
    text = "[model]\nname = 'llama3'\n[compile]\nenable = true\ncomponents = ["
    alone, both = (read(f"{text}{parts}]\n") for parts in ("'loss'", "'model', 'loss'"))
    assert (alone.compile, alone.settings) == (None, {"loss": "compiled"})
    assert (both.compile, both.settings) == (True, {})


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ("--training.num_tokens_per_microbatch_per_dp_rank=32768", {"micro_batch": 4}),
        ("--training.max_context_length 2048", {"micro_batch": 4, "seq_len": 2048}),
        ("--parallelism.pipeline_parallel_degree 2", {"pp": 2, "grad_accum": 1}),
        ("--parallelism.pipeline_parallel_degree 2 --parallelism.num_pp_microbatches 4",
         {"pp": 2, "grad_accum": 4}),
        ("--training.num_tokens_per_train_step 524288", {"global_batch": 64, "grad_accum": None}),
        ("--training.disable_cuda_graphs", {"issuer": "torch"}),
        ("--training.disable-cuda-graphs", {"issuer": "torch"}),
        # options of releases until August 2026
        ("--training.local_batch_size 2", {"micro_batch": 2, "seq_len": 8192, "issuer": None}),
        ("--training.seq_len 4096", {"micro_batch": 1, "seq_len": 4096}),
        ("--activation_checkpoint.mode full", {"recompute": "full", "recompute_modules": None}),
        ("activation-checkpoint:none", {"recompute": "none"}),
        ("activation-checkpoint:full --compile.enable", {"recompute": "full", "compile": True}),
        ("--compile.enable --compile.components loss", {"compile": None}),
        ("--compile.no-enable", {"compile": None}),
        ("--parallelism.tensor_parallel_degree 2 --parallelism.no-enable_sequence_parallel",
         {"tp": 2, "sequence_parallel": False}),
        ("--optimizer.implementation fused_opt_states_bf16", {"optimizer": "adamw-bf16"}),
    ],
)  # fmt: skip
def test_options_of_a_line(words: str, expected: dict) -> None:
    launch = line(f"--module llama3 --config llama3_8b {words}")
    assert launch.violations() == [] and launch.unknown == ()
    assert {name: getattr(launch, name) for name in expected} == expected


def test_the_script_takes_variables() -> None:
    text = "NGPU=4 MODULE=deepseek_v3 CONFIG=deepseek_v3_16b ./run_train.sh --training.steps 5"
    launch = read_launch(text)
    assert (launch.nproc_per_node, launch.ep, launch.micro_batch) == (4, 8, 4)
    assert launch.compile is None  # it compiles the loss alone
    assert (launch.attention, launch.issuer) == ("flash2", "torch")
    assert launch.growing_segments
    assert read_launch("NGPU=2 ./run_train.sh").seq_len == 2048  # llama3_debugmodel
    grown = "PYTORCH_ALLOC_CONF=expandable_segments:True torchrun -m torchtitan.train "
    assert read_launch(f"{grown} --module llama3 --config llama3_8b").growing_segments
    assert line("--module llama3 --config llama3_8b").growing_segments is None


def test_a_name_that_nothing_has() -> None:
    (said,) = line("--module llama3 --config llama3_8c").violations()
    assert "did you mean --module llama3 --config llama3_8b?" in said
    (said,) = line("--module llama3").violations()
    assert "--config is missing" in said


def test_a_batch_script_has_counts_and_the_line(tmp_path: Path) -> None:
    file = tmp_path / "job.slurm"
    file.write_text(
        "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n"
        'CONFIG=${CONFIG:-"llama3_70b"}\n'
        "srun torchrun --nnodes 4 --nproc_per_node 8 -m torchtitan.train --module llama3 "
        '--config ${CONFIG} "$@"\n',
        encoding="utf-8",
    )
    launch = read_launch(str(file))
    assert (launch.dialect, launch.nnodes, launch.nproc_per_node) == ("slurm", 4, 8)
    assert (launch.tp, launch.recompute, launch.micro_batch) == (8, "full", 8)


def test_a_file_of_ones_own_is_followed_and_not_run(tmp_path: Path) -> None:
    file = tmp_path / "mine.py"
    file.write_text(
        "import os\n"
        "from torchtitan.models.llama3.config_registry import llama3_8b\n"
        "os.system('touch ran')\n"
        "TOKENS = 4 * 4096\n"
        "def _longer(config, factor=2):\n"
        "    config.training.max_context_length = 4096 * factor\n"
        "def base():\n"
        "    config = llama3_8b()\n"
        "    config.parallelism = ParallelismConfig(tensor_parallel_degree=2)\n"
        "    return config\n"
        "def mine() -> Trainer.Config:\n"
        "    '''My run.'''\n"
        "    config = base()\n"
        "    _longer(config, factor=4)\n"
        "    config.training.num_tokens_per_microbatch_per_dp_rank = 2 * TOKENS\n"
        "    config.activation_checkpoint = None\n"
        "    return config\n",
        encoding="utf-8",
    )
    launch = line(f"--module {file} --config mine")
    assert launch.violations() == [] and launch.unknown == ()
    assert (launch.tp, launch.seq_len, launch.micro_batch) == (2, 16384, 2)
    assert launch.recompute == "none"
    assert not (tmp_path / "ran").exists() and not Path("ran").exists()


@pytest.mark.parametrize(
    ("body", "said"),
    [
        ("config = llama3_8b()\nfor x in 1, 2:\n    config.training.steps = x", "for x in (1, 2)"),
        ("config = llama3_8b()\nconfig.training.max_context_length = length()",
         "training.max_context_length = length(...)"),
        ("config = llama3_8b()\nfaster(config)", "faster(config)"),
        ("config = Trainer.Config(training=TrainingConfig(max_context_length=LENGTH))",
         "training.max_context_length = LENGTH"),
    ],
)  # fmt: skip
def test_what_a_function_does_besides_is_named(tmp_path: Path, body: str, said: str) -> None:
    assert any(said in text for text in python(tmp_path, body).unknown)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        ("Float8LinearConverter.Config()", {"precision": "fp8-rowwise", "approximated": ()}),
        ("Float8LinearConverter.Config(recipe_name='tensorwise')",
         {"precision": "fp8-dynamic", "approximated": ()}),
        ("MXFP8LinearConverter.Config()", {"precision": "mxfp8"}),
        ("LoRAConverter.Config(rank=4, target_modules=['wq', 'wo'])",
         {"lora_rank": 4, "lora_targets": "q_proj,o_proj"}),
        ("LoRAConverter.Config()", {"lora_rank": 8, "lora_targets": "all-linear"}),
    ],
)  # fmt: skip
def test_converters(tmp_path: Path, made: str, expected: dict) -> None:
    body = f"config = llama3_8b()\nconfig.model_spec = model_registry('8B', converters=[{made}])"
    launch = python(tmp_path, body)
    assert {name: getattr(launch, name) for name in expected} == expected
    assert launch.unknown == ()


def test_a_recipe_of_another_name_is_predicted_as_rowwise(tmp_path: Path) -> None:
    made = "Float8LinearConverter.Config(recipe_name='by_group')"
    body = f"config = llama3_8b()\nconfig.model_spec = model_registry('8B', converters=[{made}])"
    launch = python(tmp_path, body)
    assert launch.precision == "fp8-rowwise"
    assert any("by_group is predicted as rowwise" in text for text in launch.approximated)


def test_a_file_of_several_configurations_needs_a_name(tmp_path: Path) -> None:
    file = tmp_path / "two.py"
    file.write_text(
        "def one() -> Trainer.Config:\n    return Trainer.Config()\n"
        "def two() -> Trainer.Config:\n    return Trainer.Config()\n",
        encoding="utf-8",
    )
    (said,) = read_launch(str(file)).violations()
    assert "one, two" in said and "--config NAME" in said
    with pytest.raises(DataError, match="no Python"):
        DIALECTS["torchtitan"].read(Source("def (Trainer.Config", "x.py", file))


def test_a_written_file_starts_from_what_torchtitan_ships() -> None:
    job = Job(
        model="llama3.1-405b", strategy="zero3", micro_batch=1, grad_accum=1, precision="bf16",
        recompute="full", optimizer="adamw", offload="none", nnodes=16, nproc_per_node=8,
        seq_len=8192, grad_clip=True,
    )  # fmt: skip
    text = emit("torchtitan", job).text
    compile(text, "written.py", "exec")
    assert "config = llama3_405b()" in text
    # what the shipped one sets and the job does not is set back: float8, tp 8, torch.compile
    assert 'model_registry("405B")' in text
    assert "config.parallelism.tensor_parallel_degree = 1" in text
    assert "config.compile.enable = False" in text
    assert "lr" not in text


@pytest.mark.parametrize(
    ("words", "copies", "shards"),
    [
        ({"strategy": "zero3"}, 1, -1),  # all ranks share one copy
        ({"strategy": "zero3", "shard_ranks": 8}, 2, 8), ({"strategy": "ddp"}, 16, 1),
        ({"strategy": "zero2"}, 1, -1), ({"strategy": "zero1", "pp": 2}, 1, -1),
    ],
)  # fmt: skip
def test_copies_and_shards_of_the_data_ranks(
    words: dict[str, Any], copies: int, shards: int
) -> None:
    """Sixteen ranks, of which two stages have eight each; weights of 16 bit under FSDP."""
    data, problems = written(**words)
    assert data["parallelism.data_parallel_replicate_degree"] == copies
    assert data["parallelism.data_parallel_shard_degree"] == shards
    assert problems == []


def test_a_written_batch_is_in_tokens() -> None:
    """Three sequences a pass, 96 a step; of a length that nobody states, torchtitan's own."""
    for length, said in ((8192, {}), (2048, {"seq_len": None})):
        data, _ = written(micro_batch=3, grad_accum=2, **said)
        assert (data[LENGTH], data[TOKENS]) == (length, 3 * length)
        assert data["training.num_tokens_per_train_step"] == 3 * 2 * 16 * length
        assert "parallelism.num_pp_microbatches" not in data
    stages, _ = written(pp=2, grad_accum=6)
    assert stages["parallelism.num_pp_microbatches"] == 6


@pytest.mark.parametrize("compiled", [True, False])
def test_what_tensor_ranks_exchange_is_hidden_with_compilation_alone(compiled: bool) -> None:
    _, problems = written(strategy="zero3", tp=2, overlap="grads,params,tensor", compile=compiled)
    assert any("--compile" in text for text in problems) != compiled
    _, other = written(strategy="zero3", tp=2, overlap="grads,params", compile=compiled)
    assert not any("--compile" in text for text in other)


def written(**words: Any) -> tuple[dict[str, Any], list[str]]:
    """Keys of a job on 2 x 8 GPUs, and what cannot be said."""
    base: dict[str, Any] = {
        "model": "llama3-8b", "micro_batch": 1, "grad_accum": 1, "precision": "bf16",
        "recompute": "none", "optimizer": "adamw", "offload": "none", "nnodes": 2,
        "nproc_per_node": 8, "seq_len": 8192, "grad_clip": True,
    }  # fmt: skip
    data: dict[str, Any] = {}
    problems: list[str] = []
    _write(Job(**{**base, **words}), data, problems)
    return data, problems


def test_a_local_batch_smaller_than_a_piece_is_refused_and_passes_once() -> None:
    text = "[training]\nlocal_batch_size = {}\n[parallelism]\npipeline_parallel_degree = 2\n"
    launch = read(text.format(2) + "pipeline_parallel_microbatch_size = 3")
    (said,) = launch.violations()
    assert "is no multiple of" in said and (launch.micro_batch, launch.grad_accum) == (3, 1)
