"""``--launch`` and ``--emit`` on the command line."""

from __future__ import annotations

import json
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from simcore.strategy.dialects import SHIPPED

SAMPLES = Path(__file__).parents[1] / "strategy" / "dialects" / "samples"
JOB = ["predict", "--model", "gpt2-xl", "--gpus", "4x8xA100"]
INPUTS = ("strategy", "precision", "recompute", "offload", "micro_batch", "grad_accum",
          "global_batch", "cluster")  # fmt: skip


def test_a_deepspeed_file_is_predicted(simcore: Callable) -> None:
    ran = simcore(*JOB, "--launch", str(SAMPLES / "deepspeed_zero2.json"))
    assert ran.code == 0 and ran.err == ""
    assert "zero2, bf16, adamw, no recompute (default)" in ran.out
    assert "micro-batch 4 x accum 2 x 32 GPUs = 256" in ran.out
    assert len(ran.out.splitlines()) <= 30


@pytest.mark.parametrize("words", [["torchrun", "--nproc_per_node=8", "t.py", "--", "--bf16"], []])
def test_words_after_two_dashes_are_the_line(simcore: Callable, words: list[str]) -> None:
    job = ["predict", "--model", "gpt2-xl", "--gpus", "8xA100", "--json"]
    line = ["--launch", shlex.join(words)] if words else []
    assert simcore(*job, "--", *words).out == simcore(*job, *line).out
    quoted = simcore(*job, "--", shlex.join(words)) if words else simcore(*job)
    assert quoted.out == simcore(*job, *line).out


@pytest.mark.parametrize("launch", [["--launch", "job.yaml"], ["--launch=job.yaml"]])
def test_a_launch_file_and_a_line_exclude_each_other(simcore: Callable, launch: list[str]) -> None:
    ran = simcore(*JOB, *launch, "--", "torchrun", "run_clm.py")
    assert (ran.code, ran.out) == (2, "")
    assert ran.err == (
        "error: --launch and a line after -- are both given: leave one of them out\n"
    )


def test_debug_after_two_dashes_is_a_word_of_the_line(simcore: Callable) -> None:
    ran = simcore(*JOB, "--", "no-such-launcher", "--debug")
    assert ran.code == 2  # no traceback
    assert ran.err.startswith("error: launch line: 'no-such-launcher' is neither")


def test_a_line_that_names_no_model_says_why_it_cannot_be_read(simcore: Callable) -> None:
    ran = simcore("predict", "--gpus", "A100", "--", "python", "train.py", "--my_testing", "x060")
    assert ran.code == 2
    assert ran.err == "error: launch line: --my_testing x060 (RWKV) is not supported yet\n"


def test_quoted_flags_and_unknown_ones(simcore: Callable) -> None:
    flags = "--micro-batch-size 2 --global-batch-size 128 --bf16 --use-distributed-optimiser"
    ran = simcore(*JOB, "--launch", flags, "--json")
    assert ran.code == 0
    assert ran.err == (
        "WARNING: launch line: unknown key '--use-distributed-optimiser': "
        "did you mean '--use-distributed-optimizer'?\n"
    )
    answer = json.loads(ran.out)
    assert answer["inputs"]["grad_accum"] == 2
    assert any("unknown key" in a for a in answer["assumptions"])


def test_what_is_not_understood_is_named_or_refused(simcore: Callable) -> None:
    line = "accelerate launch --num_processes 1 sft.py --use_peft --lora_r 8 --wobble 3"
    job = ["predict", "--model", "llama3-8b", "--gpus", "RTX4090", "--launch", line]
    ran = simcore(*job)
    assert ran.code in (0, 1)
    assert ran.err.startswith("WARNING: launch line: --wobble of sft.py: not understood")
    refused = simcore(*job, "--strict")
    assert (refused.code, refused.out) == (2, "")
    assert "--wobble of sft.py: not understood" in refused.err


