"""Tensor parallelism: each product of a layer divided over ranks, which sum up its output.

Korthikanti et al. 2022; Megatron-LM, core/tensor_parallel/layers.py.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import NamedTuple, Self

from simcore.base.record import dataclass, replace
from simcore.physics.collectives import Collective
from simcore.step.parallel.layer_ranks import DividedJob, LayerRanks, Pair, layers_of
from simcore.workload.graph import FLASH_KINDS, Kernel, Op, Workload, weight_grad_numel
from simcore.workload.models import ModelRecord
from simcore.workload.sharding import (
    CUT_BY_COLUMNS,
    CUT_BY_ROWS,
    ONE_INPUT,
    TENSOR_SUMS,
    sequence_parallel,
    tensor_sums,
)


@dataclass(frozen=True, kw_only=True)
class TensorRanks(LayerRanks):
    """Ranks that sum up each layer's output: an all-reduce, or with sequence parallelism in halves.

    ``sequence_parallel``: the sum is a reduce-scatter and an all-gather. ``gathered_frac``: bytes
    that are gathered over those that are summed up: products with operands of fewer bits gather
    these. ``repeated``: gathers of inputs that backward repeats for the weight gradients, in sums
    (an all-gather is half of an all-reduce).
    """

    name = "tensor parallel"

    sequence_parallel: bool
    gathered_frac: float
    repeated: float

    @classmethod
    def of(cls, job: DividedJob) -> Self:
        """The tensor ranks of a job."""
        layout, strategy, sums = job.layout, job.strategy, _sums(job)
        cut = layout.sequence_parallel
        columns_frac = _column_grads_frac(job.workload, strategy.recompute == "full")
        # a frozen base needs no weight gradients
        gathers_again = cut and layout.tp > 1 and columns_frac > 0
        gathers_again = gathers_again and not job.config.get("gathered_inputs")
        repeated = 0.5 * sums * gathers_again
        more_sums = _more_sums(job)
        backward = sums + more_sums + job.repeated_frac * _recomputed_frac(job) * sums + repeated
        gathered_frac, bare_frac = strategy.precision.gathered_frac, 0.0
        if cut and (shared := _adapted_inputs(job.workload)):
            # each such input is gathered once, in 16 bit, and its gradient summed up once
            gathered_frac += (1.0 - gathered_frac) * shared / (2.0 * sums)
            bare_frac = shared / (sums * (1.0 + gathered_frac))
        pairs: tuple[Pair, ...] = ()
        if strategy.overlap.tensor:
            exchanged = (sums + backward) * (1.0 + gathered_frac * cut)
            exchanged += repeated * (gathered_frac - 1.0) * cut
            pairs = _own_products(job, gathered_frac if cut else 0.0, repeated, exchanged)
            # of products whose names are not known any compute hides all pieces but the first
            pairs = pairs or (Pair((1.0 - 1.0 / layout.tp) * (1.0 - bare_frac)),)
        elif strategy.overlap.dgrad:
            hidden_frac = _hidden_by_weight_gradients(
                sums + more_sums, sums + backward, repeated, gathered_frac if cut else None
            )
            # repeated gathers hide under the computation of the input's gradient, which takes as
            # long as that of the weight's gradient, which hides the sum of the former
            pairs = (Pair(hidden_frac, columns_frac * (1 + gathers_again)),)
        return cls(
            ranks=layout.tp,
            stride=1.0,
            sample_bytes=job.output_bytes,
            forward=sums,
            backward=backward,
            pairs=pairs,
            nic_ranks=layout.tp,
            # gradients of inputs: in backward only
            hidden_backward_frac=backward / (sums + backward) if strategy.overlap.tensor else 1.0,
            sequence_parallel=cut,
            gathered_frac=gathered_frac,
            repeated=repeated,
        )

    @staticmethod
    def divided(part: Workload, job: DividedJob) -> Workload:
        """A tensor rank's part: the rows that its norms work on, and its layers' collectives."""
        layout = job.layout
        if layout.sequence_parallel:
            part = sequence_parallel(part, layout.tp, bool(job.config.get("gathered_inputs")))
        if layout.tp == 1:
            return part
        strategy = job.strategy
        if layout.sequence_parallel and strategy.program.ranks.sequence_copies:
            elems, sums = job.output_bytes / strategy.precision.low_bytes, _sums(job)
            if strategy.overlap.tensor:
                part = _with_sums(part, elems, sums, layout.tp, _several(job))
            else:
                part = _with_copies(part, elems, sums, strategy.precision.gathered_frac)
        return _with_exchanges(part, round(_sums(job) * (2 if layout.sequence_parallel else 1)))

    @property
    def collectives(self) -> Mapping[Collective, float]:
        """An all-reduce, or a reduce-scatter and an all-gather."""
        if not self.sequence_parallel:
            return {"all_reduce": 1.0}
        return {"reduce_scatter": 1.0, "all_gather": self.gathered_frac}

    @property
    def layer_times(self) -> Mapping[str, float]:
        """Each in every pass; a gather that backward repeats has no reduce-scatter with it."""
        times = self.forward + self.backward
        if not self.sequence_parallel:
            return {"all_reduce": times}
        return {"reduce_scatter": times - self.repeated, "all_gather": times + self.repeated}


def _sums(job: DividedJob) -> float:
    """Sums of a layer's output over tensor ranks, as many in forward as in backward.

    With sequence parallelism each tensor rank routes the tokens that it has to whole experts, of
    which it gathers and sums nothing (Megatron-Core, moe/token_dispatcher.py: gathers among the
    ranks that divide experts alone); shared experts it divides.
    """
    if not isinstance(job.record, ModelRecord):
        return TENSOR_SUMS
    sums = tensor_sums(job.record.arch, job.config)
    whole = job.layout.sequence_parallel and job.layout.expert_tp == 1
    if job.layout.tp > 1 and whole and not job.config.get("gathered_inputs"):
        parts = [({op.part for op in block.ops}, times) for block, times in job.layers]
        unsummed = sum(times for of, times in parts if "experts" in of and "shared" not in of)
        sums -= unsummed / max(1, sum(times for _, times in parts))
    return sums


def _several(job: DividedJob) -> float:
    """Inputs of a layer that several products cut by columns read, averaged over the layers."""
    kinds = _exchanging(job.workload, 0.0, job.layout.expert_tp)
    return sum(of.layers_frac * sum(not one for _, one in of.columns) for of in kinds)


def _more_sums(job: DividedJob) -> int:
    """Sums in a layer's backward beyond one for each input of column-parallel products."""
    apart = job.strategy.program.ranks.input_gradients_summed_apart
    if not apart or job.layout.sequence_parallel or not job.layers:
        return 0
    names = {op.name.split(".")[-1] for op in job.layers[0][0].ops if weight_grad_numel(op)}
    return sum(len(names & set(of)) - 1 for of in ONE_INPUT if names & set(of))


