"""Standard deviation of the predicted device memory, by kind of memory and of training program.

State is counted exactly where the program is known. Memory that comes and goes within a step
depends on its kernels; CUDA context and communicators are assumptions with spreads of their own.
For a kind of program without rows in the published tables everything allocated is less certain,
since such a program may keep copies that are not modelled; it is also less certain where nobody
named the program. ``python -m validate.residuals`` sets the widths.
"""

from __future__ import annotations

import numpy as np

from simcore.memory.terms import Memory, loose_bytes
from simcore.request.resolved import Request


def program_kind(request: Request) -> str:
    """The kind of program that decides the spread, with a note for old libraries.

    It is the training program, or else the library that issues the model's kernels.
    """
    strategy = request.strategy
    # Megatron-LM's modules of 2022 keep the same tensors as today's
    issuer = strategy.issuer.removesuffix("_2022")
    program = strategy.program.evidence.memory_figures_of or issuer
    return f"{program}, old libraries" if request.eager_kernels else program


def is_foreign(request: Request) -> bool:
    """Whether the published tables that set the spreads have no rows of this kind of program."""
    return program_kind(request) not in request.profile.runtime["memory_kinds"]


def whole_sd_log(request: Request) -> float:
    """Spread (ln) of everything allocated: non-zero for a program assumed or without figures."""
    of = request.profile.memory_sd_log
    if request.software_assumed:
        return of("memory_assumed").value
    return of("memory_foreign").value if is_foreign(request) else 0.0


def tensors_sd_bytes(request: Request, memory: Memory) -> float:
    """Standard deviation of the allocated bytes.

    It adds the spread of what comes and goes within a step to ``whole_sd_log`` in quadrature.
    """
    profile = request.profile
    spread = profile.memory_sd_log(eager=request.eager_kernels).value * loose_bytes(memory.terms)
    return float(np.hypot(spread, whole_sd_log(request) * float(memory.allocated[0])))


def holes_sd_bytes(request: Request, memory: Memory) -> float:
    """Standard deviation of the bytes that the caching allocator holds beyond live tensors."""
    return request.profile.memory_sd_log("segments_residual").value * loose_bytes(memory.terms)


def memory_sd_bytes(request: Request, memory: Memory) -> float:
    """Standard deviation of the device memory: independent parts of the first configuration."""
    profile = request.profile
    gpus = [g.gpu for g in request.cluster.groups]
    context = max(
        (profile.cuda_context_bytes(g, eager=request.eager_kernels) for g in gpus),
        key=lambda e: e.value,
    )
    parts = (
        tensors_sd_bytes(request, memory),
        context.sd_log * context.value,
        profile.nccl_sd_log.value * float(memory.terms["nccl_buffers"][0]),
    )
    return float(np.hypot.reduce(np.array(parts)))
