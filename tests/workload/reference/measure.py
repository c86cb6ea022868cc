"""What real torch modules hold, compute and dispatch: the truths that the builders meet.

All on the CPU in fp32, whose kernels differ from CUDA's in places; references avoid those
(``torch.native_dropout`` for its one-byte mask, attention written out or as the CPU's flash).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable

import torch
from torch import Tensor, nn
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import FlopCounterMode

from simcore.workload.graph import AUXILIARY, NATIVE_NORM, Workload

Step = Callable[[], Tensor]

#: Operators that only rearrange metadata or allocate: no kernel.
_FREE = {
    "view", "t", "transpose", "permute", "expand", "unsqueeze", "squeeze", "select", "slice",
    "split", "detach", "alias", "_unsafe_view", "empty", "empty_like", "new_empty", "unbind",
    "empty_strided", "new_empty_strided", "as_strided", "unflatten", "_reshape_alias",
    "split_with_sizes", "lift_fresh", "scalar_tensor", "unsafe_split",
}  # fmt: skip


class Dropout(nn.Module):
    """Dropout as CUDA runs it: one fused kernel and a one-byte mask."""

    def __init__(self, p: float) -> None:
        super().__init__()
        self.p = p

    def forward(self, x: Tensor) -> Tensor:
        return torch.native_dropout(x, self.p, True)[0] if self.p else x


def numel(make: Callable[[], nn.Module]) -> int:
    """Trained parameters of a module built without memory; ties counted once."""
    with torch.device("meta"):
        model = make()
    return sum(p.numel() for p in model.parameters())


def param_sizes(make: Callable[[], nn.Module]) -> list[int]:
    """Sizes of the parameter tensors, sorted."""
    with torch.device("meta"):
        model = make()
    return sorted(p.numel() for p in model.parameters())


def built_param_sizes(workload: Workload) -> list[int]:
    """The same of a built workload."""
    return sorted(p.numel for block in workload.instances() for p in block.params)


def built_saved_bytes(workload: Workload) -> float:
    """Bytes a sample that the workload pins in fp32."""
    saved = workload.saved
    return 4 * (saved.low + saved.high + saved.matmul) + saved.raw_bytes


def built_launches(workload: Workload) -> tuple[float, float]:
    """Kernels that the workload launches forward and backward in fp32.

    Without those that CUDA's operators launch beside their main one: a dispatch is one operator.
    """
    ops = [op for block in workload.instances() for op in block.ops]
    beside = (NATIVE_NORM, AUXILIARY)
    return (
        sum(k.launches for op in ops for k in op.fwd if k.kind not in beside),
        sum(k.launches for op in ops for k in op.bwd if k.kind not in beside),
    )


def forward_flop(make: Callable[[], nn.Module], *inputs: Tensor) -> float:
    """Forward FLOP of the meta-device module on meta inputs (attention unfused, masks ignored)."""
    with torch.device("meta"):
        model = make()
    with FlopCounterMode(display=False) as counter:
        model(*inputs)
    return float(counter.get_total_flops())


def saved_bytes(model: nn.Module, step: Step, held: Iterable[Tensor] = ()) -> int:
    """Bytes of distinct storages that one forward pins for backward, parameters excluded.

    Integer tensors (token ids, labels) count; ``held`` are tensors that the caller keeps.
    Storages that hold only parameters or buffers do not count.
    """
    own = {t.untyped_storage().data_ptr() for t in (*model.parameters(), *model.buffers())}
    alive: dict[int, Tensor] = {}

    def pack(tensor: Tensor) -> Tensor:
        alive.setdefault(tensor.untyped_storage().data_ptr(), tensor)
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
        loss = step()
    for tensor in held:
        pack(tensor)
    assert loss.requires_grad
    return sum(t.untyped_storage().nbytes() for at, t in alive.items() if at not in own)


class _Dispatched(TorchDispatchMode):
    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[str] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        name = func._overloadpacket.__name__
        if name not in _FREE:
            self.seen[name] += _kernels(name, args, out)
        return out


def _kernels(name: str, args: tuple, out: object) -> int:  # type: ignore[type-arg]
    """Kernels of one operator on a GPU where they are more than one."""
    if name in ("convolution_backward", "native_layer_norm_backward"):
        grads = sum(isinstance(g, Tensor) for g in out)  # type: ignore[attr-defined]
        # layer norm: one kernel for the input's gradient, one for weight and bias together
        return min(grads, 2) if name.startswith("native") else grads
    if name == "convolution" and args[2] is not None:
        return 2  # cuDNN adds the bias in a kernel of its own
    if name == "_scaled_dot_product_flash_attention_for_cpu_backward":
        return 3  # dot of output and its gradient, main loop, conversion of dq
    return 1


def dispatched(model: nn.Module, step: Step) -> tuple[Counter[str], Counter[str]]:
    """Kernels of one forward and of its backward, by operator."""
    model.zero_grad(set_to_none=True)
    with _Dispatched() as forward:
        loss = step()
    with _Dispatched() as backward:
        loss.backward()
    return forward.seen, backward.seen
