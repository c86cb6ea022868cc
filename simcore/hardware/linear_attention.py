"""How fast a device's SMs run kernels of linear attention, from ``linear_attention.yaml``.

Such kernels multiply small matrices, 16 to 256 tokens at a time. What an SM completes a clock
depends little on the generation of its matrix units: the fits give the same figures from Hopper to
Blackwell, whose matrix units differ by two in FLOP per clock.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Any, Final

from simcore.base.database import read_yaml, shipped_root
from simcore.base.record import dataclass
from simcore.base.units import parse_quantity
from simcore.hardware.estimates import Estimate, Level, pick
from simcore.hardware.spec import GpuSpec

#: Kind of kernel in ``workload.graph`` -> class of ``linear_attention.yaml`` that prices it in a
#: step. The table has training's kernels of the delta rule; those of Mamba-2 and lightning
#: attention, products of chunks in Triton too, are taken to be as fast.
CLASS_OF: Final[Mapping[str, str]] = {
    "chunk_products": "delta_rule",
    "chunk_products_by_channel": "delta_rule_by_channel",
    "chunk_states": "delta_rule",
    "causal_conv": "causal_conv",
}


@dataclass(frozen=True)
class BlockFigures:
    """What an SM does with the thread blocks of a class of kernels.

    ``work_per_clock``: units of work that a busy SM completes a clock: FLOP of products, elements
    of convolutions. ``chain_flop_per_clock``: FLOP a clock of the kernel that passes states from
    chunk to chunk, ``channel_flop_per_clock`` that of pairs whose decays differ by channel.
    ``block_clocks``: least clocks of a block. ``start_s``: start of a kernel.
    ``host_s``, ``host_block_s``: host time of a call, and for each block of its grid.
    """

    work_per_clock: float = float("inf")
    chain_flop_per_clock: float = float("inf")
    channel_flop_per_clock: float = float("inf")
    block_clocks: float = 0.0
    start_s: float = 0.0
    host_s: float = 0.0
    host_block_s: float = 0.0
    sd_log: float = 0.0

    def rate(self, kind: str) -> float:
        """Units of work of a kind of kernel that an SM completes a clock."""
        of_kind = {"chunk_states": self.chain_flop_per_clock,
                   "chunk_products_by_channel": self.channel_flop_per_clock}  # fmt: skip
        return of_kind.get(kind, self.work_per_clock)


#: Field of :class:`BlockFigures` -> key of an entry in the file; times have units there.
FIELDS: Final[Mapping[str, str]] = {
    "work_per_clock": "value", "chain_flop_per_clock": "chain",
    "channel_flop_per_clock": "channel", "block_clocks": "block",
    "start_s": "start", "host_s": "host", "host_block_s": "host_block",
}  # fmt: skip


def figures_in(table: Mapping[str, Any], gpu: GpuSpec) -> tuple[BlockFigures, Level]:
    """The figures of one class's table for a device, and which devices they were measured on."""
    entry, share, level = pick(table, gpu)
    found = {
        name: parse_quantity(entry[key], "seconds") if name.endswith("_s") else float(entry[key])
        for name, key in FIELDS.items() if key in entry
    }  # fmt: skip
    return BlockFigures(**found, sd_log=share.sd_log), level


@lru_cache(maxsize=1)
def linear_attention_tables() -> Mapping[str, Any]:
    """Class -> figures by device, by family and for all, as simcore ships them."""
    data: Mapping[str, Any] = read_yaml(
        shipped_root() / "hardware_db" / "calibrations" / "linear_attention.yaml"
    )
    return data["linear_attention"]


def work_per_clock(kind: str, gpu: GpuSpec) -> Estimate:
    """Units of work of a kind of kernel that an SM completes a clock."""
    figures, level = figures_in(linear_attention_tables()[CLASS_OF[kind]], gpu)
    return Estimate(figures.rate(kind), figures.sd_log, f"linear attention, {level}")


def block_rate(
    kind: str, gpu: GpuSpec, clock_hz: float, products_flop_per_s: float
) -> tuple[float, float]:
    """(SMs, seconds of a unit of work on one of them) for a kind of kernel of a step.

    Products are no faster than large ones, whose rate on all matrix units is
    ``products_flop_per_s``; that rate is taken where SMs or their clock are unknown.
    """
    slots = gpu.sm_count.value if gpu.sm_count else 1.0
    least_s = 0.0 if kind == "causal_conv" else slots / products_flop_per_s
    if gpu.sm_count is None or not clock_hz:
        return slots, least_s
    return slots, max(1.0 / (work_per_clock(kind, gpu).value * clock_hz), least_s)
