"""A network written as calls on tensors; saved tensors, forks and blocks follow from the calls.

For every tensor ``Tape`` records whether its storage is already saved for backward, so that each
storage is counted once, and how many ops read it, so that the sums of gradients where forward forks
are counted. Shapes are per sample: channels and a grid of one or two dimensions.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from simcore.workload import ops
from simcore.workload.graph import Block, Kernel, Op, Param, Workload
from simcore.workload.saved import NOTHING, Saved

Act = Literal["relu", "silu", "sigmoid", "tanh", "none"]
Norms = Literal["trained", "constant", "evaluated"]


@dataclass(eq=False, slots=True)
class T:
    """An activation of ``c`` channels on a grid. ``pinned``: its storage is saved for backward."""

    c: int
    grid: tuple[int, ...]
    pinned: bool = False
    readers: int = 0
    grad: bool = True
    share: float = 1.0  # number of such tensors per sample (regions of an image)
    high: bool = False  # autocast keeps it in fp32

    @property
    def points(self) -> float:
        """Positions per sample."""
        n = self.share
        for size in self.grid:
            n *= size
        return n

    @property
    def elems(self) -> float:
        """Elements per sample."""
        return self.c * self.points


def _saved(x: T) -> Saved:
    return Saved(high=x.elems) if x.high else Saved(low=x.elems)


def _windows(
    grid: tuple[int, ...], widths: Sequence[int], stride: int, pads: Sequence[int]
) -> tuple[int, ...]:
    """The grid of windows of some widths over a padded grid. Raises ValueError if none fits."""
    made = tuple(
        (size + 2 * pad - width) // stride + 1
        for size, width, pad in zip(grid, widths, pads, strict=True)
    )
    if min(made) < 1:
        sizes = " x ".join(map(str, grid))
        raise ValueError(f"the input is too small: a layer of it reads {sizes} points")
    return made


class Tape:
    """Ops and parameters in the order of the calls, divided into blocks."""

    def __init__(
        self, *, nchw: bool = True, fused_norm: bool = False, casts: bool = False,
        operands_cast: bool = False, xla: bool = False, native_depthwise: bool = False,
        dilated_on_vector_units: bool = False, planes_in_tf32: bool = True,
        norms: Norms = "trained",
    ) -> None:  # fmt: skip
        """An empty tape.

        - ``nchw``: tensors are channels first, which is PyTorch's default.
        - ``fused_norm``: persistent BatchNorm kernels that also add and apply ReLU.
        - ``casts``: under autocast a convolution makes and saves a 16-bit copy of an fp32 input.
        - ``operands_cast``: the 16-bit operand of a product with an fp32 one is cast by a kernel of
          its own before, instead of as the product reads it.
        - ``xla``: ops between convolutions and sums over a tensor are one kernel, and backward
          recomputes them.
        - ``native_depthwise``: depthwise convolutions run the framework's own kernels in either
          layout, not cuDNN's.
        - ``dilated_on_vector_units``: dilated convolutions have no kernel of matrix units in 16 bit
          (cuDNN 7).
        - ``planes_in_tf32``: 1x1 convolutions are products of channel planes in TF32 too.
        - ``norms``: BatchNorms are ``trained``, ``constant`` (a pre-trained scale and shift), or
          ``evaluated`` (pre-trained statistics, trained scale and shift).
        """
        self.blocks: list[Block] = []
        self.order: list[int] = []
        self.norms: list[int] = []
        self.frozen = False  # whether parameters that are added are not trained
        self.resident = 0  # elements of tensors that are not trained
        self.normed_numel = 0  # weights computed from g and v in each step and held in addition
        self._known: dict[Block, int] = {}
        self.ops: list[Op] = []
        self._params: list[Param] = []
        self._fork_elems = 0.0
        self._fork_times = 0.0
        self._nchw = nchw
        self._fused = fused_norm
        self._casts = casts
        self._operands_cast = operands_cast
        self._norms = norms
        self.xla = xla
        self._native_depthwise = native_depthwise
        self._dilated_on_vector_units = dilated_on_vector_units
        self._planes_in_tf32 = planes_in_tf32

    # -- tensors ---------------------------------------------------------------------------

    def _new(self, c: int, grid: tuple[int, ...], like: T, *, pinned: bool = False) -> T:
        return T(c, grid, pinned, share=like.share)

    def input(self, c: int, grid: tuple[int, ...], share: float = 1.0) -> T:
        """A tensor from outside: data, without gradient."""
        return T(c, grid, grad=False, share=share)

    def read(self, x: T, *, save: bool) -> Saved:
        """Record a reader of ``x``; returns the storage that ``save`` adds to the saved tensors."""
        if x.readers and x.grad:  # backward sums one more gradient
            self._fork_elems += x.elems
            self._fork_times += 1.0
        x.readers += 1
        if not save or x.pinned:
            return NOTHING
        x.pinned = True
        return _saved(x)

    def param(self, name: str, numel: int) -> None:
        """Add a parameter, trained or, while the tape is ``frozen``, only resident."""
        if self.frozen:
            self.resident += numel
        else:
            self.trained(name, numel)

    def trained(self, name: str, numel: int) -> None:
        """Add a trained parameter."""
        self._params.append(Param(name, numel))

    def weights(self, name: str, weight: int, bias: int = 0) -> None:
        """Add the weight of a layer, and its bias if that has elements."""
        self.param(f"{name}.weight", weight)
        if bias:
            self.param(f"{name}.bias", bias)

    def op(self, op: Op, *, grad: bool = True) -> None:
        """Add any op; without a gradient it only runs forward."""
        self.ops.append(op if grad else Op(name=op.name, fwd=op.fwd))

    def apply(self, op: Op, out: T, *inputs: T, saves: Sequence[T] = ()) -> T:
        """Add an op that reads tensors, of which backward needs ``saves``; returns ``out``."""
        out.grad = any(x.grad for x in inputs)
        added = [self.read(x, save=out.grad and x in saves) for x in inputs]
        if any(saved is not NOTHING for saved in added):
            op = replace(op, saved=sum(added, op.saved))
        self.op(op, grad=out.grad)
        return out

    # -- layers ----------------------------------------------------------------------------

    def conv(
        self,
        name: str,
        x: T,
        channels: int,
        kernel: int | Sequence[int],
        *,
        stride: int = 1,
        pad: int | None = None,
        dilation: int = 1,
        groups: int = 1,
        bias: bool = False,
        weight_norm: bool = False,
        transposed: bool = False,
        shared: bool = False,
    ) -> T:
        """Convolution to ``channels``, padded to preserve the size by default.

        ``shared``: its parameters are counted at another call.
        """
        taps = (kernel,) * len(x.grid) if isinstance(kernel, int) else tuple(kernel)
        if transposed:
            grid = tuple(g * stride for g in x.grid)
        else:
            pads = [dilation * (k // 2) if pad is None else pad for k in taps]
            grid = _windows(x.grid, [dilation * (k - 1) + 1 for k in taps], stride, pads)
        out = self._new(channels, grid, x)
        out.grad = x.grad or not self.frozen
        cast = self._casts and x.high
        # One autograd formula computes both gradients, so that the input is saved even where only
        # the input's gradient is needed (torch, tools/autograd/derivatives.yaml: convolution).
        saved = self.read(x, save=out.grad and not cast)
        if cast and out.grad:
            saved = Saved(low=x.elems)
        of_vectors = self._native_depthwise and 1 < groups == x.c
        op = ops.conv(
            f"{name}.conv", x.grid, grid, x.c, channels, taps, images=x.share, stride=stride,
            dilation=dilation, groups=groups, transposed=transposed, bias=bias, input_grad=x.grad,
            weight_grad=not self.frozen, channels_last=not (self._nchw or of_vectors),
            vector_units=self._dilated_on_vector_units and dilation > 1,
            planes_in_tf32=self._planes_in_tf32,
        )  # fmt: skip
        weight, fwd, bwd = int(op.gemm_weight), list(op.fwd), list(op.bwd)
        if cast:
            to_16_bit = Kernel(kind="copy", low=x.elems, high=x.elems, indexed=x.elems)
            fwd.insert(1, to_16_bit)
            if x.grad:
                bwd.insert(1 + (not self.frozen), to_16_bit)
        self.normed_numel += weight * weight_norm
        if weight_norm:  # w = g v / |v|: one kernel each way, over the weight
            fwd.append(Kernel(kind="norm", weight=3.0 * weight))
            bwd.append(Kernel(kind="norm", weight=4.0 * weight))
            self.param(f"{name}.g", x.c if transposed else channels)
        self.ops.append(
            replace(op, fwd=tuple(fwd), bwd=tuple(bwd), saved=saved,
                    gemm_weight=op.gemm_weight * (not shared))
        )  # fmt: skip
        if not shared:
            self.weights(name, weight, channels * bias)
        return out

    def batch_norm(self, name: str, x: T) -> T:
        """BatchNorm over the batch, or as a pre-trained one runs (``norms``).

        An evaluated one is one pass each way: backward reads the saved input and the gradient for
        the gradients of scale and shift, then writes the input's.
        """
        out = self._new(x.c, x.grid, x)
        if self._norms == "constant":
            return self._constant_norm(name, x, out)
        evaluated = self._norms == "evaluated"
        op = ops.batch_norm(
            f"{name}.bn", x.elems, x.c, save_input=False, counter=True,
            channels_first=self._nchw and not self.xla,
        )  # fmt: skip
        if evaluated or self._fused:
            # One read and one write per operand: the tensor stays on chip between passes.
            once = Kernel(kind="batch_norm", low=2 * x.elems, weight=4.0 * x.c)
            back = replace(once, low=(4 if evaluated else 3) * x.elems)
            op = replace(op, fwd=(once,), bwd=(back,))
        if evaluated:
            self.resident += 2 * x.c
        else:
            self.norms.append(x.c)
        self.weights(f"{name}.bn", x.c, x.c)
        return self.apply(op, out, x, saves=(x,))

    def _constant_norm(self, name: str, x: T, out: T) -> T:
        """``x * scale + bias`` with fp32 constants: two kernels, which save nothing of ``x``.

        Products of 16-bit and fp32 tensors are fp32 (PyTorch's type promotion, under autocast too),
        so that later tensors are fp32 until the next convolution casts them to 16 bit.
        """
        out.high = True
        self.resident += 4 * x.c
        first = Kernel(kind="elementwise", low=x.elems, high=x.elems, indexed=x.elems)
        second = Kernel(kind="elementwise", high=2 * x.elems, indexed=x.elems)
        back = replace(second, autocasts=x.elems)  # an fp32 product, which autograd casts to 16 bit
        product = back if self._operands_cast else first
        return self.apply(Op(name=f"{name}.scale", fwd=(product, second), bwd=(back,)), out, x)

    def group_norm(self, name: str, x: T, groups: int, *, autocast: bool = True) -> T:
        """GroupNorm; under ``autocast`` a 16-bit ``x`` is first cast to fp32, which is saved."""
        out = replace(self._new(x.c, x.grid, x), high=autocast)
        if autocast:
            cast = (ops.autocast_cast(x.elems),)
            self.op(Op(name=f"{name}.up", fwd=cast, bwd=cast), grad=x.grad)
        self.weights(name, x.c, x.c)
        return self.apply(ops.group_norm(name, x.elems, groups * x.share), out, x)

    def act(self, name: str, x: T, kind: Act, *, inplace: bool = True) -> T:
        """An activation; ReLU in place saves its output, SiLU its input, others their output."""
        if kind == "none":
            return x
        out = self._new(x.c, x.grid, x)
        if self.xla:  # computed with its input, and a second time in backward
            self.read(x, save=False)
            return out
        op = ops.activation(f"{name}.{kind}", x.elems, saves="none", high=x.high)
        out.high = x.high
        if kind == "silu":
            return self.apply(op, out, x, saves=(x,))
        if kind == "relu" and inplace:
            self.op(replace(op, saved=NOTHING if x.pinned else _saved(x)), grad=x.grad)
            x.pinned = x.grad
            return x
        out.pinned = True
        return self.apply(replace(op, saved=_saved(out)), out, x)

    def unit(
        self, name: str, x: T, channels: int, kernel: int | Sequence[int], *, stride: int = 1,
        pad: int | None = None, groups: int = 1, act: Act = "relu",
    ) -> T:  # fmt: skip
        """Convolution without bias, BatchNorm, activation."""
        y = self.conv(name, x, channels, kernel, stride=stride, pad=pad, groups=groups)
        fold = self._fused and act == "relu"
        y = self.batch_norm(name, y)
        if fold:  # the norm's kernel applies ReLU as it writes: one storage, one pass
            y.pinned = True
            self.ops.append(Op(name=f"{name}.relu", fwd=(), saved=Saved(low=y.elems)))
            return y
        return self.act(name, y, act)

    def add(self, name: str, a: T, b: T, *, relu: bool = False, inplace: bool = False) -> T:
        """``a + b``, perhaps with ReLU after it."""
        out = self._new(a.c, a.grid, a, pinned=inplace and a.pinned)
        out.high = a.high or b.high
        if self._fused and relu:  # added within the norm's kernel: one more read
            extra = (Kernel(kind="elementwise", low=a.elems, launches=0.01),)
            out.pinned = True
            return self.apply(Op(name=name, fwd=extra, bwd=extra, saved=_saved(out)), out, a, b)
        op = ops.binary(name, a.elems, grads=0, high=out.high)
        if self.xla:  # one more read where the norm is applied
            op = Op(name=name, fwd=(Kernel(kind="elementwise", low=a.elems),))
        self.apply(op, out, a, b)
        return self.act(name, out, "relu") if relu else out

    def gate(self, name: str, x: T, s: T) -> T:
        """``x * s`` with one ``s`` per channel; both are saved."""
        out, both = self._new(x.c, x.grid, x), 2 * x.elems + s.elems
        if self.xla:  # with the norm; backward sums over the channel's gradient for ``s``
            summed = Kernel(kind="reduction", low=both)
            return self.apply(Op(name=name, fwd=(), bwd=(summed,)), out, x, s, saves=(s,))
        times = Kernel(kind="elementwise", low=both, indexed=x.elems)
        of_gate = (
            Kernel(kind="elementwise", low=3 * x.elems),
            Kernel(kind="reduction", low=x.elems + s.elems),
        )
        op = Op(name=name, fwd=(times,), bwd=(times, *of_gate))
        return self.apply(op, out, x, s, saves=(x, s))

    def mean(self, name: str, x: T) -> T:
        """Global average pooling."""
        out = self._new(x.c, (1,) * len(x.grid), x)
        op = ops.reduction(name, x.elems, out=out.elems, high=False)
        return self.apply(replace(op, bwd=()) if self.xla else op, out, x)

    def max_pool(self, name: str, x: T, kernel: int, stride: int, pad: int = 0) -> T:
        """Max pooling: saves its input and int64 indices."""
        out = self._pooled(x, kernel, stride, pad)
        op = ops.max_pool2d(
            name, x.elems, out.elems, kernel ** len(x.grid),
            channels_last=not self._nchw, eager=not self._fused,
        )  # fmt: skip
        return self.apply(op, out, x, saves=(x,))

    def average_pool(self, name: str, x: T, kernel: int, stride: int, pad: int = 0) -> T:
        """Average pooling: saves its input."""
        out = self._pooled(x, kernel, stride, pad)
        return self.apply(ops.pool2d(name, x.elems, out.elems), out, x, saves=(x,))

    def _pooled(self, x: T, kernel: int, stride: int, pad: int) -> T:
        sides = len(x.grid)
        return self._new(x.c, _windows(x.grid, [kernel] * sides, stride, [pad] * sides), x)

    def upsample(self, name: str, x: T, factor: int) -> T:
        """Nearest-neighbour up-sampling: saves nothing; its gradient is summed over the copies."""
        out = self._new(x.c, tuple(g * factor for g in x.grid), x)
        both = (Kernel(kind="copy", low=x.elems + out.elems),)
        return self.apply(Op(name=name, fwd=both, bwd=both), out, x)

    def narrow(self, name: str, x: T) -> T:
        """The 16-bit copy of a tensor that autocast keeps in fp32; in fp32 training ``x``."""
        cast = (ops.autocast_cast(x.elems),)
        out = self._new(x.c, x.grid, x, pinned=x.pinned)
        return self.apply(Op(name=name, fwd=cast, bwd=cast), out, x)

    def concat(self, name: str, parts: Sequence[T]) -> T:
        """Channels of several tensors copied into one; the parts of its gradient are views."""
        out = self._new(sum(p.c for p in parts), parts[0].grid, parts[0])
        return self.apply(
            Op(name=name, fwd=(Kernel(kind="copy", low=2.0 * out.elems),)), out, *parts
        )

    def linear(self, name: str, x: T, features: int, *, bias: bool = True, act: Act = "none") -> T:
        """A linear layer over the channels of every point."""
        out = self._new(features, x.grid, x)
        out.grad = x.grad or not self.frozen
        saved = self.read(x, save=not self.frozen)
        op = ops.linear(
            name, x.points, x.c, features, bias=bias, save_input=False, input_grad=x.grad,
            weight_grad=not self.frozen,
        )  # fmt: skip
        self.ops.append(replace(op, saved=saved))
        self.weights(name, x.c * features, features * bias)
        return self.act(name, out, act)

    def dropout(self, name: str, x: T) -> T:
        """Dropout with a one-byte mask."""
        return self.apply(ops.dropout(name, x.elems), self._new(x.c, x.grid, x), x)

    def reshape(self, x: T, c: int, grid: tuple[int, ...], share: float | None = None) -> T:
        """The same storage under another shape: no kernel."""
        return T(c, grid, x.pinned, 0, x.grad, x.share if share is None else share)

    def squeeze_excite(self, name: str, x: T, channels: int, act: Act = "relu") -> T:
        """Squeeze-and-excitation (Hu et al. 2018): mean, two 1x1 layers, sigmoid, product."""
        s = self.mean(f"{name}.mean", x)
        s = self.act(f"{name}.reduce", self.conv(f"{name}.reduce", s, channels, 1, bias=True), act)
        s = self.conv(f"{name}.expand", s, x.c, 1, bias=True)
        return self.gate(f"{name}.gate", x, self.act(f"{name}.expand", s, "sigmoid"))

    # -- blocks ----------------------------------------------------------------------------

    def block(self, name: str, *, boundary: Saved | None = None) -> None:
        """Close a block of all ops since the last one; equal blocks are stored once.

        ``boundary``: what is kept of the block's input, with which it can be recomputed.
        """
        if self._fork_times:
            moved, times = 3.0 * self._fork_elems, self._fork_times
            if self.xla:  # one more read where the sum is used
                moved, times = self._fork_elems, 1.0
            self.ops.append(ops.grad_only("forks", moved, launches=times))
            self._fork_elems = self._fork_times = 0.0
        made = Block(
            name=name,
            ops=tuple(self.ops),
            params=tuple(self._params),
            boundary=boundary or NOTHING,
            recomputable=boundary is not None,
        )
        made = ops.compiled(made) if self.xla else made
        self.ops, self._params = [], []
        index = self._known.setdefault(made, len(self.blocks))  # hashes all its ops, so only once
        if index == len(self.blocks):
            self.blocks.append(made)
        self.order.append(index)

    def workload(
        self, name: str, sample_unit: str, *, input_bytes: float, tokens: float = 0.0
    ) -> Workload:
        """All blocks as a workload, with BatchNorm's buffers counted."""
        return Workload(
            name=name,
            sample_unit=sample_unit,
            blocks=tuple(self.blocks),
            order=tuple(self.order),
            # running mean, running variance, count of batches
            buffers_numel=sum(2 * n + 1 for n in self.norms) + self.normed_numel,
            n_buffers=3 * len(self.norms),
            input_bytes=input_bytes,
            tokens_per_sample=tokens,
        )
