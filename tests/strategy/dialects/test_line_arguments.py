"""Arguments of a program's line as keys and values, by hand, and the record that reads them."""

from __future__ import annotations

from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from strategies import on_by_default

from simcore.strategy.dialects import read_launch
from simcore.strategy.dialects.line_choice import chosen, knows, line_programs
from simcore.strategy.dialects.line_record import LINES, LineRecord, NamedFile, Started, fold_key
from simcore.strategy.dialects.lines import (
    ANY_SCRIPT,
    Arguments,
    LineDialect,
    _interpolated,
    _with_words,
    arguments,
    of_table,
)
from simcore.strategy.dialects.record import RECORDS, Meaning
from simcore.strategy.dialects.source import Source


@pytest.mark.parametrize(
    ("line", "given", "loose"),
    [
        ("--a 1 --b_c=2 -d", {"a": "1", "b-c": "2", "d": True}, ()),
        ("--a 1 2 3 --b", {"a": "1,2,3", "b": True}, ()),
        ("x --a -1 --b -.5 -- --c -", {"a": "-1", "b": "-.5", "c": "-"}, ("x",)),
        ("--a= --b null --c None", {"a": ""}, ()),
        ("--a [1,'x',2] --b {\"c\":{\"d\":3},\"e\":[4,5]}",
         {"a": "1,x,2", "b.c.d": 3, "b.e": "4,5"},
         ()),
        ("--a {broken --b [1,[2]] --c ['", {"a": "{broken", "b": "[1,[2]]", "c": "['"}, ()),
        ("--a 1 --a 2", {"a": "2"}, ()), ("a=1 --b", {"b": True}, ("a=1",)),
    ],
)  # fmt: skip
def test_flags_and_their_values(line: str, given: dict[str, Any], loose: tuple[str, ...]) -> None:
    found = arguments(line.split(" "), LineRecord(name="x", title="x", summary=""))
    assert found.given == given and found.loose == loose


@pytest.mark.parametrize(
    ("line", "given", "loose"),
    [
        ("-b256 -j8 x", {"b": "256", "j8": "x"}, ()),
        ("-b0.5", {"b": "0.5"}, ()), ("-bx -c3 -2", {"bx": True, "c3": "-2"}, ()),
        ("-b 256 /data", {"b": "256"}, ("/data",)), ("-b /data", {"b": "/data"}, ()),
        ("-d 1 /data", {"d": "1,/data"}, ()),
    ],
)  # fmt: skip
def test_a_number_at_once_and_a_path_behind_a_number(
    line: str, given: dict[str, Any], loose: tuple[str, ...]
) -> None:
    """argparse takes -b256 for -b 256; a path behind it is an argument of its own."""
    keys = {"b": (Meaning(option="micro_batch"),), "c3": (Meaning(),)}
    record = LineRecord(name="x", title="x", summary="", keys=keys, no_effect={"data": "d"})
    found = arguments(line.split(" "), record)
    assert found.given == given and found.loose == loose


def test_overrides_where_the_program_takes_them() -> None:
    words = ["x", "a.b=1", "+c_d=2", "++e=[3,4]", "~f", "~g=5", "h=", "--i", "7", "j=k=8", "y"]
    found = arguments(words, LineRecord(name="x", title="x", summary="", overrides=True))
    assert found.given == {
        "a.b": "1", "c-d": "2", "e": "3,4", "h": "", "i": "7", "j": "k=8",
    }  # fmt: skip
    assert found.loose == ("x", "y")
    assert found.spelt["c-d"] == "c_d" and found.spelt["f"] == "f" and "f" not in found.given
    assert found.spelt["i"] == "--i"


def test_keys_of_a_file_and_of_a_line_over_it() -> None:
    file = of_table({"a_b": {"c": 1, "d_e": None}, "f": [1, "x"], "g": [[1], {}], "h": False})
    assert file.given == {"a-b.c": 1, "f": "1,x", "g": [[1], {}], "h": False}
    assert file.spelt == {"a-b.c": "a_b.c", "a-b.d-e": "a_b.d_e", "f": "f", "g": "g", "h": "h"}
    line = Arguments({"f": 2}, {"f": "--f"}, ("w",))
    both = line.over(file)
    assert both.given == {**file.given, "f": 2} and both.spelt == {**file.spelt, "f": "--f"}
    assert both.loose == ("w",)


def test_values_that_name_other_keys() -> None:
    given = {
        "a": 3, "b": "x${a}y${c_d}", "c-d": "${b}", "e": "${none} ${t}", "t": True, "f": "${f}z",
        "g": 7, "h1": "1${h2}", "h2": "2${h3}", "h3": "3${h4}", "h4": "4${h5}", "h5": "5${h6}",
        "h6": "6",
    }  # fmt: skip
    found = _interpolated(given)
    assert found["a"] == 3 and found["g"] == 7
    assert found["e"] == "${none} ${t}"  # unknown, or no text
    assert found["f"] == "${f}z" + 4 * "z"  # four times, then it ends
    assert found["h2"] == "23456" and found["h1"] == "12345${h6}"
    assert _interpolated({"a": "b", "c": "$a"}) == {"a": "b", "c": "$a"}