def test_ignored_keys_are_listed_once(simcore: Callable) -> None:
    ran = simcore(*JOB, "--json", "--launch", str(SAMPLES / "deepspeed_zero2.json"))
    listed = [a for a in json.loads(ran.out)["assumptions"] if "steps_per_print" in a]
    assert len(listed) == 1 and "scheduler" in listed[0]


def test_unsupported_keys_are_all_named(simcore: Callable) -> None:
    ran = simcore(*JOB, "--launch", str(SAMPLES / "deepspeed_unsupported.json"))
    assert (ran.code, ran.out) == (2, "")
    lines = [line for line in ran.err.splitlines() if "deepspeed_unsupported.json: " in line]
    assert len(lines) == 6 and all(line.startswith("error: ") for line in lines)
    assert "elasticity is not supported yet" in ran.err


#: What the program that reads a zero3 job's file is to a prediction.
PROGRAMS = {"deepspeed": ["--software", "deepspeed"],
            "megatron": ["--software", "megatron", "--issuer", "megatron"],
            "torchtitan": ["--software", "torchtitan"],
            "accelerate": ["--software", "accelerate"]}  # fmt: skip


@pytest.mark.parametrize("dialect", SHIPPED)
def test_emitted_jobs_are_predicted_alike(dialect: str, simcore: Callable, tmp_path: Path) -> None:
    """The written file, read again with what it leaves out, is the same job."""
    chosen = ["--strategy", "zero3", "--precision", "bf16", "--micro-batch", "4",
              "--grad-accum", "2", "--recompute", "full", "--optimizer", "adamw"]  # fmt: skip
    ran = simcore(*JOB, *chosen, "--emit", dialect)
    assert ran.code == 0 and ran.err.startswith("note: not in this file")
    suffix = {"deepspeed": "json", "torchtitan": "py", "accelerate": "yaml"}.get(dialect, "sh")
    path = tmp_path / f"launch.{suffix}"
    path.write_text(ran.out)
    told = ran.err.splitlines()
    left = told[0].split(": ", 2)[2].strip().split(", ")
    program = told[1].partition("is predicted with ")[2].split() if len(told) > 1 else []
    assert program == PROGRAMS.get(dialect, [])
    # what is typed of Megatron runs as its recipes do, what is written as its flags say; torchtitan
    # clips gradients where nobody says otherwise
    typed = {"megatron": ["--overlap", "grads", "--main-grads", "weights", "--grad-clip", "off"],
             "torchtitan": ["--grad-clip", "off"]}.get(dialect, [])  # fmt: skip
    before = simcore(*JOB, *chosen, *program, *typed, "--json")
    again = []
    for word in left:
        flag, value = word.split()
        if flag not in ("nnodes", "nproc-per-node", "grad-clip", "bucket-numel"):
            again += [f"--{flag}", value]
    after = simcore(*JOB, *again, "--launch", str(path), "--json")
    assert after.code == 0, after.err
    first, second = json.loads(before.out), json.loads(after.out)
    assert {k: second["inputs"][k] for k in INPUTS} == {k: first["inputs"][k] for k in INPUTS}
    assert second["step_time_s"]["value"] == pytest.approx(first["step_time_s"]["value"], rel=1e-12)


def test_one_dialect_becomes_another(simcore: Callable) -> None:
    ran = simcore(*JOB, "--launch", str(SAMPLES / "megatron_gpt.sh"), "--emit", "deepspeed")
    assert ran.code == 0
    written = json.loads(ran.out)
    assert written["train_batch_size"] == 512
    assert written["zero_optimization"]["stage"] == 1 and written["bf16"] == {"enabled": True}


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (["--emit", "deepsped"], "did you mean 'deepspeed'"),
        (["--emit", "deepspeed", "--json"], "--emit and --json"),
        (["--emit", "torchrun", "--explain", "comm"], "--emit and --explain"),
        (
            ["--emit", "megatron", "--precision", "amp-bf16"],
            "Megatron-LM cannot express precision amp-bf16: fp32, bf16, fp16, mxfp8",
        ),
        (["--launch", "no-such.json"], "no such launch file"),
        (["--launch", ""], "--launch is empty"),
        (["--launch", "hello world"], "'hello' is neither a launcher nor a program"),
        (["--launch", "python -m"], "'python' starts no script or module"),
    ],
)
def test_one_clear_sentence(words: list[str], said: str, simcore: Callable) -> None:
    ran = simcore(*JOB, *words)
    assert (ran.code, ran.out) == (2, "")
    assert said in ran.err and len(ran.err.splitlines()) == 1