def _recomputed_frac(job: DividedJob) -> float:
    """Share of a recomputed layer's sums that recompute repeats.

    Where recompute stops early it omits the last product's sum; with sequence parallelism half of
    that (the gather) has been repeated by then.
    """
    if not job.strategy.program.recompute.stops_early:
        return 1.0
    return max(0.0, 1.0 - (0.5 if job.layout.sequence_parallel else 1.0) / _sums(job))


def _hidden_by_weight_gradients(
    summed: float, whole: float, repeated: float, gathered_frac: float | None
) -> float:
    """Share of the bytes exchanged in a micro-step that weight gradients can hide.

    That is everything backward sums (``summed``: the gradients of the products' inputs) and the
    inputs that it gathers again. With sequence parallelism (``gathered_frac`` not None) backward
    also gathers before the row-parallel products, and that stays exposed (Megatron-LM,
    core/tensor_parallel/layers.py). ``whole``: all exchanges of a layer.
    """
    if gathered_frac is None:
        return summed / whole
    hidden = summed + 2 * gathered_frac * repeated
    return hidden / ((whole - repeated) + gathered_frac * (whole + repeated))


class _Exchanging(NamedTuple):
    """The products of one kind of layer that exchange, by FLOP of a pass.

    FLOP are over those of all products of the model in a micro-step, times its layers.
    ``layers_frac``: share of the layers of this kind. ``columns``: the products that read the same
    gathered input, together, and whether it is one; ``rows``: each product whose output is summed.
    """

    layers_frac: float
    columns: tuple[tuple[float, bool], ...]
    rows: tuple[float, ...]


