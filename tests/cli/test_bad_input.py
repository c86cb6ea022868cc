"""Wrong commands: exit code 2, one clear sentence a violation, the nearest choice, no traceback."""

from __future__ import annotations

from collections.abc import Callable

import pytest

GOOD = {"--model": "bert-base", "--gpus": "2x8xA6000ada"}


def _predict(**changed: str) -> list[str]:
    flags = {**GOOD, **{"--" + k.replace("_", "-"): v for k, v in changed.items()}}
    return ["predict", *(word for pair in flags.items() for word in pair)]


#: What is typed, and what the answer must name.
WRONG: dict[str, tuple[list[str], list[str]]] = {
    "gpu typo": (_predict(gpus="4x8xA6000ad"), ["A6000ad", "did you mean 'A6000ada'"]),
    "gpu alias typo": (_predict(gpus="8xH1000"), ["did you mean 'H100'?"]),
    "count without x": (_predict(gpus="8H100"), ["'8H100'", "did you mean '8xH100'?"]),
    "capital X": (_predict(gpus="2X8XH100"), ["did you mean '2x8xH100'?"]),
    "count behind": (_predict(gpus="H100x8"), ["did you mean '8xH100'?"]),
    "rate as in a shop": (_predict(network="10 Gb"), ["did you mean '10 Gbit/s'?"]),
    "kind of network": (_predict(network="infiniband"), ["one of ib-fdr, ib-edr, ", "ib-xdr?"]),
    "three counts": (_predict(gpus="2x8x8xH100"), ["'2x8x8xH100' has three counts"]),
    "command by another name": (["explain", "comm"], ["did you mean 'predict --explain TERM'?"]),
    "a list as a command": (["gpus"], ["did you mean 'list gpus'?"]),
    "no model file": (_predict(model="docs/conf.py"), ["conf.py", "is no model file"]),
    "command typo": (["predcit"], ["unknown command 'predcit': did you mean 'predict'?"]),
    "no nodes": (_predict(gpus="0x8xA100"), ["0x8xA100", "at least 1"]),
    "no gpus a node": (_predict(gpus="4x0xA100"), ["4x0xA100", "at least 1"]),
    "leading x": (_predict(gpus="x8xA100"), ["x8xA100", "NODESxGPUSxTYPE"]),
    "no type": (_predict(gpus="4x8x"), ["4x8x", "NODESxGPUSxTYPE"]),
    "negative nodes": (_predict(gpus="-1x8xA100"), ["-1x8xA100", "NODESxGPUSxTYPE"]),
    "too many a node": (_predict(gpus="1x1000xH100"), ["1000"]),
    "empty gpus": (_predict(gpus=""), ["NODESxGPUSxTYPE"]),
    "empty group": (_predict(gpus="1x2xA100+"), ["NODESxGPUSxTYPE"]),
    "second group typo": (_predict(gpus="1x2xA100+1x3xT44"), ["T44", "did you mean 'T4'"]),
    "unknown model": (_predict(model="bert-bas"), ["bert-bas", "did you mean 'bert-base'"]),
    "family of models": (_predict(model="llama3"), ["did you mean one of llama3-8b, llama3-70b"]),
    "two of a family": (_predict(model="kimi"), ["did you mean one of kimi-k2, kimi-linear-48b"]),
    "one of a family": (_predict(model="quartz"), ["did you mean 'quartznet'?"]),
    "no model": (_predict(model="xyzzy"), ["unknown model 'xyzzy': none of", "list models"]),
    "empty network": (_predict(network=""), ["--network is empty"]),
    "empty stages": (_predict(stages=" "), ["--stages is empty"]),
    "empty setting": (_predict(set=""), ["--set is empty"]),
    "empty axis": (
        ["sweep", "--model", "gpt2", "--gpus", "A100:1x8", "--network", ""],
        ["--network is empty"],
    ),
    "unknown library in a sweep": (
        ["sweep", "--model", "gpt2", "--gpus", "A100:1x8", "--software", "plain,megatro"],
        ["megatro", "did you mean 'megatron'"],
    ),
    "empty model": (_predict(model=""), ["unknown model '': none of"]),
    "unknown strategy": (_predict(strategy="zero4"), ["zero4", "did you mean 'zero"]),
    "unknown precision": (_predict(precision="bf61"), ["bf61", "did you mean 'bf16'"]),
    "int4 training": (_predict(precision="int4"), ["int4", "known are amp-bf16"]),
    "tp that does not divide": (
        ["predict", "--model", "gpt2", "--gpus", "1x8xA100", "--tp", "3"],
        ["tp = 3 does not divide 8 GPUs"],
    ),
    "global batch between multiples": (
        _predict(global_batch="700"),
        ["16 replicas: try 512 or 1024"],
    ),
    "global batch below one": (_predict(global_batch="3"), ["16 replicas: try 512"]),
    "all GPUs as one node": (_predict(gpus="1x64xH100"), ["not 64: did you mean 8x8xH100?"]),
    "no full nodes": (_predict(gpus="60xH100"), ["60: did you mean 7x8xH100 or 8x8xH100?"]),
    "words without an option": (
        ["predict", "latte-xl", "8xH100"],
        ["'latte-xl 8xH100' belongs to no option: write --model NAME --gpus CLUSTER"],
    ),
    "unknown optimizer": (_predict(optimizer="adamv"), ["adamv", "did you mean 'adam"]),
    "unknown recompute": (_predict(recompute="ful"), ["ful", "did you mean 'full'"]),
    "unknown offload": (_predict(offload="optimiser", strategy="zero2"), ["'optimizer'"]),
    "unknown offload place": (_predict(offload="optimizer:disk", strategy="zero2"), ["disk"]),
    "unknown network": (_predict(network="ib-hdrr"), ["ib-hdrr", "did you mean 'ib-hdr'"]),
    "network within nodes": (_predict(network="nvlink4"), ["does not join nodes"]),
    "network unit": (_predict(network="25 Gbitt/s"), ["Gbitt/s"]),
    "unknown node": (_predict(node="dgx-a10"), ["dgx-a10", "did you mean 'dgx-a100"]),
    "node too small": (_predict(node="workstation-2gpu"), ["holds 2 GPUs, not 8"]),
    "micro-batch 0": (_predict(micro_batch="0"), ["micro-batch", "not 0"]),
    "micro-batch -1": (_predict(micro_batch="-1"), ["micro-batch", "not -1"]),
    "micro-batch abc": (_predict(micro_batch="abc"), ["micro-batch", "'abc'"]),
    "micro-batch 1.5": (_predict(micro_batch="1.5"), ["micro-batch", "'1.5'"]),
    "grad-accum 0": (_predict(grad_accum="0"), ["grad-accum", "at least 1"]),
    "grad-accum two": (_predict(grad_accum="two"), ["grad-accum", "'two'"]),
    "dp on two nodes": (_predict(strategy="dp"), ["dp", "2 nodes", "use ddp"]),
    "offload params with ddp": (_predict(offload="params", strategy="ddp"), ["needs zero3"]),
    "offload optimizer with ddp": (_predict(offload="optimizer", strategy="ddp"), ["needs zero1"]),
    "steps and epochs": (_predict(steps="10", epochs="1"), ["--steps or --epochs, not both"]),
    "negative steps": (_predict(steps="-5"), ["steps", "above zero"]),
    "NaN steps": (_predict(steps="nan"), ["steps", "finite"]),
    "infinite epochs": (_predict(epochs="inf"), ["epochs", "finite"]),
    "steps word": (_predict(steps="many"), ["steps", "'many'"]),
    "counts twice": (_predict(nnodes="2"), ["counts already"]),
    "nnodes 0": (_predict(gpus="A100", nnodes="0"), ["nnodes", "at least 1"]),
    "nproc word": (_predict(gpus="A100", nproc_per_node="all"), ["nproc-per-node", "'all'"]),
    "no sequence": (_predict(model="resnet-50", seq_len="128"), ["no sequence length to change"]),
    "seq-len 0": (_predict(seq_len="0"), ["seq-len", "at least 1"]),
    "unknown calibration": (_predict(calibration="nobody"), ["calibration", "nobody"]),
    "no such calibration file": (_predict(calibration="nothing.yaml"), ["nothing.yaml"]),
    "trace folder": (_predict(trace="no/such/folder/t.json"), ["no/such/folder"]),
    "trace folder in no folder": (_predict(trace="no/such/folder/"), ["'no/such'"]),
    "trace ending": (_predict(trace="t.txt"), ["t.txt", ".json.gz, or be a folder"]),
    "chakra is a folder": (_predict(chakra="."), ["--chakra", "is a folder"]),
    "chakra folder": (_predict(chakra="no/such/folder/t"), ["no/such/folder"]),
    "explain nonsense": (_predict(explain="nonsense"), ["nonsense", "known are", "time.host"]),
    "explain typo": (_predict(explain="memory.activatons"), ["did you mean 'memory.activations'"]),
    "imbalance below 1": (
        [*_predict(model="mixtral-8x7b"), "--expert-imbalance", "0.9"],
        ["expert-imbalance must be a number of at least 1, not 0.9"],
    ),
    "capacity nan": (
        [*_predict(model="mixtral-8x7b"), "--expert-capacity", "nan"],
        ["expert-capacity must be a number of at least 1, not nan"],
    ),
    "capacity without experts": (
        [*_predict(model="bert-base"), "--expert-capacity", "1.25"],
        ["has no experts for expert-capacity"],
    ),
    "unknown option": ([*_predict(), "--microbatch", "2"], ["--microbatch", "--micro-batch?"]),
    "option of another program": ([*_predict(), "--batch-size", "2"], ["--micro-batch?"]),
    "and with its value": ([*_predict(), "--bf16", "1"], ["did you mean --precision bf16?"]),
    "near in letters alone": ([*_predict(), "--dtype", "x"], ["did you mean --precision?"]),
    "near to nothing": ([*_predict(), "--lr", "1"], ["unknown option --lr (`simcore predict"]),
    "option without value": (["predict", "--model"], ["argument", "`simcore predict --help`"]),
    "clusters by a comma": (_predict(gpus="1x8xH100,1x8xA100"), ["one cluster by +"]),
    "folder as table": (["validate", "docs"], ["'docs' is a folder"]),
    "folder as runs": (["calibrate", "--from", "docs"], ["'docs' is a folder"]),
    "empty launch file": (_predict(launch="/dev/null"), ["/dev/null"]),
    "stray word": ([*_predict(), "bert"], ["bert"]),
    "missing model": (["predict", "--gpus", "8xA100"], ["--model is missing"]),
    "missing gpus": (["predict", "--model", "bert-base"], ["--gpus is missing"]),
    "a launch file alone": (
        ["predict", "--model", "gpt2", "--launch", "torchrun --nproc-per-node 8 train.py"],
        ["--gpus is missing", "or only the type where the launch file has the numbers"],
    ),
    "unknown command": (["predit"], ["predit", "predict"]),
    "unknown list": (["list", "gpuz"], ["gpuz", "did you mean 'gpus'"]),
    "unknown to show": (["show", "gpu", "A10000"], ["A10000", "did you mean"]),
    "nothing to show": (["show"], ["KIND", "gpu, model, node"]),
    "nothing to list": (["list"], ["KIND", "gpus, models, architectures, configs"]),
    "a name to list": (["list", "H100"], ["'H100' is a gpu: write `simcore show H100`"]),
    "hdsp": (_predict(strategy="hdsp"), ["did you mean 'hsdp'?"]),
    "hsdp of one rank a node": (
        ["predict", "--model", "gpt2-xl", "--gpus", "2x1xA100", "--strategy", "hsdp"],
        ["a node of several GPUs: use ddp or zero3"],
    ),
    "adapters of a net": (_predict(model="resnet-50", lora_rank="8"), ["takes no adapters"]),
    "adapters of no rank": (
        _predict(model="llama3-8b", lora_rank="0"),
        ["--lora-rank must be at least 1, not 0"],
    ),
    "chunks of a program without": (
        [*_predict(model="llama3-8b", vpp="2"), "--pp", "2", "--software", "nanotron"],
        ["nanotron has no interleaved pipeline schedule: vpp=2", "(--software megatron), or vpp 1"],
    ),
    "ranking of a plan": (["plan", "--by", "time"], ["--by: did you mean --objective?"]),
    "no table": (["validate", "no-such.csv"], ["no-such.csv"]),
    "worst of none": (["validate", "pyproject.toml", "--worst", "0"], ["worst", "at least 1"]),
    "no jobs": (["validate", "pyproject.toml", "--jobs", "0"], ["jobs", "at least 1"]),
}  # fmt: skip


