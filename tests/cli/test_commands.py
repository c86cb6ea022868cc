"""What the commands print, what they cost, and their exit codes."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from simcore.cli.main import heading_of, headings
from simcore.cli.options import job_words

ASK = ("predict", "--model", "latte-xl", "--gpus", "4x8xA6000ada")
HEAVY = ("torch", "scipy", "matplotlib", "pandas")


def test_alone_it_says_what_to_paste(simcore: Callable) -> None:
    ran = simcore()
    assert ran.code == 0
    assert len(ran.out.splitlines()) <= 12
    assert ran.out.count("  simcore predict --model") >= 3


def test_what_it_says_to_paste_works(simcore: Callable) -> None:
    pasted = [line.split()[1:] for line in simcore().out.splitlines()
              if line.startswith("  simcore predict --model")]  # fmt: skip
    for words in pasted:
        assert simcore(*words).code in (0, 1), words


@pytest.mark.parametrize("words", [("--help",), ("-h",), ("predict", "--help")])
def test_help(words: tuple[str, ...], simcore: Callable) -> None:
    ran = simcore(*words)
    assert ran.code == 0 and ran.err == ""
    assert all(len(line) <= 80 for line in ran.out.splitlines())


def test_help_has_every_flag_that_scripts_rely_on(simcore: Callable) -> None:
    shown = simcore("predict", "--help-all").out
    for flag in (
        "model", "gpus", "strategy", "micro-batch", "grad-accum", "precision", "recompute",
        "optimizer", "offload", "network", "node", "nnodes", "nproc-per-node", "steps", "epochs",
        "seq-len", "calibration", "json", "trace", "explain",
    ):  # fmt: skip
        assert f"--{flag} " in shown, flag


def test_help_has_every_option_under_its_heading(simcore: Callable) -> None:
    for command in ("predict", "sweep", "plan"):
        sections: dict[str, list[str]] = {}
        for line in simcore(command, "--help-all").out.splitlines():
            if line[:1].isalpha() and line.endswith(":"):
                sections[line[:-1]] = []
            elif flag := re.match(r"^  (?:-\w, )?(--[a-z0-9-]+)", line):
                list(sections.values())[-1].append(flag[1])
        assert list(sections) == list(headings())
        flags = [flag for found in sections.values() for flag in found]
        assert len(flags) == len(set(flags)) > 40
        for word in job_words():
            flag = {"inputs": "--input", "settings": "--set"}.get(
                word, f"--{word.replace('_', '-')}"
            )
            assert flag in sections[heading_of(word)], (command, word)
        assert sections["Expert"][0] == "--bucket-numel"
    few = simcore("list", "--help").out
    assert "Options:" in few and "Parallelism:" not in few


def test_the_short_help_names_what_most_jobs_need(simcore: Callable) -> None:
    shown = simcore("predict", "--help").out
    flags = re.findall(r"^  (--[a-z-]+)", shown, re.MULTILINE)
    examples = [line.split()[1:] for line in shown.splitlines() if "  simcore predict" in line]
    assert 18 <= len(flags) <= 32 and len(examples) == 3
    assert {"--model", "--gpus", "--qlora", "--tokens", "--seq-len", "--explain"} <= set(flags)
    every = re.findall(
        r"^  (?:-\w, )?(--[a-z0-9-]+)", simcore("predict", "--help-all").out, re.MULTILINE
    )
    left = len(set(every) - set(flags) - {"--help"})
    assert f"{left} more options: simcore predict --help-all" in shown
    for words in examples:
        assert simcore(*words).code in (0, 1), words


def test_version(simcore: Callable) -> None:
    from simcore import __version__

    assert simcore("--version").out == f"simcore {__version__}\n"


def test_answer_is_thirty_plain_lines(simcore: Callable) -> None:
    ran = simcore(*ASK)
    lines = ran.out.splitlines()
    assert ran.code == 0 and ran.err == ""
    assert len(lines) <= 30 and max(map(len, lines)) <= 80
    assert "\x1b" not in ran.out
    assert "FITS" in ran.out and "micro-batch 2 (default)" in ran.out


def test_what_does_not_fit_is_answered_in_full(simcore: Callable) -> None:
    ran = simcore("predict", "--model", "latte-xl", "--gpus", "4x8xRTX4090")
    assert ran.code == 1 and ran.err == ""
    assert "\nNO " in ran.out and "\nSTEP " in ran.out and "what makes it fit" in ran.out


def test_json_is_all_that_is_on_stdout(simcore: Callable, tmp_path: Path) -> None:
    ran = simcore(*ASK, "--json", "--trace", str(tmp_path / "t.json"))
    answer = json.loads(ran.out)
    assert answer["inputs"]["micro_batch"] == 2 and answer["fits"] is True
    assert "micro-batch 2" in answer["defaults"]
    assert json.loads((tmp_path / "t.json").read_text())["traceEvents"]


def test_a_trace_without_an_ending_is_a_folder_of_ranks(simcore: Callable, tmp_path: Path) -> None:
    folder = tmp_path / "step"
    for _ in ("made", "there already"):
        ran = simcore(*ASK, "--trace", f"{folder}/")
        assert ran.code == 0 and f"in {folder}: " in ran.err
    for path in folder.iterdir():
        assert json.loads(gzip.decompress(path.read_bytes()) if path.suffix == ".gz"
                          else path.read_bytes())["traceEvents"]  # fmt: skip
    (tmp_path / "t").write_text("mine", "utf-8")
    ran = simcore(*ASK, "--trace", str(tmp_path / "t"))
    assert ran.code == 2 and "t' is a file: name a folder" in ran.err
    assert (tmp_path / "t").read_text("utf-8") == "mine"


def test_flags_reach_the_prediction(simcore: Callable) -> None:
    ran = simcore(
        "predict", "--model", "bert-base", "--gpus", "A100", "--nnodes", "2", "--nproc-per-node",
        "4", "--strategy", "zero2", "--micro-batch", "3", "--grad-accum", "2", "--precision",
        "amp-bf16", "--recompute", "full", "--optimizer", "sgd", "--offload", "optimizer:cpu",
        "--network", "25 Gbit/s", "--seq-len", "64", "--steps", "1000", "--json",
    )  # fmt: skip
    answer = json.loads(ran.out)
    said = answer["inputs"]
    assert (said["n_nodes"], said["n_gpus"], said["strategy"]) == (2, 8, "zero2")
    assert (said["micro_batch"], said["grad_accum"], said["global_batch"]) == (3, 2, 48)
    assert (said["precision"], said["recompute"], said["optimizer"]) == ("amp-bf16", "full", "sgd")
    assert said["offload"] == "optimizer:cpu" and answer["defaults"] == []
    assert answer["run_steps"] == 1000
    assert answer["run_time_s"] == pytest.approx(1000 * answer["step_time_s"]["value"])


def test_micro_batch_max_is_the_largest(simcore: Callable) -> None:
    best = json.loads(simcore(*ASK, "--micro-batch", "max", "--json").out)
    n = best["inputs"]["micro_batch"]
    assert best["fits"] and simcore(*ASK, "--micro-batch", str(n + 1)).code == 1


def test_explanation_is_short(simcore: Callable) -> None:
    ran = simcore(*ASK, "--explain", "memory.activations")
    assert ran.code == 0 and len(ran.out.splitlines()) < 20
    for word in ("formula", "inputs", "source"):
        assert f"\n{word}" in ran.out
    told = json.loads(simcore(*ASK, "--explain", "comm", "--json").out)
    assert told["term"] == "time.communication_exposed"


@pytest.mark.parametrize("words", [("--help",), ("predict", "--help"), ASK])
def test_heavy_modules_stay_out(words: tuple[str, ...], process: Callable) -> None:
    code = (
        "import sys\n"
        "from simcore.cli.main import run\n"
        "run(sys.argv[1:])\n"
        "sys.stderr.write(' '.join(sys.modules))"
    )
    loaded = set(process(*words, code=code).err.split())
    assert "simcore.cli.main" in loaded
    assert not loaded & set(HEAVY)
    if words == ("--help",):
        assert not loaded & {"numpy", "rich", "simcore.answer"}


def test_a_command_that_ends_looks_for_no_garbage(process: Callable) -> None:
    code = (
        "import gc, sys\n"
        "from simcore.cli.main import main\n"
        "try:\n"
        "    main(sys.argv[1:])\n"
        "finally:\n"
        "    left, frozen = len(gc.get_objects()), gc.get_freeze_count()\n"
        "    sys.stderr.write(f'{gc.isenabled()} {left < 0.01 * frozen}')"
    )
    ran = process(*ASK, code=code)
    assert ran.code == 0 and ran.out
    assert ran.err == "False True"


def test_closed_pipe_is_quiet(process: Callable) -> None:
    code = (
        "import os, subprocess, sys\n"
        "r, w = os.pipe(); os.close(r)\n"
        "done = subprocess.run([sys.executable, '-m', 'simcore', *sys.argv[1:]], stdout=w,"
        " stderr=subprocess.PIPE, text=True)\n"
        "print(done.returncode, repr(done.stderr))"
    )
    assert process(*ASK, code=code).out == "141 ''\n"


def test_colour_only_on_a_terminal_that_wants_it(
    simcore: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setenv("TERM", "xterm")
    monkeypatch.delenv("NO_COLOR", raising=False)
    assert "\x1b[" in simcore(*ASK).out
    monkeypatch.setenv("NO_COLOR", "1")
    assert "\x1b" not in simcore(*ASK).out


def test_validate_in_text_and_json(simcore: Callable) -> None:
    table = str(Path(__file__).parents[2] / "validate" / "tables" / "latte.csv")
    text = simcore("validate", table, "--worst", "2", "--by", "model")
    assert text.code == 0 and "rows, " in text.out and "model latte-xl" in text.out
    data = json.loads(simcore("validate", table, "--json").out)
    for quantity in ("step_time", "speedup", "peak_memory"):
        assert {"n", "mape_frac", "median_abs_frac", "median_bias_frac", "p90_abs_frac",
                "coverage80_frac"} <= data[quantity].keys()  # fmt: skip
    assert {"rows", "simulated", "skipped", "groups", "per_row"} <= data.keys()
    assert {"id", "predicted", "low", "high", "measured", "error_frac"} <= data["per_row"][0].keys()
