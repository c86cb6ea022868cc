"""Reading is safe: limits, clear places of errors, and nothing is ever executed."""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path

import pytest
from costs import cost_ratio

from simcore.base.errors import DataError, SimcoreError, UsageError
from simcore.strategy.dialects import DIALECTS, SHIPPED, read_launch, read_source
from simcore.strategy.dialects.source import MAX_BYTES, Source, script_run, without_files


def written(folder: Path, name: str, text: str | bytes) -> str:
    path = folder / name
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    return str(path)


@pytest.mark.parametrize(
    ("text", "line", "said"),
    [
        ('{\n  "train_batch_size": 8,\n  // what a batch is\n  "fp16": {}\n}', 3, "no comments"),
        ('{\n  "train_batch_size": 8, # so many\n  "fp16": {}\n}', 2, "no comments"),
        ('{\n  "train_batch_size": 8,\n}', 2, "comma before the closing bracket"),
        ('{\n  "train_batch_size": 8\n  "fp16": {}\n}', 3, "',' delimiter"),
        ('{"train_batch_size": 8, "fp16": {"enabled": True}}', 1, "expecting value"),
    ],
)
def test_bad_json_says_line_and_reason(text: str, line: int, said: str, tmp_path: Path) -> None:
    name = written(tmp_path, "ds.json", text)
    with pytest.raises(DataError) as caught:
        read_launch(name)
    assert caught.value.line == line
    assert said in str(caught.value)


def test_a_key_that_stands_twice_is_named(tmp_path: Path) -> None:
    name = written(tmp_path, "ds.json", '{"fp16": {"enabled": true, "enabled": false}}')
    with pytest.raises(DataError, match="enabled: occurs twice"):
        read_launch(name)


def test_bad_toml_and_yaml_say_the_line(tmp_path: Path) -> None:
    with pytest.raises(DataError) as caught:
        read_launch(written(tmp_path, "a.toml", '[training]\nseq_len = 1\nbatch = "x\n'))
    assert caught.value.line == 3
    with pytest.raises(DataError) as caught:
        read_launch(written(tmp_path, "a.yaml", "distributed_type: FSDP\nfsdp_config: [1\nx: }\n"))
    assert caught.value.line in (2, 3)
    with pytest.raises(DataError, match=r"a\.yaml:3"):  # a double key
        read_launch(written(tmp_path, "a.yaml", "num_processes: 1\nx: 1\nnum_processes: 2\n"))


@pytest.mark.parametrize("text", ["[1, 2]", "3", '"zero"', "null"])
def test_a_file_must_hold_a_table(text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError, match="one JSON table"):
        read_launch("deepspeed:" + written(tmp_path, "ds.json", text))


def test_large_files_are_refused_unread(tmp_path: Path) -> None:
    name = written(tmp_path, "ds.json", b" " * (MAX_BYTES + 1))
    with pytest.raises(DataError, match="larger than 1024 KiB"):
        read_launch(name)
    with pytest.raises(UsageError, match="longer than 1 MiB"):
        read_launch("--micro-batch-size 1 " * (MAX_BYTES // 20))


def test_what_is_no_text_or_no_file_is_refused(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="UTF-8"):
        read_launch(written(tmp_path, "ds.json", b'{"a": \xff}'))
    with pytest.raises(DataError, match="no file that can be read"):
        read_launch(str(tmp_path))
    pipe = tmp_path / "pipe.json"
    os.mkfifo(pipe)  # opening it would wait for ever
    with pytest.raises(DataError, match="no file that can be read"):
        read_launch(str(pipe))
    with pytest.raises(DataError, match="no such launch file"):
        read_launch(str(tmp_path / "missing.json"))
    with pytest.raises(UsageError, match="empty"):
        read_launch("  ")
    with pytest.raises(DataError, match="no such launch file"):
        read_launch("x" * 5000)  # longer than a path may be
    flags = " ".join(["--micro-batch-size 1"] * 300)
    assert read_source(flags) == Source(flags, "launch line")
    longest = "--a " + "x" * (MAX_BYTES - 4)
    assert read_source(longest).text == longest


def test_a_yaml_bomb_is_refused(tmp_path: Path) -> None:
    lines = ["distributed_type: FSDP", "a: &a [x, x, x, x, x, x, x, x, x]"]
    for i, (new, old) in enumerate(zip("bcdefghi", "abcdefgh", strict=True)):
        lines.append(f"k{i}: &{new} [{', '.join(['*' + old] * 9)}]")
    name = written(tmp_path, "bomb.yaml", "\n".join(lines) + "\n")
    with pytest.raises(DataError, match="more than 200,000 values"):
        read_launch(name)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("a.json", '{"fp16": ' + '{"a": ' * 60 + "1" + "}" * 61),
        ("a.json", "[" * 100_000),
        ("a.json", '{"a":' * 100_000),
        ("a.toml", "[training]\nx = " + "[" * 60 + "]" * 60),
        ("a.toml", "[training]\nx = " + "[" * 50_000),
        ("a.yaml", "distributed_type: FSDP\nx: " + "[" * 60 + "]" * 60),
        ("a.yaml", "distributed_type: FSDP\nx: " + "[" * 3_000),
        ("a.yaml", "distributed_type: FSDP\na: &a\n  b: *a\n"),
    ],
)
def test_deep_nesting_is_refused(name: str, text: str, tmp_path: Path) -> None:
    with pytest.raises(DataError):
        read_launch(written(tmp_path, name, text))


