"""The dispatch mode of a dry run: bytes alive, ops and collectives, each with its phase."""

from __future__ import annotations

import sys
import traceback
import weakref
from collections import Counter
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, Literal, NamedTuple

import torch
import torch.distributed as dist
from torch._C._distributed_c10d import ProcessGroup, _create_work_from_future  # type: ignore
from torch._subclasses.fake_tensor import FakeTensor
from torch.futures import Future
from torch.utils._python_dispatch import (
    TorchDispatchMode,
    _disable_current_modes,
    is_traceable_wrapper_subclass,
)
from torch.utils._pytree import tree_leaves

from simcore.base.errors import UsageError
from simcore.workload.trace.kinds import COLLECTIVES
from simcore.workload.trace.run.host import are_known, drawn, exchanged, with_values
from simcore.workload.trace.run.places import place_in_script

Phase = Literal["setup", "forward", "backward", "recompute", "between", "optimizer"]
Issuer = Literal["script", "strategy", "context"]
_OURS = Path(__file__).resolve().parents[3]
#: Collectives of c10d and of its functional form, by the beginning of their name.
_KINDS = {
    "allreduce": "all-reduce", "all_reduce": "all-reduce",
    "allgather": "all-gather", "_allgather": "all-gather", "all_gather": "all-gather",
    "reduce_scatter": "reduce-scatter", "_reduce_scatter": "reduce-scatter",
    "alltoall": "all-to-all", "all_to_all": "all-to-all", "shard_dim_alltoall": "all-to-all",
    "broadcast": "broadcast", "reduce_": "reduce", "gather": "gather", "scatter": "scatter",
    "send": "send", "recv": "receive", "isend": "send", "irecv": "receive",
}  # fmt: skip
#: Of which tensors a collective's bytes are counted: the whole message, as NCCL's tests count it.
_OF_INPUT = ("reduce-scatter", "scatter")


class Unsent(TorchDispatchMode):  # type: ignore[misc]
    """Leaves out collectives while a script's model is traced: other ranks are none."""

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        if func.namespace != "c10d":
            return func(*args, **(kwargs or {}))
        return _finished(func, args[0])


def _finished(func: Any, written: Any) -> Any:
    """What a collective of a process group returns that has ended."""
    done: Future[Any] = Future()
    done.set_result(_tensors(written))
    work = _create_work_from_future(done).boxed()
    return (written, work) if len(func._schema.returns) == 2 else work


class Collective(NamedTuple):
    """A collective: its kind, the bytes of the whole message, the ranks of its group, its phase.

    The message is the gathered result of an all-gather, the whole input of a reduce-scatter, and
    what one rank sends in the others. ``waits``: the issuing stream waits for it at once;
    ``issuer``: the script, a strategy of torch (DDP, FSDP, DTensor, a pipeline), or its context
    parallelism.
    """

    kind: str
    n_bytes: int
    ranks: tuple[int, ...]
    phase: Phase
    waits: bool
    issuer: Issuer

    @property
    def group_size(self) -> int:
        """Number of ranks of its group."""
        return len(self.ranks)


class Ran(NamedTuple):
    """An op that ran: its name, phase, data type and the shapes of its inputs and outputs."""

    name: str
    phase: Phase
    dtype: str
    shapes: tuple[tuple[int, ...], ...]


