"""Allocations and frees of training steps, in the order in which the framework issues them.

Workload, strategy and rules are those of the closed form in ``memory.terms``: first the state,
then in each step frozen networks, forward, backward and the update. The first step is a warm-up:
its update allocates the optimizer state, between freed activations, as in PyTorch.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

import numpy as np

from simcore.base.units import FP32_BYTES
from simcore.memory.moments import gradients_after, passing, shared_with_input
from simcore.memory.parts import frozen_away, frozen_base, frozen_width
from simcore.memory.terms import CUBLAS_HANDLES, CUBLAS_WORKSPACE_BYTES
from simcore.step.parallel import PARALLELISMS
from simcore.step.transients import Backward, backward_bytes, saved_bytes, storages
from simcore.strategy.precision import Precision
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block, Op, Workload

#: Steps in the list: a warm-up, one after which the placement of blocks repeats, the one evaluated.
STEPS = 3
#: Tensors among which a frozen network's live activations are divided (as archs.vae counts them).
FROZEN_TENSORS = 5


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

    def repeat(self, since: tuple[int, int]) -> None:
        """Repeat all events since a ``mark``, with new allocations."""
        first, number = since
        more = len(self.what) - number
        self.events += [(n + more if n >= number else n, size) for n, size in self.events[first:]]
        self.what += self.what[number:]

    def mark(self) -> tuple[int, int]:
        """Position of the next event, and number of the next allocation."""
        return len(self.events), len(self.what)

    def phase(self, name: str) -> None:
        """Record that a phase begins here."""
        self.phases.append((len(self.events), name))


@dataclass(frozen=True)
class _State:
    """Bytes of state that this rank keeps per parameter element, and whether shards are flat.

    ``fetches``: parameters are gathered from other ranks, or copied from the host.
    """

    parameters: float
    gradients: float
    optimizer: float
    buckets: float
    flat_parameters: bool
    flat_optimizer: bool
    fetches: bool


class _Forward(NamedTuple):
    """Forward of one op; bytes per sample. ``copy_bytes``: the 16-bit copy of its weight.

    ``pieces``: sizes of the storages that it saves, without its input.
    """

    name: str
    copy_bytes: float
    pieces: tuple[float, ...]
    takes_input: bool
    out: float
    pins_output: bool
    next_input: float


def _forward_ops(block: Block, p: Precision, *, pins: bool) -> tuple[_Forward, ...]:
    """The ops of a block in the order of forward, by the rules of ``moments.passing``."""
    found, before = [], 0.0
    for op in block.ops:
        now = passing(op, before, p, pins=pins)
        pieces = list(storages(op.saved, p)) if pins else []
        if now.takes_input:
            pieces.remove(before)
        found.append(
            _Forward(
                op.name, op.gemm_weight * p.cast_bytes, tuple(pieces),
                now.takes_input, now.out, now.pins_output, now.next_input,
            )
        )  # fmt: skip
        before = now.next_input
    return tuple(found)


class _Step:
    """Builds the events of one rank; ``run`` is the only public method."""

    def __init__(
        self,
        workload: Workload,
        strategy: Strategy,
        micro_batch: float,
        grad_accum: int,
        ranks: int,
        cublas_bytes: float,
    ) -> None:
        self.handle_bytes = cublas_bytes / CUBLAS_HANDLES
        self.w, self.s, self.b = workload, strategy, float(micro_batch)
        self.p = strategy.precision
        self.early = grad_accum > 1 or strategy.early_grads
        self.unsent = (  # unsharded sums of earlier micro-steps, sharded in the last one
            grad_accum > 1
            and strategy.program.fsdp.reduces_last_micro_step
            and strategy.zero_stage >= 2
        )
        self.sums: dict[int, list[int]] = {}
        self.out = EventList()
        self.blocks = list(workload.instances())
        self.names = _names(self.blocks)
        n = np.array([float(ranks)])
        held = PARALLELISMS[strategy.parallelism].holdings(workload, strategy, n)
        numel = max(workload.trainable_numel, 1)
        stage = strategy.zero_stage
        self.state = _State(
            parameters=float(held.parameters[0]) / numel,
            gradients=float(held.gradients[0]) / numel,
            optimizer=float(held.optimizer_state[0]) / numel,
            buckets=float(held.buckets[0] + held.replicas[0]),
            flat_parameters=stage >= 3,
            flat_optimizer=stage >= 1,
            fetches=ranks > 1 or strategy.offload.params != "none",
        )
        shards = PARALLELISMS[strategy.parallelism].shard_degree(strategy, n)
        self.shards = float(shards[0])
        self.updated = numel / self.shards
        self.ema = float(held.ema[0]) / numel
        self.recomputed = [strategy.recompute == "full" and b.recomputable for b in self.blocks]
        self.grads: dict[int, list[int]] = {}
        # Results for blocks that repeat, computed once.
        self.forwards: dict[tuple[int, bool], tuple[_Forward, ...]] = {}
        self.counts = {id(b): gradients_after(b) for b in workload.blocks}
        self.works = {id(b): [backward_bytes(o, self.p) for o in b.ops] for b in workload.blocks}

    def run(self, steps: int) -> EventList:
        self._resident()
        begin, phases = self.out.mark(), 0
        for step in range(steps):
            if step < 2:
                begin, phases = self.out.mark(), len(self.out.phases)
                self._step(step)
                continue
            # A repetition of the step before, which begins at ``begin``; only the warm-up differs.
            at, following = len(self.out.events) - begin[0], self.out.mark()
            repeated = [(n + at, name.split(" ", 2)[2]) for n, name in self.out.phases[phases:]]
            phases = len(self.out.phases)
            self.out.phases += [(n, f"step {step} {name}") for n, name in repeated]
            self.out.repeat(begin)
            begin = following
        return self.out

    # -- memory that stays over the steps ------------------------------------------------

    def _tensors(
        self, width: float, term: str, flat: bool, blocks: Sequence[int] | None = None
    ) -> list[int]:
        """Numbers of the new allocations: one per parameter tensor, or one per block if ``flat``.

        ``width``: bytes per element. ``blocks``: indices of the blocks; None: all blocks.
        """
        out, made = self.out, []
        for i in range(len(self.blocks)) if blocks is None else blocks:
            block = self.blocks[i]
            if flat:
                made.append(out.alloc(block.numel * width, term, self.names[i]))
            else:
                made += [
                    out.alloc(q.numel * width, term, self.names[i], q.name) for q in block.params
                ]
        return made

    @property
    def _stubs(self) -> bool:
        return self.p.main_grads and self.s.zero_stage < 3

    def _resident(self) -> None:
        out, w = self.out, self.w
        out.phase("set-up")
        self._tensors(self.state.parameters, "parameters", self.state.flat_parameters)
        base = [n.resident_numel * frozen_width(n, self.p) for n in w.frozen if not n.ops]
        away = float(frozen_away(frozen_base(w, self.p), self.shards, self.s.expert_ranks))
        away *= self.s.zero_stage >= 3
        for net in w.frozen:
            n_bytes = net.resident_numel * frozen_width(net, self.p)
            cut = 1.0 if net.ops or not n_bytes else 1.0 - away / sum(base)
            out.alloc(n_bytes * cut, "frozen_models", net.name)
        out.alloc(w.buffers_numel * self.p.param_bytes, "frozen_models", "buffers")
        if self.ema:
            self._tensors(self.ema, "ema", False)
        for k, n in sorted(w.layer_weight_shapes) if self._stubs else ():
            out.alloc(k * n * self.p.param_bytes, "gradient_stubs", "layers")
        cap = float(self.s.bucket_cap_bytes)
        left = self.state.buckets * (not self.s.program.gradients.buckets_after_backward)
        if self.s.zero_stage or self.s.parallelism == "dp":
            cap = max(left, 1.0)
        while left >= 1.0:
            out.alloc(min(cap, left), "gradient_buckets", "DDP")
            left -= min(cap, left)

    # -- one step -------------------------------------------------------------------------

    def _step(self, step: int) -> None:
        out = self.out
        if step and self.early:  # gradients of earlier micro-steps exist from the start
            self._all_gradients()
        out.phase(f"step {step} frozen networks")
        for net in self.w.frozen:
            live = net.transient_low * self.p.low_bytes * self.b / FROZEN_TENSORS
            out.free([out.alloc(live, "working_set", net.name, f"activation {k}")
                      for k in range(FROZEN_TENSORS)])  # fmt: skip
        out.phase(f"step {step} forward")
        if not step:
            # one handle a thread: the caller's here, autograd's in backward
            out.alloc(self.handle_bytes, "workspace", "cuBLAS", "forward")
        saved, copies = self._forward()
        out.phase(f"step {step} backward")
        if not step:
            out.alloc(self.handle_bytes, "workspace", "cuBLAS", "backward")
        self._backward(saved, copies)
        out.phase(f"step {step} update")
        self._update(first=step == 0)

    def _all_gradients(self) -> None:
        for i in reversed(range(len(self.blocks))):
            if self.unsent:
                self.sums[i] = self._tensors(self.p.grad_bytes, "gradients", False, [i])
            else:
                self._gradients(i, len(self.blocks[i].params))

    def _update(self, *, first: bool) -> None:
        out, s = self.out, self.s
        if first and self.state.optimizer:
            pieces = [float(self.p.master_bytes)] if self.p.master_bytes else []
            width = self.p.param_bytes if self.p.narrow_state else FP32_BYTES
            count = max(round(s.optimizer.state_bytes / width), 1)
            pieces += [s.optimizer.state_bytes / count] * count
            scale = self.state.optimizer / max(sum(pieces), 1.0)
            for piece in pieces:
                self._tensors(piece * scale, "optimizer_state", self.state.flat_optimizer)
        if s.program.gradients.buckets_after_backward and self.state.buckets >= 1.0:
            out.free([out.alloc(self.state.buckets, "gradient_buckets", "update")])
        wide = self._wide_gradients()
        if s.step_impl == "foreach" and s.offload.optimizer == "none":
            share = self.updated / max(self.w.trainable_numel, 1)
            held = share * FP32_BYTES * s.optimizer.temporary_elems
            out.free(self._tensors(held, "working_set", self.state.flat_optimizer))
        out.free(wide)
        for numbers in self.grads.values():
            out.free(numbers)
        self.grads.clear()

    def _wide_gradients(self) -> list[int]:
        """fp32 copies of 16-bit gradients for the update; ZeRO joins those of its shard first."""
        out = self.out
        if not self.s.widens_gradients:
            return []
        if not self.s.zero_stage:
            return self._tensors(FP32_BYTES, "gradient_copies", flat=False)
        size = self.updated * self.p.grad_bytes * (not self.p.main_grads)
        joined = out.alloc(size, "gradient_copies", "update", "joined")
        wide = out.alloc(self.updated * FP32_BYTES, "gradient_copies", "update", "fp32")
        out.free(joined)
        return [wide]

    def _gradients(self, i: int, count: int) -> None:
        """Allocate gradients until the last ``count`` tensors of a block have theirs."""
        have = self.grads.setdefault(i, [])
        block = self.blocks[i]
        while len(have) < count:
            param = block.params[len(block.params) - 1 - len(have)]
            if sums := self.sums.get(i):
                self.out.free(sums.pop())
            have.append(
                self.out.alloc(
                    param.numel * self.state.gradients, "gradients", self.names[i], param.name
                )
            )

    # -- forward --------------------------------------------------------------------------

    def _gathered_numel(self, block: Block) -> int:
        """Elements of a block gathered at a time: its largest tensors, or all of it."""
        tensors = self.s.program.zero3.tensors_at_once
        return tensors * block.largest_param_numel if tensors else block.numel

    def _gather(self, order: Sequence[int]) -> Iterator[int]:
        """Yields blocks in order, with their parameters and the next blocks' gathered."""
        there: dict[int, int] = {}
        ahead = 0 if self.s.program.zero3.tensors_at_once else self.s.prefetch_blocks
        gathers = self.s.zero_stage >= 3 and self.state.fetches
        for at, i in enumerate(order):
            if gathers:
                for k in order[at : at + ahead + 1]:
                    if k not in there:
                        there[k] = self.out.alloc(
                            self._gathered_numel(self.blocks[k]) * self.p.param_bytes
                            + self.blocks[k].base_bytes(self.p.base_bytes),
                            "gathered_parameters", self.names[k], "all-gather",
                        )  # fmt: skip
            yield i
            if gathers:
                self.out.free(there.pop(i))

    def _forward(self) -> tuple[dict[int, list[list[int]]], dict[int, list[int]]]:
        """Saved storages and 16-bit copies by block and op."""
        out = self.out
        saved: dict[int, list[list[int]]] = {}
        copies: dict[int, list[int]] = {}
        for i in self._gather(range(len(self.blocks))):
            if self.recomputed[i]:
                kept = saved_bytes(self.blocks[i].kept_input, self.p) * self.b
                saved[i] = [[out.alloc(kept, "activations", self.names[i], "input")]]
            pinned, copies[i] = self._block_forward(i, pins=not self.recomputed[i])
            saved.setdefault(i, pinned)
        # autocast drops its copies; those that an op saved stay allocated
        for i, numbers in copies.items():
            if self.recomputed[i]:
                out.free(numbers)
        return saved, {i: c for i, c in copies.items() if not self.recomputed[i]}

    def _forward_of(self, block: Block, *, pins: bool) -> tuple[_Forward, ...]:
        """``_forward_ops`` of a block, cached for blocks that repeat."""
        key = (id(block), pins)
        if key not in self.forwards:
            self.forwards[key] = _forward_ops(block, self.p, pins=pins)
        return self.forwards[key]

    def _block_forward(
        self, i: int, *, pins: bool, term: str = "activations", shared: float = 0.0
    ) -> tuple[list[list[int]], list[int]]:
        """Storages saved by each op of one block, and its 16-bit copies of weights."""
        out, name, batch = self.out, self.names[i], self.b
        pinned: list[list[int]] = []
        copies: list[int] = []
        carried = -1
        for op in self._forward_of(self.blocks[i], pins=pins):
            copies.append(out.alloc(op.copy_bytes, "autocast_weights", name, op.name))
            mine: list[int] = []
            if op.takes_input:
                if carried >= 0:  # the tensor is an activation from its allocation on
                    out.what[carried] = out.what[carried]._replace(term=term)
                mine.append(carried)
                carried = -1
            for size in op.pieces:
                if shared and size == shared:
                    shared = 0.0
                    continue
                mine.append(out.alloc(size * batch, term, name, op.name))
            following = -1
            if op.out and not op.pins_output:
                following = out.alloc(op.out * batch, "working_set", name, op.name)
            if op.out or op.takes_input:
                out.free(carried)
                carried = following
            pinned.append(mine)
            if not op.next_input:
                out.free(carried)
                carried = -1
        out.free(carried)
        return pinned, copies

    # -- backward -------------------------------------------------------------------------

    def _backward(self, saved: dict[int, list[list[int]]], copies: dict[int, list[int]]) -> None:
        out, p = self.out, self.p
        whole = self.s.zero_stage >= 3 and self.state.fetches
        for i in self._gather(range(len(self.blocks) - 1, -1, -1)):
            block = self.blocks[i]
            reduced = -1
            if whole:
                apart = self.s.program.zero3.tensors_at_once
                made = block.largest_param_numel if apart else block.numel
                reduced = out.alloc(
                    made * p.grad_bytes, "gathered_parameters", self.names[i], "gradients"
                )
            pinned = saved.pop(i)
            made_copies = copies.get(i, [])
            kept: list[int] = []
            if self.recomputed[i]:
                kept = pinned[0]
                pinned, made_copies = self._block_forward(
                    i, pins=True, term="working_set", shared=shared_with_input(block, p)
                )
            self._block_backward(i, block, pinned, made_copies)
            out.free(kept)
            out.free(reduced)

    def _block_backward(
        self, i: int, block: Block, pinned: list[list[int]], copies: list[int]
    ) -> None:
        out = self.out
        counts, works = self.counts[id(block)], self.works[id(block)]
        remade = [
            out.alloc(size * self.b, "working_set", self.names[i], "recomputed")
            for size in storages(block.remade, self.p)
        ]
        incoming, incoming_bytes = -1, 0.0
        for j in range(len(block.ops) - 1, -1, -1):
            op = block.ops[j]
            if works[j].held:
                incoming, incoming_bytes = self._op_backward(
                    i, op, works[j], incoming, incoming_bytes
                )
            self._gradients(i, counts[j])
            out.free(pinned[j])
            out.free(copies[j])
        out.free((incoming, *remade))
        self._gradients(i, len(block.params))

    def _op_backward(
        self, i: int, op: Op, work: Backward, incoming: int, incoming_bytes: float
    ) -> tuple[int, float]:
        """Allocate the gradient handed on and scratch: ``backward_bytes`` with the incoming one."""
        out = self.out
        wanted = work.held - work.handed_on
        if incoming_bytes > wanted:  # a gradient of several branches was summed and freed
            out.free(incoming)
            incoming, incoming_bytes = -1, 0.0
        scratch = out.alloc(
            (wanted - incoming_bytes) * self.b, "working_set", self.names[i], f"{op.name} backward"
        )
        made = out.alloc(
            work.handed_on * self.b, "working_set", self.names[i], f"{op.name} gradient"
        )
        out.free((scratch, incoming))
        return made, work.handed_on


def _names(blocks: Sequence[Block]) -> list[str]:
    """Names of block instances; those of a block that repeats are numbered."""
    total: dict[str, int] = {}
    for block in blocks:
        total[block.name] = total.get(block.name, 0) + 1
    seen: dict[str, int] = {}
    names = []
    for block in blocks:
        n = seen[block.name] = seen.get(block.name, -1) + 1
        names.append(f"{block.name}.{n}" if total[block.name] > 1 else block.name)
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
