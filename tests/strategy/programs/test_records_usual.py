"""The program that is assumed where a job names none is a record, and may be another."""

from pathlib import Path

import pytest

from simcore.answer.request import make_request
from simcore.strategy.programs import usual_of_language_models


def test_a_folder_of_one_s_own_says_which_program_is_usual(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert usual_of_language_models().record.name == "megatron"
    monkeypatch.chdir(tmp_path)  # where one works comes before what is shipped
    (tmp_path / "programs_db" / "usual").mkdir(parents=True)
    (tmp_path / "programs_db" / "usual" / "language-models.yaml").write_text(
        "name: language-models\nmeaning: mine\nprogram: nanotron\ncut: true\n"
    )
    cut = make_request("llama3-8b", "1x8xH100", tp=2)
    assert cut.strategy.program.name == "nanotron" and cut.software_assumed
    whole = make_request("llama3-8b", "1x8xH100", precision="fp8")
    assert whole.strategy.program.name == "plain"
