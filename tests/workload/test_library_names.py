"""Names of vision libraries read from their files, and what an unknown model is told of them."""

from __future__ import annotations

import re
import subprocess
import sys

import pytest

from simcore.base.errors import UnknownName
from simcore.workload import library_names as of
from simcore.workload.resolve import resolve_model

timm = pytest.importorskip("timm")


def test_names_of_files_are_those_of_the_library() -> None:
    assert of.library_names("timm") == set(timm.list_models())


def test_names_of_torchvision_are_its_classifiers() -> None:
    from simcore.workload.trace.zoos import ready_torchvision

    ready_torchvision()
    models = pytest.importorskip("torchvision").models
    assert of.library_names("torchvision") == set(models.list_models(module=models))


def test_a_library_that_is_not_installed_has_none(monkeypatch: pytest.MonkeyPatch) -> None:
    of.library_names.cache_clear()
    monkeypatch.setattr(of, "find_spec", lambda name: None)
    assert of.named_alike("swin-tiny") == []
    of.library_names.cache_clear()


@pytest.mark.parametrize(
    ("text", "first"),
    [
        ("swin-tiny", "timm:swin_tiny_patch4_window7_224"), ("Swin_T", "torchvision:swin_t"),
        ("deit-s", "timm:deit_small_patch16_224"), ("mobilenetv4", "timm:mobilenetv4_conv_large"),
        ("siglip-large", "timm:vit_large_patch16_siglip_256"),
        ("microsoft/beit-base-patch16-224", "timm:beit_base_patch16_224"),
        ("facebook/convnext-tiny-224", "timm:convnext_tiny"),
    ],
)  # fmt: skip
def test_an_unknown_model_of_a_library_is_named(text: str, first: str) -> None:
    with pytest.raises(UnknownName, match=re.escape(f"libraries: {first}")):
        resolve_model(text)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("lama3-8b", "did you mean 'llama3-8b'"), ("wav2vec2", "did you mean one of wav2vec2-base"),
        ("deeplabv3", "package.module:function"), ("pointpillars", "package.module:function"),
    ],
)  # fmt: skip
def test_slips_stay_slips_and_what_is_far_is_told_the_way(text: str, said: str) -> None:
    with pytest.raises(UnknownName, match=re.escape(said)) as caught:
        resolve_model(text)
    assert "timm:" not in str(caught.value) or "timm:NAME" in str(caught.value)


def test_nothing_is_imported_for_it() -> None:
    code = (
        "import sys; from simcore.workload.library_names import named_alike; named_alike('swin-t');"
        "print([m for m in ('torch', 'timm', 'torchvision') if m in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert run.stdout.strip() == "[]"