class Meter(TorchDispatchMode):  # type: ignore[misc]
    """Records what one rank computes, holds and sends.

    ``live``, ``peak``: bytes of all storages now and at most; ``ops``: number of times that each op
    ran; ``collectives``: in the order in which they were issued; ``read``: places where the script
    reads a value of the device. ``phase`` is set by ``watch``; backward shows itself.
    """

    def __init__(self) -> None:
        super().__init__()
        self.live = self.peak = 0
        self.ops: Counter[Ran] = Counter()
        self.collectives: list[Collective] = []
        self.read: dict[str, None] = {}
        self.phase: Phase = "setup"
        self.inside = 0  # calls of modules that are running
        self.paused = False  # DTensor asks for the shapes of whole tensors
        self.real_tables = False  # DDP exchanges tables of its buckets, which it reads
        self.on_gpu = False  # the tensor that is made was asked for on a GPU
        self.adds = True  # the all-reduce that is issued is a sum
        self.peaks: dict[Phase, int] = {}
        self._storages: dict[int, list[Any]] = {}  # address -> [weak reference, bytes]

    # -- memory ----------------------------------------------------------------------------------

    def track(self, tensor: Any) -> None:
        """Count the tensor's storage as alive until it is freed."""
        if tensor.device.type == "meta":
            return
        storage = tensor.untyped_storage()
        key = storage._cdata
        if key in self._storages:
            return
        n = int(storage.nbytes())

        def freed(_: Any, key: int = key) -> None:
            gone = self._storages.pop(key, None)
            if gone is not None:
                self._add(-gone[1])

        self._storages[key] = [weakref.ref(storage, freed), n]
        self._add(n)

    def resized(self, storage: Any) -> None:
        """Count a storage anew whose size has changed."""
        entry = self._storages.get(storage._cdata)
        if entry is not None:
            n = int(storage.nbytes())
            change, entry[1] = n - entry[1], n
            self._add(change)

    def _add(self, n: int) -> None:
        self.live += n
        self.peak = max(self.peak, self.live)
        if n > 0:
            now = self.now
            self.peaks[now] = max(self.peaks.get(now, 0), self.live)

    @property
    def now(self) -> Phase:
        """The phase of the step; ops of modules that run during backward recompute."""
        if torch._C._current_graph_task_id() != -1:
            return "recompute" if self.inside else "backward"
        return self.phase

    # -- ops -------------------------------------------------------------------------------------

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if self.paused:
            return func(*args, **kwargs)
        if any(t is not FakeTensor and _wraps(t) for t in types):
            return NotImplemented  # a DTensor's own ops follow
        namespace, _, name = func._schema.name.partition("::")
        tensors = _tensors((args, kwargs))
        for t in tensors:
            self.track(t)
        if namespace == "c10d":
            return self._of_c10d(func, name, args)
        if name in ("_local_scalar_dense", "item"):  # inference mode does not decompose the second
            return self._value(args[0], func)
        if are_known(tensors) or (self.real_tables and _makes_table(name, kwargs, tensors)):
            with _disable_current_modes():
                return func(*args, **kwargs)
        if (filled := drawn(func, args, kwargs)) is not None:
            return filled
        out = func(*args, **kwargs)
        if not tensors and not self.on_gpu:
            out = with_values(func, args, kwargs, out)
        results = _tensors(out)
        for t in results:
            self.track(t)
        if namespace in COLLECTIVES:
            self._functional(name, args, tensors, results)
        elif not func.is_view and results:
            shapes = tuple(tuple(t.shape) for t in (*tensors, *results))
            dtype = str(results[0].dtype).removeprefix("torch.")
            self.ops[Ran(name, self.now, dtype, shapes)] += 1
        return out

    def _value(self, tensor: Any, func: Any) -> Any:
        """The value of a tensor that the script reads: 1.0 where it is a number that it shows.

        Raises UsageError for whole numbers and truth values, on which shapes and branches depend.
        """
        known = getattr(tensor, "constant", None)
        if known is not None:
            return known.item()
        if not isinstance(tensor, FakeTensor):
            with _disable_current_modes():
                return func(tensor)
        if tensor.dtype == torch.int32 and self.now == "backward":
            return 1  # DDP's table of used parameters: all are
        frames = traceback.extract_stack()
        if any(f.name in ("_maybe_opt_step", "_get_growth_tracker") for f in frames[-12:]):
            return 0  # GradScaler counts gradients that are infinite: none is
        if any(Path(f.filename).match("torch/nn/init.py") for f in frames[-12:]):
            return False  # no first value of a parameter is out of bounds
        place = place_in_script(frames)
        if tensor.is_floating_point():
            if place and not _of_library(frames):
                self.read[place] = None
            return 1.0
        at = f"{place}: " if place else ""
        raise UsageError(
            f"{at}the script reads a {tensor.dtype} from the device (.item(), int(), a branch), "
            "which a dry run does not have: read it from the configuration or from the shape, or "
            "leave that part out of the dry run"
        )

    # -- collectives -----------------------------------------------------------------------------

    def _of_c10d(self, func: Any, name: str, args: Any) -> Any:
        """Record a collective of a process group and return what the finished one would.

        DDP's exchange of its buckets' tables is left out: it happens once, in the second step.
        """
        group = next((a for a in args if isinstance(a, torch.ScriptObject) and _is_group(a)), None)
        kind = kind_of_collective(name)
        if kind is not None and group is not None and not self.real_tables:
            ranks = tuple(dist.get_process_group_ranks(ProcessGroup.unbox(group)))
            first, second = _bytes(args[0]), _bytes(args[1]) if len(args) > 1 else 0
            n = max(first, second) if kind in ("all-gather", *_OF_INPUT) else first
            waits = any(a is False for a in args[-2:] if isinstance(a, bool))
            self.collectives.append(
                Collective(kind, n, ranks, self.now, waits, _issuer(kind, True))
            )
        written = args[0]
        others = len(func._schema.arguments) > 1 and func._schema.arguments[1].name
        given = args[1] if str(others).startswith("input") else written
        size = ProcessGroup.unbox(group).size() if group is not None else 1
        times = size if kind == "all-reduce" and self.adds else 1
        if kind != "send":
            exchanged(_tensors(given), _tensors(written), times)
        return _finished(func, written)

    def _functional(self, name: str, args: Any, tensors: list[Any], results: list[Any]) -> None:
        """Record a functional collective; waiting for one is none."""
        kind = kind_of_collective(name)
        if kind is None:
            return
        label = next((a for a in reversed(args) if isinstance(a, str)), None)
        group = c10d_group(label) if label else None
        ranks = tuple(dist.get_process_group_ranks(group)) if group is not None else ()
        sent, got = _bytes(tensors), _bytes(results)
        n = got if kind == "all-gather" else sent
        self.collectives.append(Collective(kind, n, ranks, self.now, False, _issuer(kind, False)))


