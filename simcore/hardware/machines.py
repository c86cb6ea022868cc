"""Whole machines by name: nodes (``dgx-h100``) and instances of clouds (``p5.48xlarge``)."""

from __future__ import annotations

from functools import lru_cache
from string import ascii_letters
from typing import ClassVar, NamedTuple

from simcore.base.database import Database, Folders, fold_name
from simcore.base.errors import nearest
from simcore.base.figures import Part, Sourced, entry
from simcore.hardware.spec import GPUS, NODES, GpuSpec


class Instance(Part):
    """A type of machine that a cloud rents: its GPUs, and the node that it is like.

    ``network``: as of ``--network`` where it is not the node's. ``called``: other names.
    """

    cites: ClassVar[bool] = True

    gpu: str
    gpus: int = entry(ge=1, le=72)
    node: str
    network: str = ""
    source: str
    note: str = ""
    called: tuple[str, ...] = ()


class Cloud(Sourced):
    """The instances of one cloud."""

    full_name: str
    instances: dict[str, Instance] = entry(min_length=1)


CLOUDS: Database[Cloud] = Database("cloud", "hardware_db/instances", Cloud)


class Machine(NamedTuple):
    """A machine given by its name: its type and number of devices, its node and network."""

    gpu: GpuSpec
    gpus: int
    node: str
    network: str = ""


@lru_cache(maxsize=4)
def _instances(_folders: Folders) -> dict[str, Instance]:
    return {
        name: instance
        for cloud in CLOUDS.all()
        for first, instance in cloud.instances.items()
        for name in (first, *instance.called)
    }


def machine_named(name: str) -> Machine | None:
    """What the name of a node or of a cloud's instance means; None for any other name."""
    if NODES.path(name) is not None and (gpus := NODES[name].gpu_types):
        return Machine(GPUS[gpus[0]], NODES[name].max_gpus, NODES[name].name)
    folded = {fold_name(n): i for n, i in _instances(CLOUDS.folders()).items()}
    if (found := folded.get(fold_name(name))) is None:
        return None
    return Machine(GPUS[found.gpu], found.gpus, found.node, found.network)


def near_machines(name: str) -> list[str]:
    """Names of instances that ``name`` may mean: of the same letters before the first digit."""
    family = _letters(name)
    known = _instances(CLOUDS.folders())
    return nearest(name, sorted(n for n in known if family and _letters(n) == family))


def _letters(name: str) -> str:
    return name[: len(name) - len(name.lstrip(ascii_letters))].lower()
