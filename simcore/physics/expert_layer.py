"""Seconds of a rank's expert layer: products grouped by expert, and the kernels that move rows.

    start + sum over both products of sqrt(tc^2 + tl^2 + tm^2) + moves

``tc``: tiles of rows of one expert, whole ones (:func:`tiles_of`), over the rate; ``tl``: their
operands, which the processors load from the cache tile by tile; ``tm``: weights of the experts that
have rows, and rows in and out, over the bandwidth; moves: tokens routed and quantised, rows sorted
by expert, activated and summed, limited by bandwidth and by the instructions of a byte.
Pure functions on arrays: n layers.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from simcore.base.record import dataclass
from simcore.physics.kernel import FloatArray, roofline_s

#: Rows of a tile among which kernels choose, and columns of each.
TILE_ROWS: Final = (16, 32, 64, 128, 256)
TILE_COLUMNS: Final = 128
#: Draws of a random routing whose mean stands for it.
_DRAWS: Final = 64
#: Share of the tokens that an expert has at most, where the routing is drawn.
_MOST_FRAC: Final = 0.8


def rank_loads(
    tokens: int, experts: int, top_k: int, ranks: int, exponent: float | None
) -> FloatArray:
    """Tokens of each expert of the fullest rank [draws, experts / ranks].

    ``exponent`` None: routing is balanced. Otherwise the experts' loads are drawn from a power law
    between 1 and 0.8 tokens, scaled to ``tokens · top_k``, and no expert has a token twice
    (aiconfigurator, collector/helper.py, _generate_power_law_distribution).
    """
    mean = tokens * top_k / experts
    if exponent is None:
        return np.full((1, experts // ranks), mean)
    one = 1.0 - exponent
    drawn = np.random.default_rng(0).random((_DRAWS, experts))
    loads = (((_MOST_FRAC * tokens) ** one - 1.0) * drawn + 1.0) ** (1.0 / one)
    loads *= tokens * top_k / loads.sum(axis=1, keepdims=True)
    for _ in range(8):  # what exceeds all tokens goes to the others
        over = np.maximum(loads - tokens, 0.0).sum(axis=1, keepdims=True)
        loads = np.minimum(loads, tokens)
        open_ = loads < tokens
        loads = loads + over * open_ / np.maximum(open_.sum(axis=1, keepdims=True), 1)
    by_rank = np.minimum(loads, tokens).reshape(_DRAWS, ranks, -1)
    fullest = by_rank.sum(axis=2).argmax(axis=1)
    found: FloatArray = by_rank[np.arange(_DRAWS), fullest]
    return found


def tiles_of(loads: FloatArray) -> FloatArray:
    """Tiles that experts' rows need, by the rows of a tile: the mean over draws [tile sizes]."""
    rows = np.array(TILE_ROWS, dtype=float)
    found: FloatArray = np.ceil(np.round(loads)[..., None] / rows).sum(axis=1).mean(axis=0)
    return found


@dataclass(frozen=True)
class ExpertWork:
    """The work of n layers on a rank; arrays [n], ``tiles`` [tile sizes, n].

    ``rows``: that experts compute; ``hit``: experts with rows. ``hidden``, ``inner``: widths of a
    rank's expert; ``halves``: products of the width ``inner`` beside the last one, 2 with a gate.
    ``weight_bytes``, ``row_bytes``: of an element of a weight and of a product's input.
    ``moved_bytes``: of the kernels besides the products, by the rows that experts compute;
    ``token_bytes``: by the tokens that reach the rank, which are quantised and summed;
    ``choices``: experts that they choose, also those of other ranks.
    """

    rows: FloatArray
    hit: FloatArray
    tiles: FloatArray
    hidden: FloatArray
    inner: FloatArray
    halves: FloatArray
    weight_bytes: FloatArray
    row_bytes: FloatArray
    moved_bytes: FloatArray
    token_bytes: FloatArray
    choices: FloatArray

    @property
    def flop(self) -> FloatArray:
        """FLOP of the rows, without what tiles pad."""
        return 2.0 * self.rows * (self.halves + 1.0) * self.hidden * self.inner


@dataclass(frozen=True)
class ExpertRates:
    """The rates of a kernel on a device.

    ``flop_per_s``: of tiles whose operands are there; ``loaded_bytes_per_s``: of operands from the
    cache; ``wave_frac``: how far the last wave of tiles counts as a full one. ``bytes_per_s``: of
    memory; ``moved_s_per_byte``, ``token_s_per_byte``: further seconds of a byte that the other
    kernels move, for rows and for tokens; ``choice_s``: of a choice that is sorted.
    """

    flop_per_s: float
    bytes_per_s: float
    start_s: float
    loaded_bytes_per_s: float
    wave_frac: float
    moved_s_per_byte: float
    token_s_per_byte: float
    choice_s: float


def expert_layer_s(work: ExpertWork, rates: ExpertRates, sm_count: float) -> FloatArray:
    """Seconds of each layer [n], by the best of ``TILE_ROWS`` for each product."""
    wide = work.halves * work.inner
    total = np.full_like(work.rows, rates.start_s)
    result = 2.0  # bytes of an element of a result: 16 bit
    tile_rows = np.array(TILE_ROWS, dtype=float)[:, None]
    for columns, depth in ((wide, work.hidden), (work.hidden, work.inner)):
        waves = work.tiles * np.ceil(columns / TILE_COLUMNS) / sm_count
        spent = rates.wave_frac * np.ceil(waves) + (1.0 - rates.wave_frac) * waves
        flop = spent * sm_count * tile_rows * TILE_COLUMNS * 2.0 * depth
        loaded = depth * (tile_rows * work.row_bytes + TILE_COLUMNS * work.weight_bytes)
        loaded_s = spent * sm_count * loaded / rates.loaded_bytes_per_s
        compute_s = np.hypot(flop / rates.flop_per_s, loaded_s).min(axis=0)
        n_bytes = work.hit * columns * depth * work.weight_bytes
        n_bytes = n_bytes + work.rows * (depth * work.row_bytes + columns * result)
        total = total + roofline_s(compute_s, n_bytes / rates.bytes_per_s)
    memory_s = 1.0 / rates.bytes_per_s
    moved: FloatArray = work.moved_bytes * (memory_s + rates.moved_s_per_byte)
    tokens = work.token_bytes * (memory_s + rates.token_s_per_byte)
    return total + moved + tokens + work.choices * rates.choice_s