@pytest.mark.parametrize("case", WRONG)
def test_one_clear_sentence(case: str, simcore: Callable) -> None:
    words, named = WRONG[case]
    ran = simcore(*words)
    assert ran.code == 2, ran.err
    assert ran.out == ""
    lines = ran.err.splitlines()
    assert len(lines) == 1, ran.err
    assert lines[0].startswith("error: ")
    assert "Traceback" not in ran.err and "internal error" not in ran.err
    for text in named:
        assert text in lines[0], ran.err


def test_every_violation_at_once(simcore: Callable) -> None:
    ran = simcore(
        *_predict(
            model="bert-bas", gpus="4x8xA6000ad", strategy="zero4", precision="bf61",
            optimizer="adamv", micro_batch="0", grad_accum="x", steps="-1", explain="nonsense",
            trace="no/such/t.json",
        )
    )  # fmt: skip
    assert ran.code == 2
    lines = ran.err.splitlines()
    assert len(lines) == 10
    assert all(line.startswith("error: ") for line in lines)
    for text in ("bert-bas", "A6000ad", "zero4", "bf61", "adamv", "micro-batch", "grad-accum",
                 "steps", "nonsense", "no/such"):  # fmt: skip
        assert sum(text in line for line in lines) >= 1, text


@pytest.mark.parametrize(
    ("model", "degree", "of_gpus", "of_model"),
    [
        ("gpt2", ("--tp", "5"), "5 does not divide 8 GPUs: allowed are divisors of 8",
         "tp=5 does not divide heads=12; allowed here: [1, 2, 3, 4, 6, 12]"),
        ("mixtral-8x7b", ("--ep", "3"), "the 8 ranks of a stage: allowed are divisors of 8",
         "ep=3 does not divide experts=8; allowed here: [1, 2, 4, 8]"),
    ],
)  # fmt: skip
def test_a_degree_that_neither_gpus_nor_model_take(
    model: str, degree: tuple[str, str], of_gpus: str, of_model: str, simcore: Callable
) -> None:
    ran = simcore("predict", "--model", model, "--gpus", "1x8xA100", *degree)
    assert ran.code == 2
    first, second = ran.err.splitlines()
    assert of_gpus in first and of_model in second


