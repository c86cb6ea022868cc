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

from simcore.base.arrays import NDArray
from simcore.base.errors import DataError
from simcore.base.record import dataclass
from simcore.base.units import GIGA, MICRO
from simcore.calibrate.curve_fits import Array
from simcore.calibrate.op_tables import OnBad, RowsRead, Table, mark_repeats
from simcore.hardware.spec import GPUS, PeakName
from simcore.physics.expert_layer import TILE_ROWS, ExpertWork, rank_loads, seen_tokens, tiles_of

#: dtype of a table -> (peak, bytes of an element of a weight, of a product's input), scales
#: included: blocks of 16 with one byte (nvfp4), of 32 with one (mxfp4, mxfp8).
_DTYPES: Final[dict[str, tuple[PeakName, float, float]]] = {
    "bfloat16": ("bf16", 2.0, 2.0),
    "fp8": ("fp8", 1.0, 1.0),
    "fp8_block": ("fp8", 1.0, 1.0),
    "nvfp4": ("fp4", 0.5 + 1 / 16, 0.5 + 1 / 16),
    "w4a8_mxfp4_mxfp8": ("fp8", 0.5 + 1 / 32, 1.0 + 1 / 32),
    "w8a16": ("bf16", 1.0, 2.0),
}
#: Text in a kernel's name -> its kind, the first that fits. Triton's kernels launch blocks for all
#: choices of all tokens, and activate and sum them all; other kernels touch a rank's rows alone.
_KINDS: Final = (
    ("min_latency", ""), ("triton_fp8_block", "triton"), ("fused_moe_triton", "triton"),
    ("tritonexperts", "triton"), ("vllm_fused_moe", "triton"), ("deepgemm", "deepgemm"),
    ("cutlass", "cutlass"), ("nongated", "cutlass"), ("trtllm", "trtllm"),
    ("moe_torch_flow", "trtllm"),
)  # fmt: skip
#: Runs that take only the tokens with a choice on the rank, and compute all their choices, those of
#: other ranks with the rank's first expert: SGLang's Triton kernel called without its layer
#: (sglang/collect_moe.py, build_rank0_workloads, ``topk_ids.clamp(min=0)``), by 0.5.10 for all
#: models, later for models whose cases name no routing: (hidden, inner, experts of a token).
_BARE_VERSION: Final = "0.5.10"
_BARE: Final = {(4096.0, 14336.0, 2.0), (6144.0, 16384.0, 2.0), (2816.0, 704.0, 8.0)}
#: Hidden and inner width, experts of a token and experts of DeepSeek-V3, and libraries that choose
#: among the four best of its eight groups first, whatever the benchmark's scores are
#: (cases/models/DeepseekV3ForCausalLM_cases.yaml, sglang_moe_topk_group; vllm/collect_moe.py,
#: use_grouped_topk): a balanced routing does not stay balanced.
_GROUPED: Final = (7168.0, 2048.0, 8.0, 256.0)
_GROUPS: Final = {("SGLang", "0.5.14"), ("VLLM", "0.24.0")}
#: Runs that compute all choices of all tokens, also those of other ranks, in 16 bit: TensorRT-LLM's
#: Triton kernel (fused_moe_triton_fp8_block_scale.py, _fused_moe_bf16act_fp8w_kernel); it sorts all
#: choices, and rates would differ by the number of ranks otherwise.
_ALL_CHOICES, _ALL_DTYPE = "triton_fp8_block", "w8a16"
#: Inner width, experts of a token and experts of models without a gate (Nemotron-H's:
#: aiconfigurator, collector/cases/models/NemotronHForCausalLM_cases.yaml), and libraries whose
#: weights have one all the same, since their rates would exceed others' by half otherwise.
_GATELESS: Final = {(1856.0, 6.0, 128.0), (2688.0, 22.0, 512.0), (5120.0, 22.0, 512.0)}
_GATED_ANYWAY: Final = {("VLLM", "0.19.0"), ("VLLM", "0.22.0"), ("SGLang", _BARE_VERSION)}
#: Experts of a rank and width of an expert there (8x3584) for which SGLang 0.5.14 has tuned figures
#: of its Triton kernel in 16 bit (srt/layers/moe/moe_runner/triton_utils/configs, its wheel).
_TUNED: Final = {
    "H100-SXM-80GB": (
        "1x3072 8x1792 8x2048 8x3584 8x4096 8x7168 16x1024 16x1344 16x1856 16x2048 16x2688 "
        "20x2048 24x1024 32x224 32x448 32x896 32x928 32x1792 32x1856 64x192 64x320 64x384 "
        "64x464 64x640 64x768 64x928 64x1280 64x1536 64x1856 64x2688 65x1536 128x192 128x232 "
        "128x352 128x384 128x464 128x512 128x704 128x768 128x928 128x1344 128x1856 128x2688 "
        "144x512 256x672 256x1344 256x2688 512x64 512x128 512x336 512x672 512x1344 512x2688"
    ),
    "H200-SXM": (
        "8x1792 8x2048 8x3584 8x4096 8x7168 8x14336 16x1024 20x1536 64x320 64x640 64x1280 "
        "64x2560 128x192 128x384 128x704 128x768 129x384 161x192 512x64 512x128 512x256"
    ),
    "B200-SXM": (
        "16x1024 16x1856 16x2048 32x224 32x448 32x896 32x928 32x1792 32x1856 64x192 64x384 "
        "64x464 64x768 64x928 64x1536 64x1856 64x2688 128x232 128x352 128x464 128x704 128x928 "
        "128x1344 128x1856 128x2688 256x256 256x512 256x672 256x1344 256x2688 512x128 512x256 "
        "512x336 512x672 512x1344 512x2688"
    ),
    "RTX-PRO-6000": "256x512",
}
#: A large layer: FLOP, rows of an expert, and width of a rank's expert.
LARGE_FLOP, LARGE_ROWS, LARGE_WIDTH = 20 * GIGA, 64.0, 256.0
_NEEDS: Final = {"gpu", "num_tokens", "hidden", "inter", "topk", "experts", "moe_ep", "time_us"}