#: Where torch's own strategies issue collectives, and what lies between them and the collective.
_STRATEGIES = ("distributed/fsdp", "distributed/_composable", "distributed/tensor", "nn/parallel",
               "distributed/pipelining", "distributed/optim", "nn/utils/clip_grad")  # fmt: skip
_BETWEEN = ("distributed/", "_dynamo/", "utils/", "_compile", "_library/", "_ops", "overrides",
            "_tensor", "autograd/function", "_jit_internal")  # fmt: skip


def _issuer(kind: str, of_c10d: bool) -> Issuer:
    """Who issues the collective that runs now.

    DDP's reducer sums gradients from inside of the autograd engine; whatever else that engine
    issues is the backward of a collective of the script.
    """
    frame: Any = sys._getframe(2)
    while frame is not None:
        file = frame.f_code.co_filename
        _, found, inner = file.rpartition("/torch/")
        if found and "/_context_parallel/" in inner:
            return "context"
        if found and inner.startswith(_STRATEGIES):
            return "strategy"
        if found and inner.startswith("autograd/graph"):
            return "strategy" if of_c10d and kind == "all-reduce" else "script"
        outside = not found or not inner.startswith(_BETWEEN)
        if outside and not Path(file).is_relative_to(_OURS):
            return "script"
        frame = frame.f_back
    return "script"


def c10d_group(label: str) -> Any:
    """The process group of a name; None if there is none."""
    from torch._C._distributed_c10d import _resolve_process_group

    try:
        return _resolve_process_group(label)
    except (RuntimeError, ValueError):
        return None


def kind_of_collective(name: str) -> str | None:
    """The kind of a collective, from the name of its op; None for others, such as a wait."""
    found = [k for k in _KINDS if name.startswith(k)]
    return _KINDS[max(found, key=len)] if found else None


def _wraps(kind: type) -> bool:
    return kind is not torch.Tensor and kind is not torch.nn.Parameter and (
        hasattr(kind, "__tensor_flatten__") or is_traceable_wrapper_subclass(kind)
    )  # fmt: skip


def _makes_table(name: str, kwargs: dict[str, Any], tensors: list[Any]) -> bool:
    """Whether an op makes a tensor of whole numbers."""
    whole = kwargs.get("dtype") in (torch.int32, torch.int64)
    return not tensors and whole and name in ("empty", "zeros")


def _is_group(value: Any) -> bool:
    return "ProcessGroup" in str(value._type())


def _tensors(value: Any) -> list[Any]:
    return [t for t in tree_leaves(value) if isinstance(t, torch.Tensor)]


def _bytes(value: Any) -> int:
    return sum(t.numel() * t.element_size() for t in _tensors(value))


def _of_library(frames: Iterable[traceback.FrameSummary]) -> bool:
    """Whether a torch library's own code reads a value: an optimizer, a scaler."""
    inner = [f.filename for f in frames if not Path(f.filename).is_relative_to(_OURS)]
    parts = [Path(name).parts for name in inner[-4:]]
    return any("torch" in p and ("optim" in p or "amp" in p) for p in parts)


def meter_of_storages(meter: Meter) -> Callable[..., Any]:
    """A wrapper of ``UntypedStorage.resize_`` that tells ``meter``: FSDP frees storages so."""

    def resize(plain: Any, storage: Any, *args: Any) -> Any:
        result = plain(storage, *args)
        meter.resized(storage)
        return result

    return resize