def test_both_missing_are_named(simcore: Callable) -> None:
    ran = simcore("predict")
    assert ran.code == 2
    assert [line.split()[1] for line in ran.err.splitlines()] == ["--model", "--gpus"]


def test_json_errors_leave_stdout_empty(simcore: Callable) -> None:
    ran = simcore(*_predict(model="nope"), "--json")
    assert (ran.code, ran.out) == (2, "")


@pytest.mark.parametrize("case", ["gpu typo", "unknown option", "grad-accum 0"])
def test_in_a_process_of_its_own(case: str, process: Callable) -> None:
    words, named = WRONG[case]
    ran = process(*words)
    assert ran.code == 2 and ran.out == ""
    assert "Traceback" not in ran.err
    assert all(text in ran.err for text in named)


def test_unexpected_error_is_one_sentence(
    simcore: Callable, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise ZeroDivisionError("a bug\nof ours")

    monkeypatch.setattr("simcore.api.predict", broken)
    ran = simcore(*_predict())
    assert ran.code == 70
    assert ran.err == (
        "internal error: ZeroDivisionError: a bug of ours (run with --debug for the traceback)\n"
    )
    with pytest.raises(ZeroDivisionError):
        simcore("--debug", *_predict())


def test_debug_shows_where_a_usage_error_is_from(process: Callable) -> None:
    ran = process(*_predict(model="nope"), "--debug")
    assert ran.code == 1
    assert "Traceback" in ran.err and "unknown model" in ran.err


def test_a_full_disk_is_no_bug(process: Callable) -> None:
    code = "import sys; sys.stdout = open('/dev/full', 'w'); from simcore.cli.main import main; "
    ran = process(code=f"{code}main(['list', 'links'])")
    assert ran.code == 2
    assert ran.err == "error: standard output cannot be written: No space left on device\n"


def test_help_is_a_command_too(simcore: Callable) -> None:
    assert simcore("help").out == simcore("--help").out != ""
    assert simcore("help", "predict").out == simcore("predict", "--help").out
