"""The names that each option takes, for menus and completion."""

from __future__ import annotations

from typing import get_args

from simcore.engine.words import SWITCH
from simcore.hardware.calibrations import calibration_names
from simcore.hardware.cluster import network_names
from simcore.hardware.host import ISSUERS
from simcore.hardware.spec import GPUS, NODES
from simcore.strategy.dialects import FILES
from simcore.strategy.layout import SCHEDULES, CpComm, Dispatcher
from simcore.strategy.precision import MAIN_GRADS, OPTIMIZERS, PRECISIONS, OffloadTarget
from simcore.strategy.software import SOFTWARE
from simcore.strategy.strategy import STRATEGIES, Recompute, StepImpl
from simcore.workload.archs.lm_attention import ATTENTIONS
from simcore.workload.models import MODELS


def choices() -> dict[str, tuple[str, ...]]:
    """Option to names, in the order in which they are worth showing."""
    targets = [t for t in get_args(OffloadTarget) if t != "none"]
    return {
        "model": tuple(MODELS.names()),
        "gpu": tuple(GPUS.names()),
        "node": tuple(NODES.names()),
        "network": tuple(network_names()),
        "strategy": STRATEGIES,
        "precision": tuple(PRECISIONS),
        "recompute": get_args(Recompute),
        "main_grads": MAIN_GRADS,
        "dispatcher": get_args(Dispatcher),
        "cp_comm": get_args(CpComm),
        "expert_padding": tuple(SWITCH),
        "sequence_parallel": tuple(SWITCH),
        "optimizer": tuple(OPTIMIZERS),
        "offload": (
            "none",
            *(f"optimizer:{t}" for t in targets),
            *(f"optimizer:{t},params:{t}" for t in targets),
        ),
        "layout": ("nchw", "nhwc"),
        "attention": ATTENTIONS,
        "schedule": SCHEDULES,
        "issuer": ISSUERS,
        "launch_blocking": tuple(SWITCH),
        "optimizer_impl": get_args(StepImpl),
        "grad_clip": tuple(SWITCH),
        "compile": tuple(SWITCH),
        "software": tuple(SOFTWARE),
        "growing_segments": tuple(SWITCH),
        "eager_kernels": tuple(SWITCH),
        "gather_tensors": tuple(SWITCH),
        "fp8_params": tuple(SWITCH),
        "quantised_base": ("none", "nf4", "int8", "fp8"),
        "calibration": tuple(calibration_names()),
        "emit": tuple(FILES),
    }
