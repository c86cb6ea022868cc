"""ZeRO stages 1 to 3 (Rajbhandari et al. 2020), with offload (Ren et al. 2021)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from functools import cache

import numpy as np

from simcore.base.arrays import Array
from simcore.physics.collectives import Collective
from simcore.step.parallel import (
    PARALLELISMS,
    PLACES,
    Holdings,
    Trained,
    accumulation,
    backward_with_buckets,
    blocks_ahead,
    forward,
    gathered_width,
    inputs,
    prologue,
    split_experts,
    update,
    weight_bytes,
)
from simcore.step.program import HOST_STRETCHES, ProgramBuilder, Scope, gradient_buckets
from simcore.strategy.strategy import Strategy
from simcore.workload.graph import Block, Param


def gathered_params(
    block: Block, strategy: Strategy, *, recomputes: bool = False
) -> tuple[Param, ...]:
    """The tensors that ZeRO-3 gathers for a block's forward, or for its backward, in order.

    ``recomputes``: the block's forward runs before its backward. A tensor then occurs twice if at
    least ``reuse_numel`` parameters are used between its use in the recomputed forward and its use
    in backward: those of the tensors after it, once forward and once backward.
    """
    persistent = strategy.program.zero3.persistent_numel
    params = tuple(q for q in block.params if q.numel > persistent)
    if not (recomputes and strategy.reuse_numel and block.recomputable):
        return params
    twice, after = [], 0
    for q in reversed(block.params):
        if q.numel > persistent and 2 * after >= strategy.reuse_numel:
            twice.append(q)
        after += q.numel
    return (*params, *twice)


def _gathered_bytes(blocks: Iterable[Block], strategy: Strategy) -> tuple[float, float]:
    """Bytes of blocks' parameters when ranks gather them, and of routed experts among these."""
    whole = routed = 0.0
    for block in blocks:
        width = gathered_width(block, strategy)
        whole, routed = whole + block.numel * width, routed + block.routed_numel * width
    return whole, routed


