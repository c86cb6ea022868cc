"""Tiles of expert kernels: a program's table of tuned shapes, its default, or what its tuner tries.

The tables are those of ``programs_db/benchmarks/expert_tiles.yaml``.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

import numpy as np

from simcore.base.arrays import Array
from simcore.base.database import read_yaml, shipped_root
from simcore.calibrate.pooling import family_of
from simcore.hardware.spec import GPUS
from simcore.physics.expert_layer import TILE_ROWS, Tile

#: Kernels whose tiles are those of a table, tuned or not.
TRITON: Final = "triton"


@lru_cache(maxsize=1)
def _facts() -> dict[str, Any]:
    return dict(read_yaml(shipped_root() / "programs_db" / "benchmarks" / "expert_tiles.yaml"))


def _rows_columns(tile: str) -> tuple[int, int]:
    rows, _, columns = tile.partition("x")
    return int(rows), int(columns)


def _listed(table: str, tokens: float, experts: float) -> tuple[int, int]:
    """The tile (rows, columns) of a table like "0:16x32 E:64x64" for so many tokens."""
    found = (0, 0)
    for entry in table.split():
        start, _, tile = entry.partition(":")
        if tokens >= (np.floor(experts) + 1.0 if start == "E" else float(start)):
            found = _rows_columns(tile)
    return found


def _sharing(which: str, gpu: str) -> float:
    """Loads that one load of an SM serves, in clusters of ``which`` tiles: tuned, or first."""
    return float(_facts()["sharing"][which].get(family_of(gpu), 1.0))


def tile_of(gpu: str, kernel: str, dtype: str, sizes: Array, arrived: Array) -> Tile:
    """The tiles of a kernel in a library (``"triton_vllm"``) for layers of ``sizes``.

    ``sizes`` [n, 7]: tokens, width of the model, of an expert, experts of a token, experts, tensor
    and expert ranks; ``arrived``: tokens that the kernel is called with [n].
    """
    kind, _, library = kernel.partition("_")
    default = _facts()["defaults"].get(library, {}).get(dtype)
    if kind == TRITON and default:
        tuned = _facts()["tuned"].get(library, {}).get(gpu, {}).get(dtype, {})
        local, width = sizes[:, 4] / sizes[:, 6], sizes[:, 2] / sizes[:, 5]
        tiles = np.array([
            _listed(tuned.get(f"{experts:.0f}x{wide:.0f}", default), tokens, experts)
            for tokens, experts, wide in zip(np.round(arrived), local, width, strict=True)
        ], dtype=float).reshape(-1, 2)  # fmt: skip
        return Tile(columns=tiles[:, 1], chosen=tiles[:, 0])
    generated = _facts()["generated"]
    if kind == generated["kind"]:  # these pass all weights of an expert for each tile of rows
        narrow = "_of_four_bits" if dtype in generated["four_bits"] else ""
        most = generated[f"most_rows{narrow}"] // (1 if kernel == generated["timed"] else 2)
        l2_size = GPUS[gpu].l2_size
        cached = l2_size.value if l2_size else 0.0
        few = tuple(r for r in TILE_ROWS if r <= most)
        return Tile(few, cached_bytes=cached, sharing=_sharing("tuned", gpu))
    first = _facts()["first"]
    only = first.get(family_of(gpu), {}).get(dtype) if kernel in first["kernels"] else None
    if only is None:
        return Tile(sharing=1.0 if kind == TRITON else _sharing("tuned", gpu))
    rows, columns = _rows_columns(only)
    return Tile((rows,), columns, sharing=_sharing("first", gpu))
