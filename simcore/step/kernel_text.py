"""A kernel of the kernel table as a line of text: its key in profiles with timed kernels.

    backward gemm flop=603979776 launches=1 issues=1 n_bytes=9437184+1966080 m=0+128 n=768 k=3072

Every column that is not zero (a side: one) is written, per sample or as ``fixed+per sample``. Equal
kernels have equal texts.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import lru_cache

import numpy as np

from simcore.base.arrays import NDArray
from simcore.step.kernels import COLUMNS, KINDS, KernelTable

_SIDES = ("m", "n", "k", "groups")
_SCALARS = [n for n in COLUMNS.names or () if not COLUMNS[n].shape and COLUMNS[n].kind == "f"]
_PAIRS = [n for n in COLUMNS.names or () if COLUMNS[n].shape == (2,)]
_PHASES = ("forward", "backward")


def _number(value: float) -> str:
    return f"{value:.9g}".replace("e+", "e")


def _pair(name: str, pair: Sequence[float]) -> str:
    per = f"+{_number(pair[1])}" if pair[1] else ""
    return f"{name}={_number(pair[0])}{per}"


def kernel_text(kernel: np.void) -> str:
    """One kernel of a table as text, without its count."""
    words = [_PHASES[int(kernel["backward"])], KINDS[int(kernel["kind"])]]
    words += [f"{n}={_number(kernel[n])}" for n in _SCALARS if n != "count" and kernel[n]]
    words += [_pair(n, kernel[n]) for n in _PAIRS if kernel[n].any()]
    sides = zip(_SIDES, kernel["sides"], strict=True)
    words += [_pair(name, side) for name, side in sides if tuple(side) != (1.0, 0.0)]
    return " ".join(words)


@lru_cache(maxsize=64)
def kernel_texts(table: KernelTable) -> tuple[str, ...]:
    """All kernels of a table as text."""
    return tuple(map(kernel_text, table.kernels))


def read_kernels(texts: Sequence[str]) -> NDArray[np.void]:
    """Kernels [K] of the columns of a table, each with a count of one, from their texts.

    Raises ValueError for a text that ``kernel_text`` cannot have written.
    """
    kernels = np.zeros(len(texts), dtype=COLUMNS)
    kernels["count"], kernels["sides"][..., 0] = 1.0, 1.0
    for row, text in zip(kernels, texts, strict=True):
        try:
            phase, kind, *words = text.split()
            row["backward"], row["kind"] = _PHASES.index(phase), KINDS.index(kind)
            for word in words:
                name, _, value = word.partition("=")
                fixed, _, per = value.partition("+")
                if name in _SIDES:
                    row["sides"][_SIDES.index(name)] = float(fixed), float(per or 0.0)
                elif name in _PAIRS:
                    row[name] = float(fixed), float(per or 0.0)
                elif name in _SCALARS:
                    row[name] = float(value)
                else:
                    raise ValueError(f"unknown word {word!r}")
        except ValueError as err:
            raise ValueError(f"{text!r} is no kernel: {err}") from None
    return kernels
