"""Parameter tensors of layers that several architectures have."""

from __future__ import annotations

from simcore.workload.graph import Param


def weight_and_bias(name: str, n_in: int, n_out: int) -> tuple[Param, Param]:
    """The parameters of a linear layer."""
    return Param(f"{name}.weight", n_in * n_out), Param(f"{name}.bias", n_out)


def norm_params(name: str, width: int) -> tuple[Param, Param]:
    """The parameters of a LayerNorm."""
    return Param(f"{name}.weight", width), Param(f"{name}.bias", width)
