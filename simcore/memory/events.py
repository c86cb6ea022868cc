"""Allocations and frees of training steps, in the order in which the framework issues them.

The tensors of forward and backward are those of ``memory.moments``; state and update those of
``memory.terms.rank_state``: first the state, then in each step frozen networks, forward, backward
and the update. The first step is a warm-up: its update allocates the optimizer state, between freed
activations, as in PyTorch.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from simcore.base.record import Same
from simcore.base.units import FP32_BYTES
from simcore.memory.moments import TERMS, Tensor, gathering_of, tensors_of, ticks_of
from simcore.memory.parts import (
    CUBLAS_HANDLES,
    CUBLAS_WORKSPACE_BYTES,
    early_bytes,
    frozen_base,
    frozen_width,
    hands_stubs,
    holds_checkpoint_inputs,
    live_bytes,
    parts_of,
)
from simcore.memory.terms import rank_state, widens_after_backward
from simcore.step.parallel import blocks_ahead, outer_layers_stay
from simcore.step.transients import saved_bytes
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block, Workload

#: Steps in the list: a warm-up, one after which the placement of blocks repeats, the one evaluated.
STEPS = 3
#: Tensors among which a frozen network's live activations are divided (as many as in the record of
#: ``autoencoder_kl_encoder``).
FROZEN_TENSORS = 5

#: Most gradient buckets of DDP: each holds at least one parameter tensor, and models have fewer.
_MOST_BUCKETS = 10_000


class Allocation(NamedTuple):
    """What an allocation is for: its memory term, and the module and op that request it."""

    term: str
    module: str
    op: str


@dataclass
class EventList:
    """Events (id, bytes or None) in order; ``what[id]`` says what an allocation is for.

    ``phases``: (index of the first event, name of the phase); the names of phases of step s start
    with "step s".
    """

    events: list[tuple[int, int | None]] = field(default_factory=list)
    what: list[Allocation] = field(default_factory=list)
    phases: list[tuple[int, str]] = field(default_factory=list)

    def alloc(self, n_bytes: float, term: str, module: str, op: str = "") -> int:
        """Add an allocation; returns its number, or -1 where its size rounds to zero."""
        size = round(n_bytes)
        if size <= 0:
            return -1
        number = len(self.what)
        self.what.append(Allocation(term, module, op))
        self.events.append((number, size))
        return number

    def free(self, numbers: int | Sequence[int]) -> None:
        """Add the end of allocations, in the order given."""
        for number in (numbers,) if isinstance(numbers, int) else numbers:
            if number >= 0:
                self.events.append((number, None))

    def phase(self, name: str) -> None:
        """Record that a phase begins here."""
        self.phases.append((len(self.events), name))


class _Step:
    """Builds the events of one rank; ``run`` is the only public method.

    ``allocated``: numbers of the tensors that exist, by block instance and index of the tensor;
    ``gradients``: by instance, in the order in which backward makes them; ``sums``: unsharded
    gradients of earlier micro-steps that backward has not come to.
    """

    def __init__(
        self, workload: Workload, strategy: Strategy, micro_batch: float, grad_accum: int,
        ranks: int, cublas_bytes: float,
    ) -> None:  # fmt: skip
        self.out = EventList()
        self.workload, self.strategy, self.p = workload, strategy, strategy.precision
        self.micro_batch = float(micro_batch)
        self.handle_bytes = cublas_bytes / CUBLAS_HANDLES
        self.blocks = list(workload.instances())
        self.names = _names(self.blocks)
        self.recomputed = [strategy.recompute == "full" and b.recomputable for b in self.blocks]
        self.sizes = parts_of((workload,), strategy).sizes
        one = np.ones(1)
        self.state = rank_state(
            self.sizes, strategy, one * grad_accum, one * ranks, strategy.expert_ranks
        )
        self.held = {name: float(term[0]) for name, term in self.state.terms.items()}
        self.numel = max(workload.trainable_numel, 1)
        self.gradient_width = float(self.state.holdings.gradients[0]) / self.numel
        #: Bytes of each kind of tensor per unit of its size.
        self.widths = (
            self.micro_batch, self.micro_batch, self.gradient_width, self.p.cast_bytes,
            self.p.param_bytes * hands_stubs(strategy), early_bytes(self.p),
        )  # fmt: skip
        program = strategy.program
        self.gathers = None
        if strategy.zero_stage >= 3 and self.state.fetches[0]:
            self.gathers = gathering_of(
                workload, self.p, blocks_ahead(workload, strategy), outer_layers_stay(strategy),
                program.zero3.tensors_at_once, program.fsdp.queued_numel,
            )  # fmt: skip
        self.allocated: dict[int, dict[int, int]] = {}
        self.gradients: dict[int, list[int]] = {}
        self.frees_gradients = strategy.updates_in_backward
        stay = holds_checkpoint_inputs(strategy) and bool(self.state.fetches[0])
        self.inputs_stay = stay and frozen_base(workload, self.p)[0] > 0.0
        self.sums: dict[int, list[int]] = {}

    def run(self, steps: int) -> EventList:
        """The events of the set-up and of so many steps."""
        self._resident()
        for step in range(steps):
            self._step(step)
        return self.out

    # -- memory that stays over the steps ------------------------------------------------

    def _parameter_tensors(
        self, n_bytes: float, term: str, flat: bool, shares: Sequence[float] = (1.0,)
    ) -> list[int]:
        """Numbers of new allocations: one per parameter tensor, or one per block if ``flat``.

        ``n_bytes``: of all of them. ``shares``: of each tensor, where it is several that are made
        one after the other, as torch's optimizers make a parameter's states (``_init_group``).
        """
        out, made, width = self.out, [], n_bytes / self.numel
        parts = [share / sum(shares) for share in shares]
        for block, name in zip(self.blocks, self.names, strict=True):
            tensors = [(block.numel, "")] if flat else [(q.numel, q.name) for q in block.params]
            for numel, tensor in tensors:
                made += [out.alloc(numel * width * part, term, name, tensor) for part in parts]
        return made

    def _resident(self) -> None:
        out, w, held, stage = self.out, self.workload, self.held, self.strategy.zero_stage
        out.phase("set-up")
        self._parameter_tensors(held["parameters"], "parameters", stage >= 3)
        bases = sum(n.resident_numel * frozen_width(n, self.p) for n in w.frozen if not n.ops)
        away = float(self.sizes.resident_frozen[0]) - held["frozen_models"]  # sharded by ZeRO-3
        for net in w.frozen:
            n_bytes = net.resident_numel * frozen_width(net, self.p)
            here = 1.0 if net.ops or not n_bytes else 1.0 - away / bases
            out.alloc(n_bytes * here, "frozen_models", net.name)
        out.alloc(w.buffers_numel * self.p.param_bytes, "frozen_models", "buffers")
        if held["ema"]:
            self._parameter_tensors(held["ema"], "ema", flat=False)
        for k, n in sorted(w.layer_weight_shapes) if held["gradient_stubs"] else ():
            out.alloc(k * n * self.p.param_bytes, "gradient_stubs", "layers")
        left = held["gradient_buckets"] + held["replicas"]
        one_buffer = stage or self.strategy.parallelism == "dp"
        cap = left if one_buffer else float(self.strategy.buckets.cap_bytes)
        cap = max(cap, left / _MOST_BUCKETS, 1.0)
        while left >= 1.0:
            out.alloc(min(cap, left), "gradient_buckets", "DDP")
            left -= min(cap, left)

    # -- one step -------------------------------------------------------------------------

    def _step(self, step: int) -> None:
        out = self.out
        if (
            step and self.state.early[0] and not self.frees_gradients
        ):  # gradients of earlier micro-steps exist from the start
            for i in reversed(range(len(self.blocks))):
                self._earlier_gradients(i)
        out.phase(f"step {step} frozen networks")
        for net in self.workload.frozen:
            elems = net.transient_low * self.micro_batch
            live = elems * live_bytes(net, self.p) / FROZEN_TENSORS
            out.free([out.alloc(live, "working_set", net.name, f"activation {k}")
                      for k in range(FROZEN_TENSORS)])  # fmt: skip
        out.phase(f"step {step} forward")
        if not step:
            # one handle a thread: the caller's here, autograd's in backward
            out.alloc(self.handle_bytes, "workspace", "cuBLAS", "forward")
        whole_step = -1
        if self.gathers:
            n_bytes = self.gathers.step * self.p.param_bytes
            whole_step = out.alloc(n_bytes, "gathered_parameters", "outside layers", "all-gather")
        kept = self._forward()
        out.phase(f"step {step} backward")
        if not step:
            out.alloc(self.handle_bytes, "workspace", "cuBLAS", "backward")
        self._backward(kept)
        out.free(whole_step)
        out.phase(f"step {step} update")
        self._update(first=step == 0)

    def _earlier_gradients(self, i: int) -> None:
        """Allocate a block's gradients, or unsharded sums, of the micro-steps before this one."""
        block, name = self.blocks[i], self.names[i]
        whole = self.state.whole_sums[0] > 0.0
        width = self.p.grad_bytes if whole else self.gradient_width
        made = [
            self.out.alloc(q.numel * width, "gradients", name, q.name)
            for q in (block.params if whole else block.params[::-1])
        ]
        (self.sums if whole else self.gradients)[i] = made

    def _update(self, *, first: bool) -> None:
        out, s, state = self.out, self.strategy, self.state
        flat = s.zero_stage >= 1
        optimizer = self.held["optimizer_state"]
        if first and optimizer:
            pieces = [float(self.p.master_bytes)] if self.p.master_bytes else []
            width = self.p.param_bytes if self.p.narrow_state else FP32_BYTES
            count = max(round(s.optimizer.state_bytes / width), 1)
            pieces += [s.optimizer.state_bytes / count] * count
            self._parameter_tensors(optimizer, "optimizer_state", flat, pieces)
        if state.buckets[0] >= 1.0:
            out.free([out.alloc(float(state.buckets[0]), "gradient_buckets", "update")])
        wide = float(state.wide[0])
        joined = out.alloc(float(state.joined[0]), "gradient_copies", "update", "joined")
        if flat:
            copies = [out.alloc(wide, "gradient_copies", "update", "fp32")]
        else:
            copies = self._parameter_tensors(wide, "gradient_copies", flat)
        out.free(joined)
        out.free(self._parameter_tensors(float(state.temporaries[0]), "working_set", flat))
        out.free(copies)
        for numbers in self.gradients.values():
            out.free([] if self.frees_gradients else numbers)
        self.gradients.clear()

    # -- forward and backward -------------------------------------------------------------

    def _gather(self, order: Sequence[int]) -> Iterator[int]:
        """Yields blocks in order, with their parameters and the next blocks' gathered."""
        there: dict[int, int] = {}
        for at, i in enumerate(order):
            if self.gathers:
                for k in order[at : at + self.gathers.ahead + 1]:
                    if k not in there:
                        n_bytes = float(self.gathers.parameters[k]) * self.p.param_bytes
                        there[k] = self.out.alloc(
                            n_bytes, "gathered_parameters", self.names[k], "all-gather"
                        )
            yield i
            if self.gathers:
                self.out.free(there.pop(i))

    def _walk(self, i: int, ticks: slice, *, pins: bool, again: bool) -> None:
        """Allocate and free the tensors of some ticks of a block instance."""
        block = Same(self.blocks[i])
        tensors = tensors_of(block, self.p, pins=pins, again=again)
        numbers, name = self.allocated.setdefault(i, {}), self.names[i]
        for tick in ticks_of(block, self.p, pins=pins, again=again)[ticks]:
            for k in tick.begin:
                t = tensors[k]
                numbers[k] = self.out.alloc(t.size * self.widths[t.kind], TERMS[t.kind], name, t.op)
            self.out.free([numbers.pop(k) for k in tick.done])
            for k in tick.gradients:
                self._gradient(i, tensors[k])
            self.out.free([numbers.pop(k) for k in tick.late])

    def _gradient(self, i: int, tensor: Tensor) -> None:
        """The gradient of a parameter, unless it exists from earlier micro-steps."""
        made = self.gradients.setdefault(i, [])
        if len(made) < len(self.blocks[i].params):
            if sums := self.sums.get(i):
                self.out.free(sums.pop())
            size = tensor.size * self.gradient_width
            number = self.out.alloc(size, "gradients", self.names[i], tensor.op)
            if self.frees_gradients:
                self.out.free([number])
            made.append(number)

    def _input_bytes(self, i: int) -> float:
        """Bytes of the input that a checkpoint keeps; 0 where the block has none."""
        if not any(self.recomputed[i : i + 1]):
            return 0.0
        return saved_bytes(self.blocks[i].kept_input, self.p) * self.micro_batch

    def _forward(self) -> dict[int, int]:
        """Numbers of the inputs that recomputed blocks keep."""
        kept: dict[int, int] = {}
        for i in self._gather(range(len(self.blocks))):
            block, again = self.blocks[i], self.recomputed[i]
            if again:
                kept[i] = self.out.alloc(
                    self._input_bytes(i), "activations", self.names[i], "input"
                )
            self._walk(i, slice(len(block.ops)), pins=not again, again=False)
        # autocast drops its copies; those that an op saved stay allocated
        for i in kept:
            self.out.free(list(self.allocated.pop(i).values()))
        return kept

    def _backward(self, kept: dict[int, int]) -> None:
        out = self.out
        waiting: list[tuple[float, int]] = []  # elements and numbers of whole gradients
        staying: list[int] = []  # inputs of checkpoints and their gradients
        for i in self._gather(range(len(self.blocks) - 1, -1, -1)):
            block, again = self.blocks[i], self.recomputed[i]
            if self.gathers:
                while sum(n for n, _ in waiting) > self.gathers.queued:
                    out.free([waiting.pop(0)[1]])
                numel = float(self.gathers.gradients[i])
                n_bytes = numel * self.p.grad_bytes
                number = out.alloc(n_bytes, "gathered_parameters", self.names[i], "gradients")
                waiting.append((numel, number))
            self._walk(i, slice(0 if again else len(block.ops), None), pins=True, again=again)
            number = kept.pop(i, -1)
            if self.inputs_stay and number >= 0:
                staying.append(number)
                staying.append(out.alloc(self._input_bytes(i + 1), "activations", self.names[i],
                                         "gradient of its output"))  # fmt: skip
            else:
                out.free([number])
            if self.gathers and not self.gathers.queued:
                out.free([waiting.pop()[1]])
        out.free([number for _, number in waiting])
        out.free(staying)
        if widens_after_backward(self.strategy):
            for block, name in zip(self.blocks, self.names, strict=True):
                for q in block.params:
                    out.free([out.alloc(q.numel * FP32_BYTES, "working_set", name, q.name)])


def _names(blocks: Sequence[Block]) -> list[str]:
    """Names of block instances; those of a block that repeats are numbered."""
    total, seen = Counter(b.name for b in blocks), Counter[str]()
    names = []
    for name in (b.name for b in blocks):
        names.append(f"{name}.{seen[name]}" if total[name] > 1 else name)
        seen[name] += 1
    return names


def step_events(
    workload: Workload,
    strategy: Strategy,
    *,
    micro_batch: float,
    grad_accum: int = 1,
    n_ranks: int = 1,
    cublas_bytes: float = CUBLAS_WORKSPACE_BYTES,
    steps: int = STEPS,
) -> EventList:
    """Events of the set-up and of ``steps`` steps on the fullest rank, in requested bytes."""
    return _Step(workload, strategy, micro_batch, grad_accum, n_ranks, cublas_bytes).run(steps)