def _own_products(
    job: DividedJob, gathered_frac: float, repeated: float, exchanged: float
) -> tuple[Pair, ...]:
    """Each exchange of a layer with the product that hides it, in tp pieces.

    A gather hides under the product of its pieces, a sum under the one whose pieces it sums, and of
    both the first piece is exposed (torch, distributed/_symmetric_memory; Transformer Engine,
    comm_gemm_overlap.cpp, CommOverlapP2PBase). Where inputs are gathered again for weight
    gradients, these gathers hide under the gradient of the input and its sum under that of the
    weight, whole (Transformer Engine, module/base.py, "bulk"). A sum of several products' gradients
    waits for all of them: torch finds no product behind an addition
    (torch/_inductor/fx_passes/micro_pipeline_tp.py, _find_producer_matmul).

    ``exchanged``: bytes of all exchanges of a layer over those of a sum; ``gathered_frac``: those
    of a gather, 0 where ranks sum all of the output up.
    """
    pieces = 1.0 - 1.0 / job.layout.tp
    passes = 1.0 + job.repeated_frac * _recomputed_frac(job)
    bulk = 1.0 if repeated else pieces
    found: list[tuple[float, float]] = []
    for share, columns, rows in _exchanging(job.workload, job.repeated_frac, job.layout.expert_tp):
        beside: list[tuple[float, float]] = []  # sums' bytes, and FLOP beside them
        for flop in rows:
            beside += (passes, passes * pieces * flop), (gathered_frac, pieces * flop)
        for flop, one in columns:
            beside.append((passes * gathered_frac, passes * pieces * flop))
            beside.append((gathered_frac * bool(repeated), flop))
            beside.append((float(one), bulk * flop))
        found += [(share * moved, share * flop) for moved, flop in beside if moved]
    return tuple(Pair(pieces * moved / exchanged, flop, True) for moved, flop in found)


@lru_cache(maxsize=256)
def _exchanging(
    workload: Workload, recomputed_frac: float, expert_tp: int
) -> tuple[_Exchanging, ...]:
    """The products that exchange in each kind of layer.

    ``recomputed_frac``: share of the layers that run forward a second time; ``expert_tp``: 1 where
    tensor ranks do not divide routed experts. Inputs that adapters read are left out: they are
    gathered and summed whole.
    """
    kinds = layers_of(workload)
    n_layers = sum(times for _, times in kinds)
    every = sum(
        times * _product_flop(op.fwd) * (1.0 + recomputed_frac * block.recomputable)
        + times * _product_flop(op.bwd)
        for block, times in workload.repeats
        for op in block.ops
    )
    found = []
    for block, times in kinds:
        columns: dict[str, list[float]] = {}
        rows: list[float] = []
        adapted = {op.name.removesuffix(".lora_a") for op in block.ops
                   if op.name.endswith(".lora_a")}  # fmt: skip
        for op in block.ops:
            name = op.name.split(".")[-1]
            group = next((of for of in ONE_INPUT if name in of), (name,))
            place = op.name.removesuffix(name)
            flop = n_layers * _product_flop(op.fwd) / every if every else 0.0
            if not flop or (op.part == "experts" and expert_tp == 1):
                continue
            if name in CUT_BY_ROWS:
                rows.append(flop)
            elif name in CUT_BY_COLUMNS and not adapted & {place + other for other in group}:
                columns.setdefault(place + group[0], []).append(flop)
        of = tuple((sum(flops), len(flops) == 1) for flops in columns.values())
        found.append(_Exchanging(times / n_layers, of, tuple(rows)))
    return tuple(found)


def _product_flop(kernels: Iterable[Kernel]) -> float:
    return sum(kernel.flop for kernel in kernels if kernel.kind not in FLASH_KINDS)


