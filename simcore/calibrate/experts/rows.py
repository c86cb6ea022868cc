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
from typing import Any, Final, NamedTuple

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


class _Format(NamedTuple):
    """A number format of expert layers: the datasheet's peak that counts, and bytes of elements.

    ``weight_bytes``, ``row_bytes``: of a weight and of a product's input, scales included: blocks
    of 16 with one byte (nvfp4), of 32 with one (mxfp4, mxfp8). ``loaded_bytes``: of a weight in an
    SM's memory; 4-bit weights that meet 8-bit inputs are padded to a byte there (PTX ISA, packing
    formats of .kind::mxf8f6f4; TensorRT-LLM's generated kernels, buildNdTmaDescriptor,
    padMultiplier).
    """

    peak: PeakName
    weight_bytes: float
    row_bytes: float
    loaded_bytes: float


#: Number formats by dtype of a table.
_DTYPES: Final[dict[str, _Format]] = {
    "bfloat16": _Format("bf16", 2.0, 2.0, 2.0),
    "fp8": _Format("fp8", 1.0, 1.0, 1.0),
    "fp8_block": _Format("fp8", 1.0, 1.0, 1.0),
    "nvfp4": _Format("fp4", 0.5 + 1 / 16, 0.5 + 1 / 16, 0.5 + 1 / 16),
    "w4a8_mxfp4_mxfp8": _Format("fp8", 0.5 + 1 / 32, 1.0 + 1 / 32, 1.0 + 1 / 32),
    "w8a16": _Format("bf16", 1.0, 2.0, 1.0),
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


class _Run(NamedTuple):
    """How a measured layer ran: its kernel's name, the library and its release, and the routing."""

    kernel: str
    library: str
    release: str
    routing: str

    @property
    def exponent(self) -> float | None:
        """Exponent of the power law by which tokens choose experts; None: evenly."""
        power_law = self.routing.startswith("power_law")
        return float(self.routing.rpartition("_")[2]) if power_law else None


class _Sizes(NamedTuple):
    """Sizes of a measured layer; ``tp`` ranks divide an expert, ``ep`` ranks share the experts."""

    tokens: float
    hidden: float
    inter: float
    top_k: float
    experts: float
    tp: float
    ep: float


class _Loads(NamedTuple):
    """What the fullest rank gets, on average: tokens, rows, experts that have any, and tiles."""

    tokens: float
    rows: float
    hit: float
    tiles: tuple[float, ...]


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
        return _DTYPES[self.dtype].peak

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
    library, gpus = table.text("framework"), table.text("gpu")
    runs = [*map(_Run, kernels, library, table.text("version"), table.text("distribution"))]
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
        work = _work(sizes[at], [runs[r] for r in rows], dtype, kind.partition("_")[0])
        exponents = np.array([runs[r].exponent or 0.0 for r in rows])
        shape = np.column_stack([sizes[at], exponents])
        tile = tile_of(gpu, kind, dtype, sizes[at], work.choices / sizes[at, 3])
        batches.append(ExpertBatch(gpu, f"{kind}_{dtype}", dtype, work, tile, shape, time_s[at]))
    return table.read(batches, skipped, on_bad)


@lru_cache(maxsize=16384)
def _loads(
    tokens: int, experts: int, top_k: int, ranks: int, exponent: float | None, bare: bool,
    grouped: bool,
) -> _Loads:  # fmt: skip
    """The load of the fullest rank; ``bare``, ``grouped``: as ``_is_bare`` and ``_is_grouped``."""
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
    return _Loads(arrived, float(loads.sum(axis=1).mean()), hit, tuple(tiles_of(loads)))


def _is_bare(sizes: _Sizes, run: _Run) -> bool:
    """Whether a run is one of SGLang's kernel without its layer, on one of several ranks."""
    bare, model = _facts()["bare"], (sizes.hidden, sizes.inter, sizes.top_k)
    known = run.release == bare["version"] or model in bare["models"]
    return run.library == "SGLang" and "triton" in run.kernel and known and sizes.ep > 1


def _is_grouped(sizes: _Sizes, run: _Run) -> bool:
    """Whether a library chose among four of eight groups of experts, as DeepSeek-V3 does."""
    grouped = _facts()["grouped"]
    model = (sizes.hidden, sizes.inter, sizes.top_k, sizes.experts)
    return f"{run.library} {run.release}" in grouped["releases"] and model in grouped["models"]


def _is_gateless(sizes: _Sizes, run: _Run) -> bool:
    """Whether the experts have one product before their activation, and no gate."""
    gateless, model = _facts()["gateless"], (sizes.inter, sizes.top_k, sizes.experts)
    gated = f"{run.library} {run.release}" in gateless["gated_in"]
    return "nongated" in run.kernel or (model in gateless["models"] and not gated)


def _work(layers: Array, runs: Sequence[_Run], dtype: str, kind: str) -> ExpertWork:
    """What the fullest rank computes in each run; ``layers`` [rows, 7]: the fields of ``_Sizes``.

    ``kind``: of the kernels, one of those in ``_KINDS``.
    """
    tokens, hidden, inter, top_k, experts, tp, ep = layers.T
    each = [(_Sizes(*sizes), run) for sizes, run in zip(layers.tolist(), runs, strict=True)]
    loads = [
        _loads(int(s.tokens), int(s.experts), int(s.top_k), int(s.ep), run.exponent,
               _is_bare(s, run), _is_grouped(s, run))
        for s, run in each
    ]  # fmt: skip
    arrived, rows, hit = (
        np.array([getattr(of, name) for of in loads]) for name in ("tokens", "rows", "hit")
    )
    tiles = np.array([of.tiles for of in loads]).T
    local = experts / ep
    every = np.array([_ALL_CHOICES in run.kernel for run in runs]) & (ep > 1)
    rows = np.where(every, tokens * top_k, rows)
    hit = np.where(every, local, hit)
    tile_rows = np.array(TILE_ROWS, dtype=float)[:, None]
    tiles = np.where(every, np.ceil(rows / local / tile_rows) * local, tiles)
    inner, of = inter / tp, _DTYPES[dtype]
    halves = np.where([_is_gateless(s, run) for s, run in each], 1.0, 2.0)
    triton, generated = kind == "triton", kind == "trtllm"
    touched = np.maximum(arrived * top_k, rows) if triton else rows
    # 16-bit rows activated and summed; tokens are read, cast and written once summed.
    # TensorRT-LLM's generated kernels gather rows within the first product, as Triton's do, and
    # activate there too, but where vector units scale by block.
    moved = touched * 2.0 * hidden
    if not generated or dtype == "fp8_block":
        moved += touched * (2.0 * halves + of.row_bytes) * inner
    if not (triton or generated):
        moved += rows * hidden * (2.0 + of.row_bytes)
    # Kernels that take a row at a time with a block of threads each: sorting and activation
    # (TensorRT-LLM and FlashInfer, moe_kernels.cu, expandInputRowsKernel and doActivationKernel),
    # activation alone where the products gather rows, none where they activate too.
    passes = 1.0 if triton else float(dtype == "fp8_block") if generated else 2.0
    scaled = [dtype == "fp8_block" and "deepgemm" not in run.kernel for run in runs]
    return ExpertWork(
        rows=rows, hit=hit, tiles=tiles, hidden=hidden, inner=inner, halves=halves,
        moved_bytes=moved, token_bytes=arrived * hidden * (4.0 + of.row_bytes),
        choices=arrived * top_k, handled=passes * touched, scalings=np.array(scaled) / 128.0,
        weight_bytes=np.full(len(rows), of.weight_bytes),
        row_bytes=np.full(len(rows), of.row_bytes),
        loaded_bytes=np.full(len(rows), of.loaded_bytes),
    )  # fmt: skip
