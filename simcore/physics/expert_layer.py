"""Seconds of a rank's expert layer: products grouped by expert, and the kernels that move rows.

    start + sum over both products of sqrt(tc^2 + tl^2 + tm^2) + moves

``tc``: tiles of rows of one expert, whole ones (:func:`tiles_of`), over the rate, and what vector
units scale by block; ``tl``: their operands, which the processors load from the cache tile by tile;
``tm``: weights of the experts that have rows, again for each tile of rows where a cache does not
hold them, and rows in and out, over the bandwidth; moves: tokens routed and quantised, rows sorted
by expert, activated and summed, limited by bandwidth and by the instructions of a byte and a row.
Pure functions on arrays: n layers.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

import numpy as np

from simcore.base.arrays import NDArray
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
    """Tokens of each expert, the fullest rank's first [draws, ranks, experts / ranks].

    ``exponent`` None: routing is balanced. Otherwise the experts' loads are drawn from a power law
    between 1 and 0.8 tokens, scaled to ``tokens · top_k``, and no expert has a token twice
    (aiconfigurator, collector/helper.py, _generate_power_law_distribution).
    """
    if exponent is None:
        return np.full((1, ranks, experts // ranks), tokens * top_k / experts)
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
    order = np.argsort(-by_rank.sum(axis=2), axis=1)
    found: FloatArray = np.take_along_axis(by_rank, order[..., None], axis=1)
    return found


def seen_tokens(loads: FloatArray, tokens: int) -> FloatArray:
    """Tokens with a choice on the first rank [draws], of loads [draws, ranks, experts / ranks].

    Experts take the tokens in turn, the fullest expert first and each from where the one before it
    ended, over and over (aiconfigurator, collector/helper.py, _assign_experts_from_counts).
    """
    flat = loads.reshape(len(loads), -1)
    order = np.argsort(-flat, axis=1)
    taken = np.take_along_axis(flat, order, axis=1)
    last = np.round(np.cumsum(taken, axis=1)).astype(int)
    draw, at = np.nonzero((order < loads.shape[2]) & (np.round(taken) > 0.0))
    end = last[draw, at]
    start = np.round(end - taken[draw, at]).astype(int) % tokens
    end %= tokens
    first, size = draw * tokens, len(loads) * tokens
    steps = np.bincount(first + start, minlength=size) - np.bincount(first + end, minlength=size)
    steps += np.bincount(first[end <= start], minlength=size)  # those that wrap around
    held = np.cumsum(steps.reshape(len(loads), tokens), axis=1) > 0
    found: FloatArray = held.sum(axis=1).astype(float)
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
    ``weight_bytes``, ``row_bytes``: of an element of a weight and of a product's input;
    ``loaded_bytes``: of an element of a weight in an SM's memory, where narrow ones are padded.
    ``moved_bytes``: of the kernels besides the products, by the rows that experts compute;
    ``token_bytes``: by the tokens that reach the rank, which are quantised and summed;
    ``choices``: experts that they choose, also those of other ranks; ``handled``: rows that kernels
    besides the products take one at a time, once for each kernel; ``scalings``: of a sum by vector
    units for each element of the depth, where operands have scales by block.
    """

    rows: FloatArray
    hit: FloatArray
    tiles: FloatArray
    hidden: FloatArray
    inner: FloatArray
    halves: FloatArray
    weight_bytes: FloatArray
    row_bytes: FloatArray
    loaded_bytes: FloatArray
    moved_bytes: FloatArray
    token_bytes: FloatArray
    choices: FloatArray
    handled: FloatArray
    scalings: FloatArray

    @property
    def flop(self) -> FloatArray:
        """FLOP of the rows, without what tiles pad."""
        return 2.0 * self.rows * (self.halves + 1.0) * self.hidden * self.inner

    @property
    def read_bytes(self) -> FloatArray:
        """Bytes of the weights of all experts with rows."""
        return self.hit * (self.halves + 1.0) * self.hidden * self.inner * self.weight_bytes


