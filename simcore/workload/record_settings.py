"""Settings of a model that are not its architecture's: how it is loaded, what runs beside it.

sample_load      processor time that one loader worker takes for a sample: 3.7ms
loader_workers   loader processes a rank; 0: the training process itself
sync_norm_wait   batch norms average over all ranks, and each exchange waits so long first: 25us
samples_vary     false where every sample is as much work as the mean one (shapes are fixed)
torch            a release of PyTorch, 1.10: all settings that follow from it (``releases.py``)

and every setting of the frozen networks of a step (``stored_moments`` of an autoencoder), where the
model's own architecture has none of that name.
"""

from __future__ import annotations

import inspect
from collections.abc import Mapping
from typing import Any

from simcore.base.figures import Figure
from simcore.workload.archs import FROZEN_ARCHS, load
from simcore.workload.models import FrozenRecord, ModelRecord, Scalar
from simcore.workload.releases import TORCH, settings_of_release

#: The kind of a time: text with its unit, or seconds.
SECONDS = "seconds"
#: The kind of a release: text, since 1.10 is later than 1.9.
RELEASE = "release"
#: Where figures come from that a job sets.
GIVEN = "settings"
_ALWAYS = {"sync_norm_wait": SECONDS, "samples_vary": "bool", TORCH: RELEASE}
_OF_DATA = {"sample_load": SECONDS, "loader_workers": "int"}


def record_kinds(record: ModelRecord) -> dict[str, str]:
    """Settings of the record beside its architecture's, and the kind of each."""
    kinds = {k: v for one in record.frozen for k, v in _frozen_kinds(one.arch).items()}
    return {**kinds, **_ALWAYS, **(_OF_DATA if record.dataset else {})}


def with_release(record: ModelRecord, settings: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """The settings, with all that follows from a release among them where they say nothing."""
    given = dict(settings)
    release = given.pop(TORCH, None)
    if release is None:
        return given
    return {**settings_of_release(record.arch, str(release)), **given}


def record_update(record: ModelRecord, settings: Mapping[str, Scalar]) -> dict[str, Any]:
    """Fields of the record that these settings change, values of their kinds."""
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
