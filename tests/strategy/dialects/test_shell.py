"""Scripts as lists of words, held against bash where it may run them, and against words by hand."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from simcore.base.errors import DataError
from simcore.strategy.dialects.shell import (
    Script,
    allocator_grows,
    flags,
    gpus_per_node,
    read_script,
)
from simcore.strategy.dialects.source import Source

#: A function that prints its words, one a line, and a line of dashes after each command.
_RUN = "run() { printf '%s\\n' \"$@\"; echo ----; }\n"


def script(text: str) -> Script:
    return read_script(Source(text, "run.sh", Path("run.sh")))


def words(text: str) -> list[list[str]]:
    """What each command ``run`` of a script is given."""
    return [list(command[1:]) for command in script(text).commands if command[0] == "run"]


AS_BASH = [
    ("run a 'b c' \"d e\" f\\ g\n", [["a", "b c", "d e", "f g"]]),
    ("A=1\nB=x$A\nrun $A ${A}y z$B \"$B\"\n", [["1", "1y", "zx1", "x1"]]),
    ("A=1\nA=2\nrun $A\nA=3\nrun $A\n", [["2"], ["3"]]),
    ("export A=1 B=2\nreadonly C=3\ndeclare -i D=4\nrun $A $B $C $D\n", [["1", "2", "3", "4"]]),
    ("run ${A:-7} ${B-8} x${C:-9}y\n", [["7", "8", "x9y"]]),
    ("A=1\nrun ${A:-7} ${B:-$A}\n", [["1", "1"]]),
    ("run ${A:-${B:-${C:-5}}}\n", [["5"]]),
    ("A=\nrun x${A:-7}\n", [["x7"]]),
    ("L='a b'\nrun $L c\n", [["a", "b", "c"]]),
    ("L=(a 'b c')\nL+=(d)\nrun \"${L[@]}\" e\n", [["a", "b c", "d", "e"]]),
    ("L=(\n  a\n  # no word\n  b\n)\nrun \"${L[@]}\"\n", [["a", "b"]]),
    ("declare -a L=(a b)\nM=(\"${L[@]}\" c)\nrun \"${M[@]}\"\n", [["a", "b", "c"]]),
    ("run a \\\n  b \\\n  c\nrun d\n", [["a", "b", "c"], ["d"]]),
    ("run a#b # c d\n# run e\nrun '#f' \\#g\n", [["a#b"], ["#f", "#g"]]),
    ("run \"a # b\" 'c # d'\n", [["a # b", "c # d"]]),
    ("run a\\ b # c\n'run' d # e\n", [["a b"], ["d"]]),
    ("run a# b #\n", [["a#", "b"]]),
    ("run \"a\\\" # b\" c\n", [["a\" # b", "c"]]),
    ("run 'a\\' # b\n", [["a\\"]]),
    ("true && run a; run b;run 'c;d' || run e\n", [["a"], ["b"], ["c;d"]]),
    ("run $((2 * 3 + 1)) $(expr 7 - 2) `expr 2 \\* 4`\n", [["7", "5", "8"]]),
    ("A=3\nB=$((A * 2))\nrun $B $((B / 4)) $(expr $B + 1)\n", [["6", "1", "7"]]),
    ("if true; then\n  A=1\nfi\nrun $A\n", [["1"]]),
]  # fmt: skip


@pytest.mark.parametrize(("text", "expected"), AS_BASH)
def test_words_are_those_of_bash(text: str, expected: list[list[str]]) -> None:
    if bash := shutil.which("bash"):
        ran = subprocess.run([bash, "-c", _RUN + text], capture_output=True, text=True, check=True)
        printed = [part.split("\n")[:-1] for part in ran.stdout.split("----\n")[:-1]]
        assert printed == expected
    found = words(text)
    assert found[: len(expected)] == expected  # what follows || is read too


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("run a >log 2>&1 b\n", ["a", "b"]), ("run a > log b\n", ["a", "b"]),
        ("run a &> log\n", ["a"]), ("run a &>>log & \n", ["a"]), ("run a < in b\n", ["a", "b"]),
        ("run a 2> err.txt 1>>out | tee log\n", ["a"]), ("run a>b\n", ["a>b"]),
        ('run a "$@" ${@} $* b\n', ["a", "b"]), ("run $UNSET x${UNSET}y $1\n",
                                                 ["$UNSET", "x${UNSET}y", "$1"]),
    ],
)  # fmt: skip
def test_what_sends_output_elsewhere_or_is_not_known(text: str, expected: list[str]) -> None:
    assert words(text) == [expected]


def test_defaults_deeper_than_three_stay_as_written() -> None:
    assert words("run ${A:-${B:-${C:-${D:-5}}}}\n") == [["${D:-5}"]]


def test_files_that_a_script_writes_are_no_commands() -> None:
    assert words("cat > ds.json <<EOF\nrun x\nEOF\nrun a\n") == [["a"]]


def test_a_line_that_goes_on_may_be_the_last() -> None:
    assert words("run a\nrun b \\") == [["a"], ["b"]]


def test_variables_of_one_command_and_of_all() -> None:
    found = script("A=1\nB=2 C=x$A run $B\nexport D=4\nrun ${D}\n")
    assert found.commands == (("run", "$B"), ("run", "4"))
    assert found.environments == ({"B": "2", "C": "x1"}, {})
    assert found.variables == {"A": "1", "D": "4"}


@pytest.mark.parametrize(
    ("text", "branched", "last"),
    [
        ("A=1\nif x; then\nA=2\nfi\nA=3\nrun $A\n", ("A",), "3"),
        ("A=1\nif x; then A=2; fi\nA=3\nrun $A\n", (), "3"),  # closed on its line
        ("A=1\nB=1\ncase x in\n y)\n A=2;;\n z)\n A=1\n B=1;;\nesac\nrun $A\n", ("A",), "1"),
        ("A=1\nif x; then\nif y; then\nB=1\nfi\nA=(4 5)\nfi\nrun $A\n", ("A",), "4"),
        ("if x; then\nA=2\nfi\nrun $A\n", (), "2"),  # it had no other value
        ("A=1\nif x; then\necho\nfi\nA=2\nrun $A\n", (), "2"),
    ],
)
def test_what_branches_set_is_told(text: str, branched: tuple[str, ...], last: str) -> None:
    found = script(text)
    assert found.branched == branched
    assert words(text)[0][0] == last


def test_branches_tell_each_variable_once_in_the_order_in_which_they_change() -> None:
    text = "A=1\nB=1\nif x; then\nB=2\nA=2\nB=3\nfi\n"
    assert script(text).branched == ("B", "A")


@pytest.mark.parametrize(
    ("text", "says", "line"),
    [
        ("run a\nrun 'b\nc\n", "a quote is never closed", 2),
        ("\n\nL=(a b\nc\n", "a bracket is never closed", 3),
        ('run "a\n', "a quote is never closed", 1),
    ],
)
def test_what_is_never_closed_is_refused_where_it_opens(text: str, says: str, line: int) -> None:
    with pytest.raises(DataError, match=says) as refused:
        script(text)
    assert refused.value.line == line


def test_a_line_of_a_batch_script_that_cannot_be_split_is_named() -> None:
    with pytest.raises(DataError, match="no command line") as refused:
        script("#!/bin/bash\n#SBATCH --nodes=2\n#SBATCH --comment='x\nrun a\n")
    assert refused.value.line == 3


def test_variables_may_grow_to_a_quarter_of_a_megabyte() -> None:
    """2^18 characters: twice 2^17 - 1 and one between, with one for the end of a word."""
    head = f"A={'x' * (2**17 - 1)}\nB=${{A}}y$A\n"
    assert len(script(head).variables["B"]) == 2**18 - 1
    assert len(script(head + "B+=z\n").variables["B"]) == 2**18 + 1  # and a blank between
    for more in ("C=${A}yz$A\n", "B+=zz\n", "run $B $A\n"):
        with pytest.raises(DataError, match="too long"):
            script(head + more)


@pytest.mark.parametrize(
    ("flag", "count"),
    [
        ("--gpus-per-node=8", "8"), ("--gpus-per-node=a100:4", "4"), ("--gres=gpu:2", "2"),
        ("--gres=gpu:a100:8", "8"), ("--gres=gpu", "1"), ("--gres=gpu:a100", "1"),
        ("--gres=shard:3,gpu:2", "2"), ("--gres=shard:3", None), ("--time=3", None),
        ("--gpus-per-node=8 --gres=gpu:2", "8"),
    ],
)  # fmt: skip
def test_gpus_of_a_node_in_a_batch_script(flag: str, count: str | None) -> None:
    text = f"#!/bin/bash\n#SBATCH {flag}\nrun $SLURM_GPUS_ON_NODE ${{SLURM_GPUS_PER_NODE:-none}}\n"
    found = script(text)
    assert gpus_per_node(found.sbatch) == count
    expected = [count, count] if count else ["$SLURM_GPUS_ON_NODE", "none"]
    assert words(text) == [expected]


def test_short_flags_of_a_batch_script_have_long_names() -> None:
    text = (
        "#SBATCH -N 4 -n 32\n#SBATCH -J 'two words'\n#SBATCH -p=fast -t 1:00\n#SBATCH -G 16\n"
        "#SBATCH -A acc -o out -e err -c 12 -x node1\n#SBATCH --exclusive\n # SBATCH --nodes=9\n"
        "run $SLURM_NNODES $SLURM_JOB_NUM_NODES\n"
    )
    assert script(text).sbatch == {
        "--nodes": "4", "--ntasks": "32", "--job-name": "two words", "--partition": "fast",
        "--time": "1:00", "--gpus": "16", "--account": "acc", "--output": "out", "--error": "err",
        "--cpus-per-task": "12", "-x": "node1", "--exclusive": "",
    }  # fmt: skip
    assert words(text) == [["4", "4"]]


def test_flags_with_their_values() -> None:
    """Negative numbers, a lone dash and what stands before any flag are no flags."""
    line = ["a", "--x", "1", "-2", "-.5", "--y=3", "4", "--z", "-", "--w=", "-q", "--v=a=b"]
    assert list(flags(line)) == [
        ("--x", ["1", "-2", "-.5"]), ("--y", ["3", "4"]), ("--z", ["-"]), ("--w", [""]),
        ("-q", []), ("--v", ["a=b"]),
    ]  # fmt: skip
    assert list(flags(["a", "b"])) == []


@pytest.mark.parametrize(
    ("text", "grows"),
    [
        ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True\n", True),
        ("PYTORCH_ALLOC_CONF=max_split_size_mb:128,expandable_segments:True run\n", True),
        ("export PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False\nrun\n", False),
        ("export OTHER=expandable_segments:True\nrun\n", False), ("run\n", False),
    ],
)  # fmt: skip
def test_segments_grow_where_a_script_says_so(text: str, grows: bool) -> None:
    assert allocator_grows(script(text)) == grows


def test_options_of_a_script_that_its_line_does_not_give_keep_their_defaults() -> None:
    loop = "while true; do\n case $1 in\n -a) shift; A=$1 ;;\n esac\ndone\n"
    text = f"A=1\n{loop}python t.py --x $A --y $2\n"
    (command,) = [c for c in read_script(Source(text, "s.sh")).commands if "t.py" in c]
    assert command == ("python", "t.py", "--x", "1", "--y", "$2")


def test_what_xpk_sends_to_the_hosts_is_read_as_commands_of_the_script() -> None:
    """The whole script as bash -c would run it there: its variables, and no pipe."""
    text = (
        "A='x=1 y=2'\n"
        'xpk workload create --cluster=c --command="set -e && B=3 run a ${A} | tee log && run b"\n'
        "xpk cluster list\n"
    )
    assert words(text) == [["a", "x=1", "y=2"], ["b"]]
    assert script(text).environments[2] == {"B": "3"}
