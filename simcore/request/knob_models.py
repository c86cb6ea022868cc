"""Warnings about knobs of a calibration that name an unknown model, so that they have no effect.

A user's own model may have any name, so an unknown name is a warning and not an error.
"""

from __future__ import annotations

from simcore.base.errors import nearest
from simcore.hardware.profile import Profile
from simcore.workload.models import MODELS


def unheeded(profile: Profile, model: str) -> tuple[str, ...]:
    """A sentence for each name in the profile's knobs that is neither ``model`` nor known."""
    named = dict.fromkeys(k.workload for k in profile.knob_values if k.workload)
    return tuple(
        _sentence(profile.name, name) for name in named if name != model and not _is_record(name)
    )


def _is_record(name: str) -> bool:
    """Whether this is exactly the name of a known model (not an alias)."""
    path = MODELS.path(name)
    return path is not None and path.stem == name


def _sentence(profile: str, name: str) -> str:
    path = MODELS.path(name)
    near = [path.stem] if path is not None else nearest(name, MODELS.names(), 1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return f"calibration {profile}: a knob of workload {name!r} changes nothing here{meant}"
