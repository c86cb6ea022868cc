"""Solves the fit of steps by Gauss-Newton with step halving.

# R rows, P parameters
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence

import numpy as np

from simcore.base.arrays import Array
from simcore.calibrate.steps.model import (
    Block,
    FitRow,
    Line,
    Parameter,
    features_of,
    line_of,
    row_of,
    shifts_of,
)
from simcore.calibrate.steps.residual import PARTS, part_covariances

#: Standard deviation of ln(time) of one measured step around a model whose parameters are known:
#: timing noise (0.2 to 5 %, notes on the corpus) and the error of the model's form.
ROW_SD_LOG = 0.07
#: Degrees of freedom of Student's t for a row's own error: a few rows in a hundred are wrong.
ROW_FREEDOM = 4.0
#: Limits of the iteration: steps, halvings of a step, and the move that counts as converged.
_MOST_ITERATIONS, _MOST_HALVINGS, _DONE = 8, 2, 4e-3
#: Number of fits: the first with the prior widths, the others with those learnt from the previous.
_TURNS = 3
#: The largest move of one multiplier's logarithm in a step.
_LARGEST_MOVE = 0.7
#: Start values to try for a parameter that may not influence the time at first.
_STARTS = (0.0, -0.5, -1.0, -1.5)
#: Standard deviation of the prior of a width's logarithm.
_WIDTH_SD_LOG = 1.0


class Solver:
    """The state of one fit: parameters ``theta`` [P], widths, and the rows' weights.

    The arguments are those of ``fit.fit_steps``.
    """

    def __init__(
        self,
        rows: Sequence[FitRow],
        parameters: Sequence[Parameter],
        *,
        learn: bool,
        row_sd_log: float | None = None,
    ) -> None:
        self.rows, self.parameters, self.learn = tuple(rows), tuple(parameters), learn
        self.row_sd_log = row_sd_log
        self.index = {p.name: i for i, p in enumerate(parameters)}
        self.expected = np.array([p.prior_mean_log for p in parameters], dtype=np.float64)
        self.theta = self.expected.copy()
        self.widths = {"row": ROW_SD_LOG if row_sd_log is None else row_sd_log}
        self.widths |= {f"level {p.level}": 1.0 for p in parameters if p.level}
        if rows and all(r.traits is not None for r in rows):
            self.widths |= PARTS
        self.weight = {r.key: 1.0 for r in rows}
        self.lines: dict[str, tuple[bytes, Line]] = {}
        by_block: dict[str, list[FitRow]] = defaultdict(list)
        for r in rows:
            by_block[r.block].append(r)
        self.by_block = dict(by_block)
        self.blocks: dict[str, Block] = {}

    # -- the model, linearised at a point --------------------------------------------------

    def _line(self, row: FitRow, theta: Array) -> Line:
        shifts = shifts_of(row, {n: float(theta[i]) for n, i in self.index.items()
                                 if n in row.uses})  # fmt: skip
        known = self.lines.get(row.key)
        if known is None or known[0] != shifts.tobytes():
            known = (shifts.tobytes(), line_of(row, shifts))
            self.lines[row.key] = known
        return known[1]

    def _about(self, rows: Sequence[FitRow], theta: Array) -> Block:
        lines = [self._line(r, theta) for r in rows]
        along = np.array([row_of(r, x.slopes, self.index)
                          for r, x in zip(rows, lines, strict=True)])  # fmt: skip
        off = np.array([math.log(r.measured_s) - x.log_s
                        for r, x in zip(rows, lines, strict=True)])  # fmt: skip
        slopes = tuple(x.slopes for x in lines)
        features = features_of(rows, slopes)
        parts = {} if features is None else part_covariances(features, features)
        z = off + along @ (theta - self.expected)
        return Block(tuple(rows), along, z, off, slopes, parts)

    @property
    def prior(self) -> Array:
        """The prior variances of the parameters [P]."""
        return np.array(
            [(p.prior_sd_log * self.widths.get(f"level {p.level}", 1.0)) ** 2
             for p in self.parameters]
        )  # fmt: skip

    def _noise(self, block: Block) -> Array:
        """The covariance of the residual and of the rows' own errors [R, R]."""
        own = [self.widths["row"] ** 2 / self.weight[r.key] for r in block.rows]
        return np.diag(own) + sum(
            (self.widths[k] ** 2 * c for k, c in block.parts.items()), np.zeros(())
        )

    def _covariance(self, block: Block) -> Array:
        """The covariance of ``block.z`` with uncertain parameters [R, R]."""
        along = block.slopes_of
        return (along * self.prior) @ along.T + self._noise(block)

    def _cost(self, block: Block, noise: Array, theta: Array) -> float:
        """Minus twice the logarithm of the posterior at ``theta``, without constants."""
        prior = self.prior
        moved = (theta - self.expected)[prior > 0]
        cost = float(np.sum(moved**2 / prior[prior > 0]))
        return float(block.off @ np.linalg.solve(noise, block.off)) + cost

    # -- the fit ---------------------------------------------------------------------------

    def solve(self) -> tuple[Array, Array]:
        """The parameters and their standard deviations."""
        if not self.rows:
            return self.theta, np.sqrt(self.prior)
        self._start()
        for turn in range(_TURNS if self.learn else 1):
            if turn:
                self._learn()
            for name, rows in self.by_block.items():
                self._converge(name, rows)
        variance = self.prior.copy()
        for block, inverse, _ in self.solved().values():
            shared = block.slopes_of * self.prior
            variance -= np.einsum("rp,rs,sp->p", shared, inverse, shared)
        return self.theta, np.sqrt(np.maximum(variance, 0.0))

    def _converge(self, name: str, rows: Sequence[FitRow]) -> None:
        """Iterate the parameters of one block until they converge."""
        self.blocks[name] = self._about(rows, self.theta)
        for iteration in range(_MOST_ITERATIONS):
            move = self._step(name)
            if iteration:  # at the start values every row would look wrong
                self._weigh(self.blocks[name])
                if move < _DONE:
                    return

    def _step(self, name: str) -> float:
        """Move to the solution of the linear model, or part of the way if that has a lower cost.

        Returns the largest move of a parameter.
        """
        block = self.blocks[name]
        noise = self._noise(block)
        gradient = block.slopes_of.T @ np.linalg.solve(self._covariance(block), block.z)
        aim = self.expected + self.prior * gradient
        mine = np.zeros(len(self.theta), dtype=bool)  # parameters of other blocks do not move
        mine[[self.index[n] for r in block.rows for n in r.uses if n in self.index]] = True
        move = np.where(mine, np.clip(aim - self.theta, -_LARGEST_MOVE, _LARGEST_MOVE), 0.0)
        before = self._cost(block, noise, self.theta)
        for _ in range(_MOST_HALVINGS):
            there = self._about(block.rows, self.theta + move)
            if self._cost(there, noise, self.theta + move) <= before + _DONE:
                self.theta, self.blocks[name] = self.theta + move, there
                return float(np.abs(move).max(initial=0.0))
            move = move / 2.0
        return 0.0

    def _weigh(self, block: Block) -> None:
        """Update the rows' weights of Student's t, which are low for rows with large errors."""
        alpha = np.linalg.solve(self._covariance(block), block.z)
        variance = self.widths["row"] ** 2
        for row, a in zip(block.rows, alpha, strict=True):
            error = variance / self.weight[row.key] * float(a)
            self.weight[row.key] = (ROW_FREEDOM + 1.0) / (ROW_FREEDOM + error**2 / variance)

    def _start(self) -> None:
        """Choose the start value of each ``may_bind`` parameter that explains the rows best."""
        scatter = sum(v**2 for k, v in self.widths.items() if not k.startswith("level"))
        for p in self.parameters:
            mine = [r for r in self.rows if p.name in r.uses]
            if not p.may_bind or not mine:
                continue
            at = self.index[p.name]
            others = self.prior
            others[at] = 0.0
            best = (math.inf, 0.0)
            for value in _STARTS:
                theta = self.theta.copy()
                theta[at] = value
                there = self._about(mine, theta)
                along, off = there.slopes_of, there.off
                covariance = (along * others) @ along.T + scatter * np.eye(len(mine))
                cost = float(off @ np.linalg.solve(covariance, off)) + float(
                    np.linalg.slogdet(covariance)[1]
                )
                cost += value**2 / self.prior[at]
                best = min(best, (cost, -value))
            self.theta[at] = -best[1]

    # -- widths ----------------------------------------------------------------------------

    def _learn(self) -> None:
        """Set the widths to the maximum of marginal likelihood times their priors (type II)."""
        from scipy.optimize import minimize

        names = list(self.widths)
        first = {**{n: 1.0 for n in names if n.startswith("level")}, "row": ROW_SD_LOG, **PARTS}
        centre = np.log([first[n] for n in names])
        base = np.array([p.prior_sd_log**2 for p in self.parameters])
        members = {
            n: np.array([f"level {p.level}" == n for p in self.parameters]) for n in names
        }  # fmt: skip
        fixed = ~np.any([members[n] for n in names], axis=0)
        made = []
        for block in self.blocks.values():
            along = block.slopes_of
            of = dict(block.parts)
            of["row"] = np.diag([1.0 / self.weight[r.key] for r in block.rows])
            for n in names:
                if n.startswith("level"):
                    of[n] = (along * (base * members[n])) @ along.T
            made.append((block.z, (along * (base * fixed)) @ along.T, of))

        def cost(h: Array) -> tuple[float, Array]:
            total, slope = 0.0, np.zeros(len(h))
            for z, constant, of in made:
                covariance = constant + sum(
                    math.exp(2.0 * v) * of[n] for n, v in zip(names, h, strict=True)
                )
                inverse = np.linalg.inv(covariance)
                alpha = inverse @ z
                total += 0.5 * float(z @ alpha) + 0.5 * float(np.linalg.slogdet(covariance)[1])
                for i, n in enumerate(names):
                    pull = np.sum(inverse * of[n]) - alpha @ of[n] @ alpha
                    slope[i] += math.exp(2.0 * h[i]) * float(pull)
            off = (h - centre) / _WIDTH_SD_LOG
            return total + 0.5 * float(off @ off), slope + off / _WIDTH_SD_LOG

        start = np.log([self.widths[n] for n in names])
        bounds: list[tuple[float | None, float | None]] = [(None, None) for _ in names]
        if self.row_sd_log is not None:
            fixed_at = math.log(self.row_sd_log)
            bounds[names.index("row")] = (fixed_at, fixed_at)
        best = minimize(
            cost, start, jac=True, method="L-BFGS-B", bounds=bounds, options={"maxiter": 30}
        )
        self.widths = {n: math.exp(v) for n, v in zip(names, best.x, strict=True)}

    # -- the result ------------------------------------------------------------------------

    def solved(self) -> dict[str, tuple[Block, Array, Array]]:
        """Block name -> (block at the solution, inverse of its covariance K, K^-1 z)."""
        solved = {}
        for name, block in self.blocks.items():
            inverse: Array = np.linalg.inv(self._covariance(block)).astype(np.float64)
            solved[name] = (block, inverse, inverse @ block.z)
        return solved

    def predicted_s(self) -> dict[str, float]:
        """Row key -> predicted seconds by the parameters alone."""
        return {
            r.key: math.exp(self._line(r, self.theta).log_s) for r in self.rows
        }  # fmt: skip
