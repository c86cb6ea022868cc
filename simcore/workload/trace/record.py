"""The record of a trace: every op of one training step with its kernels, storages and gradients.

It is plain data and needs no torch. All counts are those of the traced batch.
"""

from __future__ import annotations

from typing import Literal, NamedTuple

from simcore.base.record import dataclass
from simcore.workload.graph import NATIVE_NORM, KernelKind

Phase = Literal["forward", "backward", "recompute"]
#: How the bytes per element of a tensor follow from the job's precision: ``low`` and ``high`` as in
#: ``workload.graph``; ``raw`` tensors have the traced width in every precision.
Width = Literal["low", "high", "raw"]
#: The role of a storage in the step; ``cast``: autocast's 16-bit copy of a parameter.
Role = Literal["activation", "input", "parameter", "buffer", "cast"]


class Piece(NamedTuple):
    """One tensor that a kernel reads or writes; broadcast elements count once."""

    numel: int
    item_bytes: int
    width: Width
    role: Role


class KernelRecord(NamedTuple):
    """One device kernel (or ``launches`` equal ones).

    ``dims``: m, n, k and groups of a matrix product (ones for other kernels). ``casts``: the kernel
    is autocast's, which brings what it reads to this width. All other fields are those of
    ``workload.graph.Kernel``.
    """

    kind: KernelKind
    flop: int
    reads: tuple[Piece, ...]
    writes: tuple[Piece, ...]
    dims: tuple[int, int, int, int] = (1, 1, 1, 1)
    launches: float = 1
    relaid: int = 0
    planes: tuple[int, ...] = ()
    indexed: float = 0.0
    rows: int = 0
    reread_frac: float = 0.0
    blocks: int = 0
    block_clocks: float = 0.0
    mixed: float = 0.0
    casts: Width | None = None

    @property
    def n_bytes(self) -> int:
        """DRAM traffic in bytes, if every input is read once and every output written once."""
        return sum(p.numel * p.item_bytes for p in (*self.reads, *self.writes))


class OpRecord(NamedTuple):
    """One dispatched operator.

    ``name``: base name of the aten op; ``module``: path of the module that ran it; ``shapes``:
    those of inputs and outputs; ``owner``: the number of the forward op whose gradient a backward
    op computes, -1 if unknown; ``gemm_weight``: elements of weights that a matrix product or
    convolution is the first to read.
    """

    name: str
    module: str
    phase: Phase
    dtype: str
    shapes: tuple[tuple[int, ...], ...]
    kernels: tuple[KernelRecord, ...]
    owner: int
    gemm_weight: int = 0

    @property
    def flop(self) -> int:
        """FLOP of all its kernels, 2 per multiply-add."""
        return sum(k.flop for k in self.kernels)

    @property
    def n_bytes(self) -> int:
        """DRAM traffic of all its kernels in bytes; of a batch norm, as cuDNN computes it."""
        return sum(k.n_bytes for k in self.kernels if k.kind != NATIVE_NORM)


class SavedStorage(NamedTuple):
    """A storage that is alive when forward ends.

    ``op``: the op that saved it for backward, or else the op that made it; ``saved``: whether
    autograd saves it; false for a model's output or a tensor that the model itself stores.
    ``casts``: 16-bit copies, and ``wide_casts`` fp32 copies, that autocast alone makes of it for
    further ops that save it: autocast keeps copies of parameters only (ATen autocast_mode.cpp).
    """

    op: int
    n_bytes: int
    item_bytes: int
    width: Width
    role: Role
    saved: bool
    casts: int = 0
    wide_casts: int = 0


class ParamRecord(NamedTuple):
    """A parameter tensor.

    ``names``: all its names, more than one if it is tied; ``first_use``: the number of the first
    forward op that reads it, -1 if none does.
    """

    names: tuple[str, ...]
    numel: int
    item_bytes: int
    trained: bool
    dtype: str
    first_use: int
    shape: tuple[int, ...]


class UnitCall(NamedTuple):
    """One call of a repeated module in forward.

    ``module``: its path; ``at``: the number of its first op; ``arguments``: the activations that it
    receives, as (storage number, bytes, bytes per element, width).
    """

    module: str
    at: int
    arguments: tuple[tuple[int, int, int, Width], ...]


@dataclass(frozen=True)
class Trace:
    """One training step of a module at one batch size, in order of execution.

    ``saved``: storages alive when forward ends; ``gradient_order``: names of parameters in the
    order in which their gradients become ready; ``units``: paths of repeated modules; ``calls``:
    their calls in forward; ``peak_live_bytes``: the largest sum of activation storages alive at one
    time; ``autocast``: bf16, fp16 or None; ``uncounted``: ops whose FLOP are not known.
    """

    ops: tuple[OpRecord, ...]
    saved: tuple[SavedStorage, ...]
    params: tuple[ParamRecord, ...]
    buffers: tuple[tuple[str, int, int], ...]  # name, elements, bytes per element
    gradient_order: tuple[str, ...]
    units: tuple[str, ...]
    calls: tuple[UnitCall, ...]
    input_bytes: int
    peak_live_bytes: int
    autocast: str | None
    uncounted: tuple[str, ...] = ()

    def flop(self, phase: Phase = "forward") -> int:
        """FLOP of one phase."""
        return sum(o.flop for o in self.ops if o.phase == phase)

    def n_bytes(self, phase: Phase = "forward") -> int:
        """DRAM traffic of one phase in bytes, without fusion of kernels."""
        return sum(o.n_bytes for o in self.ops if o.phase == phase)

    @property
    def n_params(self) -> int:
        """The number of trained parameters; tied ones count once."""
        return sum(p.numel for p in self.params if p.trained)

    def saved_bytes(self, *roles: Role) -> int:
        """Bytes that autograd saves for backward, of the given roles (default: activations)."""
        wanted = roles or ("activation",)
        return sum(s.n_bytes for s in self.saved if s.saved and s.role in wanted)

    @property
    def held_bytes(self) -> int:
        """Bytes of activations that are alive after forward but not saved by autograd."""
        return sum(s.n_bytes for s in self.saved if not s.saved and s.role == "activation")
