"""Pipeline schedules, one file each: order of work, waiting, micro-batches in flight, refusals."""

from __future__ import annotations

from typing import TYPE_CHECKING

from simcore.base.lookup import Registry
from simcore.strategy.layout import DEFAULT_SCHEDULE, Layout

if TYPE_CHECKING:
    from simcore.step.schedules.base import Schedule

#: Every schedule that can be named, each with the file of this folder that registers it.
SCHEDULES: Registry[Schedule] = Registry(
    "schedule",
    {
        name: f"{__name__}.{file}"
        for name, file in {
            DEFAULT_SCHEDULE: "one_f_one_b",
            "gpipe": "gpipe",
            "zb-1p": "zero_bubble",
            "zb-2p": "zero_bubble",
            "dualpipe": "dualpipe",
        }.items()
    },
)


#: Forms of these for ranks with several chunks of layers, by the same name.
IN_CHUNKS: Registry[Schedule] = Registry("schedule", {DEFAULT_SCHEDULE: f"{__name__}.interleaved"})


def schedule_of(layout: Layout) -> Schedule:
    """The schedule of a layout, of ranks with several chunks its form for these."""
    chunked = layout.vpp > 1 and layout.schedule in IN_CHUNKS
    return (IN_CHUNKS if chunked else SCHEDULES)[layout.schedule]


def layout_violations(layout: Layout, n_gpus: int, n_layers: int) -> list[str]:
    """Every rule that a layout, its stages or schedule break, for these numbers of GPUs, layers."""
    found = layout.violations(n_gpus, n_layers)
    if layout.pp < 1 or layout.vpp < 1:
        return found
    if layout.stages and 1 < layout.pp <= n_layers:
        from simcore.strategy.cuts import cut_problems

        found += cut_problems(layout.stages, n_layers, layout.pp, layout.vpp)
    return found + schedule_of(layout).refused(layout)