@dataclass(frozen=True)
class Tile:
    """What a kernel may compute at once: the rows, of which it takes the best, and columns.

    ``cached_bytes``: weights of an expert that its tiles of rows share, one after another; larger
    ones are read again for each. ``chosen``: the rows of each layer [n], where a table has them.
    ``sharing``: loads of operands that one load of an SM serves, in clusters of SMs.
    """

    rows: tuple[int, ...] = TILE_ROWS
    columns: int | FloatArray = TILE_COLUMNS
    cached_bytes: float = float("inf")
    chosen: FloatArray | None = None
    sharing: float = 1.0

    def take(self, layers: NDArray[np.bool_]) -> Tile:
        """The tile for some of the layers."""
        if self.chosen is None:
            return self
        columns = np.asarray(self.columns, dtype=float)
        return replace(self, columns=columns[layers], chosen=self.chosen[layers])


@dataclass(frozen=True)
class ExpertRates:
    """The rates of a kernel on a device.

    ``flop_per_s``: of tiles whose operands are there; ``loaded_bytes_per_s``: of operands from the
    cache; ``scaled_per_s``: sums that vector units scale; ``wave_frac``: how far the last wave of
    tiles counts as a full one. ``bytes_per_s``: of memory; ``moved_s_per_byte``,
    ``token_s_per_byte``: the instructions' seconds of a byte that the other kernels move, for rows
    and for tokens, ``row_s``: of a row; ``overlaps``: whether they run while memory is waited for;
    ``choice_s``: of a choice that is sorted. ``kept_bytes``: weights up to so many are in the
    cache, where the same layer runs again and again.
    """

    flop_per_s: float
    bytes_per_s: float
    start_s: float
    loaded_bytes_per_s: float
    scaled_per_s: float
    wave_frac: float
    moved_s_per_byte: float
    token_s_per_byte: float
    choice_s: float
    row_s: float = 0.0
    overlaps: bool = False
    kept_bytes: float = 0.0


def expert_layer_s(
    work: ExpertWork, rates: ExpertRates, sm_count: float, tile: Tile | None = None
) -> FloatArray:
    """Seconds of each layer [n], by the best of the rows of ``tile`` for each product."""
    tile = tile or Tile()
    fits = [i for i, rows in enumerate(TILE_ROWS) if rows in tile.rows]
    wide = work.halves * work.inner
    total = np.full_like(work.rows, rates.start_s)
    result = 2.0  # bytes of an element of a result: 16 bit
    tile_rows, tiles = np.array(TILE_ROWS, dtype=float)[fits, None], work.tiles[fits]
    for columns, depth in ((wide, work.hidden), (work.hidden, work.inner)):
        waves = tiles * np.ceil(columns / tile.columns) / sm_count
        spent = rates.wave_frac * np.ceil(waves) + (1.0 - rates.wave_frac) * waves
        sums = spent * sm_count * tile_rows * tile.columns * depth
        product_s = sums * (2.0 / rates.flop_per_s + work.scalings / rates.scaled_per_s)
        loaded = depth * (tile_rows * work.row_bytes + tile.columns * work.loaded_bytes)
        loaded_s = spent * sm_count * loaded / rates.loaded_bytes_per_s
        expert_bytes = columns * depth * work.weight_bytes
        reads = np.where(expert_bytes > tile.cached_bytes, tiles, work.hit)
        reads = np.where(work.read_bytes > rates.kept_bytes, reads, 0.0)
        n_bytes = reads * expert_bytes + work.rows * (depth * work.row_bytes + columns * result)
        both = roofline_s(np.hypot(product_s, loaded_s), n_bytes / rates.bytes_per_s)
        if tile.chosen is not None:
            both = np.where(tile_rows == tile.chosen, both, np.inf)
        total = total + both.min(axis=0)
    both_s = roofline_s if rates.overlaps else np.add
    instructions_s = work.moved_bytes * rates.moved_s_per_byte + work.handled * rates.row_s
    moved: FloatArray = both_s(instructions_s, work.moved_bytes / rates.bytes_per_s)
    instructions_s = work.token_bytes * rates.token_s_per_byte
    tokens: FloatArray = both_s(instructions_s, work.token_bytes / rates.bytes_per_s)
    return total + moved + tokens + work.choices * rates.choice_s
