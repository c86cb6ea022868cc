"""Fits the work that an SM completes a clock in kernels of linear attention.

    python -m simcore.calibrate.linear.fit OPS_DIR -o hardware_db/calibrations/linear_attention.yaml

A class of kernels is fitted twice: first one set of figures to all devices together, then to each
device alone, drawn towards the common figures where its own rows say little. A device that was not
measured takes its family's figures, or the common ones.
"""

from __future__ import annotations

import argparse
import math
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, TypeAlias

import numpy as np

from simcore.base.arrays import Array
from simcore.base.units import MICRO
from simcore.calibrate.curve_fits import robust_sd, solve
from simcore.calibrate.linear.rows import LinearBatch, linear_rows
from simcore.calibrate.pooling import family_of
from simcore.calibrate.tables import collection_of, read_table
from simcore.calibrate.yaml_text import used_sources, yaml_text
from simcore.hardware.linear_attention import FIELDS, BlockFigures
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS, GpuSpec
from simcore.physics.kernel import LEAVES, STAYS, blocks_s, roofline_s
from simcore.timing.rates import clock_hz

Levels: TypeAlias = dict[str, Any]

#: Class -> fields of :class:`BlockFigures` that are fitted.
_SCAN = ("work_per_clock", "chain_flop_per_clock", "start_s")
_FUSED = ("chain_flop_per_clock", "block_clocks", "start_s")
CLASSES: Final[Mapping[str, tuple[str, ...]]] = {
    "causal_conv": ("work_per_clock", "start_s"),
    "causal_conv_hosted": ("work_per_clock", "host_s", "host_block_s"),
    "causal_conv_rows": ("work_per_clock", "block_clocks", "start_s"),
    "delta_rule": _SCAN, "delta_rule_packed": _SCAN,
    "delta_rule_by_channel": ("channel_flop_per_clock", "chain_flop_per_clock", "start_s"),
    "delta_rule_fused": _FUSED, "delta_rule_by_channel_fused": _FUSED,
}  # fmt: skip
#: FLOP a clock of the products without decays by channel in a class that has both: what the gated
#: delta rule's reach, since no row of the class tells both apart.
BESIDE: Final = {"delta_rule_by_channel": {"work_per_clock": 400.0}}
#: Field -> (start, least, most) of its fit. Of fused kernels the work of a chain is chunks.
BOUNDS: Final[Mapping[str, tuple[float, float, float]]] = {
    "work_per_clock": (400.0, 20.0, 8192.0), "chain_flop_per_clock": (1500.0, 50.0, 8192.0),
    "channel_flop_per_clock": (100.0, 5.0, 8192.0), "block_clocks": (1000.0, 1.0, 1e5),
    "start_s": (3 * MICRO, 0.2 * MICRO, 40 * MICRO),
    "host_s": (200 * MICRO, 1 * MICRO, 2000 * MICRO), "host_block_s": (5e-8, 1e-9, 1e-6),
}  # fmt: skip
_ELEMENTS: Final = (3.0, 0.5, 50.0)
_CHUNKS: Final = (2e-4, 1e-5, 1e-2)
#: Families whose L2 has two partitions, each of which caches what its own SMs read (NVIDIA A100
#: Tensor Core GPU Architecture, 2020), so that tensors that all SMs read are held twice.
TWO_PARTITIONS: Final = ("Ampere-GA100", "Hopper", "Blackwell")
#: Standard deviation of the logarithm of a device's figure around that of all devices: what GPUs
#: of one family differ by in classes whose rows determine them well.
OWN_SD: Final = 0.3


def _bounds(cls: str, field: str) -> tuple[float, float, float]:
    if field == "work_per_clock" and cls.startswith("causal_conv"):
        return _ELEMENTS
    return _CHUNKS if field == "chain_flop_per_clock" and cls.endswith("fused") else BOUNDS[field]


