"""Reads measured expert layers: what each rank computed, by the benchmark that timed it.

aiconfigurator (collector/helper.py, trtllm, sglang and vllm/collect_moe.py) times one rank of an
expert-parallel group, the one with most rows. All tokens reach it in TensorRT-LLM's and vLLM's
runs, only those that chose one of its experts in SGLang's.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import fields, replace
from functools import lru_cache
from typing import Any, Final

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.database import read_yaml, shipped_root
from simcore.base.errors import DataError
from simcore.base.record import dataclass
from simcore.base.units import GIGA, MICRO
from simcore.calibrate.experts.tiles import tile_of
from simcore.calibrate.pooling import family_of
from simcore.calibrate.tables import OnBad, RowsRead, Table, mark_repeats
from simcore.hardware.spec import GPUS, PeakName
from simcore.physics.expert_layer import (
    TILE_ROWS,
    ExpertWork,
    Tile,
    rank_loads,
    seen_tokens,
    tiles_of,
)

#: dtype of a table -> (peak, bytes of an element of a weight, of a product's input, of a weight in
#: an SM's memory), scales included: blocks of 16 with one byte (nvfp4), of 32 with one (mxfp4,
#: mxfp8). 4-bit weights that meet 8-bit inputs are padded to a byte there (PTX ISA, packing formats
#: of .kind::mxf8f6f4; TensorRT-LLM's generated kernels, buildNdTmaDescriptor, padMultiplier).
_DTYPES: Final[dict[str, tuple[PeakName, float, float, float]]] = {
    "bfloat16": ("bf16", 2.0, 2.0, 2.0),
    "fp8": ("fp8", 1.0, 1.0, 1.0),
    "fp8_block": ("fp8", 1.0, 1.0, 1.0),
    "nvfp4": ("fp4", 0.5 + 1 / 16, 0.5 + 1 / 16, 0.5 + 1 / 16),
    "w4a8_mxfp4_mxfp8": ("fp8", 0.5 + 1 / 32, 1.0 + 1 / 32, 1.0 + 1 / 32),
    "w8a16": ("bf16", 1.0, 2.0, 1.0),
}
#: Text in a kernel's name -> its kind, the first that fits. Triton's kernels launch blocks for all
#: choices of all tokens, and activate and sum them all; other kernels touch a rank's rows alone.
_KINDS: Final = (
    ("min_latency", ""), ("triton_fp8_block", "triton"), ("fused_moe_triton", "triton"),
    ("tritonexperts", "triton"), ("vllm_fused_moe", "triton"), ("deepgemm", "deepgemm"),
    ("cutlass", "cutlass"), ("nongated", "cutlass"), ("trtllm", "trtllm"),
    ("moe_torch_flow", "trtllm"),
)  # fmt: skip
#: Runs that compute all choices of all tokens, also those of other ranks, in 16 bit: TensorRT-LLM's
#: Triton kernel (fused_moe_triton_fp8_block_scale.py, _fused_moe_bf16act_fp8w_kernel); it sorts all
#: choices, and rates would differ by the number of ranks otherwise.
_ALL_CHOICES, _ALL_DTYPE = "triton_fp8_block", "w8a16"
#: A large layer: FLOP, rows of an expert, and width of a rank's expert.
LARGE_FLOP, LARGE_ROWS, LARGE_WIDTH = 20 * GIGA, 64.0, 256.0
_NEEDS: Final = {"gpu", "num_tokens", "hidden", "inter", "topk", "experts", "moe_ep", "time_us"}


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    """What runs compute by library and release (``programs_db/benchmarks/expert_layers.yaml``)."""
    data = read_yaml(shipped_root() / "programs_db" / "benchmarks" / "expert_layers.yaml")
    for of in ("bare", "grouped", "gateless"):
        data[of]["models"] = {tuple(map(float, model)) for model in data[of]["models"]}
    return dict(data)


def kept_bytes(gpu: str) -> float:
    """Weights up to so many bytes stay in a device's L2 while a layer runs again and again."""
    size = GPUS[gpu].l2_size
    parts = 2.0 if family_of(gpu) in _facts()["l2_halves"] else 1.0
    return size.value / parts if size else 0.0


