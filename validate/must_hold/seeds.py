"""Clauses about the seed documents (validate/corpora): which jobs fit in memory."""

from __future__ import annotations

from collections.abc import Callable

from simcore import api
from simcore.base.units import GIGA
from validate.must_hold.clause import Clause, Found
from validate.must_hold.tables import Tables


def _fits(model: str, gpus: str, micro_batch: int, fits: bool) -> Callable[[Tables], Found]:
    """A clause that ``micro_batch`` samples fit, or do not fit, as the documents say (``fits``)."""

    def compute(_t: Tables) -> Found:
        memory = api.predict(model, gpus, micro_batch=micro_batch).memory
        needed, capacity = memory.needed_bytes / GIGA, memory.capacity_bytes / GIGA
        verdict = "fits" if memory.fits else "does not fit"
        return Found(
            memory.fits is fits, f"{verdict}: needs {needed:.1f} of {capacity:.1f} GB", needed
        )

    return compute


def _largest(_t: Tables) -> Found:
    found = api.predict("latte-xl", "1xA6000ada", micro_batch="max").micro_batch
    return Found(found == 2, str(found), found)


def _two_nodes(_t: Tables) -> Found:
    one, two = (api.predict("latte-l", f"{n}x8xA6000ada").memory.device_bytes for n in (1, 2))
    return Found(0.0 < two - one < 0.2 * GIGA, f"{(two - one) / GIGA:.2f} GB", two - one)


_SAYS = "seed document on Latte"
CLAUSES = (
    Clause("Latte-XL, batch 1, one RTX 4090", "does not fit", _SAYS,
           _fits("latte-xl", "1xRTX4090", 1, False)),
    Clause("Latte-XL, batch 1, 8 RTX 4090", "does not fit", _SAYS,
           _fits("latte-xl", "1x8xRTX4090", 1, False)),
    Clause("Latte-XL, batch 2, one A6000ada", "fits", _SAYS,
           _fits("latte-xl", "1xA6000ada", 2, True)),
    Clause("Latte-XL, batch 3, one A6000ada", "does not fit", _SAYS,
           _fits("latte-xl", "1xA6000ada", 3, False)),
    Clause("Latte-XL: largest batch on one A6000ada", "2", _SAYS, _largest),
    Clause("Latte-L, batch 1, one RTX 4090", "fits", _SAYS, _fits("latte-l", "1xRTX4090", 1, True)),
    Clause("Latte-L: two nodes need more than one", "0 to 0.2 GB", _SAYS, _two_nodes),
)  # fmt: skip