@dataclass(frozen=True)
class ExpertBatch:
    """Expert layers of one device and class of kernel; arrays [rows], ``shape`` [rows, 8]."""

    gpu: str
    cls: str
    dtype: str
    work: ExpertWork
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
            self, work=ExpertWork(**work), shape=self.shape[rows], time_s=self.time_s[rows]
        )


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
        _, _, inter, _, experts, tp, ep = sizes[row]
        tuned = f"{experts / ep:.0f}x{inter / tp:.0f}" in _TUNED.get(gpus[row], "").split()
        if tuned and own == "triton_sglang" and dtype == "bfloat16":
            own += "tuned"
        groups.setdefault((gpus[row], own, dtype), []).append(int(row))
    batches = []
    for (gpu, kind, dtype), rows in sorted(groups.items()):
        at = np.array(rows)
        facts = [(kernels[r], library[r], version[r], routed[r]) for r in rows]
        work = _work(sizes[at], facts, dtype, kind.partition("_")[0])
        exponents = np.array([_exponent(routed[r]) or 0.0 for r in rows])
        shape = np.column_stack([sizes[at], exponents])
        batches.append(ExpertBatch(gpu, f"{kind}_{dtype}", dtype, work, shape, time_s[at]))
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
    known = version == _BARE_VERSION or tuple(sizes[1:4]) in _BARE
    return library == "SGLang" and "triton" in kernel and known and bool(sizes[6] > 1)


def _is_grouped(sizes: Array, library: str, version: str) -> bool:
    """Whether a library chose among four of eight groups of experts, as DeepSeek-V3 does."""
    return tuple(sizes[1:5]) == _GROUPED and (library, version) in _GROUPS


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
    gateless = [
        "nongated" in f[0] or (tuple(s) in _GATELESS and f[1:3] not in _GATED_ANYWAY)
        for s, f in zip(sizes[:, 2:5], facts, strict=True)
    ]
    halves = np.where(gateless, 1.0, 2.0)
    _, weight_bytes, row_bytes = _DTYPES[dtype]
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
    each: dict[str, Any] = {"weight_bytes": weight_bytes, "row_bytes": row_bytes}
    scalings = np.array([dtype == "fp8_block" and "deepgemm" not in f[0] for f in facts]) / 128.0
    return ExpertWork(
        rows=rows, hit=hit, tiles=tiles, hidden=hidden, inner=inner, halves=halves,
        moved_bytes=moved, token_bytes=token, choices=arrived * top_k, scalings=scalings,
        **{k: np.full(len(rows), v) for k, v in each.items()},
    )  # fmt: skip