@dataclass(frozen=True)
class ExpertBatch:
    """Expert layers of one device and class of kernel; arrays [rows], ``shape`` [rows, 8]."""

    gpu: str
    cls: str
    dtype: str
    work: ExpertWork
    tile: Tile
    shape: Array
    time_s: Array

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def large(self) -> NDArray[np.bool_]:
        """Which layers are large [rows]."""
        work = self.work
        found: NDArray[np.bool_] = (work.flop >= LARGE_FLOP) & (work.inner >= LARGE_WIDTH)
        return found & (work.rows >= LARGE_ROWS * np.maximum(work.hit, 1.0))

    @property
    def peak(self) -> PeakName:
        """Which of the datasheet's peaks counts for the products."""
        return _DTYPES[self.dtype][0]

    @property
    def peak_flop_per_s(self) -> float:
        """The datasheet's peak of the products; 0 if the device has none."""
        return GPUS[self.gpu].peak(self.peak) or 0.0

    def take(self, rows: NDArray[np.bool_]) -> ExpertBatch:
        """The batch with some of its rows."""
        work = {f.name: getattr(self.work, f.name)[..., rows] for f in fields(ExpertWork)}
        return replace(
            self, work=ExpertWork(**work), tile=self.tile.take(rows), shape=self.shape[rows],
            time_s=self.time_s[rows],
        )  # fmt: skip


def is_expert_table(table: Table) -> bool:
    """Whether a table is one of measured expert layers."""
    return table.columns.keys() >= _NEEDS


def expert_rows(table: Table, on_bad: OnBad = "skip") -> RowsRead[ExpertBatch]:
    """The batches of one table, without rows that are not modelled."""
    if not is_expert_table(table):
        raise DataError("is no table of expert layers", file=table.path)
    names = ("num_tokens", "hidden", "inter", "topk", "experts", "moe_tp", "moe_ep")
    sizes = np.array([table.number(n) for n in names]).T
    time_s = table.number("time_us") * MICRO
    dtypes, kernels = [d.lower() for d in table.text("dtype")], table.text("kernel")
    library, version = table.text("framework"), table.text("version")
    routed, gpus = table.text("distribution"), table.text("gpu")
    same = [table.text(c) for c in table.columns if c != "time_us"]
    mark_repeats(table, same, [True] * len(table))
    groups: dict[tuple[str, str, str], list[int]] = {}
    skipped: Counter[str] = Counter()
    for row in np.flatnonzero(table.good):
        kind = next((k for text, k in _KINDS if text in kernels[row]), "")
        if dtypes[row] not in _DTYPES or GPUS.path(gpus[row]) is None or not kind:
            skipped[f"{kernels[row]} in {dtypes[row]} on {gpus[row]} is not modelled"] += 1
            continue
        own = f"{kind}_{library[row].lower()}"
        dtype = _ALL_DTYPE if _ALL_CHOICES in kernels[row] else dtypes[row]
        groups.setdefault((gpus[row], own, dtype), []).append(int(row))
    batches = []
    for (gpu, kind, dtype), rows in sorted(groups.items()):
        at = np.array(rows)
        facts = [(kernels[r], library[r], version[r], routed[r]) for r in rows]
        work = _work(sizes[at], facts, dtype, kind.partition("_")[0])
        exponents = np.array([_exponent(routed[r]) or 0.0 for r in rows])
        shape = np.column_stack([sizes[at], exponents])
        tile = tile_of(gpu, kind, dtype, sizes[at], work.choices / sizes[at, 3])
        batches.append(ExpertBatch(gpu, f"{kind}_{dtype}", dtype, work, tile, shape, time_s[at]))
    return table.read(batches, skipped, on_bad)


def _exponent(routed: str) -> float | None:
    return float(routed.rpartition("_")[2]) if routed.startswith("power_law") else None


