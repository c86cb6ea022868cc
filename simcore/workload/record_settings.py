"""Settings of a model outside its architecture: how data is loaded, what runs besides the model.

    sample_load      processor time that one loader worker takes for a sample: 3.7ms
    loader_workers   loader processes per rank; 0: the training process itself loads
    sync_norm_wait   batch norms average over all ranks; each exchange waits this long first: 25us
    samples_vary     false: every sample is as much work as the mean one (shapes are fixed)
    torch            a release of PyTorch, 1.10: sets all that follows from it (``releases.py``)

The settings of a step's frozen networks (``stored_moments`` of an autoencoder) are settable too,
unless the model's own architecture has a setting of that name.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from simcore.base.figures import Figure
from simcore.workload.archs import FROZEN_ARCHS, load
from simcore.workload.models import FrozenRecord, ModelRecord, Scalar
from simcore.workload.releases import TORCH, settings_of_release

#: Type of a time: text with its unit, or seconds.
SECONDS = "seconds"
#: Type of a release: text, since 1.10 is later than 1.9.
RELEASE = "release"
#: Source of figures that the job sets.
GIVEN = "settings"
_ALWAYS = {"sync_norm_wait": SECONDS, "samples_vary": "bool", TORCH: RELEASE}
_OF_DATA = {"sample_load": SECONDS, "loader_workers": "int"}


def record_kinds(record: ModelRecord) -> dict[str, str]:
    """Settings of the record outside its architecture, with the type of each."""
    kinds = {k: v for one in record.frozen for k, v in _frozen_kinds(one.arch).items()}
    return {**kinds, **_ALWAYS, **(_OF_DATA if record.dataset else {})}


def with_release(record: ModelRecord, settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The settings, with those that follow from a stated PyTorch release added where absent."""
    stated = dict(settings)
    release = stated.pop(TORCH, None)
    if release is None:
        return stated
    return {**settings_of_release(record.arch, str(release)), **stated}


def record_update(record: ModelRecord, settings: Mapping[str, Scalar]) -> dict[str, Any]:
    """The fields of the record that these settings change, with their new values."""
    update: dict[str, Any] = {}
    if "sync_norm_wait" in settings:
        update["sync_norm_wait"] = _figure(settings["sync_norm_wait"])
    if "samples_vary" in settings and not settings["samples_vary"]:
        update |= {"work_sd_frac": None, "largest": {}}
    data: dict[str, Any] = {}
    if "sample_load" in settings:
        data["sample_load"] = _figure(settings["sample_load"])
    if "loader_workers" in settings:
        data["workers"] = settings["loader_workers"]
    if data and record.dataset is not None:
        update["dataset"] = record.dataset.model_copy(update=data)
    if frozen := tuple(_frozen_with(one, settings) for one in record.frozen):
        update["frozen"] = frozen
    update["sources"] = {**record.sources, GIVEN: "settings of the job"}
    return update


def _frozen_with(frozen: FrozenRecord, settings: Mapping[str, Scalar]) -> FrozenRecord:
    own = {k: v for k, v in settings.items() if k in _frozen_kinds(frozen.arch)}
    return frozen.model_copy(update={"config": {**frozen.config, **own}}) if own else frozen


def _frozen_kinds(arch: str) -> dict[str, str]:
    load(arch)
    parameters = inspect.signature(FROZEN_ARCHS[arch]).parameters.values()
    return {p.name: str(p.annotation) for p in parameters if p.name != "name"}


def _figure(value: Scalar) -> Figure:
    return Figure(value=float(value), source=GIVEN)
