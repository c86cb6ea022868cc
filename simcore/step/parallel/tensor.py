"""Tensor parallelism: each product of a layer divided over ranks, which sum up its output.

Korthikanti et al. 2022; Megatron-LM, core/tensor_parallel/layers.py.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache
from typing import Self

from simcore.base.record import dataclass, replace
from simcore.physics.collectives import Collective
from simcore.step.parallel.layer_ranks import DividedJob, LayerRanks, layers_of
from simcore.workload.graph import Kernel, Op, Workload, weight_grad_numel
from simcore.workload.models import ModelRecord
from simcore.workload.sharding import (
    CUT_BY_COLUMNS,
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
        hidden_frac, covering_frac = 0.0, 1.0
        if strategy.overlap.tensor:
            # in tp pieces, of which the first is exposed, but for inputs that adapters read
            hidden_frac = (1.0 - 1.0 / layout.tp) * (1.0 - bare_frac)
        elif strategy.overlap.dgrad:
            hidden_frac = _hidden_by_weight_gradients(
                sums + more_sums, sums + backward, repeated, gathered_frac if cut else None
            )
            # repeated gathers hide under the computation of the input's gradient, which takes as
            # long as that of the weight's gradient, which hides the sum of the former
            covering_frac = columns_frac * (1 + gathers_again)
        return cls(
            ranks=layout.tp,
            stride=1.0,
            sample_bytes=job.output_bytes,
            forward=sums,
            backward=backward,
            hidden_frac=hidden_frac,
            covering_frac=covering_frac,
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
        if (
            layout.sequence_parallel
            and strategy.program.ranks.sequence_copies
            and not strategy.overlap.tensor
        ):
            elems = job.output_bytes / strategy.precision.low_bytes
            part = _with_copies(part, elems, _sums(job), strategy.precision.gathered_frac)
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
    """Sums of a layer's output over tensor ranks, as many in forward as in backward."""
    if not isinstance(job.record, ModelRecord):
        return TENSOR_SUMS
    return tensor_sums(job.record.arch, job.config)


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


@lru_cache(maxsize=256)
def _column_grads_frac(workload: Workload, again: bool) -> float:
    """Share of the layers' FLOP in a micro-step in weight gradients of column-parallel products.

    During these the gradients of their inputs can be summed up. ``again``: recompute runs forward
    a second time.
    """
    found = whole = 0.0
    for block, times in layers_of(workload):
        for op in block.ops:
            forward = sum(k.flop for k in op.fwd)
            whole += times * (forward * (2 if again else 1) + sum(k.flop for k in op.bwd))
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
def _with_exchanges(part: Workload, each: int) -> Workload:
    """The part with the number of collectives that each layer's passes issue."""
    return part.replace(
        blocks=tuple(replace(b, exchanges=each if b.recomputable else 0) for b in part.blocks)
    )
