"""What torch.compile changes of a language model's layers.

TorchInductor makes one kernel of what stands between products, reductions included, and leaves
products and attention to their libraries (Ansel et al. 2024, PyTorch 2, section 4): rotary
positions, gated activations, norms written in tensor operations, and the loss over the logits.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from simcore.base.errors import InvalidConfig
from simcore.strategy.options.values import on_or_off
from simcore.workload.models import ModelRecord, Scalar
from simcore.workload.resolve import ModelSource

_FUSES: Final = "fused_pointwise"
#: What tensor operations become where they are one kernel.
_BECOMES: Final[Mapping[str, Mapping[Scalar, Scalar]]] = {
    "loss": {"eager": "compiled", "eager_freed": "compiled"},
    "norm": {"rmsnorm_eager": "rmsnorm", "rmsnorm_gemma": "rmsnorm"},
    "mlp": {"gelu_new": "gelu"},
}


def compiles(record: object) -> bool:
    """Whether it is known what torch.compile fuses of a model."""
    return isinstance(record, ModelRecord) and _FUSES in record.settings({})


def compiled_of(
    record: ModelSource | None,
    options: Mapping[str, Any],
    settings: Mapping[str, Scalar],
    of_library: Mapping[str, Scalar],
) -> dict[str, Scalar]:
    """Settings of a model that is compiled; nothing where none was asked.

    ``settings``: what its library sets beside the record's own, ``of_library``: and sets of a
    compiled one. Raises InvalidConfig.
    """
    if not on_or_off("compile", options.get("compile")) or record is None:
        return {}
    if not compiles(record):
        raise InvalidConfig(
            [f"{record.name}: what torch.compile fuses is known of language models alone; without "
             "--compile its kernels are eager ones"]
        )  # fmt: skip
    assert isinstance(record, ModelRecord)
    has = {**record.settings({}), **settings}
    changed = {k: new[has[k]] for k, new in _BECOMES.items() if has.get(k) in new}
    return {_FUSES: True, **changed, **of_library}
