"""Launch lines, held against torch's own parser."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from torch.distributed.run import get_args_parser

from simcore.base.errors import InvalidConfig
from simcore.strategy.dialects import Job, read_launch
from simcore.strategy.dialects.line_record import LINES
from simcore.strategy.dialects.shell import read_script
from simcore.strategy.dialects.source import Source
from simcore.strategy.dialects.torchrun import Torchrun, commands, find_line, torchrun_line

SAMPLES = Path(__file__).parent / "samples"


def test_flags_are_those_of_torch() -> None:
    """Every option of torch.distributed.run, with its arity: else the script is not found."""
    record = LINES["torchrun"]
    known = {*record.without_effect()[0], *(key for names in record.table() for key in names)}
    bare = set(record.bare.split())
    ours = {True: known - bare, False: bare}
    assert bare <= known
    checked = 0
    for action in get_args_parser()._actions:
        takes_value = action.nargs != 0
        for text in action.option_strings:
            if text in ("-h", "--help"):
                continue
            assert text.lstrip("-").replace("_", "-") in ours[takes_value], text
            checked += 1
    assert checked > 40


FORMS = [
    "torchrun", "python -m torch.distributed.run", "python3 -u -m torch.distributed.launch",
    "srun --label torchrun", "OMP_NUM_THREADS=8 exec torchrun", "nohup env A=1 torchrun",
    "venv/bin/torchrun", "bash -c 'torchrun {} train.py --lr 1'",
]  # fmt: skip
FLAGS = [
    "--nnodes=4 --nproc-per-node=8", "--nnodes 4 --nproc_per_node 8",
    "--nproc-per-node 8 --nnodes=2:4 --rdzv_backend=c10d --rdzv-endpoint $HOST:29500",
    "--standalone --nnodes=4 --nproc-per-node=8 -r 3 -t 3 --max-restarts=0",
    "--node_rank 0 --master_addr 10.0.0.1 --nnodes 4 --nproc-per-node 8 --no-python",
]  # fmt: skip


@pytest.mark.parametrize(("form", "flags"), list(itertools.product(FORMS, FLAGS)))
def test_every_form_and_spelling(form: str, flags: str) -> None:
    text = form.format(flags) if "{}" in form else f"{form} {flags} train.py --lr 1e-4"
    launch = read_launch(text)
    assert (launch.nnodes, launch.nproc_per_node) == (4, 8)
    assert launch.violations() == [] and launch.unknown == ()
    if form == "torchrun":
        args = get_args_parser().parse_args(text.split()[1:])
        line = find_line(read_script(Source(text, "line")))
        assert line is not None and line.script == args.training_script == "train.py"
        assert list(line.rest) == args.training_script_args
        assert int(args.nnodes.split(":")[-1]) == launch.nnodes
        assert int(args.nproc_per_node) == launch.nproc_per_node


def test_defaults_are_those_of_torch() -> None:
    args = get_args_parser().parse_args(["train.py"])
    launch = read_launch("torchrun train.py")
    assert args.nnodes == "1:1" and args.nproc_per_node == "1"
    assert (launch.nnodes, launch.nproc_per_node) == (1, 1)


def test_counts_of_the_machine_are_asked_of_gpus() -> None:
    launch = read_launch("torchrun --nnodes 2 --nproc-per-node=gpu train.py")
    assert launch.nproc_per_node is None and launch.nnodes == 2
    assert any("--gpus says how many" in told for told in launch.approximated)
    refused = read_launch("torchrun --nproc-per-node=cpu train.py").violations()
    assert len(refused) == 1 and "cpu" in refused[0]


def test_wrong_counts_and_unknown_flags() -> None:
    launch = read_launch("torchrun --nnodes=0 --nproc-per-node=eight --nproc-per-nod 8 train.py")
    assert [v.split(": ", 1)[1] for v in launch.violations()] == [
        "--nnodes = '0' must be at least 1", "--nproc-per-node = 'eight' is not a whole number",
    ]  # fmt: skip
    assert "did you mean '--nproc-per-node'" in launch.unknown[0]


def test_trainer_arguments_exist_in_transformers() -> None:
    from dataclasses import fields

    training_args = pytest.importorskip("transformers").training_args
    names = {f.name for f in fields(training_args.TrainingArguments)}
    assert {"per_device_train_batch_size", "gradient_accumulation_steps", "bf16", "fp16",
            "gradient_checkpointing", "deepspeed"} <= names  # fmt: skip


def test_script_of_the_samples() -> None:
    launch = read_launch(str(SAMPLES / "torchrun.sh"))
    assert launch.words() == {
        "micro_batch": 2, "grad_accum": 4, "precision": "amp-bf16", "recompute": "full",
        "nnodes": 4, "nproc_per_node": 8, "strategy": "ddp", "software": "transformers",
    }  # fmt: skip
    assert any("elastic" in told for told in launch.approximated)


def test_a_line_fills_in_what_its_deepspeed_file_leaves_open() -> None:
    launch = read_launch(str(SAMPLES / "torchrun_deepspeed.sh"))
    assert launch.violations() == []
    assert (launch.strategy, launch.precision) == ("zero3", "bf16")
    assert (launch.micro_batch, launch.grad_accum) == (2, 4)
    assert (launch.nnodes, launch.nproc_per_node) == (2, 8)


MEGATRON = (
    "pretrain_gpt.py --num-layers 32 --seq-length 4096 --micro-batch-size 1 --global-batch-size 128"
    " --bf16 --tensor-model-parallel-size 2 --use-distributed-optimizer"
)


@pytest.mark.parametrize("launcher", ["torchrun --nnodes 4 --nproc_per_node 8", "python"])
def test_a_batch_script_keeps_the_flags_of_megatron(tmp_path: Path, launcher: str) -> None:
    """The same words as without the #SBATCH lines, which add nodes and GPUs."""
    line = f"{launcher} {MEGATRON}"
    batch = tmp_path / "train.slurm"
    head = "#!/bin/bash\n#SBATCH --nodes=4\n#SBATCH --gpus-per-node=8\n"
    batch.write_text(f"{head}srun {line}\n")
    launch, alone = read_launch(str(batch)), read_launch(line)
    assert launch.words() == {**alone.words(), "nnodes": 4, "nproc_per_node": 8}
    assert (launch.tp, launch.strategy, launch.global_batch) == (2, "zero1", 128)
    assert launch.violations() == [] and launch.unknown == ()


