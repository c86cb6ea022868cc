"""Standard deviation of the predicted device memory, by kind of memory and of training program.

State is counted exactly where the program is known. Memory that comes and goes within a step
depends on its kernels; CUDA context and communicators are assumptions with spreads of their own.
Everything allocated is less certain for a program, or a release of one, without rows in the
published tables, since it may keep copies that are not modelled, and where the program is assumed.
How much less follows from how far measured programs lie apart: ``python -m validate.residuals``
sets the widths.
"""

from __future__ import annotations

import numpy as np

from simcore.hardware.profile import HOST_CPU
from simcore.memory.terms import Memory, loose_bytes
from simcore.request.resolved import Request


def program_kind(request: Request) -> str:
    """The program at its release, as records name it, with a note for mixtures of experts.

    Another release, or experts where a program's published figures are of dense models, is another
    kind: what it keeps is not known from them.
    """
    name = request.strategy.program.name
    return f"{name}, experts" if request.workload.expert_numel > 0 else name


def is_foreign(request: Request) -> bool:
    """Whether the published tables that set the spreads have no rows of this kind of program."""
    return program_kind(request) not in request.profile.runtime["memory_kinds"]


def whole_sd_log(request: Request) -> float:
    """Spread (ln) of everything allocated.

    Of a kind of program with measured rows it is what their errors need besides the other spreads,
    often nothing; of any other kind, what measured programs need where the fit leaves them out.
    """
    profile = request.profile
    if request.software_assumed:
        return profile.memory_sd_log("memory_assumed").value
    own = profile.runtime["memory_kinds"].get(program_kind(request))
    return profile.memory_sd_log("memory_foreign").value if own is None else float(own)


def program_unnamed(request: Request) -> bool:
    """Whether the program is plain PyTorch, taken where nobody names another."""
    strategy = request.strategy
    return strategy.program.layers.plain_pytorch_modules and strategy.issuer == "torch"


def plain_and_timed(request: Request) -> bool:
    """Whether the job is what ``simcore calibrate`` runs: plain PyTorch on a GPU that it timed."""
    if request.cluster.n_gpus > 1 or not program_unnamed(request):
        return False
    gpu = request.cluster.groups[0].gpu
    return request.profile.kinds_timed(gpu) and gpu.architecture != HOST_CPU


def tensors_sd_bytes(request: Request, memory: Memory) -> float:
    """Standard deviation of the allocated bytes.

    It adds the spread of what comes and goes within a step to ``whole_sd_log`` in quadrature; of
    what the project's cards ran it is what these showed.
    """
    profile = request.profile
    if plain_and_timed(request):
        return profile.memory_sd_log("memory_timed").value * float(memory.allocated[0])
    spread = profile.memory_sd_log(eager=request.eager_kernels).value * loose_bytes(memory.terms)
    return float(np.hypot(spread, whole_sd_log(request) * float(memory.allocated[0])))


def holes_sd_bytes(request: Request, memory: Memory) -> float:
    """Standard deviation of the bytes that the caching allocator holds beyond live tensors."""
    if plain_and_timed(request):
        return request.profile.memory_sd_log("segments_timed").value * float(memory.allocated[0])
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