@pytest.mark.parametrize(
    "text",
    [
        "A=xxxxxxxxxxxxxxxxxxxxxxxxxxxxxxxx\n" + 'A="$A$A"\n' * 60 + "torchrun train.py $A\n",
        "A=(x x)\n" + "A+=(${A[@]} ${A[@]})\n" * 60 + "torchrun train.py\n",
    ],
    ids=["doubling", "array"],
)
def test_variables_that_double_are_cut_short(text: str, tmp_path: Path) -> None:
    """60 doublings would be 10^18 letters or words."""
    name = written(tmp_path, "run.sh", text)
    with pytest.raises(SimcoreError):
        read_launch("torchrun:" + name)


@pytest.mark.parametrize(
    ("start", "line"),
    [("torchrun --nproc-per-node 8 'train.py\n", "x\n"), ("A=(\n", "x\n"), ("", "torchrun \\\n")],
    ids=["quote", "bracket", "continued"],
)
def test_what_is_never_closed_is_read_once(start: str, line: str, tmp_path: Path) -> None:
    """Ten times the lines cost some ten times as much; a search from each of them, 100 times."""

    def read(n: int) -> Callable[[], None]:
        name = written(tmp_path, f"{n}.sh", start + line * n)

        def call() -> None:
            with suppress(SimcoreError):
                read_launch("torchrun:" + name)

        return call

    assert cost_ratio(read(1_000), read(10_000), rounds=3, calls=1) < 30


def test_nothing_is_executed(tmp_path: Path) -> None:
    mark = tmp_path / "executed"
    texts = {
        "a.sh": f"touch {mark}\nX=$(touch {mark})\nY=`touch {mark}`\n"
        f'torchrun --nnodes=2 --nproc-per-node="$(touch {mark})" train.py; touch {mark}\n',
        "a.sbatch": f"#SBATCH --nodes=$(touch {mark})\nsrun torchrun train.py > {mark}\n",
        "a.yaml": f"distributed_type: !!python/object/apply:os.system ['touch {mark}']\n",
        "a.json": '{"train_batch_size": "__import__(\'os\').system(\'touch ' + str(mark) + "')\"}",
        "a.toml": f"[training]\nseq_len = \"$(touch {mark})\"\n",
        "a.txt": f"--micro-batch-size $(touch {mark}) --window-size '[os.system(\"{mark}\")]'",
    }  # fmt: skip
    for name, text in texts.items():
        path = written(tmp_path, name, text)
        for dialect in SHIPPED:
            try:
                DIALECTS[dialect].read(read_source(path))
            except SimcoreError as err:
                assert str(err)
    assert not mark.exists()
    assert sorted(p.name for p in tmp_path.iterdir()) == sorted(texts)


def test_values_only_a_shell_knows_are_asked_for(tmp_path: Path) -> None:
    name = written(
        tmp_path, "a.sh", "torchrun --nnodes $1 --nproc-per-node=$(nvidia-smi -L) t.py\n"
    )
    violations = read_launch(name).violations()
    assert len(violations) == 2
    assert "--nnodes $1 is not set in the text: give --nnodes" in violations[0]
    assert read_launch(name).violations({"nnodes", "nproc_per_node"}) == []