@pytest.mark.parametrize("dialect", SHIPPED)
def test_a_saved_folder_starts_the_job_and_tells_its_prediction(
    dialect: str, simcore: Callable, tmp_path: Path
) -> None:
    chosen = ["--strategy", "zero3", "--precision", "bf16", "--micro-batch", "1", "--grad-accum",
              "2", "--recompute", "full", "--growing-segments", "on"]  # fmt: skip
    model = ["predict", "--model", "llama3-8b", "--gpus", "2x8xH100"]
    printed = simcore(*model, *chosen, "--emit", dialect)
    ran = simcore(*model, *chosen, "--emit", dialect, "--save-dir", str(tmp_path / "run"))
    assert ran.code == 0 and ran.out == ""
    script = (tmp_path / "run" / "launch.sh").read_text()
    assert "#SBATCH --nodes=2\n" in script and "expandable_segments:True" in script
    texts = [p.read_text() for p in (tmp_path / "run").iterdir() if p.name != "README.md"]
    kept = "  ".join(printed.out.split("\n")) if dialect == "megatron" else printed.out
    assert dialect in ("slurm", "torchrun", "megatron") or kept in texts
    page = (tmp_path / "run" / "README.md").read_text()
    first, again = (line for line in page.replace(" \\\n   ", "").splitlines()
                    if line.startswith("simcore predict"))  # fmt: skip
    figures = simcore(*shlex.split(first)[1:])
    assert figures.out.strip() in page and "--recompute full" in first
    words = [str(tmp_path / "run" / w) if w == "launch.sh" else w for w in shlex.split(again)[1:]]
    assert "--growing-segments" not in words and "--nnodes" not in words
    read = simcore(*words, "--json")
    assert read.code == 0, read.err
    inputs = json.loads(read.out)["inputs"]
    asked = json.loads(simcore(*shlex.split(first)[1:], "--json").out)["inputs"]
    assert {k: inputs[k] for k in INPUTS} == {k: asked[k] for k in INPUTS}


def test_a_folder_is_for_the_program_that_states_most(simcore: Callable, tmp_path: Path) -> None:
    ran = simcore(*JOB, "--save-dir", str(tmp_path / "usual"))
    assert ran.code in (0, 1) and "--emit names another program" in ran.err
    assert {"README.md"} < {p.name for p in (tmp_path / "usual").iterdir()}
    file = tmp_path / "file"
    file.write_text("")
    ran = simcore(*JOB, "--emit", "slurm", "--save-dir", str(file))
    assert ran.code == 2 and "is a file: name a folder" in ran.err


@pytest.mark.parametrize("software", ["deepspeed", "accelerate", "megatron", "torchtitan"])
def test_a_batch_script_holds_the_configuration(
    software: str, simcore: Callable, tmp_path: Path
) -> None:
    chosen = ["--strategy", "zero3", "--precision", "bf16", "--micro-batch", "1", "--grad-accum",
              "2", "--recompute", "full", "--software", software]  # fmt: skip
    model = ["predict", "--model", "llama3-8b", "--gpus", "2x8xH100"]
    ran = simcore(*model, *chosen, "--emit", "slurm")
    assert ran.code == 0 and ("<<'EOF'" in ran.out or "ARGS=(" in ran.out)
    assert '"$@"' in ran.out
    (tmp_path / "job.sbatch").write_text(ran.out)
    left = ran.err.partition("when you launch: ")[2].split("\n")[0].split(", ")
    typed = [w for option in left if option for w in (f"--{option}").split()]
    again = simcore(*model, *typed, "--launch", str(tmp_path / "job.sbatch"), "--json")
    assert again.code == 0, again.err
    before = json.loads(simcore(*model, *chosen, "--json").out)["inputs"]
    after = json.loads(again.out)["inputs"]
    assert {k: after[k] for k in INPUTS} == {k: before[k] for k in INPUTS}