@lru_cache(maxsize=256)
def _column_grads_frac(workload: Workload, recomputed: bool) -> float:
    """Share of the layers' FLOP in a micro-step in weight gradients of column-parallel products.

    During these the gradients of their inputs can be summed up. ``recomputed``: recompute runs
    forward a second time.
    """
    found = whole = 0.0
    for block, times in layers_of(workload):
        for op in block.ops:
            forward = sum(k.flop for k in op.fwd)
            whole += times * (forward * (2 if recomputed else 1) + sum(k.flop for k in op.bwd))
            if weight_grad_numel(op) and op.name.split(".")[-1] in CUT_BY_COLUMNS:
                found += times * forward  # weight gradients have as many FLOP as forward
    return found / whole if whole else 0.0


@lru_cache(maxsize=256)
def _adapted_inputs(workload: Workload) -> float:
    """Average number of a layer's inputs that column-parallel products share with their adapters.

    A product that gathers its input piece by piece leaves adapters no whole input to read.
    Megatron-Core turns this off for them (TransformerConfig.tp_comm_overlap_disable_qkv; MLPerf's
    train.py of Llama 2 70B sets it) and gathers in 16 bit, which adapters read (Transformer Engine,
    module/layernorm_linear.py: return_layernorm_output_gathered).
    """
    found = layers = 0
    for block, times in layers_of(workload):
        adapted = {op.name.removesuffix(".lora_a").split(".")[-1] for op in block.ops
                   if op.name.endswith(".lora_a")}  # fmt: skip
        heads = adapted & {"qkv", "in_proj"} | {of[0] for of in ONE_INPUT if adapted & {*of}}
        found += times * len(heads | adapted & {"gate_up"})
        layers += times
    return found / layers if layers else 0.0


@lru_cache(maxsize=256)
def _with_copies(part: Workload, elems: float, sums: float, gathered_frac: float) -> Workload:
    """The part with the copies of ``elems`` elements a sample around its layers' collectives.

    A layer's forward has ``sums`` sums over ranks, each a reduce-scatter and a gather (of
    ``gathered_frac`` of its bytes), and so has backward. The copy before the last product's
    reduce-scatter is the layer's last op, so that recompute that stops early omits it.
    """

    def copies(scattered: float, gathered: float) -> Kernel:
        moved = 2.0 * elems * (scattered + gathered_frac * gathered)
        return Kernel(kind="copy", low=moved, launches=scattered + gathered)

    each_pass = copies(sums, sums)
    begin = Op(name="tensor.copies", fwd=(copies(sums - 1.0, sums),), bwd=(each_pass,))
    end = Op(name="tensor.copy", fwd=(copies(1.0, 0.0),))
    return part.replace(
        blocks=tuple(
            replace(b, ops=(begin, *b.ops, end)) if b.recomputable else b for b in part.blocks
        )
    )


@lru_cache(maxsize=256)
def _with_sums(part: Workload, elems: float, sums: float, pieces: int, several: float) -> Workload:
    """The part with what sums in ``pieces`` of ``elems`` elements a sample add to its layers.

    A rank gathers the pieces of its part from all others and sums them up in a kernel of its own
    (torch/distributed/_symmetric_memory, _fused_matmul_reduce_scatter_impl). The gradients of
    ``several`` products' inputs of a layer are summed whole, behind a copy as without pieces.
    """

    def summed(times: float) -> Kernel:
        return Kernel(kind="copy", low=times * elems * (1.0 + 1.0 / pieces), launches=times)

    copied = Kernel(kind="copy", low=2.0 * elems * several, launches=several)
    begin = Op(name="tensor.sums", fwd=(summed(sums - 1.0),), bwd=(summed(sums - several), copied))
    end = Op(name="tensor.sum", fwd=(summed(1.0),))
    return part.replace(
        blocks=tuple(
            replace(b, ops=(begin, *b.ops, end)) if b.recomputable else b for b in part.blocks
        )
    )


@lru_cache(maxsize=256)
def _with_exchanges(part: Workload, each: int) -> Workload:
    """The part with the number of collectives that each layer's passes issue."""
    return part.replace(
        blocks=tuple(replace(b, exchanges=each if b.recomputable else 0) for b in part.blocks)
    )
