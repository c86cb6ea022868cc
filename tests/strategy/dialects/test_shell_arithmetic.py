"""Sums of whole numbers in scripts are computed, and nothing else is."""

from pathlib import Path

import pytest

from simcore.strategy.dialects.shell import read_script, whole_number
from simcore.strategy.dialects.source import Source


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("1024 * 2", 2048),
        ("(3+4)*2 - 1", 13),
        ("7 / 2", 3),
        ("-5 % 3", -2),
        ("-7 / 2", -3),
        (" 12 ", 12),
        ("7 % 2", 1),
        ("-1 / 1", -1),
        ("3 / -1", -3),
        ("-8 % 3", -2),
        ("8 % -3", 2),
        ("9 / -2", -4),
        ("10 * 100000000000000", 10**15),
        ("1" + "+1" * 99 + "0", 1 + 98 + 10),
    ],
)
def test_sums_and_products(text: str, value: int) -> None:
    assert whole_number(text) == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "a",
        "2 ** 9",
        "1 / 0",
        "f(2)",
        "1.5",
        "9" * 300,
        "10**9",
        "True",
        "[1][0]",
        "1 +",
        "7 // 2",
        "1 + 10 * 100000000000000",
        "1" + "+1" * 99 + "00",
    ],
)
def test_anything_else_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"^.*$"):
        whole_number(text)


def test_scripts_compute_with_their_variables() -> None:
    text = (
        "K=1024\nA=$((K * 2))\nB=$(( (A + ${K}) / 3 ))\nC=${C:-}\nD=${C:-7}\n"
        "run --a $A --b $B --c=$C --d $D --e $((UNKNOWN * 2))\n"
    )
    words = read_script(Source(text, "script", Path("run.sh"))).commands[0]
    assert words[:5] == ("run", "--a", "2048", "--b", "1024")
    assert words[5:8] == ("--c=", "--d", "7") and "$((UNKNOWN" in words[9]
