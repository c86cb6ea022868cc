"""What a trace holds: every op of one training step with its kernels, storages and gradients.

Plain data: importable without torch. Counts are those of one traced batch.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, NamedTuple

from simcore.workload.graph import KernelKind

Phase = Literal["forward", "backward", "recompute"]
#: How the width of a tensor follows the precision; ``raw`` has its own whatever the precision.
Width = Literal["low", "high", "raw"]
#: What a storage is to the step.
Role = Literal["activation", "input", "parameter", "buffer", "cast"]


class Piece(NamedTuple):
    """One tensor that a kernel reads or writes: distinct elements, not those of a broadcast."""

    numel: int
    item_bytes: int
    width: Width
    role: Role


class KernelRecord(NamedTuple):
    """One device kernel; ``dims`` are m, n, k and groups of a matrix product (ones elsewhere).

    ``relaid``: elements that are channels first where matrix units want channels last, but for
    16-bit products of ``planes``;
    ``indexed``: those that are addressed or converted one by one; ``rows`` have a block each, which
    reads the share ``again`` of the kernel's bytes twice; so have ``channels``.
    """

    kind: KernelKind
    flop: int
    reads: tuple[Piece, ...]
    writes: tuple[Piece, ...]
    dims: tuple[int, int, int, int] = (1, 1, 1, 1)
    launches: int = 1
    relaid: int = 0
    planes: bool = False
    indexed: float = 0.0
    rows: int = 0
    again: float = 0.0
    channels: int = 0

    @property
    def n_bytes(self) -> int:
        """DRAM traffic of an unfused kernel: every input read once, every output written once."""
        return sum(p.numel * p.item_bytes for p in (*self.reads, *self.writes))


class OpRecord(NamedTuple):
    """One dispatched operator.

    ``owner``: index of the forward op whose gradient a backward op computes, -1 if unknown.
    ``gemm_weight``: parameters that a matrix product reads here for the first time.
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
        """2 FLOP a multiply-add."""
        return sum(k.flop for k in self.kernels)

    @property
    def n_bytes(self) -> int:
        """Traffic of all its kernels."""
        return sum(k.n_bytes for k in self.kernels)


class SavedStorage(NamedTuple):
    """A storage that is alive when forward ends. ``op``: the op that saved or, if none, made it.

    ``saved`` is false where autograd does not hold it: a model's output, a tensor kept on the side.
    """

    op: int
    n_bytes: int
    item_bytes: int
    width: Width
    role: Role
    saved: bool


class ParamRecord(NamedTuple):
    """A parameter tensor. ``names``: every name it goes by; more than one when it is tied.

    ``first_use``: the forward op that reads it first, -1 if none does.
    """

    names: tuple[str, ...]
    numel: int
    item_bytes: int
    trained: bool
    dtype: str
    first_use: int
    shape: tuple[int, ...]


class UnitCall(NamedTuple):
    """One call of a repeated module: its path, the op it starts at, the storages it is given.

    ``arguments`` are (storage number, bytes, item bytes, width); only activations.
    """

    module: str
    at: int
    arguments: tuple[tuple[int, int, int, Width], ...]


@dataclass(frozen=True, slots=True)
class Trace:
    """One training step of a module at one batch size, in order of execution."""

    ops: tuple[OpRecord, ...]
    saved: tuple[SavedStorage, ...]
    params: tuple[ParamRecord, ...]
    buffers: tuple[tuple[str, int, int], ...]  # name, elements, bytes an element
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
        """Unfused DRAM traffic of one phase."""
        return sum(o.n_bytes for o in self.ops if o.phase == phase)

    @property
    def n_params(self) -> int:
        """Trained parameters, ties counted once."""
        return sum(p.numel for p in self.params if p.trained)

    def saved_bytes(self, *roles: Role) -> int:
        """Bytes that autograd pins for backward (activations, unless other roles are named)."""
        wanted = roles or ("activation",)
        return sum(s.n_bytes for s in self.saved if s.saved and s.role in wanted)

    @property
    def held_bytes(self) -> int:
        """Activation bytes alive after forward that autograd does not hold."""
        return sum(s.n_bytes for s in self.saved if not s.saved and s.role == "activation")
