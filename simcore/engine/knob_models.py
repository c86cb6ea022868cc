"""Knobs of models that there are not: they change nothing, which must not be silent.

A model of one's own has any name, so such a knob is told where nothing answers to it, not refused.
"""

from __future__ import annotations

from simcore.base.errors import nearest
from simcore.hardware.profile import Profile
from simcore.workload.models import MODELS


def unheeded(profile: Profile, model: str) -> tuple[str, ...]:
    """A sentence for each model that the profile's knobs name and neither is nor could be asked."""
    named = dict.fromkeys(k.workload for k in profile.knob_values if k.workload)
    return tuple(
        _sentence(profile.name, name) for name in named if name != model and not _is_record(name)
    )


def _is_record(name: str) -> bool:
    """By its own name, the one that predictions go by."""
    path = MODELS.path(name)
    return path is not None and path.stem == name


def _sentence(profile: str, name: str) -> str:
    path = MODELS.path(name)
    near = [path.stem] if path is not None else nearest(name, MODELS.names(), 1)
    meant = f" (did you mean {near[0]!r}?)" if near else ""
    return f"calibration {profile}: a knob of workload {name!r} changes nothing here{meant}"
