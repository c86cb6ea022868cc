"""What a dry run sees of the script itself: calls of models and losses, optimizers, wrappers."""

from __future__ import annotations

import traceback
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from types import FunctionType
from typing import Any

import torch
import torch.distributed as dist
from torch import nn
from torch.optim.optimizer import (
    Optimizer,
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.overrides import TorchFunctionMode
from torch.utils import checkpoint as checkpoints
from torch.utils._pytree import tree_leaves

from simcore.base.errors import UsageError
from simcore.workload.trace.run.meter import Meter, meter_of_storages
from simcore.workload.trace.run.patches import Patches
from simcore.workload.trace.run.places import libraries_in
from simcore.workload.trace.run.program import Program, outputs_of
from simcore.workload.trace.run.twin import Shapes, unwrapped

#: Ops that clip_grad_norm_ runs between backward and the update (torch/nn/utils/clip_grad.py).
_NORMS = ("_foreach_norm", "linalg_vector_norm")


@dataclass(slots=True)
class Held:
    """Bytes that the rank holds when an optimizer steps."""

    parameters: int = 0
    gradients: int = 0
    optimizer_state: int = 0
    buffers: int = 0
    frozen: int = 0


@dataclass(slots=True)
class Seen:
    """What was seen of a script.

    ``roots``: modules with trained parameters that are called at the outermost level; ``program``:
    the calls of the micro-step that is running, ``last_program`` those of the one before;
    ``checkpoints``: calls under activation checkpointing, in the same two; ``micro_steps``: since
    the last update, ``rounds``: passes of a pipeline's schedule; ``settings``: arguments of data
    loaders; ``step_collectives``: where those of the last whole step begin and end; ``clips``:
    gradients are clipped before the update; ``wrapper``: class of an optimizer whose step calls the
    real one's; ``frozen``: parameters of networks that steps run without gradients, by class;
    ``libraries``: packages that call the model, then those that call the optimizer.
    """

    optimizers: list[Optimizer] = field(default_factory=list)
    roots: dict[int, nn.Module] = field(default_factory=dict)
    program: Program | None = None
    last_program: Program | None = None
    checkpoints: int = 0
    last_checkpoints: int = 0
    steps: int = 0
    micro_steps: int = 0
    micro_steps_of_step: int = 0
    autocast: str = ""
    held: Held = field(default_factory=Held)
    settings: dict[str, Any] = field(default_factory=dict)
    shapes: Shapes = field(default_factory=Shapes)
    first_of_step: int = 0  # collectives before the step that is running
    step_collectives: tuple[int, int] = (0, 0)
    clips: bool = False
    wrapper: str = ""
    rounds: int = 0
    frozen: dict[str, int] = field(default_factory=dict)
    schedule: Any = None
    stages: list[Any] = field(default_factory=list)
    libraries: list[str] = field(default_factory=list)

    def note_frozen(self, module: nn.Module) -> None:
        """Note a network without gradients, unless it is a trained one that is validated."""
        of_roots = {id(p) for root in self.roots.values() for p in root.parameters()}
        if not any(id(p) in of_roots for p in module.parameters()):
            self.frozen[type(module).__name__] = sum(p.numel() for p in module.parameters())


class _Outermost(TorchFunctionMode):  # type: ignore[misc]
    """Records functions of torch that the script itself calls on results of its model."""

    def __init__(self, meter: Meter, seen: Seen) -> None:
        super().__init__()
        self._meter, self._seen = meter, seen
        self._within = False

    def __torch_function__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        meter, seen = self._meter, self._seen
        program = seen.program
        apart = meter.inside or self._within or meter.phase != "forward"
        if apart or program is None or getattr(func, "__name__", "") == "backward":
            return func(*args, **kwargs)
        self._within = True
        try:
            out = func(*args, **kwargs)
        finally:
            self._within = False
        if outputs_of(out):
            program.add(func, args, kwargs, out)
        return out


def _calls(meter: Meter, seen: Seen, patches: Patches) -> None:
    plain = nn.Module.__call__

    def call(self: nn.Module, *args: Any, **kwargs: Any) -> Any:
        outermost = not meter.inside and torch._C._current_graph_task_id() == -1
        if outermost and torch.is_grad_enabled() and meter.phase != "optimizer":
            program = seen.program
            if program is None or any(c.target is self for c in program.calls):
                seen.program = Program()
            trains = any(p.requires_grad for p in self.parameters())
            if trains:
                meter.phase = "forward"
                if id(self) not in seen.roots:
                    seen.roots[id(self)] = self
                    seen.libraries += libraries_in(traceback.extract_stack())
                seen.autocast = ""
                seen.checkpoints = 0
        elif outermost and not self.training and meter.phase != "setup":
            seen.note_frozen(self)
        if not seen.autocast and meter.phase == "forward":  # libraries switch it on in a forward
            seen.autocast = _autocast()
        goes_on = outermost and _redirected(unwrapped(self))
        meter.inside += not goes_on
        try:
            out = plain(self, *args, **kwargs)
        finally:
            meter.inside -= not goes_on
        if outermost and not goes_on and meter.phase == "forward" and seen.program is not None:
            seen.program.add(self, args, kwargs, out)
        return out

    patches.set(nn.Module, "__call__", call)


def _functions(meter: Meter, seen: Seen, patches: Patches) -> None:
    """Record the script's own differentiable functions, such as a gather of all ranks' features."""
    plain = vars(torch.autograd.Function)["apply"]

    def apply(cls: Any, *args: Any, **kwargs: Any) -> Any:
        program = seen.program
        if meter.inside or program is None or meter.phase != "forward":
            return plain.__get__(None, cls)(*args, **kwargs)
        meter.inside += 1
        try:
            out = plain.__get__(None, cls)(*args, **kwargs)
        finally:
            meter.inside -= 1
        program.add(cls.apply, args, kwargs, out)
        return out

    patches.set(torch.autograd.Function, "apply", classmethod(apply))


def _redirected(module: nn.Module) -> bool:
    """Whether a library has put a step of the script in place of the module's forward.

    Lightning does so to call ``training_step`` through DDP: what the step calls is the program,
    not the module. Wrappers of the module's own forward are methods, or name what they wrap.
    """
    forward = vars(module).get("forward")
    return isinstance(forward, FunctionType) and not hasattr(forward, "__wrapped__")


def _autocast() -> str:
    if not torch.is_autocast_enabled("cpu"):
        return ""
    return {torch.bfloat16: "bf16", torch.float16: "fp16"}.get(torch.get_autocast_dtype("cpu"), "")


def _backward(meter: Meter, seen: Seen, patches: Patches) -> None:
    def backward(plain: Any, *args: Any, **kwargs: Any) -> Any:
        if torch._C._current_graph_task_id() != -1:  # of a checkpoint
            return plain(*args, **kwargs)
        if seen.program is not None:
            of = args[0] if args else kwargs.get("tensors")
            seen.program.ends_at(of[0] if isinstance(of, (list, tuple)) else of)
            seen.last_program, seen.program = seen.program, None
        seen.last_checkpoints = seen.checkpoints or seen.last_checkpoints
        seen.micro_steps += 1
        result = plain(*args, **kwargs)
        meter.phase = "between"
        return result

    patches.wrap(torch.autograd, "backward", backward)


def _bytes_here(tensor: Any) -> int:
    """Bytes of a tensor on this rank."""
    local = getattr(tensor, "_local_tensor", tensor)
    return int(local.numel() * local.element_size())


def _held(seen: Seen) -> None:
    """Note what the rank holds before an optimizer updates (the state: after)."""
    updated = [p for o in seen.optimizers for g in o.param_groups for p in g["params"]]
    of_models = {id(p): p for m in seen.roots.values() for p in m.parameters()}
    every = {**{id(p): p for p in updated}, **of_models}
    buffers = {id(b): b for m in seen.roots.values() for b in m.buffers()}
    held = seen.held
    held.parameters = sum(_bytes_here(p) for p in every.values())
    held.frozen = sum(_bytes_here(p) for p in every.values() if not p.requires_grad)
    held.gradients = sum(_bytes_here(p.grad) for p in every.values() if p.grad is not None)
    held.buffers = sum(map(_bytes_here, buffers.values()))


def _state_bytes(optimizers: list[Optimizer]) -> int:
    total = 0
    for o in optimizers:
        for state in o.state.values():
            for value in tree_leaves(state):
                if isinstance(value, torch.Tensor) and value.dim():
                    total += _bytes_here(value)
    return total


def _optimizers(meter: Meter, seen: Seen) -> list[Any]:
    depth = [0]

    def begins() -> None:
        meter.phase = "optimizer"
        seen.clips = any(r.phase == "between" and r.name in _NORMS for r in meter.ops)
        _held(seen)

    def before(optimizer: Optimizer, args: Any, kwargs: Any) -> Any:
        depth[0] += 1
        if depth[0] > 1:  # a wrapper's step calls its optimizer's
            wrapper = type(seen.optimizers[-1]).__name__
            seen.wrapper = seen.wrapper or wrapper
            seen.optimizers[-1] = optimizer
            return None
        if optimizer not in seen.optimizers and not seen.wrapper:
            seen.optimizers.append(optimizer)
            seen.libraries += libraries_in(traceback.extract_stack())
        closure = kwargs.get("closure") or next(iter(args[1:]), None)
        if closure is None:
            begins()
            return None

        def computes() -> Any:  # a step that begins with the script's forward and backward
            out = closure()
            begins()
            return out

        return args[:1], {**kwargs, "closure": computes}

    def after(optimizer: Optimizer, *_: Any) -> None:
        depth[0] -= 1
        if depth[0]:
            return
        seen.held.optimizer_state = _state_bytes(seen.optimizers)
        meter.phase = "between"
        seen.steps += 1
        micro_steps = seen.rounds if seen.schedule else seen.micro_steps
        seen.micro_steps_of_step, seen.micro_steps, seen.rounds = max(micro_steps, 1), 0, 0
        seen.step_collectives = seen.first_of_step, len(meter.collectives)
        seen.first_of_step = len(meter.collectives)

    return [register_optimizer_step_pre_hook(before), register_optimizer_step_post_hook(after)]


def _checkpoints(seen: Seen, patches: Patches) -> None:
    """Count calls under activation checkpointing; both of torch's forms are reached from here."""

    def without_reentrance(plain: Any, *args: Any, **kwargs: Any) -> Any:
        if torch._C._current_graph_task_id() == -1:
            seen.checkpoints += 1
        return plain(*args, **kwargs)

    name = "_checkpoint_without_reentrant_generator"
    newer = f"{name}_impl"  # since PyTorch 2.14
    patches.wrap(checkpoints, newer if hasattr(checkpoints, newer) else name, without_reentrance)
    apply = checkpoints.CheckpointFunction.apply

    def reentrant(*args: Any) -> Any:
        if torch._C._current_graph_task_id() == -1:
            seen.checkpoints += 1
        return apply(*args)

    patches.set(checkpoints.CheckpointFunction, "apply", staticmethod(reentrant))


def _wrappers(meter: Meter, seen: Seen, patches: Patches) -> None:
    """What data-parallel wrappers need where there are neither GPUs nor values."""
    from torch.distributed.fsdp import FullyShardedDataParallel
    from torch.distributed.pipelining import schedules
    from torch.distributed.tensor._sharding_prop import ShardingPropagator
    from torch.nn.parallel import DistributedDataParallel

    def ddp(plain: Any, self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        kwargs.update(device_ids=None, output_device=None)
        plain(self, module, **kwargs)

    def fsdp(plain: Any, self: Any, module: Any, *args: Any, **kwargs: Any) -> None:
        seen.shapes.note(module)
        if "device_id" in kwargs:
            kwargs["device_id"] = torch.device("cpu")
        if "sync_module_states" in kwargs:  # sent once before the first step, of GPUs alone
            kwargs["sync_module_states"] = False
        plain(self, module, *args, **kwargs)

    def rebuilt(plain: Any, *args: Any) -> Any:
        meter.real_tables = True
        try:
            return plain(*args)
        finally:
            meter.real_tables = False

    def reduced(plain: Any, tensor: Any, op: Any = dist.ReduceOp.SUM, *args: Any,
                **kwargs: Any) -> Any:  # fmt: skip
        meter.adds = op == dist.ReduceOp.SUM
        return plain(tensor, op, *args, **kwargs)

    def single(plain: Any, self: Any, stage: Any, *args: Any, **kwargs: Any) -> None:
        seen.schedule, seen.stages = self, [stage]
        plain(self, stage, *args, **kwargs)

    def several(plain: Any, self: Any, stages: Any, *args: Any, **kwargs: Any) -> None:
        seen.schedule, seen.stages = self, list(stages)
        plain(self, stages, *args, **kwargs)

    def round_(plain: Any, self: Any, *args: Any, **kwargs: Any) -> Any:
        seen.rounds += 1
        return plain(self, *args, **kwargs)

    for kind in (schedules.PipelineScheduleSingle, schedules.PipelineScheduleMulti):
        patches.wrap(kind, "step", round_)
    patches.set(schedules._PipelineSchedule, "_warmup_p2p", _met)
    patches.wrap(schedules.PipelineScheduleSingle, "__init__", single)
    patches.wrap(schedules.PipelineScheduleMulti, "__init__", several)

    def shapes_alone(plain: Any, *args: Any) -> Any:
        before, meter.paused = meter.paused, True
        try:
            return plain(*args)
        finally:
            meter.paused = before

    patches.wrap(ShardingPropagator, "_propagate_tensor_meta_non_cached", shapes_alone)
    for module in (dist, dist.distributed_c10d):
        patches.wrap(module, "all_reduce", reduced)
    patches.wrap(DistributedDataParallel, "__init__", ddp)
    patches.wrap(FullyShardedDataParallel, "__init__", fsdp)
    patches.wrap(dist.Reducer, "_rebuild_buckets", rebuilt)
    patches.wrap(torch.UntypedStorage, "resize_", meter_of_storages(meter))
    patches.set(torch, "compile", _uncompiled)
    patches.set(nn.Module, "compile", lambda self, *_, **__: None)


def _met(_: Any, stages: list[Any], *__: Any) -> None:
    """The greeting of pipeline ranks before the first step: all know the shapes that they get.

    Raises UsageError for a stage to which the script does not give them.
    """
    from torch.distributed.pipelining._utils import InferenceMode

    for stage in stages:
        if InferenceMode.needs_dynamic(stage._user_meta, True):
            raise UsageError(
                f"pipeline stage {stage.stage_index} asks other ranks for the shapes that it gets: "
                "give PipelineStage its input_args, output_args and output_grads"
            )
        stage._inference_mode = InferenceMode.STATIC


def _uncompiled(model: Any = None, *_: Any, **__: Any) -> Any:
    """``torch.compile`` that leaves its argument as it is; as a decorator too."""
    return model if model is not None else lambda function: function


@contextmanager
def watched(meter: Meter) -> Iterator[Seen]:
    """A context that watches a script; yields what was seen."""
    seen = Seen()
    with Patches() as patches, ExitStack() as stack:
        _calls(meter, seen, patches)
        _functions(meter, seen, patches)
        _backward(meter, seen, patches)
        _checkpoints(seen, patches)
        _wrappers(meter, seen, patches)
        for handle in _optimizers(meter, seen):
            stack.callback(handle.remove)
        stack.enter_context(_Outermost(meter, seen))
        yield seen