def test_variables_are_filled_in_as_text(tmp_path: Path) -> None:
    text = (
        "export N=3 G=8\n"
        'ARGS="--nnodes $N"; \n'
        "MORE=( --nproc-per-node=$G   # a node\n"
        "       --rdzv-backend c10d )\n"
        "EMPTY=\n"
        "PORT=${PORT:-29500}\n"
        "if [ -n \"$DEBUG\" ]; then set -x; fi\n"
        "torchrun $ARGS ${MORE[@]} --master-port=${PORT} $EMPTY train.py --lr 1e-4 # don't mind\n"
    )  # fmt: skip
    launch = read_launch(written(tmp_path, "run.sh", text.replace("; \n", "\n")))
    assert launch.words() == {"nnodes": 3, "nproc_per_node": 8}
    assert launch.violations() == [] and launch.unknown == ()


def test_files_that_a_script_writes_leave_blank_lines_behind() -> None:
    """Lines keep their numbers; a text with a variable that the shell replaces is no known file."""
    script = "cat > ds.json <<'EOF'\n{\n}\nEOF\ndeepspeed train.py\ntee b.json <<E\n$x\nE\nls"
    plain, files = without_files(script)
    assert plain.split("\n") == ["", "", "", "", "deepspeed train.py", "tee b.json <<E", "$x", "E",
                                 "ls"]  # fmt: skip
    assert files == {"ds.json": "{\n}\n"}


def test_a_line_that_ends_in_a_backslash_may_be_the_last() -> None:
    """What the continuation would add is blank, as for a shell."""
    line = "torchrun --nproc_per_node 4 train.py --per_device_train_batch_size 3"
    ended, cut_short = (read_launch(text).words() for text in (f"{line}\n", f"{line} \\\n"))
    assert ended == cut_short != {}


def test_a_line_that_runs_a_script_is_read_as_the_script(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    text = "torchrun --nproc_per_node ${1:-2} run_clm.py --per_device_train_batch_size $2\n"
    monkeypatch.chdir(tmp_path)
    (tmp_path / "go.sh").write_text(text)
    read = read_launch("bash -x go.sh 4 16")
    assert (read.nproc_per_node, read.micro_batch) == (4, 16)
    assert read_launch("sh go.sh").nproc_per_node == 2  # its default
    with pytest.raises(DataError, match="no such launch file"):
        read_launch("sbatch absent.sh")


def test_an_accelerate_configuration_that_is_absent_is_named() -> None:
    line = "accelerate launch --config_file mine.yaml sft.py --model_name_or_path gpt2"
    read = read_launch(line)
    assert "mine.yaml is not at hand: give --strategy" in read.violations()[0]
    assert not read.violations(["strategy"]) and "mine.yaml" in read.unknown[0]


@pytest.mark.parametrize(
    ("words", "line"),
    [("", "A=1\n"), ("-a 5", "A=5\n"), ("--all 6 -b x", "A=6\n"), ("-c 7", "A=1\n")],
)  # fmt: skip
def test_options_that_a_loop_of_a_script_reads(words: str, line: str, tmp_path: Path) -> None:
    branches = ' -a | --all )\n  shift\n  A=$1\n ;;\n -b) B="$2" ;;\n'
    loop = f'while [[ "$1" != "" ]]; do\n case $1 in\n{branches} esac\n'
    (tmp_path / "s.sh").write_text(f"A=1\n{loop} shift\ndone\npython t.py $A\n")
    found = script_run(Source(f"bash {tmp_path}/s.sh {words}".strip(), "line")).text
    assert (line in found) and (("B=x" in found) == ("-b x" in words))
    assert found.endswith("python t.py $A\n")


@pytest.mark.parametrize("line", ["-" * 20_000, "-a|" * 20_000, "-a-b" * 20_000 + " |"])
def test_a_line_of_dashes_is_no_option_and_is_looked_at_once(line: str, tmp_path: Path) -> None:
    """Each way to cut it into options would take longer than anybody waits."""
    (tmp_path / "s.sh").write_text(f"A=1\n{line}\npython t.py $A\n")
    found = script_run(Source(f"bash {tmp_path}/s.sh -a 5", "line")).text
    assert "A=1\n" in found


def test_the_first_key_that_is_no_text_is_named(tmp_path: Path) -> None:
    name = written(tmp_path, "accelerate.yaml", "distributed_type: FSDP\n3: a\n4: b\n")
    with pytest.raises(DataError, match="key 3 is no text"):
        read_launch(name)