def linear_time_s(batch: LinearBatch, gpu: GpuSpec, figures: BlockFigures) -> Array:
    """The seconds of each row: its kernels one after the other, and the host before them.

        start + sqrt(traffic^2 + (clocks of thread blocks)^2)

    as every kernel of a step is priced (``physics.kernel``). A benchmark repeats a call, so that
    tensors that fit L2 are read from there. Raises KeyError for a device whose SMs are not known.
    """
    if gpu.sm_count is None or not (hz := clock_hz(gpu)):
        raise KeyError(f"{gpu.name}: its number of SMs or their clock is not known")
    slots = gpu.sm_count.value
    rate = np.array([figures.rate(kind) for kind in batch.kinds])
    blocks = np.maximum(batch.blocks, 1.0)
    clocks = batch.work / blocks / rate + figures.block_clocks * (batch.blocks > 0)
    bandwidth = gpu.memory_bw.value * load_profile().memory_efficiency("elementwise", gpu).value
    missed: Array | float = 1.0
    if gpu.l2_size:
        partitions = 2.0 if family_of(gpu.name) in TWO_PARTITIONS else 1.0
        over_l2 = batch.loop_bytes * partitions / gpu.l2_size.value
        missed = np.clip((over_l2 - STAYS) / (LEAVES - STAYS), 0.0, 1.0)[:, None]
    each = roofline_s(
        blocks_s(blocks, clocks / hz, slots), batch.n_bytes * missed / bandwidth, figures.start_s
    )
    host_s = figures.host_s + figures.host_block_s * batch.programs
    return each.sum(axis=1) + host_s


def _fit(
    cls: str, batches: Sequence[LinearBatch], centre: Mapping[str, float] | None = None
) -> tuple[dict[str, float], float]:
    """(figures of a class, scatter of ln(measured / fitted)) from the rows of some devices.

    Each device weighs the same. ``centre``: figures towards which the fit is drawn.
    """
    fields = CLASSES[cls]
    rows: dict[str, int] = defaultdict(int)
    for b in batches:
        rows[b.gpu] += len(b)
    most = max(rows.values())
    weights = [math.sqrt(most / rows[b.gpu]) for b in batches]
    ends = np.log(np.array([_bounds(cls, f) for f in fields])).T

    def off(x: Array) -> list[Array]:
        fitted = dict(zip(fields, map(float, np.exp(x)), strict=True))
        figures = BlockFigures(**BESIDE.get(cls, {}), **fitted)
        return [np.log(linear_time_s(b, GPUS[b.gpu], figures) / b.time_s) for b in batches]

    def residual(x: Array) -> Array:
        parts = [w * o for w, o in zip(weights, off(x), strict=True)]
        if centre is not None:
            drawn = (x - np.log([centre[f] for f in fields])) / OWN_SD
            parts.append(drawn * robust_sd(np.concatenate(parts)))
        return np.concatenate(parts)

    start = ends[0] if centre is None else np.log([centre[f] for f in fields])
    x, _ = solve(residual, np.clip(start, ends[1] + 1e-9, ends[2] - 1e-9), ends[1], ends[2])
    fitted = dict(zip(fields, map(float, np.exp(x)), strict=True))
    return {**fitted, **BESIDE.get(cls, {})}, robust_sd(np.concatenate(off(x)))


