"""The settings of a language model that torch.compile changes.

TorchInductor fuses everything between matrix products into one kernel, reductions included, and
leaves products and attention to their libraries (Ansel et al. 2024, PyTorch 2, section 4). That
covers rotary positions, gated activations, norms written as tensor operations, and the loss.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simcore.base.errors import InvalidConfig
from simcore.strategy.options.values import on_or_off
from simcore.workload.models import ModelRecord, Scalar
from simcore.workload.resolve import ModelSource

_FUSES: Final = "fused_pointwise"
#: Implementations written as tensor operations, and what each becomes when it is one kernel.
_BECOMES: Final[Mapping[str, Mapping[Scalar, Scalar]]] = {
    "loss": {"eager": "compiled", "eager_freed": "compiled"},
    "norm": {"rmsnorm_eager": "rmsnorm", "rmsnorm_gemma": "rmsnorm"},
    "mlp": {"gelu_new": "gelu"},
}


def compiles(record: object) -> bool:
    """Whether it is known which operations torch.compile fuses in this model."""
    return isinstance(record, ModelRecord) and _FUSES in record.settings({})


def compiled_of(
    record: ModelSource | None,
    options: Mapping[str, Any],
    settings: Mapping[str, Scalar],
    of_library: Mapping[str, Scalar],
) -> dict[str, Scalar]:
    """Settings of the model that compilation changes; empty where compilation is off.

    ``settings``: what the training library sets on top of the model's record; ``of_library``: what
    it sets on top for a compiled model. Raises InvalidConfig for a model that is not a language
    model.
    """
    if not on_or_off("compile", options.get("compile")) or record is None:
        return {}
    if not compiles(record):
        raise InvalidConfig(
            [f"{record.name}: what torch.compile fuses is known for language models only; without "
             "--compile its kernels are predicted as eager ones"]
        )  # fmt: skip
    assert isinstance(record, ModelRecord)
    has = {**record.settings({}), **settings}
    changed = {k: new[has[k]] for k, new in _BECOMES.items() if has.get(k) in new}
    return {_FUSES: True, **changed, **of_library}
