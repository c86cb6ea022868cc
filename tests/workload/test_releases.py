"""What follows from a release of PyTorch."""

from __future__ import annotations

import pytest

from simcore import api
from simcore.base.errors import InvalidConfig
from simcore.workload.archs import ARCHS, load
from simcore.workload.models import setting_kinds
from simcore.workload.releases import settings_of_release, torch_releases, version_of


@pytest.mark.parametrize(
    ("arch", "release", "settings"),
    [
        ("bert", "1.4", {"bias_add": "separate", "scripted_activations": "held"}),
        ("bert", "1.7", {"bias_add": "separate"}),
        ("bert", "1.11", {"bias_add": "separate"}),
        ("bert", "1.12", {}),
        ("waveglow", "1.10", {"pointwise_tf32": "transposed"}),
        ("waveglow", "1.12", {"conditioning_copies": False, "pointwise_tf32": "transposed"}),
        ("waveglow", "1.13", {"conditioning_copies": False}),
        ("transformer_xl", "1.5", {"bias_add": "separate", "unaligned_products": "vector_units"}),
        (
            "efficientdet",
            "1.10.1",
            {"depthwise_kernels": "native", "pointwise_tf32": "transposed"},
        ),
        ("efficientdet", "2.0", {}),
        ("transformer", "2.9", {"attention": "flash_first"}),
        ("transformer", "2.10", {}),
    ],
)
def test_settings_by_release(arch: str, release: str, settings: dict[str, object]) -> None:
    assert settings_of_release(arch, release) == settings


def test_the_tenth_minor_release_is_after_the_ninth() -> None:
    assert version_of("1.10") > version_of("1.9")
    for text in ("new", "1", "1.", "v1.10"):
        with pytest.raises(ValueError, match="no release such as"):
            version_of(text)


def test_every_rule_names_settings_of_its_architectures_and_a_source() -> None:
    for rule in torch_releases():
        assert rule.source and (rule.before or rule.since)
        for arch in rule.archs:
            load(arch)
            assert arch in ARCHS
            assert rule.settings.keys() <= setting_kinds(arch).keys()


def test_a_release_stands_for_its_settings_and_gives_way_to_the_job_s_own() -> None:
    def step_s(**settings: object) -> float:
        found = api.predict(
            "efficientnet-b0", "A100-SXM4-40GB", precision="amp-fp16", layout="nhwc",
            settings=settings,  # type: ignore[arg-type]
        )  # fmt: skip
        return found.step_time_s.value

    old = step_s(torch="1.10")
    assert old == step_s(depthwise_kernels="native") > step_s()
    assert step_s(torch="1.10", depthwise_kernels="cudnn") == step_s() == step_s(torch="2.1")


@pytest.mark.parametrize("release", ["latest", 1.10])
def test_what_is_no_release_is_refused(release: object) -> None:
    with pytest.raises(InvalidConfig, match=r"torch must be a release such as 1\.10"):
        api.predict("efficientnet-b0", "A100", settings={"torch": release})  # type: ignore[dict-item]
