"""What settings of several architectures must be; each check raises ValueError in one sentence."""

from __future__ import annotations

from collections.abc import Sequence


def check_names(**given: tuple[str, Sequence[str]]) -> None:
    """Of each setting the name that was given and those there are."""
    for key, (name, known) in given.items():
        if name not in known:
            raise ValueError(f"{key} {name!r} is none of {', '.join(known)}")


#: How a linear layer's bias is added: by the product's own epilogue, or by a kernel after it.
BIAS_ADDS = ("fused", "separate")
#: What becomes of the tensors that a scripted function keeps, once its backward has run.
SCRIPTED = ("released", "held")
#: What computes products and convolutions that matrix units take only from some library on.
UNITS = ("matrix_units", "vector_units")


def head_width(hidden: int, heads: int) -> int:
    """Width of a head, where heads divide that of the model."""
    if hidden % heads:
        raise ValueError(f"hidden {hidden} is not a multiple of heads {heads}")
    return hidden // heads
