"""Reading measured tables: good rows become cases, bad ones are named by file and line."""

from pathlib import Path

import pytest

from simcore.answer.request import tables_folder
from simcore.base.errors import DataError
from simcore.validate.formats.project import ignored_columns, ignored_text, option_columns
from simcore.validate.table import read_table

HEAD = "id,model,gpus,strategy,micro_batch,step_time_s,peak_memory_gb\n"
WORDS = "id,model,gpus,tp,sequence_parallel,quantised_base\n"


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "t.csv"
    path.write_text(text, encoding="utf-8")
    return path


def test_memory_of_nothing_is_no_measurement(tmp_path: Path) -> None:
    table = tmp_path / "t.csv"
    table.write_text(HEAD + "a,gpt2,1x1xA100,ddp,4,0.04,0\n", encoding="utf-8")
    with pytest.raises(DataError, match="above 0"):
        read_table(table)


def test_units_are_converted_once(tmp_path: Path) -> None:
    table = read_table(write(tmp_path, HEAD + "a,gpt2,1x1xA100,ddp,4,0.25,12.5\n"))
    (case,) = table.cases
    assert case.measured == {"step_time_s": 0.25, "peak_memory_bytes": 12.5e9}
    assert case.options == {"strategy": "ddp", "micro_batch": 4}


def test_any_word_of_a_job_may_be_a_column(tmp_path: Path) -> None:
    (case,) = read_table(write(tmp_path, WORDS + "a,gpt2,1x2xA100,2,Off,nf4\n")).cases
    assert case.options == {"tp": 2, "sequence_parallel": False, "quantised_base": "nf4"}
    assert {"strategy", "micro_batch", "seq_len"} <= set(option_columns())
    assert not {"launch", "calibration", "profile", "inputs"} & set(option_columns())


def test_a_column_that_nothing_reads_is_told_with_what_it_may_mean() -> None:
    columns = ["id", "model", "gpus", "micro_bach", "step_time_s", "wibble", "memory_x_gib"]
    assert ignored_columns(columns) == ("micro_bach", "wibble")
    told = "columns that nothing reads: micro_bach (did you mean micro_batch?), wibble"
    assert ignored_text(columns) == told
    assert ignored_text(["id", "tp"]) == ""


def test_comments_and_blank_lines_keep_line_numbers(tmp_path: Path) -> None:
    path = write(tmp_path, "# a comment\n" + HEAD + "a,gpt2,1x1xA100,,,x,\n")
    with pytest.raises(DataError, match=r"t\.csv:3: step_time_s: 'x' is not a number"):
        read_table(path)


def test_the_time_of_a_run_needs_its_samples(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("model,gpus,run_time_s,train_samples\ngpt2,T4,50,100\ngpt2,T4,50,\n")
    with pytest.raises(DataError, match=r"t\.csv:3: run_time_s needs train_samples"):
        read_table(path)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "holds no table"),
        ("# only a comment\n", "holds no table"),
        ("foo,bar\n1,2\n", "gpus and model are missing from foo, bar"),
        ("arch,num_gpus\n1,2\n", r"gpus \(is that num_gpus\?\) and model \(is that arch\?\)"),
        ("id,id,model,gpus\n", "occurs twice"),
        (HEAD, "holds no rows"),
        (HEAD + "a,gpt2,1x1xA100,,,70 ms,\n", "not a number: write 0.07, in seconds"),
        (HEAD.replace(",", ";") + "a;gpt2;1x1xA100;;;0,25;\n", "write 0.25, or 025 if"),
        (WORDS + "a,gpt2,1x1xA100,2.5,,\n", "tp: '2.5' must be a whole number"),
        (WORDS + "a,gpt2,1x1xA100,,yes,\n", "sequence_parallel: 'yes' must be on or off"),
        (HEAD + "a,gpt2\n", "has 2 cells, not 7"),
        (HEAD + "a,gpt2,1x1xA100,,,nan,\n", "must be finite"),
        (HEAD + "a,gpt2,1x1xA100,,,-1,\n", "at least 0"),
        (HEAD + "a,gpt2,1x1xA100,,0,1,\n", "at least 1"),
    ],
)
def test_broken_tables(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(DataError, match=said):
        read_table(write(tmp_path, text))


@pytest.mark.parametrize("between", [",", ";", "\t"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig", "utf-16"])
def test_tables_as_spreadsheets_save_them(tmp_path: Path, between: str, encoding: str) -> None:
    path = tmp_path / "mine.csv"
    lines = [["Model", "GPUs", "Micro batch", "Step time (s)"], ["gpt2", "1x1xA100", "4", "0.25"]]
    path.write_bytes("\r\n".join(map(between.join, lines)).encode(encoding))
    (case,) = read_table(path).cases
    assert (case.id, case.model, case.gpus) == ("mine:2", "gpt2", "1x1xA100")
    assert case.measured == {"step_time_s": 0.25} and case.options == {"micro_batch": 4}


@pytest.mark.parametrize(
    ("column", "rate"),
    # GPT-2's sequences have 1,024 tokens: 2 GPUs x 4 sequences x 3 micro-steps in half a second
    [("samples_per_s", 48), ("Samples/s/GPU", 24), ("tokens/s", 49152), ("tokens/s/gpu", 24576)],
)
def test_a_measured_rate_is_a_step_time(tmp_path: Path, column: str, rate: int) -> None:
    head = f"model,gpus,micro_batch,grad_accum,{column}\n"
    (case,) = read_table(write(tmp_path, head + f"gpt2,1x2xA100,4,3,{rate}\n")).cases
    assert case.measured == {"step_time_s": pytest.approx(0.5)}


def test_a_rate_of_tokens_needs_tokens_and_a_job(tmp_path: Path) -> None:
    head = "model,gpus,tokens_per_s\n"
    with pytest.raises(DataError, match="resnet-50 has no tokens: write samples_per_s"):
        read_table(write(tmp_path, head + "resnet-50,8xA100,5\n"))
    (case,) = read_table(write(tmp_path, head + "gpt2,8xA1000,5\n")).cases
    assert case.blank  # why is said where it is predicted


def test_missing_file_and_binary(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="cannot be read"):
        read_table(tmp_path / "none.csv")
    (tmp_path / "b.csv").write_bytes(b"\xff\xfe\x00id")
    with pytest.raises(DataError, match="UTF-8"):
        read_table(tmp_path / "b.csv")


@pytest.mark.parametrize("path", sorted(tables_folder().glob("*.csv")), ids=lambda p: p.stem)
def test_shipped_tables_are_whole(path: Path) -> None:
    table = read_table(path)
    assert table.format in ("simcore", "published")
    assert not table.skipped
    assert len({c.id for c in table.cases}) == len(table.cases)
    assert path.read_text(encoding="utf-8").startswith("# "), "a table names its source"


def test_seed_tables_have_their_rows() -> None:
    counts = {p.stem: len(read_table(p).cases) for p in tables_folder().glob("*.csv")}
    seeds = {"latte": 19, "bert_mnist": 11, "opensora_s4000": 4, "resnet152": 6}
    assert counts == seeds | {"zero3_2021": 7}
