"""How much of its peak a device holds under its power cap. Works on floats and on arrays."""

from __future__ import annotations

from typing import Any, Final, TypeAlias

#: A float or an array of floats: plain arithmetic serves both.
FloatLike: TypeAlias = Any

#: Energy of a FLOP over the foundry's node: nm^0.8, relative to 16 nm. Fits of measured shares
#: against tdp / peak left it between 0.7 and 1.0; vendors state 0.35 to 0.5 from 16 to 7 nm.
NODE_EXPONENT: Final = 0.8
REFERENCE_NM: Final = 16.0


def node_energy_frac(process_nm: float) -> float:
    """Energy of a FLOP on a node, over that at 16 nm."""
    return float((process_nm / REFERENCE_NM) ** NODE_EXPONENT)


def power_limited_frac(
    tdp_w: FloatLike, peak_flop_per_s: FloatLike, limit_w_per_flop_per_s: FloatLike
) -> FloatLike:
    """Share of its matrix peak that a device can hold under its power cap, in (0, 1].

        (1 + (w0/w)^4)^(-1/4),  w = tdp / peak,  w0 = limit

    ``w0`` [W per FLOP/s, that is J per FLOP] is what the whole board draws per FLOP at boost
    clock. Well above it (w ≫ w0) the cap does not bind and the share is 1; at w = w0 it is
    2^(-1/4) = 0.84; well below, the rate is tdp / w0 and the share w / w0.
    """
    ratio = limit_w_per_flop_per_s * peak_flop_per_s / tdp_w
    return (1.0 + ratio**4) ** -0.25