def test_accelerate_launch_flags() -> None:
    launch = read_launch(str(SAMPLES / "accelerate_launch.txt"))
    assert launch.words() == {
        "strategy": "zero3", "precision": "bf16", "offload": "optimizer:cpu,params:cpu",
        "nnodes": 2, "nproc_per_node": 4, "software": "fsdp@no-sync",
    }  # fmt: skip
    config = SAMPLES / "accelerate_fsdp.yaml"
    over = read_launch(f"accelerate launch --config_file {config} --num_processes 4 train.py")
    assert (over.nnodes, over.nproc_per_node, over.recompute) == (2, 2, "full")
    plain = read_launch("accelerate launch --num_processes 4 train.py")
    assert (plain.strategy, plain.nproc_per_node) == ("ddp", 4)


def test_slurm_counts() -> None:
    launch = read_launch(str(SAMPLES / "slurm.sbatch"))
    assert (launch.nnodes, launch.nproc_per_node) == (4, 8)
    assert "#SBATCH --time" in launch.ignored


def test_branches_of_a_script_are_told_and_arrays_keep_their_words(tmp_path: Path) -> None:
    script = tmp_path / "run.sh"
    script.write_text(
        "SIZE=${SIZE:-${BATCH:-4}}\n"
        'case "$KIND" in\n  a) BF=--bf16 ;;\nesac\n'
        'if [ -n "$FAST" ]; then\n  SIZE=8\nfi\n'
        'ARGS=(--per_device_train_batch_size "$SIZE" --run_name "two words")\n'
        'torchrun --nproc_per_node ${N:-${M:-2}} train.py "${ARGS[@]}" --logging_steps 1\n'
    )
    launch = read_launch(str(script))
    assert launch.micro_batch == 8 and launch.nproc_per_node == 2 and not launch.unknown
    assert any("SIZE are set in branches" in text for text in launch.approximated)


@pytest.mark.parametrize(
    "around",
    [
        "nohup {} > log.txt 2>&1 &", "{} 2>&1 | tee log.txt", "cd work && {} &> log", "ls; {} ; ls",
        "export A=1 && {} >>log", "srun bash -c '{}'",
    ],
)  # fmt: skip
def test_what_stands_around_a_command_is_no_argument(around: str) -> None:
    line = "torchrun --nproc_per_node 4 train.py --bf16 --learning_rate 1e-4"
    launch, alone = read_launch(around.format(line)), read_launch(line)
    assert launch.words() == alone.words() and launch.unknown == ()