def linear_levels(
    batches: Sequence[LinearBatch], without: Collection[str] = ()
) -> dict[str, Levels]:
    """Class -> figures by device, by family and for all, without the families ``without``."""
    found: dict[str, Levels] = {}
    for cls in CLASSES:
        mine = [b for b in batches if b.cls == cls and len(b) and family_of(b.gpu) not in without]
        if not mine:
            continue
        pooled, _ = _fit(cls, mine)
        by_gpu, by_family = {}, {}
        for gpu in sorted({b.gpu for b in mine}):
            own = [b for b in mine if b.gpu == gpu]
            figures, scatter = _fit(cls, own, pooled)
            by_gpu[gpu] = (figures, scatter, own)
        families = {family_of(g) for g in by_gpu}
        for family in sorted(families):
            of = [b for b in mine if family_of(b.gpu) == family]
            by_family[family] = (_fit(cls, of, pooled)[0], of)
        main = CLASSES[cls][0]
        between = np.std([math.log(f[main]) for f, _ in by_family.values()])
        sd = float(np.hypot(between, max(s for _, s, _ in by_gpu.values())))
        found[cls] = {
            "pooled": _leaf(pooled, main, sd, mine, len(by_gpu)),
            "by_family": {f: _leaf(v, main, sd, of, len({b.gpu for b in of}))
                          for f, (v, of) in by_family.items()},
            "by_gpu": {g: _leaf(v, main, max(s, 0.03), own, sum(map(len, own)))
                       for g, (v, s, own) in by_gpu.items()},
        }  # fmt: skip
    return found


def _leaf(
    figures: Mapping[str, float], main: str, sd_log: float, rows: Sequence[LinearBatch], n: int
) -> dict[str, Any]:
    """An entry of the file; its ``value`` is the work a clock, or of fused kernels the chunks."""
    shown: dict[str, Any] = {}
    for field, value in figures.items():
        shown[FIELDS[field]] = (
            f"{value / MICRO:.3g} us" if field.endswith("_s") else float(f"{value:.3g}")
        )
    sources = "+".join(sorted({collection_of(b.source) for b in rows}))
    head = {"value": shown.pop("value", shown[FIELDS[main]])}
    return {**head, "sd_log": float(f"{sd_log:.2g}"), **shown, "n": n, "source": sources}


def read_linear(ops_dir: Path) -> tuple[LinearBatch, ...]:
    """The batches of ``linear_attention.csv.gz`` in a folder."""
    return linear_rows(read_table(ops_dir / "linear_attention.csv.gz")).items


_COMMENT: Final = """Kernels of linear attention: the work that an SM completes a boost clock, from
published times of serving frameworks' calls (simcore/calibrate/linear/rows.py says what each call
runs). Written by `python -m simcore.calibrate.linear.fit`: change the table or that module, not
this file. The time of a kernel is start + sqrt(tm^2 + tb^2), tm = bytes over the bandwidth of
elementwise kernels, tb = ceil(blocks / SMs) (work of a block / value + block) / clock. `chain` is
the rate of the kernel that passes a head's state from chunk to chunk.
  causal_conv       elements of a convolution over preceding tokens, channels last
  causal_conv_rows  the same with a thread block a row of a channel; `block` in clocks
  causal_conv_hosted  the same behind a host that lists the grid's programs: `host`, `host_block`
  delta_rule        FLOP of fla's gated delta rule, sequences of equal length, as in training
  delta_rule_packed the same for packed sequences, states and all, in serving
  delta_rule_by_channel  FLOP of Kimi Delta Attention by fla; `channel`: of the pairs' products
  delta_rule_fused, delta_rule_by_channel_fused  chunks of 64 tokens a clock, in FlashInfer's and
                    FlashKDA's kernel with a thread block a head; `block`: clocks of a sequence"""


def main(argv: Sequence[str] | None = None) -> None:
    """The command line: fit the table in a folder and write the file."""
    parser = argparse.ArgumentParser(
        prog="python -m simcore.calibrate.linear.fit", description=__doc__
    )
    parser.add_argument("ops_dir", type=Path, help="folder with linear_attention.csv.gz")
    parser.add_argument("-o", "--output", type=Path, required=True)
    args = parser.parse_args(argv)
    tables = {"linear_attention": linear_levels(read_linear(args.ops_dir))}
    text = yaml_text({"name": "linear_attention", "sources": used_sources(tables), **tables},
                     {"": _COMMENT})  # fmt: skip
    args.output.write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