def test_uneven_nodes_have_no_launch_file(simcore: Callable) -> None:
    ran = simcore("predict", "--model", "bert-base", "--gpus", "1x2xA100+1x3xT4", "--network",
                  "25 Gbit/s", "--emit", "torchrun")  # fmt: skip
    assert ran.code == 2 and "equal counts of GPUs, not 2, 3" in ran.err


def test_dialects_complete(simcore: Callable) -> None:
    from simcore.cli.names import completions

    assert completions("dialect", "", {}) == sorted(SHIPPED)
    assert completions("dialect", "tor", {}) == ["torchrun", "torchtitan"]


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("composer train/train.py train/yamls/pretrain/mpt-125m.yaml", "mpt-125m"),
        (
            "tune run full_finetune_distributed --config llama3_1/8B_mine batch_size=4",
            "llama3.1-8B",
        ),
    ],
)
def test_a_program_s_own_file_that_is_not_at_hand_is_named_after_its_model(
    simcore: Callable, line: str, model: str
) -> None:
    ran = simcore("predict", "--gpus", "1x8xH100", "--launch", line, "--micro-batch", "1")
    assert ran.code == 0 and f"WARNING: model {model}, by the name of" in ran.err
    assert "is not at hand" in ran.err


def test_a_file_of_an_unknown_script_may_be_named_after_a_model_of_a_vision_library(
    simcore: Callable,
) -> None:
    pytest.importorskip("timm")
    line = "python main.py --cfg configs/swin_tiny_patch4_window7_224.yaml --batch-size 8"
    ran = simcore("predict", "--gpus", "A100", "--launch", line)
    assert ran.code == 0 and "WARNING: model timm:swin_tiny_patch4_window7_224, by" in ran.err
    assert "--batch-size (as --micro-batch 8) of main.py" in ran.err


@pytest.mark.parametrize(
    ("line", "model"),
    [
        ("python main.py --cfg configs/swin/swin_tiny_patch4_window7_224.yaml", "timm:swin_tiny"),
        (
            "python main.py --model convnext_small --use_amp 1 --update_freq 2 --data_path d",
            "convnext",
        ),
        ("python run_class_finetuning.py --model beit_base_patch16_224", "timm:beit_base"),
    ],
)
def test_a_program_of_a_vision_library_names_its_models_alone(
    simcore: Callable, line: str, model: str
) -> None:
    pytest.importorskip("timm")
    ran = simcore("predict", "--gpus", "A100", "--launch", line)
    assert ran.code == 0 and model in ran.out


def test_a_file_of_any_name_names_no_model(simcore: Callable) -> None:
    ran = simcore("predict", "--gpus", "1x8xH100", "--launch", "composer train/train.py my.yaml")
    assert ran.code == 2 and "--model is missing" in ran.err


def test_an_unknown_script_may_call_its_model_by_a_known_name(simcore: Callable) -> None:
    line = "torchrun --nproc_per_node=8 main.py --arch resnet50 --dir x"
    ran = simcore("predict", "--gpus", "1x8xH100", "--launch", line)
    assert ran.code == 0 and "WARNING: model resnet50, by resnet50 of an unknown script" in ran.err
    for other in ("unet-of-my-own", "pkg.module:function"):
        ran = simcore("predict", "--gpus", "8xH100", "--launch", line.replace("resnet50", other))
        assert ran.code == 2 and "--model is missing" in ran.err