def test_words_that_belong_to_no_flag_have_the_names_of_the_record() -> None:
    record = LineRecord(name="x", title="x", summary="x", positional="model_name data out")
    found = _with_words(record, Arguments({"data": "d"}, {"data": "--data"}, ("m", "o", "more")))
    assert found.given == {"model-name": "m", "data": "d", "out": "o"}
    assert found.spelt == {"model-name": "model-name", "out": "out", "data": "--data"}
    assert fold_key("--model_name") == "model-name" == fold_key("-model-name")


@pytest.mark.parametrize(
    ("script", "fits"),
    [
        ("train.py", ""), ("a/b/run/train.py", "run/train.py"), ("run/train.py", "run/train.py"),
        ("run/other.py", ""), ("x_finetune.py", "*_finetune.py"), ("pkg.cli.train", "pkg.*.train"),
        ("pkg.train", ""), ("", ""),
    ],
)  # fmt: skip
def test_scripts_and_modules_that_start_a_program(script: str, fits: str) -> None:
    started = Started(scripts="run/train.py *_finetune.py", modules="pkg.*.train")
    assert started.fits(script) == fits and started.any
    assert not Started().any and Started(launchers="composer").any


def test_the_longest_name_counts() -> None:
    assert Started(scripts="train.py run/train.py", modules="run/*").fits("run/train.py") == (
        "run/train.py"
    )


def test_every_program_is_chosen_by_its_own_command() -> None:
    """Commands, whatever else stands on the line, but for those that several programs have."""
    line = Source("", "line")
    commands = Counter(command for record in LINES.all() for command in record.started.commands)
    for record in LINES.all():
        for command in (c for c in record.started.commands if commands[c] == 1):
            assert chosen(line, "", command, ["--x"]).name == record.name
    assert set(line_programs()) >= {r.name for r in LINES.all() if r.started.any}
    unknown = chosen(line, "my_own_script.py", "", ["--no-such-flag", "1"])
    assert unknown.name == ANY_SCRIPT and not unknown.certain


def test_marks_decide_for_a_script_that_nobody_knows() -> None:
    """The first record with a mark that no other one has, by one of its flags."""
    line = Source("", "line", Path("run.sh"))
    marked = [r for r in LINES.all() if r.started.any and r.marks]
    assert marked
    for record in marked:
        others = {m for r in marked if r.name != record.name for m in r.marks}
        own = [m for m in record.marks if m not in others]
        for mark in own[:1]:
            keys = mark.split("+")  # which count together
            found = chosen(line, "my_own_script.py", "", [f"--{key}=1" for key in keys])
            assert found.name == record.name and not found.certain
            assert knows(record, set(keys)) <= len(keys)


def test_how_many_keys_a_record_knows() -> None:
    record = LineRecord(
        name="x", title="x", summary="x", keys={"a-b c": {"option": "tp"}},  # type: ignore[dict-item]
        no_effect={"logs": "d log.*"},
    )  # fmt: skip
    assert knows(record, {"a-b", "c", "d", "log.x", "log", "logs", "e"}) == 5
    assert record.names() == {"a-b", "c", "d"}


def test_names_of_any_script_mean_the_same_in_other_programs() -> None:
    """Each line of names has, by one of them at least, its option in two other records."""
    others = [r for r in (*LINES.all(), *RECORDS.all()) if r.name != ANY_SCRIPT]
    for names, meanings in LINES[ANY_SCRIPT].keys.items():
        alike = [
            (r.name, name)
            for r in others
            for stated, theirs in r.table().items()
            for name in (fold_key(n).rpartition(".")[2] for n in stated)
            if name in names.split() and any(m.option == meanings[0].option for m in theirs)
        ]
        assert len({record for record, _ in alike}) > 1, (names, alike)


def test_shared_names_of_an_unknown_script_are_read_and_told() -> None:
    """Common names are followed in one sentence; values that they cannot have are not."""
    line = (
        "torchrun --nproc_per_node=8 my_own.py --batch-size 64 --amp --opt lamb --accum-iter 2 "
        "--arch resnet50 --seq_len long --optimizer soap"
    )
    found = read_launch(line)
    assert (found.micro_batch, found.precision, found.grad_accum) == (64, "amp-fp16", 2)
    assert found.optimizer == "lamb" and found.seq_len is None
    (told,) = [text for text in found.approximated if "my_own.py" in text]
    for key in ("--batch-size (as --micro-batch 64)", "--accum-iter (as --grad-accum 2)"):
        assert key in told
    (odd,) = found.unknown
    assert "--seq_len" in odd and "--optimizer" in odd and "--batch-size" not in odd
    assert found.model_hints == ("resnet50",)


