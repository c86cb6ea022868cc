"""Clauses about measured kernels, collectives and whole models, and about ``simcore selftest``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from validate.must_hold.clause import Clause, Found, at_most, percent
from validate.must_hold.tables import Tables

#: (class of ops of ``simcore validate ops``, dtype, largest error with the GPU's own figures,
#: largest error with figures that were fitted without the GPU's family).
_CLASSES = (
    ("products of 1 GFLOP and more", "bf16", 0.075, 0.11),
    ("memory-bound, 32 MB and more", "", 0.07, 0.12),
    ("attention of 5 GFLOP and more", "bf16", 0.09, 0.20),
    ("collectives inside a node", "", 0.06, 0.20),
)
_LEAST_INSIDE, _LOOP_FRAC = 7, 0.08


def _class(name: str, dtype: str, whose: str, limit_frac: float) -> Callable[[Tables], Found]:
    """A clause about the error of a class of ops, averaged over GPUs.

    ``whose``: "own" if the figures are fitted to other shapes on the same GPU, "blind" if they are
    fitted to other families of GPUs.
    """
    refit = {"own": "shapes", "blind": "family"}[whose]

    def compute(t: Tables) -> Found:
        found = t.ops(refit)[name, dtype, whose]
        return at_most(limit_frac, found["mape_frac"], f"{found['gpus']} GPUs, {found['n']:,} rows")

    return compute


def _linear(t: Tables) -> dict[str, dict[str, Any]]:
    return t.linear_attention


def _experts(t: Tables) -> dict[str, dict[str, Any]]:
    return t.experts


def _apart(
    table: Callable[[Tables], dict[str, dict[str, Any]]], whose: str, limit_frac: float
) -> Callable[[Tables], Found]:
    """A clause about the error of a table of its own; ``whose`` as in :func:`_class`."""

    def compute(t: Tables) -> Found:
        found = table(t)[whose]
        return at_most(limit_frac, found["mape_frac"], f"{found['gpus']} GPUs, {found['n']:,} rows")

    return compute


def _models(t: Tables) -> Found:
    found = t.ops_models
    return at_most(0.095, found["mape_frac"], f"{found['n']} rows")


def _loops(t: Tables) -> Found:
    runs = t.closed_loops
    errors = [r["median_error_frac"] for r in runs]
    inside = [r["inside"] for r in runs]
    text = ", ".join(f"{percent(e)} with {n} inside" for e, n in zip(errors, inside, strict=True))
    holds = len(runs) == 3 and max(errors) <= _LOOP_FRAC and min(inside) >= _LEAST_INSIDE
    return Found(holds, text, max(errors, default=None))


CLAUSES = (
    *(
        Clause(f"{name}{f', {dtype}' if dtype else ''}: {whose}", f"at most {percent(limit)}", "4",
               _class(name, dtype, whose, limit))
        for name, dtype, own, blind in _CLASSES
        for whose, limit in (("own", own), ("blind", blind))
    ),
    Clause("linear attention: own", "at most 10 %", "31", _apart(_linear, "own", 0.10)),
    Clause("linear attention: blind", "at most 18 %", "31", _apart(_linear, "blind", 0.18)),
    Clause("expert layers, large: own", "at most 9 %", "31", _apart(_experts, "own", 0.09)),
    Clause("expert layers, large: blind", "at most 15 %", "31", _apart(_experts, "blind", 0.15)),
    Clause("NeuSight's whole fp32 models: blind", "at most 9.5 %", "4", _models),
    Clause("closed loop, the last three runs kept", "8 %, 7 of 8 inside", "28", _loops),
)  # fmt: skip