class Zero:
    """ZeRO: shards optimizer state (stage 1), gradients too (stage 2), parameters too (stage 3)."""

    _MEANING = {  # noqa: RUF012
        1: "Optimizer state sharded; gradients reduce-scattered, parameters gathered after.",
        2: "Optimizer state and gradients sharded.",
        3: "Optimizer state, gradients and parameters sharded; blocks gathered as they are used.",
    }

    def __init__(self, stage: int) -> None:
        self.stage = stage
        self.__doc__ = self._MEANING[stage]

    def build(self, builder: ProgramBuilder, strategy: Strategy) -> None:
        """Gradients reduced to shards in backward; parameters gathered after update or on use."""
        if self.stage == 3:
            self._build_sharded(builder, strategy)
        else:
            self._build_gathered(builder, strategy)

    def _build_gathered(self, builder: ProgramBuilder, strategy: Strategy) -> None:
        """Stages 1 and 2: parameters are whole in forward and backward."""
        p = strategy.precision
        if strategy.overlap.params:
            self._forward_while_gathering(builder, strategy)
        else:
            forward(builder, prologue(builder, strategy))
        cap = float(strategy.buckets.zero_numel * p.grad_bytes)
        buckets = gradient_buckets(builder.workload, p.grad_bytes, cap, cap)
        last, bucket_ready = backward_with_buckets(builder, buckets, overlap=strategy.overlap.grads)
        library = strategy.program
        unsharded = library.gradients.zero1_all_reduces and self.stage == 1
        op: Collective = "all_reduce" if unsharded else "reduce_scatter"
        ranks: Scope = "all" if unsharded else "shard"
        copy_over_grad = (library.gradients.bucket_copy_bytes or p.grad_bytes) / p.grad_bytes
        sent = [
            builder.comm(
                f"{op.replace('_', '-')} bucket {i}", op, [size * copy_over_grad], after,
                every_micro_step=self._each_micro_step(strategy), scope=scope,
            )
            for i, (b, after) in enumerate(zip(buckets, bucket_ready, strict=True))
            for scope, size in split_experts(strategy, ranks, b.n_bytes, b.expert_bytes)
        ]  # fmt: skip
        if not unsharded:
            sent = self._between_replicas(builder, strategy, sent, [b.n_bytes for b in buckets])
        done = update(builder, strategy, [*last, *sent[-1:]])
        if strategy.overlap.params:
            return
        if library.optimizer_state.owned_tensor_by_tensor:
            builder.misc("broadcast parameters", "comm", "communication", "broadcasts_s", done)
            return
        if library.optimizer_state.gathered_tensor_by_tensor:
            tensors = [
                q.numel * gathered_width(block, strategy)
                for block in builder.workload.instances()
                for q in block.params
            ]
            alike = Counter(tensors)
            builder.comm(
                "all-gather each parameter", "all_gather", list(alike), done,
                counts=[float(n) for n in alike.values()], scope="shard",
            )  # fmt: skip
            return
        sizes = _gathered_bytes(builder.workload.instances(), strategy)
        for scope, size in split_experts(strategy, "shard", *sizes):
            builder.comm("all-gather parameters", "all_gather", [size], done, scope=scope)

    def _each_micro_step(self, strategy: Strategy) -> bool:
        """Whether gradients are reduced to shards in every micro-step, not only in the last."""
        return self.stage > 1 and not strategy.program.fsdp.reduces_last_micro_step

    def _between_replicas(
        self, builder: ProgramBuilder, strategy: Strategy, sent: list[int], sizes: list[float]
    ) -> list[int]:
        """Add hybrid sharding's all-reduces of each shard's gradients over the state's replicas.

        ``sent``: the reduce-scatters; ``sizes``: bytes of their whole gradients. Returns the tasks
        after which gradients are reduced.
        """
        if not strategy.shard_ranks:
            return sent
        return [
            builder.comm(f"all-reduce shard {i}", "all_reduce", [size / strategy.shard_ranks],
                         [task], every_micro_step=self._each_micro_step(strategy),
                         scope="replicas")
            for i, (task, size) in enumerate(zip(sent, sizes, strict=True))
        ]  # fmt: skip

    def _forward_while_gathering(self, builder: ProgramBuilder, strategy: Strategy) -> None:
        """Add the first micro-step's forward, which overlaps with the gather of parameters.

        The previous update has left them sharded. They are gathered in at most HOST_STRETCHES
        pieces; forward of a piece waits for its parameters.
        """
        workload = builder.workload
        ready = inputs(builder, strategy)
        order = list(workload.order)
        n = -(-len(order) // HOST_STRETCHES)
        pieces = [order[i : i + n] for i in range(0, len(order), n)]

        gathered = [
            [builder.comm(f"all-gather piece {i}", "all_gather", [size], [], scope=scope)
             for scope, size in split_experts(
                 strategy, "shard",
                 *_gathered_bytes((workload.blocks[b] for b in piece), strategy),
             )]
            for i, piece in enumerate(pieces)
        ]  # fmt: skip
        for piece, got in zip(pieces, gathered, strict=True):
            row = builder.forward_row(piece)
            ready = builder.compute("forward", "forward", row, [*ready, *got], overlapped=True)
        accumulation(builder, ready)

    def _build_sharded(self, builder: ProgramBuilder, strategy: Strategy) -> None:
        """Stage 3: each block's parameters are gathered before its forward and its backward."""
        p, workload = strategy.precision, builder.workload
        ready = prologue(builder, strategy)
        order = list(workload.order)
        ahead = blocks_ahead(workload, strategy) + 1
        done: list[list[int]] = []
        fetch = strategy.offload.params != "none"

        def messages(
            width: int,
            params: Sequence[Param],
            base_bytes: float = 0.0,
            routed_base_bytes: float = 0.0,
        ) -> list[tuple[Scope, list[float]]]:
            """Pairs (scope, sizes in bytes) that move ``params`` and an adapter's frozen base."""
            if strategy.gather_tensors:
                sizes = [float(t.numel * width) for t in params]
                return [("shard", [*sizes, base_bytes] if base_bytes else sizes)]
            routed = float(sum(t.numel for t in params if t.routed))
            whole = float(sum(t.numel for t in params) * width) + base_bytes
            return [(s, [n]) for s, n in split_experts(
                strategy, "shard", whole, routed * width + routed_base_bytes
            )]  # fmt: skip

        @cache  # layers repeat
        def gathered_messages(block: int, recomputes: bool) -> list[tuple[Scope, list[float]]]:
            """The messages that gather a block; empty where nothing is gathered."""
            # The frozen base of adapters is sharded too, and is gathered together with them.
            instance = workload.blocks[block]
            base_bytes = instance.base_bytes(p.base_bytes)
            routed_bytes = instance.routed_base_bytes(p.base_bytes)
            params = gathered_params(instance, strategy, recomputes=recomputes)
            if not params and not base_bytes:
                return []
            return messages(p.param_bytes, params, base_bytes, routed_bytes)

        @cache
        def scattered_messages(block: int) -> list[tuple[Scope, list[float]]]:
            """The messages that reduce a block's gradients to shards."""
            return messages(p.grad_bytes, workload.blocks[block].params)

        def gather(block: int, waits: list[int], *, recomputes: bool = False) -> list[int]:
            """Add the gathers of a block after the tasks ``waits``; returns them."""
            gathered = gathered_messages(block, recomputes)
            if gathered and fetch:
                waits = builder.misc(
                    "fetch shard", "copy", "offload", f"fetch_block_{block}_s", waits
                )
            return [
                builder.comm(f"all-gather {workload.blocks[block].name}", "all_gather", sizes,
                             waits, every_micro_step=True, scope=scope)
                for scope, sizes in gathered
            ]  # fmt: skip

        kinds = range(len(workload.blocks))
        forward_rows = [builder.forward_row([b]) for b in kinds]
        backward_rows = [builder.backward_row([(b, 1.0)]) for b in kinds]
        for i, b in enumerate(order):
            waits = done[i - ahead] if i >= ahead else ready
            got = gather(b, waits)
            done.append(
                builder.compute(
                    f"forward {workload.blocks[b].name}", "forward", forward_rows[b],
                    [*got, *(ready if i == 0 else [])], overlapped=True,
                )
            )  # fmt: skip
        sent: list[int] = []
        n = len(order)
        # The last block is still gathered when backward begins. In issue order, the gather of a
        # block comes before the reduce-scatter of the block that runs before it in backward;
        # otherwise prefetch would wait for that reduce-scatter on the communication stream.
        gathered: list[list[int]] = [[]]
        for j, b in enumerate(reversed(order)):
            while len(gathered) < min(n, j + ahead):
                k = len(gathered)
                waits = done[max(0, n + k - ahead)]
                gathered.append(gather(order[n - 1 - k], waits, recomputes=builder.recompute))
            got = gathered[j]
            done.append(
                builder.compute(
                    f"backward {workload.blocks[b].name}", "backward",
                    backward_rows[b], got if j else [*got, *builder.leaving],
                    overlapped=True,
                )
            )  # fmt: skip
            if numel := workload.blocks[b].numel:
                size = float(numel * p.grad_bytes)
                scattered = [
                    builder.comm(f"reduce-scatter {workload.blocks[b].name}", "reduce_scatter",
                                 sizes, done[-1], every_micro_step=self._each_micro_step(strategy),
                                 scope=scope)
                    for scope, sizes in scattered_messages(b)
                ]  # fmt: skip
                sent += self._between_replicas(builder, strategy, scattered, [size])
                if not strategy.overlap.grads:
                    done[-1] = [*done[-1], *sent[-1:]]
        update(builder, strategy, [*done[-1], *sent[-1:]])

    def holdings(
        self, workload: Trained, strategy: Strategy, n_ranks: Array, expert_ranks: float = 1.0
    ) -> Holdings:
        """Bytes of sharded state, communication buffers, and offloaded state.

        Only n_ranks / expert_ranks replicas share an expert's parameters, so that their state is
        divided into that many shards (Megatron-LM's expert data-parallel group).
        Stages 1 and 2 have a bucket no larger than the gradients, and none where gradients are
        main-grad buffers. The blocks that stage 3 gathers are part of the walk over the ops
        (``memory``).
        """
        p, numel, library = strategy.precision, workload.trainable_numel, strategy.program
        main_grads = p.main_grads and self.stage < 3
        n_ranks = self.shard_degree(strategy, n_ranks)
        routed = workload.expert_numel
        shard = (numel - routed) / n_ranks + routed / np.maximum(n_ranks / expert_ranks, 1.0)
        if library.optimizer_state.owned_tensor_by_tensor:
            shard = np.maximum(shard, workload.largest_param_numel)
        weights = weight_bytes(workload, strategy) if self.stage < 3 else shard * p.param_bytes
        masters: Array | float = shard * p.master_bytes
        if strategy.wide_shards:
            weights, masters = masters, 0.0
        extra_bytes = p.param_bytes * (library.gradients.narrow_beside_fp32_sums and main_grads)
        held: dict[str, Array | float] = {
            "parameters": weights,
            "gradients": (strategy.kept_grad_bytes + extra_bytes)
            * (shard if self.stage >= 2 else numel),
            "optimizer_state": masters + shard * strategy.optimizer.state_bytes,
            "ema": numel * strategy.ema_bytes,
            "buckets": self._bucket_bytes(workload, strategy) * np.where(n_ranks > 1, 1.0, 0.0),
        }
        if strategy.offload.optimizer != "none":
            # ZeRO-Offload stores its shard's gradients on the host together with its states.
            held[PLACES[strategy.offload.optimizer]] = (
                held.pop("optimizer_state") + shard * p.grad_bytes
            )
            if self.stage >= 2:
                del held["gradients"]
        if strategy.offload.params != "none":
            place = PLACES[strategy.offload.params]
            held[place] = held.get(place, 0.0) + held.pop("parameters")
        return Holdings.of(n_ranks, **held)

    def _bucket_bytes(self, workload: Trained, strategy: Strategy) -> Array | float:
        """Bytes of flat communication buffers where there are several ranks."""
        p, library = strategy.precision, strategy.program
        bucket = np.minimum(float(strategy.buckets.zero_numel), workload.trainable_numel)
        if self.stage >= 3:
            copies = bool(library.zero3.live_numel) + library.zero3.joins_bucket
            return bucket * p.grad_bytes * copies
        if p.main_grads or library.fsdp.outer_layers_one_unit:
            # FSDP that keeps whole parameters reduces a layer's gradients from a flat copy
            # (torch/distributed/fsdp/_fully_shard/_fsdp_collectives.py, foreach_reduce).
            flat = workload.largest_block_numel * p.grad_bytes
            return flat * library.fsdp.outer_layers_one_unit
        found: Array = bucket * (p.grad_bytes + library.gradients.bucket_copy_bytes)
        return found

    def shard_degree(self, strategy: Strategy, n_ranks: Array) -> Array:
        """The number of ranks among which state is sharded [C]: each rank updates its shard."""
        return np.minimum(n_ranks, float(strategy.shard_ranks or np.inf))


for _stage in (1, 2, 3):
    PARALLELISMS.register(f"zero{_stage}")(Zero(_stage))
