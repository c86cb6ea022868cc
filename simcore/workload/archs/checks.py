"""Checks of settings that several architectures have; each raises ValueError with one sentence."""

from __future__ import annotations

from collections.abc import Sequence


def check_names(**given: tuple[str, Sequence[str]]) -> None:
    """Raises ValueError unless each setting's name is one of its allowed names."""
    for key, (name, known) in given.items():
        if name not in known:
            raise ValueError(f"{key} {name!r} is none of {', '.join(known)}")


#: How a linear layer's bias is added: by the product's own epilogue, or by a kernel after it.
BIAS_ADDS = ("fused", "separate")
#: When a scripted function's saved tensors are freed once its backward has run.
SCRIPTED = ("released", "held")
#: Units that compute products and convolutions which matrix units support only from some library
#: release on.
UNITS = ("matrix_units", "vector_units")


def head_width(hidden: int, heads: int) -> int:
    """Width of a head. Raises ValueError if the heads do not divide the model's width."""
    if hidden % heads:
        raise ValueError(f"hidden {hidden} is not a multiple of heads {heads}")
    return hidden // heads