def test_adapters_of_an_unknown_script_have_peft_s_rank_unless_it_is_stated() -> None:
    assert read_launch("python x.py --use_lora --model_name_or_path gpt2").lora_rank == 8
    assert read_launch("python x.py --use_lora True --lora_r 16").lora_rank == 16
    assert read_launch("python x.py --use_lora False").lora_rank is None


def test_marks_that_count_together() -> None:
    record = LineRecord(name="x", title="x", summary="", marks=("a+b-c", "d"))
    found = [record.marked(keys) for keys in ({"a"}, {"a", "b-c"}, {"d", "e"}, {"b-c"}, set())]
    assert found == [False, True, True, False, False]


def test_shared_names_count_beside_those_of_a_program_that_a_line_looks_like() -> None:
    """alpaca-lora's finetune.py: a micro-batch, and the batch of an update beside it."""
    line = (
        "python finetune.py --base_model x/llama-7b --batch_size 128 --micro_batch_size 4 "
        "--cutoff_len 512 --lora_r 8"
    )
    found = read_launch(line)
    assert (found.micro_batch, found.global_batch, found.seq_len) == (4, 128, 512)
    assert found.lora_rank == 8 and not found.unknown
    (told,) = found.approximated
    assert "--micro_batch_size" in told and "--cutoff_len" not in told


@pytest.mark.parametrize("line", ["train.py --config own.yaml", "train.py own.yaml"])
def test_the_file_of_an_unknown_script_is_read_by_its_last_names(tmp_path: Path, line: str) -> None:
    """Sections do not matter, but those of evaluation; the line overrides the file."""
    (tmp_path / "own.yaml").write_text(
        "model: {name: gpt2}\ntraining: {batch_size: 8, seq_len: 256}\neval: {batch_size: 99}\n"
        "optimizer: {type: lion}\nema: {enabled: true}\n"
    )
    script = tmp_path / "run.sh"
    script.write_text(f"torchrun --nproc_per_node=2 {line} --seq-len 512\n")
    found = read_launch(str(script))
    assert (found.micro_batch, found.seq_len, found.optimizer, found.ema) == (8, 512, "lion", True)
    assert found.model_hints == ("gpt2",) and found.nproc_per_node == 2
    (odd,) = found.unknown
    assert "eval.batch_size" in odd and "training" not in odd


def test_a_script_with_one_flag_of_megatron_is_not_megatron() -> None:
    """Most flags decide where the flag is one that other scripts have."""
    own = "torchrun pretrain_gpt.py --micro-batch-size 2 --num-layers 4 --seq-length 128 --bf16"
    assert read_launch(own).dialect == "megatron"
    other = "torchrun train.py --micro_batch_size 2 --seq-len 128 --compile-model --steps 9"
    assert read_launch(other).micro_batch == 2 and read_launch(other).dialect != "megatron"


def test_what_a_record_of_a_line_does_where_it_says_nothing() -> None:
    """Its own program, named for certain; a key of it is written, and no switch of a file is on."""
    assert on_by_default(LineDialect) == {"certain": True, "own": True}
    assert on_by_default(Meaning) == {"written": True}
    assert on_by_default(NamedFile, LineRecord) == {}


@pytest.mark.parametrize(
    ("file", "line"),
    [("pkg/train.py", "python -m pkg.train"), ("pkg/__main__.py", "torchrun -m pkg"),
     ("train.py", "python -m train")],
)  # fmt: skip
def test_a_module_at_hand_is_read_as_its_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, file: str, line: str
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / file).parent.mkdir(exist_ok=True)
    (tmp_path / file).write_text(
        "from trl import SFTConfig, SFTTrainer\n"
        "args = SFTConfig(per_device_train_batch_size=3, max_length=640, bf16=True)\n"
        "SFTTrainer(model='Qwen/Qwen3-0.6B', args=args).train()\n"
    )
    found = read_launch(line)
    assert (found.model, found.micro_batch, found.seq_len) == ("Qwen/Qwen3-0.6B", 3, 640)


def test_a_script_of_which_nothing_is_read_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That it is absent, or calls nothing that is known; a value that is impossible by its name."""
    monkeypatch.chdir(tmp_path)
    (absent,) = read_launch("python mine.py").approximated
    assert "mine.py is not at hand" in absent
    (tmp_path / "mine.py").write_text("print('hello')\n")
    (odd,) = read_launch("python mine.py").approximated
    assert "mine.py calls no trainer that is known here" in odd
    found = read_launch("python mine.py -b 0")
    assert "-b 0 (no value of --micro-batch)" in found.unknown[0] and found.micro_batch is None
