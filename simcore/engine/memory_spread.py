"""How far what a device holds lies from the model, by what it is and by the kind of program.

State is counted exactly where the program is known. What comes and goes within a step depends on
its kernels; context and communicators are assumptions with spreads of their own. Of a kind of
program that the tables have no figures of, all that the framework holds is less sure: it may keep
copies that nobody looked for; where nobody named the program it may be any.
``python -m validate.residuals`` sets the widths.
"""

from __future__ import annotations

import numpy as np

from simcore.engine.memory import Memory, loose_bytes
from simcore.engine.resolved import Request


def program_kind(request: Request) -> str:
    """Whose tensors a job holds: the program, else what issues its kernels; and how old."""
    strategy = request.strategy
    issuer = strategy.issuer.removesuffix("_2022")  # Megatron-LM's modules hold what they held
    program = strategy.program.evidence.memory_figures_of or issuer
    return f"{program}, old libraries" if request.eager_kernels else program


def is_foreign(request: Request) -> bool:
    """Whether the tables that set the widths have no figures of the kind of program."""
    return program_kind(request) not in request.profile.runtime["memory_kinds"]


def whole_sd_log(request: Request) -> float:
    """Spread of all that the framework holds: of a program without figures, or one assumed."""
    of = request.profile.memory_sd_log
    if request.software_assumed:
        return of("memory_assumed").value
    return of("memory_foreign").value if is_foreign(request) else 0.0


def tensors_sd_bytes(request: Request, memory: Memory) -> float:
    """Standard deviation of what is allocated: of what comes and goes within a step, and of all
    that a program without figures holds."""
    profile = request.profile
    spread = profile.memory_sd_log(eager=request.eager_kernels).value * loose_bytes(memory.terms)
    return float(np.hypot(spread, whole_sd_log(request) * float(memory.allocated[0])))


def holes_sd_bytes(request: Request, memory: Memory) -> float:
    """Standard deviation of what the caching allocator holds beside live tensors."""
    return request.profile.memory_sd_log("segments_residual").value * loose_bytes(memory.terms)


def memory_sd_bytes(request: Request, memory: Memory) -> float:
    """Standard deviation of what a device holds: independent parts, of the first configuration."""
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
