"""Files, names and surroundings that mean harm or are broken: one sentence and exit code 2."""

from __future__ import annotations

import gzip
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from simcore.base.errors import DataError
from simcore.base.untrusted import bounded_bytes
from simcore.validate import table

LLAMA = {
    "model_type": "llama", "hidden_size": 64, "intermediate_size": 128, "num_hidden_layers": 2,
    "num_attention_heads": 4, "num_key_value_heads": 4, "vocab_size": 1000,
}  # fmt: skip
LAUGHS = "a: &a [x]\n" + "".join(
    f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join([f'*{chr(97 + i)}'] * 9)}]\n" for i in range(9)
)
ASK = ("predict", "--model", "mnist-cnn", "--gpus", "1xT4")
ROW = "model,gpus,micro_batch,step_time_s{}\nmnist-cnn,1xT4,8,{}\n"


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("name", "content", "command", "says"),
    [
        ("x.yaml", LAUGHS, "predict --model x.yaml --gpus T4", "x.yaml:7: aliases (*) stand for"),
        ("x.yaml", LAUGHS, "predict --model gpt2 --gpus T4 --calibration x.yaml", "aliases (*)"),
        ("x.yaml", LAUGHS, "predict --gpus T4 --model gpt2 --launch x.yaml", "no launch file"),
        ("x.yaml", "a: " + "1" * 2_100_000, "predict --model x.yaml --gpus T4", "larger than 2 MB"),
        ("x.csv", ROW.format(",n", "1," + "x" * 140_000), "validate x.csv", "x.csv:2: is no table"),
        ("x.csv", ROW.format("", "1e300"), "validate x.csv", "x.csv:2: step_time_s: '1e300' is no"),
        ("x.csv", ROW.format("", "1e-300"), "calibrate --from x.csv -o y.yaml", "x.csv:2:"),
        ("x.csv", ROW.format("", "9" * 5000), "validate x.csv", "x.csv:2:"),
        ("x.csv", "submit_s,gpus,run_s\n1,1," + "1" * 140_000, "fleet x.csv --gpus 8", "x.csv:2:"),
        ("x.json.gz", b" " * 2**20, "explain-trace x.json.gz", "is no trace"),
        ("x.csv.gz", b"\0" * 2**20, "validate x.csv.gz", ""),
    ],
)  # fmt: skip
def test_a_hostile_file_is_refused_in_one_sentence(
    name: str, content: str | bytes, command: str, says: str, simcore: Callable, here: Path
) -> None:
    raw = content if isinstance(content, bytes) else content.encode()
    (here / name).write_bytes(gzip.compress(raw) if name.endswith(".gz") else raw)
    ran = simcore(*command.split())
    assert ran.code == 2 and says in ran.err
    assert "internal error" not in ran.err and len(ran.err) < 1000
    assert ran.err.count("\n") == 1


def test_what_unpacks_to_more_than_a_bound_is_not_unpacked(here: Path) -> None:
    packed = here / "x.csv.gz"
    packed.write_bytes(gzip.compress(b" " * 2**24))
    with pytest.raises(DataError, match="is larger than 8 MiB"):
        bounded_bytes(packed, 2**23)
    packed.write_bytes(gzip.compress(b"one ") + gzip.compress(b"two"))
    assert bounded_bytes(packed) == b"one two"
    packed.write_bytes(gzip.compress(b"one " * 1000)[:-20])
    with pytest.raises(DataError, match="ends early"):
        bounded_bytes(packed)
    with pytest.raises(DataError, match="is larger than 1 MiB"):
        bounded_bytes(Path("/dev/zero"), 2**20)


def test_a_table_without_end_is_refused(
    simcore: Callable, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(table, "MOST_ROWS", 20)
    rows = ROW.format("", "1") + "mnist-cnn,1xT4,8,1\n" * 30
    (here / "x.csv").write_text(rows)
    ran = simcore("validate", "x.csv")
    assert ran.code == 2 and "more than 20 rows" in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ("--model", "x" * 5000, "--gpus", "T4"),
        ("--model", "a/" * 3000, "--gpus", "T4"),
        ("--model", "gpt2", "--gpus", "9" * 5000 + "xT4"),
        ("--model", "gpt2", "--gpus", "2x8xT4", "--network", "leaf=" + "9" * 5000),
        ("--model", "gpt2", "--gpus", "2x8xT4", "--network", "9" * 5000 + "xib-hdr"),
        ("--model", "gpt2", "--gpus", "T4", "--micro-batch", "9" * 5000),
        ("--model", "gpt2", "--gpus", "T4", "--calibration", "9" * 5000),
        ("--model", "gpt2", "--gpus", "T4", "--launch", "9" * 5000),
    ],
)
def test_an_endless_word_is_told_in_a_few(
    words: tuple[str, ...], simcore: Callable, here: Path
) -> None:
    ran = simcore("predict", *words)
    assert ran.code == 2 and "internal error" not in ran.err and len(ran.err) < 1000


