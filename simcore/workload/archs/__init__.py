"""Architecture builders: a config in, a Workload out. One file a family, registered by name."""

from __future__ import annotations

from collections.abc import Callable

from simcore.base.registry import Registry
from simcore.workload.graph import Frozen, Workload

#: ``build(name=…, sample_unit=…, **config) -> Workload``; keyword-only, typed, no I/O.
ARCHS: Registry[Callable[..., Workload]] = Registry("architecture")
#: ``build(name=…, **config) -> Frozen``: networks that only run forward in each step.
FROZEN_ARCHS: Registry[Callable[..., Frozen]] = Registry("frozen architecture")


def load_all() -> None:
    """Import every family, so that the registries are full (explicit: no folder scanning)."""
    from simcore.workload.archs import bert, dit, mnist, resnet, t5, transformer, vae, vit  # noqa: F401