@lru_cache(maxsize=16384)
def _loads(
    tokens: int, experts: int, top_k: int, ranks: int, exponent: float | None, bare: bool,
    grouped: bool = False,
) -> tuple[float, float, float, tuple[float, ...]]:  # fmt: skip
    """Tokens and rows of the fullest rank, its experts that have any, and its tiles."""
    routed = rank_loads(tokens, experts, top_k, ranks, exponent)
    loads, arrived = routed[:, 0], float(tokens)
    if grouped and exponent is None:
        # Each group has one choice: the first half of them is taken, and the rest of the choices
        # are the first experts of all.
        half, stride = top_k // 2, experts // top_k
        whole = np.where(np.arange(experts) < experts // 2, tokens / stride, 0.0)
        whole[:half] = tokens
        whole[half] += tokens * half / stride
        loads = whole[None, : experts // ranks]
    if bare:
        own = loads.sum(axis=1)
        seen = np.minimum(own, tokens) if exponent is None else seen_tokens(routed, tokens)
        loads[:, 0] += seen * top_k - own
        arrived = float(seen.mean())
    hit = float((np.round(loads) > 0).sum(axis=1).mean())
    return arrived, float(loads.sum(axis=1).mean()), hit, tuple(tiles_of(loads))


def _is_bare(sizes: Array, kernel: str, library: str, version: str) -> bool:
    """Whether a run is one of SGLang's kernel without its layer, on one of several ranks."""
    bare = _facts()["bare"]
    known = version == bare["version"] or tuple(sizes[1:4]) in bare["models"]
    return library == "SGLang" and "triton" in kernel and known and bool(sizes[6] > 1)


def _is_grouped(sizes: Array, library: str, version: str) -> bool:
    """Whether a library chose among four of eight groups of experts, as DeepSeek-V3 does."""
    grouped = _facts()["grouped"]
    chosen = f"{library} {version}" in grouped["releases"]
    return chosen and tuple(sizes[1:5]) in grouped["models"]


def _work(
    sizes: Array, facts: Sequence[tuple[str, str, str, str]], dtype: str, kind: str
) -> ExpertWork:
    tokens, hidden, inter, top_k, experts, tp, ep = sizes.T
    keys = [(int(t), int(e), int(k), int(r), _exponent(f[3]), _is_bare(s, *f[:3]),
             _is_grouped(s, *f[1:3]))
            for s, (t, _, _, k, e, _, r), f in zip(sizes, sizes, facts, strict=True)]  # fmt: skip
    found = [_loads(*key) for key in keys]
    arrived, rows, hit = (np.array([f[i] for f in found]) for i in (0, 1, 2))
    tiles = np.array([f[3] for f in found]).T
    local = experts / ep
    every = np.array([_ALL_CHOICES in f[0] for f in facts]) & (ep > 1)
    rows = np.where(every, tokens * top_k, rows)
    hit = np.where(every, local, hit)
    tile_rows = np.array(TILE_ROWS, dtype=float)[:, None]
    tiles = np.where(every, np.ceil(rows / local / tile_rows) * local, tiles)
    inner = inter / tp
    without = _facts()["gateless"]
    gateless = [
        "nongated" in f[0]
        or (tuple(s) in without["models"] and f"{f[1]} {f[2]}" not in without["gated_in"])
        for s, f in zip(sizes[:, 2:5], facts, strict=True)
    ]
    halves = np.where(gateless, 1.0, 2.0)
    _, weight_bytes, row_bytes, loaded_bytes = _DTYPES[dtype]
    triton, generated = kind == "triton", kind == "trtllm"
    touched = np.maximum(arrived * top_k, rows) if triton else rows
    # 16-bit rows activated and summed; tokens are read, cast and written once summed.
    # TensorRT-LLM's generated kernels gather rows within the first product, as Triton's do, and
    # activate there too, but where vector units scale by block.
    moved = touched * 2.0 * hidden
    if not generated or dtype == "fp8_block":
        moved += touched * (2.0 * halves + row_bytes) * inner
    if not (triton or generated):
        moved += rows * hidden * (2.0 + row_bytes)
    token = arrived * hidden * (4.0 + row_bytes)
    # Kernels that take a row at a time with a block of threads each: sorting and activation
    # (TensorRT-LLM and FlashInfer, moe_kernels.cu, expandInputRowsKernel and doActivationKernel),
    # activation alone where the products gather rows, none where they activate too.
    passes = 1.0 if triton else float(dtype == "fp8_block") if generated else 2.0
    each: dict[str, Any] = {
        "weight_bytes": weight_bytes, "row_bytes": row_bytes, "loaded_bytes": loaded_bytes,
    }  # fmt: skip
    scalings = np.array([dtype == "fp8_block" and "deepgemm" not in f[0] for f in facts]) / 128.0
    return ExpertWork(
        rows=rows, hit=hit, tiles=tiles, hidden=hidden, inner=inner, halves=halves,
        moved_bytes=moved, token_bytes=token, choices=arrived * top_k,
        handled=passes * touched, scalings=scalings,
        **{k: np.full(len(rows), v) for k, v in each.items()},
    )  # fmt: skip