@pytest.mark.parametrize("name", ["\ud800", "$\\foo$", "\x1b[31m\x1b]0;x\x07", "\u202ex", "<b>$$"])
def test_the_name_of_a_model_is_text_everywhere(name: str, simcore: Callable, here: Path) -> None:
    (here / "m.json").write_text(json.dumps(LLAMA | {"_name_or_path": name}))
    ask = ("--model", "m.json", "--gpus", "1xT4")
    texts = [simcore("predict", *ask).out, simcore("predict", *ask, "--json").out]
    assert simcore("report", *ask, "-o", "r.html").code == 0
    for kind in ("overview", "roofline"):
        plot = here / f"{kind}.svg"
        ran = simcore("predict", *ask, "--plot", str(plot), "--plot-kind", kind)
        assert ran.code in (0, 1), ran.err
        texts.append(plot.read_text(encoding="utf-8"))
    texts.append((here / "r.html").read_text(encoding="utf-8"))
    for text in texts:
        assert not set(name) & set("\ud800\x1b\x07\u202e") & set(text)
    assert "<b>" not in texts[-1] and "<b>" not in texts[-2]


@pytest.mark.parametrize("variable", ["SIMCORE_DB", "SIMCORE_CONFIG"])
def test_a_variable_that_names_nothing_is_told(
    variable: str, simcore: Callable, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(variable, str(here / "nothing"))
    ran = simcore(*ASK)
    assert ran.code == 2 and f"${variable} names" in ran.err


@pytest.mark.parametrize("words", [["--launch", "~nobody-of-that-name/x.sh"], []])
def test_the_folder_of_a_user_who_is_not_there_is_told(
    words: list[str], simcore: Callable, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not words:
        monkeypatch.setenv("SIMCORE_DB", "~nobody-of-that-name/x")
    ran = simcore(*ASK, *words)
    assert ran.code == 2 and "~nobody-of-that-name/x" in ran.err


def test_a_matrix_of_600_gpus_is_no_node(simcore: Callable, here: Path) -> None:
    n = 600
    rows = ["\t" + "\t".join(f"GPU{i}" for i in range(n)) + "\tCPU Affinity"]
    rows += [f"GPU{i}\t" + "\t".join("X" if i == j else "NV18" for j in range(n)) + "\t0-47"
             for i in range(n)]  # fmt: skip
    (here / "topo.txt").write_text("\n".join(rows) + "\n")
    ran = simcore("node-from-topo", "topo.txt", "--gpu", "H100-SXM")
    assert ran.code == 2 and "has 600 GPUs: a node has at most 384" in ran.err


def test_a_closed_standard_output_is_told(
    simcore: Callable, here: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "stdout", None)
    ran = simcore(*ASK)
    assert ran.code == 2 and "standard output is closed" in ran.err
    monkeypatch.setattr(sys, "stderr", None)
    assert simcore("predict", "--model", "nothing", "--gpus", "T4").code == 2


SURROUNDINGS = """
cd {folder}
rmdir ../gone
{simcore} predict --model mnist-cnn --gpus T4 >/dev/null; echo $? >>../rc
cd ..
{simcore} predict --model mnist-cnn --gpus T4 >&-; echo $? >>rc
{simcore} predict --model nothing --gpus T4 2>&-; echo $? >>rc
if [ -e /dev/full ]; then {simcore} predict --model nothing --gpus T4 2>/dev/full; echo $? >>rc
{simcore} predict --model mnist-cnn --gpus T4 >/dev/full; echo $? >>rc; fi
"""


@pytest.mark.long
@pytest.mark.skipif(os.name != "posix", reason="a POSIX shell is needed")
def test_a_folder_that_is_gone_and_streams_that_are_closed_or_full(here: Path) -> None:
    (here / "gone").mkdir()
    root = Path(__file__).resolve().parents[2]
    script = SURROUNDINGS.format(folder="gone", simcore=f"{sys.executable} -m simcore")
    ran = subprocess.run(["bash", "-c", script], cwd=here, capture_output=True, text=True,
                         env=os.environ | {"PYTHONPATH": str(root)}, check=True)  # fmt: skip
    codes = (here / "rc").read_text().split()
    assert codes[:3] == ["0", "2", "2"] and set(codes[3:]) <= {"2"}
    assert "Traceback" not in ran.stderr and "internal error" not in ran.stderr
    assert "standard output is closed" in ran.stderr
