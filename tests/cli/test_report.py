"""``simcore report``, ``predict --plot``, ``predict --scaling``, ``validate --plot``."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest

ASK = ("--model", "latte-xl", "--gpus", "4x8xA6000ada")


def test_a_report_is_written_and_told(simcore: Callable, tmp_path: Path) -> None:
    ran = simcore("report", *ASK, "-o", str(tmp_path / "run.html"))
    assert ran.code == 0 and ran.out == ""
    assert "run.html" in ran.err and "kB" in ran.err
    from simcore import api

    assert (tmp_path / "run.html").read_text() == api.report("latte-xl", ["4x8xA6000ada"])


def test_every_option_of_a_job_reaches_the_report(simcore: Callable, tmp_path: Path) -> None:
    page = tmp_path / "run.html"
    ran = simcore("report", "--model", "gpt2", "--gpus", "8xA100", "--gpus", "8xH100", "--strategy",
                  "zero2", "--micro-batch", "2", "-o", str(page))  # fmt: skip
    assert ran.code == 0
    for word in ("zero2", "8xH100-SXM-80GB", "side by side", "--strategy zero2"):
        assert word in page.read_text(), word


def test_report_and_predict_take_the_same_job(simcore: Callable) -> None:
    from simcore.cli.options import job_words
    from simcore.strategy.options import OPTIONS

    # --zero N is a strategy's other name, --qlora two options in one
    assert set(job_words()) - {"zero", "qlora"} <= set(OPTIONS.options()), (
        "read as a word of the api"
    )
    told = simcore("report", "--help-all").out
    asked = simcore("predict", "--help-all").out
    for word in job_words():
        flag = {"inputs": "input", "settings": "set"}.get(word, word.replace("_", "-"))
        assert f"--{flag} " in told and f"--{flag} " in asked, flag


def test_commands_over_grids_take_the_same_job(simcore: Callable) -> None:
    from simcore.cli.options import job_words

    for command in ("sweep", "compare", "plan"):
        told = simcore(command, "--help-all").out
        for word in job_words():
            flag = {"inputs": "input", "settings": "set"}.get(word, word.replace("_", "-"))
            assert f"--{flag} " in told, (command, flag)


def test_every_option_of_a_job_reaches_the_prediction(simcore: Callable) -> None:
    from simcore.cli.options import job_words

    wrong = {
        "inputs": ("input", "q"),
        "settings": ("set", "no/such"),
        "launch": ("launch", "no such file --here"),
    }
    for word in job_words():
        flag, value = wrong.get(word, (word.replace("_", "-"), "no/such"))
        ran = simcore("predict", "--model", "llama3-8b", "--gpus", "2x8xH100", f"--{flag}", value)
        assert ran.code == 2, f"--{flag} was not looked at"


def test_every_option_of_a_job_reaches_a_grid(simcore: Callable) -> None:
    from simcore.cli.options import job_words

    wrong = {
        "inputs": ("input", "q"),
        "settings": ("set", "no/such"),
        "launch": ("launch", "no such file --here"),
    }
    for word in job_words():
        flag, value = wrong.get(word, (word.replace("_", "-"), "no/such"))
        ran = simcore("compare", "--model", "llama3-8b", "--gpus", "2x8xH100", f"--{flag}", value)
        assert ran.code == 2, f"--{flag} was not looked at"


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("report", *ASK, "-o", "run.pdf"), ["must end in .html"]),
        (("report", "-o", "no/where/run.html"), ["--model is missing", "--gpus is missing",
                                                 "does not exist"]),
        (("report", *ASK, *(("--gpus", "8xA100") * 4), "-o", "x.html"), ["at most 4"]),
        (("report", *ASK, "--tp", "two", "-o", "x.html"), ["'two' is not a whole number"]),
        (("report", *ASK, "--strategy", "zero9", "-o", "x.html"), ["did you mean"]),
        (("predict", *ASK, "--plot", "x.gif"), ["--plot 'x.gif' must end in .svg, .pdf or .png"]),
        (("predict", *ASK, "--plot", "x.png", "--plot-kind", "rofline"), ["'roofline'"]),
        (("predict", *ASK, "--plot-kind", "time"), ["--plot-kind needs --plot"]),
        (("predict", *ASK, "--scaling", "--explain", "mfu"), ["drop one"]),
        (("validate", "ops", "--plot", "x.png", "README.md"), ["not for ops"]),
        (("validate", "README.md", "--node", "latte"), ["are for `simcore validate ops`"]),
        (("validate", "ops", "README.md", "--calibration", "a", "--refit", "family"),
         ["newly fitted figures"]),
    ],
)  # fmt: skip
def test_wrong_words_get_one_sentence_each(
    words: tuple[str, ...], said: list[str], simcore: Callable
) -> None:
    ran = simcore(*words)
    assert ran.code == 2 and ran.out == ""
    for sentence in said:
        assert sentence in ran.err
    assert "Traceback" not in ran.err


def test_plots_of_an_answer(simcore: Callable, tmp_path: Path) -> None:
    from simcore.api import Prediction
    from simcore.cli.output import PLOTS

    assert Prediction.plots == PLOTS
    plain = simcore("predict", *ASK)
    for kind, name in ((None, "a.svg"), ("scaling", "b.png")):
        more = ("--plot-kind", kind) if kind else ()
        ran = simcore("predict", *ASK, "--plot", str(tmp_path / name), *more)
        assert ran.code == 0 and ran.out == plain.out
        assert name in ran.err
        assert (tmp_path / name).stat().st_size > 1000
    assert "<svg" in (tmp_path / "a.svg").read_text()


def test_scaling_as_text_and_json(simcore: Callable) -> None:
    ran = simcore("predict", *ASK, "--scaling")
    lines = ran.out.splitlines()
    assert ran.code == 0 and max(map(len, lines)) <= 80
    counts = [line.split()[0] for line in lines if line.strip()[:1].isdigit()]
    assert counts == ["1", "2", "4", "8", "16", "24", "32"]
    data = json.loads(simcore("predict", *ASK, "--scaling", "--json").out)
    assert [p["n_gpus"] for p in data["points"]] == [1, 2, 4, 8, 16, 24, 32]
    for point in data["points"]:
        span = point["efficiency_frac"]
        assert span["low"] <= span["value"] <= span["high"]


def test_validate_draws_its_rows(simcore: Callable, tmp_path: Path) -> None:
    table = str(Path(__file__).parents[2] / "validate" / "tables" / "latte.csv")
    ran = simcore("validate", table, "--plot", str(tmp_path / "v.svg"))
    assert ran.code == 0 and "v.svg" in ran.err
    assert "measured [s]" in (tmp_path / "v.svg").read_text()


def test_the_gallery_is_of_every_kind() -> None:
    from simcore.report.plots import KINDS

    folder = Path(__file__).parents[2] / "docs" / "plots"
    pictures = {p.stem: p.stat().st_size for p in folder.glob("*.png")}
    assert set(KINDS) <= set(pictures)
    assert max(pictures.values()) < 150_000