def test_files_that_a_script_writes_are_read(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    config = '{"train_micro_batch_size_per_gpu": 3, "zero_optimization": {"stage": 2}}'
    start = 'deepspeed --num_gpus 4 train.py --deepspeed --deepspeed_config ds.json "$@"\n'
    script.write_text(f"cat <<EOT > /tmp/ds.json\n{config}\nEOT\n{start}")
    launch = read_launch(str(script))
    assert (launch.micro_batch, launch.strategy, launch.software) == (3, "zero2", "deepspeed")
    assert launch.nproc_per_node == 4 and not launch.unknown and not launch.violations()


def test_a_document_with_variables_is_not_taken_for_the_file(tmp_path: Path) -> None:
    script = tmp_path / "train.sh"
    script.write_text('cat <<EOT > ds.json\n{"train_batch_size": $B}\nEOT\n'
                      "torchrun --nproc-per-node 4 train.py\n")  # fmt: skip
    assert read_launch(str(script)).nproc_per_node == 4


def test_a_line_that_ends_before_its_module_starts_nothing() -> None:
    assert find_line(read_script(Source("python -m", "line"))) is None


@pytest.mark.parametrize("start", sorted(commands()))
def test_what_follows_a_programs_own_launcher_is_its_arguments(start: tuple[str, ...]) -> None:
    """No word of the launcher is an argument, and no argument is lost."""
    line = find_line(read_script(Source(" ".join((*start, "a.yaml", "b=1")), "line")))
    assert line is not None
    told = line.rest if line.script == " ".join(start) else (line.script, *line.rest)
    assert told == ("a.yaml", "b=1")


@pytest.mark.parametrize(
    ("words", "script", "rest"),
    [
        ("--nnodes 2 -- train.py --x 1", "train.py", ("--x", "1")),
        ("--nnodes=2 train.py -- --x", "train.py", ("--", "--x")),
        ("--standalone -- train.py", "train.py", ()), ("--nnodes 2", "", ()), ("--", "", ()),
    ],
)  # fmt: skip
def test_two_dashes_end_the_launchers_flags(words: str, script: str, rest: tuple[str, ...]) -> None:
    line = find_line(read_script(Source(f"torchrun {words}", "line")))
    assert line is not None and (line.script, line.rest) == (script, rest)


@pytest.mark.parametrize(
    ("words", "counts"),
    [("mpirun -np 8", (8, None)), ("mpiexec --allow-run-as-root -n 4", (4, None)),
     ("/usr/bin/horovodrun -np 16", (None, 16)), ("mpirun --np x", (None, None)),
     ("srun -n 4", (None, None))],
)  # fmt: skip
def test_processes_that_mpi_starts(words: str, counts: tuple[int | None, int | None]) -> None:
    launch = read_launch(f"{words} python t.py --batch-size 4")
    assert (launch.nproc_per_node, launch.n_gpus) == counts


def job(**changes: object) -> Job:
    asked = Job(
        model="gpt2", strategy="ddp", micro_batch=1, grad_accum=1, precision="fp32",
        recompute="none", optimizer="adamw", offload="none", nnodes=1, nproc_per_node=8,
    )  # fmt: skip
    return replace(asked, **changes)


@pytest.mark.parametrize(("nodes", "processes"), [(1, 8), (1, 1), (2, 8), (16, 4)])
def test_a_written_line_is_read_by_torch_and_read_back(nodes: int, processes: int) -> None:
    emitted = Torchrun("torchrun", records=LINES).emit(job(nnodes=nodes, nproc_per_node=processes))
    args = get_args_parser().parse_args(emitted.text.split()[1:])
    assert (args.nnodes, args.nproc_per_node) == (str(nodes), str(processes))
    # without a rendezvous of its own a node would wait for nobody
    assert args.standalone is (nodes == 1)
    assert (args.rdzv_endpoint == "$HEAD_NODE:29500") is (nodes > 1)
    assert args.training_script == "train.py"
    launch = read_launch(emitted.text)
    assert (launch.nnodes, launch.nproc_per_node) == (nodes, processes)
    left = set(emitted.left)
    assert {"strategy", "precision"} <= left and not left & {"nnodes", "nproc_per_node"}


def test_one_process_of_all_gpus_has_no_line() -> None:
    with pytest.raises(InvalidConfig, match=r"python train\.py"):
        torchrun_line(job(strategy="dp"))


def test_the_launchers_flags_stand_among_those_of_a_command() -> None:
    """TRL hands accelerate's flags on; what both know is the program's (its bf16, its seed)."""
    launch = read_launch(
        "trl sft --model_name_or_path gpt2 --num_processes 8 --use_fsdp --learning_rate 1e-5"
        " --per_device_train_batch_size 4 --gradient_accumulation_steps 2 --bf16 true"
    )
    assert launch.words() == {**launch.words(), "strategy": "zero3", "nproc_per_node": 8,
                              "micro_batch": 4, "grad_accum": 2, "precision": "bf16"}  # fmt: skip
    assert launch.unknown == () and launch.violations() == []
    assert read_launch("trl sft --num_processes 2").strategy == "ddp"


def test_a_text_with_spaces_is_a_command_behind_c_alone() -> None:
    shell = "torchrun --nnodes=2 --nproc-per-node=4 a.py"
    for flag in ("-c", "-lc"):
        assert read_launch(f"bash {flag} '{shell}'").nnodes == 2
    launch = read_launch(f"torchrun --nnodes=3 --nproc-per-node=4 train.py --note '{shell}'")
    assert (launch.nnodes, launch.nproc_per_node) == (3, 4)
    quoted = read_launch(f"env NOTE='{shell}' torchrun --nnodes=3 --nproc-per-node=4 train.py")
    assert quoted.nnodes == 3
