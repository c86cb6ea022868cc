"""The torch dispatch mode that records a trace: ops, storages, modules and phases."""

from __future__ import annotations

import sys
import weakref
from collections.abc import Iterable, Iterator
from contextlib import suppress
from typing import Any

import torch
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

from simcore.base.units import FP32_BYTES
from simcore.workload.trace.flop import kernels_of
from simcore.workload.trace.kinds import COLLECTIVES, forced_width, is_known, kind_of
from simcore.workload.trace.record import (
    KernelRecord,
    OpRecord,
    Phase,
    Piece,
    Role,
    SavedStorage,
    UnitCall,
    Width,
)

#: Ops that run no kernel although their schema does not declare them views.
FREE = {
    "empty", "empty_like", "new_empty", "empty_strided", "new_empty_strided", "detach", "set_",
    "_unsafe_view", "_reshape_alias", "lift_fresh", "_local_scalar_dense", "alias", "unsafe_split",
    "resize_", "_assert_async", "as_strided_", "sym_size", "sym_numel", "scalar_tensor",
    "is_same_size",
}  # fmt: skip
_NOTHING = Piece(0, 1, "raw", "activation")
#: Bytes that a fused LSTM saves per time step and unit in addition to its outputs: four gates and
#: the cell, in fp32.
_LSTM_SAVED_BYTES = 5 * 4


class _Storage:
    """A live storage. ``born``: the op that made it; ``savers``: autograd sequence numbers of the
    ops that saved it for backward; ``ref``: a weak reference that tells when it is freed;
    ``to_fp32``: the model itself converts it to fp32.
    """

    __slots__ = (
        "born", "item_bytes", "n_bytes", "number", "ref", "role", "savers", "to_fp32", "width"
    )  # fmt: skip

    def __init__(self, tensor: Any, number: int, role: Role, width: Width, born: int) -> None:
        self.n_bytes = int(tensor.untyped_storage().nbytes())
        self.item_bytes = int(tensor.element_size())
        self.number, self.role, self.width, self.born = number, role, width, born
        self.savers: list[int] = []
        self.ref: Any = None
        self.to_fp32 = False


def leaves(value: Any) -> list[Any]:
    """All tensors inside nested lists, tuples and dicts."""
    if isinstance(value, torch.Tensor):
        return [value]
    if isinstance(value, (list, tuple)):
        return [t for v in value for t in leaves(v)]
    if isinstance(value, dict):
        return [t for v in value.values() for t in leaves(v)]
    return []


def _has_parameter(inputs: Iterable[_Storage]) -> bool:
    return any(s.role in ("parameter", "cast") for s in inputs)


def failed_path(error: BaseException | None) -> str | None:
    """Path of the module that raised an exception or one of its causes; None if it is not known."""
    while error is not None:
        if hasattr(error, "simcore_path"):
            return str(error.simcore_path)
        error = error.__cause__ or error.__context__
    return None


class GivenTypes(TorchFunctionMode):  # type: ignore[misc]
    """Tells a recorder of functions that state the type of a result.

    Those are cross_entropy, while which it sets ``given_type``, and conversions to fp32, which make
    a copy where autocast has made the tensor in 16 bit.
    """

    def __init__(self, recorder: Recorder) -> None:
        super().__init__()
        self._recorder = recorder

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        name = getattr(func, "__name__", "")
        if name == "float" or (name == "to" and torch.float32 in (*args, *(kwargs or {}).values())):
            self._recorder.track(args[0], "activation").to_fp32 = True
        within = name in ("cross_entropy", "cross_entropy_loss")
        self._recorder.given_type, before = within, self._recorder.given_type
        try:
            return func(*args, **(kwargs or {}))
        finally:
            self._recorder.given_type = before


