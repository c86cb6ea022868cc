"""What a release of PyTorch changes in a model's layers: ``models_db/releases/torch.yaml``.

``--set torch=1.10`` stands for all settings of the model's architecture that follow from that
release, if there are any.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

from simcore.base.database import read_yaml, shipped_root
from simcore.base.errors import DataError
from simcore.base.figures import Part, entry
from simcore.workload.models import Scalar

_VERSION = re.compile(r"\d+(?:\.\d+)+")


class Release(Part):
    """Settings of some architectures that apply before a release, or since one."""

    archs: tuple[str, ...]
    before: str | None = entry(default=None, pattern=_VERSION.pattern)
    since: str | None = entry(default=None, pattern=_VERSION.pattern)
    settings: dict[str, Scalar]
    source: str

    def holds(self, arch: str, version: tuple[int, ...]) -> bool:
        """Whether the rule applies to this architecture and release."""
        if arch not in self.archs:
            return False
        after = self.since is None or version >= version_of(self.since)
        return after and (self.before is None or version < version_of(self.before))


def version_of(text: str) -> tuple[int, ...]:
    """A release as numbers, so that ``1.10`` is later than ``1.9``. Raises ValueError."""
    if not _VERSION.fullmatch(text):
        raise ValueError(f"{text!r} is no release such as 1.10")
    return tuple(map(int, text.split(".")))


def settings_of_release(arch: str, release: str) -> dict[str, Scalar]:
    """Settings of ``arch`` that follow from a PyTorch release. Raises ValueError for other text."""
    version = version_of(release)
    settings: dict[str, Scalar] = {}
    for rule in torch_releases():
        if rule.holds(arch, version):
            settings |= rule.settings
    return settings


@lru_cache(maxsize=1)
def torch_releases() -> tuple[Release, ...]:
    """All rules of the shipped file. Raises DataError."""
    path: Path = shipped_root() / "models_db" / "releases" / "torch.yaml"
    try:
        return tuple(Release.model_validate(one) for one in read_yaml(path))
    except (ValueError, TypeError) as err:
        raise DataError(f"is no list of releases: {err}", file=path) from None
