"""The program that is assumed where a job names none is a record, and may be another."""

from pathlib import Path

import pytest

from simcore.answer.request import make_request
from simcore.strategy.programs import USUAL, usual_of_language_models
from simcore.workload.models import MODELS


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


def test_a_job_of_images_says_in_which_loop_it_is_assumed_to_run() -> None:
    def loops(model: str, **options: str) -> list[str]:
        request = make_request(model, "1x1xA100-80GB", **options)
        return [a for a in request.assumptions if a.startswith("loop: ")]

    assert "--software timm" in loops("resnet-50")[0]
    assert "--software diffusers" in loops("sdxl")[0]
    assert not loops("sdxl", software="sd-scripts") and not loops("bert-large")


def test_every_usual_program_and_architecture_exists_once() -> None:
    archs = [arch for usual in USUAL.all() for arch in usual.archs]
    assert len(archs) == len(set(archs)) and set(archs) <= {model.arch for model in MODELS.all()}
    assert all(usual.record.name for usual in USUAL.all())