class Recorder(TorchDispatchMode):  # type: ignore[misc]
    """Records every op that runs while it is active; one recorder records one training step.

    ``stack``: paths of the modules that are running; ``units``: paths of repeated modules;
    ``live``, ``peak``: bytes of activations alive now, and their largest value so far;
    ``given_type``: a function is running that states the type of its softmax's result.
    """

    #: Whether tensors that the model asks for on another device are made on the processor.
    on_processor = True

    def __init__(self) -> None:
        super().__init__()
        self.ops: list[OpRecord] = []
        self.stack: list[str] = [""]
        self.units: dict[str, None] = {}
        self.calls: list[UnitCall] = []
        self.uncounted: dict[str, int] = {}
        self.forward_done = False
        self.live = self.peak = 0
        self.given_type = False
        self._own_type: set[int] = set()  # ops to which autocast does nothing for that reason
        self._storages: dict[int, _Storage] = {}
        self._count = 0
        self._owner: dict[int, int] = {}  # autograd sequence number -> op
        self._cast_weights: set[int] = set()
        self._first_use: dict[int, int] = {}  # storage number -> op
        # op -> the width that all inputs have (or None), that of the result, is one a parameter
        self._widths: dict[int, tuple[Width | None, Width | None, bool]] = {}
        self._gradients_from: int | None = None  # the first op after forward
        self._cast: set[tuple[int, Width]] = set()  # gradients that were cast to a width

    # -- storages --------------------------------------------------------------------------------

    def track(self, tensor: Any, role: Role, width: Width = "high") -> _Storage:
        """The record of a tensor's storage, which is created the first time.

        ``role`` and ``width`` apply only to a new record. The record ends when the storage is
        freed.
        """
        storage = tensor.untyped_storage()
        key = storage._cdata
        existing = self._storages.get(key)
        if existing is not None:
            return existing
        self._count += 1
        new = _Storage(tensor, self._count, role, width, len(self.ops))
        counted = new.n_bytes if role in ("activation", "cast") else 0

        def freed(_: Any, key: int = key, n: int = counted) -> None:
            if self._storages.pop(key, None) is not None:
                self.live -= n

        new.ref = weakref.ref(storage, freed)
        self._storages[key] = new
        self.live += counted
        self.peak = max(self.peak, self.live)
        return new

    def piece(self, tensor: Any, width: Width | None = None) -> Piece:
        """The part of a tensor that a kernel reads or writes; a broadcast dimension counts once.

        ``width``: of an fp32 tensor, None for that of its storage.
        """
        numel = 1
        for size, stride in zip(tensor.shape, tensor.stride(), strict=True):
            numel *= size if stride or not size else 1
        storage = self.track(tensor, "activation")
        if tensor.dtype != torch.float32:
            return Piece(numel, tensor.element_size(), "raw", storage.role)
        return Piece(numel, 4, width or storage.width, storage.role)

    def pack(self, tensor: Any) -> Any:
        """The pack function of torch's saved-tensors hooks; returns the tensor itself.

        Autograd saves the tensor for the op with the latest sequence number.
        """
        storage = self.track(tensor, "activation")
        storage.savers.append(torch._C._autograd._get_sequence_nr() - 1)
        return tensor

    def alive_storages(self, outputs: list[Any]) -> tuple[SavedStorage, ...]:
        """Storages that are alive now (at the end of forward), in the order of their creation.

        A storage is attributed to the first op that saved it, and otherwise to the op that made it.
        The model's ``outputs`` that no op saved are attributed to the last op.
        """
        alive = []
        last = len(self.ops) - 1
        output_numbers = {self.track(t, "activation").number for t in outputs}
        for s in sorted(self._storages.values(), key=lambda s: s.number):
            if s.role in ("parameter", "buffer"):
                continue
            savers = {self._owner[n] for n in s.savers if n in self._owner}
            made_by = last if s.number in output_numbers else min(s.born, last)
            op = min(savers, default=made_by)
            kept = self._kept(s, savers)
            alive.append(SavedStorage(op, s.n_bytes, s.item_bytes, kept[0], s.role, bool(s.savers),
                                      *kept[1:]))  # fmt: skip
        return tuple(alive)

    def _kept(self, s: _Storage, savers: set[int]) -> tuple[Width, int, int]:
        """``width``, ``casts`` and ``wide_casts`` of a saved storage (``SavedStorage``).

        The storage itself is not kept where all savers need the other width, unless it is an input:
        the loop that calls the model holds its batch.
        """
        other: Width = "low" if s.width == "high" else "high"
        copies = sum(self._forced(i) == other for i in savers)
        if s.item_bytes != FP32_BYTES or not copies:
            return s.width, 0, 0
        itself = copies < len(savers) or s.role == "input"
        width = s.width if itself else other
        copies -= width == other
        return width, copies * (other == "low"), copies * (other == "high")

    def _forced(self, op: int) -> Width | None:
        return None if op in self._own_type else forced_width(self.ops[op].name)

    def first_use(self, tensor: Any) -> int:
        """The number of the first forward op that reads a parameter; -1 if none does."""
        return self._first_use.get(self.track(tensor, "parameter").number, -1)

    # -- modules ---------------------------------------------------------------------------------

    def enter(self, path: str, arguments: Any) -> None:
        """Record that a module starts, and for a repeated module the activations it receives."""
        self.stack.append(path)
        if path in self.units and not self.forward_done:
            received: dict[int, tuple[int, int, int, Width]] = {}
            for t in leaves(arguments):
                s = self.track(t, "activation")
                if s.role == "activation":
                    n_bytes = t.numel() * t.element_size()
                    width: Width = s.width if t.dtype == torch.float32 else "raw"
                    received[s.number] = (s.number, n_bytes, t.element_size(), width)
            self.calls.append(UnitCall(path, len(self.ops), tuple(received.values())))

    def leave(self) -> None:
        """Record that the module entered last ends, possibly with an exception."""
        if (error := sys.exc_info()[1]) is not None:
            self._mark_path(error)
        if len(self.stack) > 1:
            self.stack.pop()

    def _mark_path(self, error: BaseException) -> None:
        """Store on an exception the path of the module in which it was raised.

        When the exception is handled, the stack is already unwound. The recorder itself stores no
        exception, because its frames would keep tensors alive, and checkpoints end recompute with
        one.
        """
        if failed_path(error) is None:
            with suppress(AttributeError):
                error.simcore_path = self.stack[-1]  # type: ignore[attr-defined]

    def _where(self) -> tuple[Phase, str, int]:
        """Phase, module path and forward op (``OpRecord.owner``) of the op that has just run."""
        if torch._C._current_graph_task_id() == -1:
            # The gradient of the loss itself is made before the autograd engine starts.
            return ("backward" if self.forward_done else "forward"), self.stack[-1], -1
        node = torch._C._current_autograd_node()
        owner = self._owner.get(node._sequence_nr(), -1) if node is not None else -1
        module = self.ops[owner].module if 0 <= owner < len(self.ops) else ""
        if len(self.stack) > 1:
            return "recompute", self.stack[-1], owner
        # Backward runs with grad mode off, a checkpoint's recompute with grad mode on.
        return ("recompute" if torch.is_grad_enabled() else "backward"), module, owner

    # -- ops -------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if func.namespace == "prim":  # Queries of a tensor's device, thousands per trace.
            return func(*args, **kwargs)
        device = kwargs.get("device")
        elsewhere = device is not None and torch.device(device).type not in ("cpu", "meta")
        if elsewhere and self.on_processor:
            kwargs = {**kwargs, "device": torch.device("cpu")}
        # Inputs are tracked before the op runs, so that they count as made by earlier ops.
        before = leaves(args) + leaves(kwargs)
        inputs = [self.track(t, "activation") for t in before]
        try:
            out = func(*args, **kwargs)
        except Exception as err:
            self._mark_path(err)
            raise
        name = func._schema.name.partition("::")[2]
        after = leaves(out)
        phase, module, owner = self._where()
        if phase != "backward":  # The first op of a sequence number; later ones may have no node.
            self._owner.setdefault(torch._C._autograd._get_sequence_nr() - 1, len(self.ops))
        free = func.is_view or name in FREE or func.namespace in COLLECTIVES
        if self.forward_done and self._gradients_from is None:
            self._gradients_from = len(self.ops)
        wanted = self._wanted(name, phase, owner, before, inputs)
        width = self._width(name, before, inputs, wanted if phase == "backward" else None)
        if phase != "backward":
            read = {
                s.width for t, s in zip(before, inputs, strict=True)
                if t.dtype == torch.float32 and t.dim() and s.role in ("activation", "input")
            }  # fmt: skip
            shared = read.pop() if len(read) == 1 else None
            self._widths[len(self.ops)] = shared, width, _has_parameter(inputs)
        for t in after:
            self._track_result(t, name, width, inputs)
        base = name[:-1] if name.endswith("_") and not name.startswith("__") else name
        if free or not after:
            # Recorded without kernels, because the backward of a view may run some.
            if phase != "backward":
                self.ops.append(OpRecord(base, module, phase, "", (), (), owner))
            return out
        self._record(base, phase, module, owner, args, out, before, after, width, wanted)
        return out

    def _wanted(
        self, name: str, phase: Phase, owner: int, before: list[Any], inputs: list[_Storage]
    ) -> Width | None:
        """The width to which autocast, or in backward the engine, brings what an op reads.

        Backward of an op receives a gradient as wide as the op's result: the engine casts it
        (``torch/csrc/autograd/engine.cpp``, validate_outputs). Gradients of one tensor are summed
        as wide as the tensor, which the op before the sum has read.
        """
        if phase != "backward":
            return None if self._leaves_type(name, before) else forced_width(name)
        of_input, of_result, _ = self._widths.get(owner, (None, None, False))
        summed = name in ("add", "add_") and all(self._is_brought(s, phase) for s in inputs)
        return of_input if summed else of_result

    def _is_brought(self, s: _Storage, phase: Phase) -> bool:
        """Whether a tensor is brought to the wanted width: activations, in backward gradients."""
        saved = phase == "backward" and s.born < (self._gradients_from or 0)
        return s.role in ("activation", "input") and not saved

    def _casts(
        self, tensors: Iterable[Any], phase: Phase, wanted: Width | None
    ) -> Iterator[KernelRecord]:
        """The casts under autocast before an op that reads ``tensors``."""
        if wanted is None:
            return
        for t in tensors:
            s = self._storages[t.untyped_storage()._cdata]
            brought = t.dtype == torch.float32 and t.dim() and self._is_brought(s, phase)
            if not brought or s.width in (wanted, "raw") or (s.number, wanted) in self._cast:
                continue
            whole = self.piece(t)._replace(numel=t.numel())  # what is broadcast is written out
            cast = KernelRecord("copy", 0, (whole,), (whole,), casts=wanted)
            if phase == "backward":  # in forward each op casts for itself
                self._cast.add((s.number, wanted))
            yield cast

    def _handed_on(
        self, results: list[Any], reads: list[Any], owner: int
    ) -> Iterator[KernelRecord]:
        """The casts of gradients to the width of the tensors that a forward op read.

        An op with a parameter has the gradient of its other input where backward reads that
        parameter, as its first result; the parameter's own gradient is none of an activation.
        """
        shared, _, parametric = self._widths.get(owner, (None, None, False))
        if shared is None:
            return
        reads_it = _has_parameter([self.track(t, "activation") for t in reads])
        for t in (results[:1] if reads_it else []) if parametric else results:
            s = self.track(t, "activation")
            if t.dtype == torch.float32 and t.dim() and s.width not in (shared, "raw"):
                whole = self.piece(t)._replace(numel=t.numel())
                s.width = shared
                yield KernelRecord("copy", 0, (whole,), (whole,), casts=shared)

    def _record(
        self, name: str, phase: Phase, module: str, owner: int, args: Any, out: Any,
        before: list[Any], after: list[Any], width: Width, wanted: Width | None,
    ) -> None:  # fmt: skip
        """Record an op with its kernels; ``before``, ``after``: its input and output tensors."""
        forced = width if forced_width(name) else None
        if self._leaves_type(name, before):
            self._own_type.add(len(self.ops))
            forced = None

        def of(tensor: Any) -> Piece:
            if tensor is None:
                return _NOTHING
            s = self.track(tensor, "activation")
            gradient = phase == "backward" and s.number not in results
            brought = gradient and self._is_brought(s, phase)
            return self.piece(tensor, forced or (wanted if brought else None))

        results = {self.track(t, "activation").number for t in after}

        distinct = {
            (t.untyped_storage()._cdata, tuple(t.shape), t.storage_offset()): t for t in before
        }
        reads = tuple(of(t) for t in distinct.values())
        writes = tuple(of(t) for t in after)
        if name == "mkldnn_rnn_layer":  # The fake workspace has no size.
            self.track(after[-1], "activation").n_bytes = _LSTM_SAVED_BYTES * after[0].numel()
        casts = tuple(self._casts(distinct.values(), phase, wanted))
        kernels = (*casts, *kernels_of(name, args, out, reads, writes, of))
        if phase == "backward":
            kernels = (*kernels, *self._handed_on(after, before, owner))
        kind = kind_of(name)
        if not is_known(name) or (kind in ("gemm", "conv") and not any(k.flop for k in kernels)):
            self.uncounted[name] = self.uncounted.get(name, 0) + sum(k.n_bytes for k in kernels)
        weight = 0
        for t in before if phase == "forward" else ():
            s = self._storages[t.untyped_storage()._cdata]
            if s.role == "parameter":
                self._first_use.setdefault(s.number, len(self.ops))
            matrix = kind in ("gemm", "conv") and s.role in ("parameter", "cast") and t.dim() > 1
            if matrix and s.number not in self._cast_weights:
                weight += t.numel()
                self._cast_weights.add(s.number)
        shapes = tuple(tuple(t.shape) for t in (*before, *after))
        dtype = str(after[0].dtype).removeprefix("torch.")
        self.ops.append(OpRecord(name, module, phase, dtype, shapes, kernels, owner, weight))

    def _width(
        self, name: str, before: list[Any], inputs: list[_Storage], wanted: Width | None
    ) -> Width:
        """The width of an op's result under autocast.

        The op sets it; otherwise it is that of the widest input that is not a scalar. In backward
        gradients have the ``wanted`` width.
        """
        forced = forced_width(name)
        if forced is not None and not self._leaves_type(name, before):
            return forced
        floats = [
            s for t, s in zip(before, inputs, strict=True) if t.dtype == torch.float32 and t.dim()
        ]
        if "batch_norm" in name and floats:
            return floats[0].width
        widths = {
            wanted
            if wanted and self._is_brought(s, "backward")
            else "high"
            if s.to_fp32
            else s.width
            for s in floats
        }
        return "low" if widths == {"low"} else "high"

    def _leaves_type(self, name: str, before: list[Any]) -> bool:
        """Whether autocast leaves the types of this op's tensors as they are.

        cross_entropy states its input's type as that of its log-softmax (LossNLL.cpp), which
        autocast then respects (autocast_mode.h, ``fp32_set_opt_dtype``). Its backward has the width
        of the result, which is its second input.
        """
        if name == "_log_softmax_backward_data":
            return self.track(before[1], "activation").width == "low"
        stated = name == "_log_softmax" and self.given_type
        return stated and not self.track(before[0], "activation").to_fp32

    def _track_result(self, tensor: Any, name: str, width: Width, inputs: list[_Storage]) -> None:
        """Track the storage of an op's result."""
        role: Role = "activation"
        if name == "_to_copy" and inputs and inputs[0].role == "parameter":
            role = "cast"
        key = tensor.untyped_storage()._cdata
        new = key not in self._storages
        s = self.track(tensor, role, width)
        if new and tensor.dtype != torch.float32:
            s.width = "raw"
