"""Collectives that the script itself issues, beside those of a strategy: recognised or priced."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from simcore.base.units import KIB, MEGA
from simcore.workload.trace.run.meter import Collective

#: Kinds that are priced.
_OPS = {
    "all-reduce": "all_reduce", "all-gather": "all_gather", "reduce-scatter": "reduce_scatter",
    "all-to-all": "all_to_all", "broadcast": "broadcast", "reduce": "reduce",
    "gather": "all_to_one", "scatter": "one_to_all",
}  # fmt: skip
#: Phases that a step runs once, whatever its micro-steps.
_ONCE = ("setup", "between", "optimizer")
#: From this part of all gradients on, the script averages them by hand.
_MOST_FRAC = 0.5
#: Messages from here on are told one by one in a note [bytes].
_TOLD = 64 * KIB


def split(
    collectives: Iterable[Collective], gradient_bytes: int
) -> tuple[list[Collective], list[Collective]]:
    """The script's own collectives: those that average its gradients after backward, and others."""
    own = [c for c in collectives if c.issuer == "script"]
    sums = [c for c in own if c.kind == "all-reduce" and c.phase in ("between", "backward")]
    averages = sum(c.n_bytes for c in sums) >= _MOST_FRAC * max(gradient_bytes, 1)
    if not averages:
        return [], own
    return sums, [c for c in own if c not in sums]


def exchanges(
    own: Sequence[Collective], data_ranks: int, micro_steps: int, micro_batch: int
) -> list[dict[str, Any]]:
    """The plain data of ``models.Exchange`` of each distinct collective.

    Messages of forward and backward are taken to hold one row a sample.
    """
    counted = Counter((c.kind, c.ranks, c.n_bytes, c.phase in _ONCE) for c in own)
    found = []
    for (kind, ranks, n_bytes, once), times in counted.items():
        if kind not in _OPS or len(ranks) < 2:
            continue
        of_all = len(ranks) == data_ranks
        found.append({
            "op": _OPS[kind],
            "ranks": 0 if of_all else len(ranks),
            "stride": 1 if of_all else max(1, abs(ranks[1] - ranks[0])),
            "n_bytes": float(n_bytes if once else n_bytes / micro_batch),
            "times": float(times if once else times / micro_steps),
            "per_sample": not once,
        })  # fmt: skip
    return found


def told(own: Sequence[Collective], piped: bool) -> list[str]:
    """Sentences on collectives that are priced as the script's own, or are not priced."""
    counted = Counter((c.kind, len(c.ranks), c.n_bytes, c.phase) for c in own if c.n_bytes >= _TOLD)

    def text(kinds: bool) -> str:
        return ", ".join(
            f"{times} {kind} of {n_bytes / MEGA:,.2f} MB over {ranks} ranks ({phase})"
            for (kind, ranks, n_bytes, phase), times in counted.items()
            if (kind in _OPS) is kinds
        )

    notes = []
    if priced := text(True):
        notes.append(f"collectives of the script itself, priced as waited for: {priced}")
    if not piped and (other := text(False)):
        notes.append(f"not priced: {other}")
    return notes
