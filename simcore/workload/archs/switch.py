"""Switch layers (Fedus et al. 2021): each token goes to one expert, up to the expert's capacity.

As in transformers' SwitchTransformersSparseMLP: one expert after another processes the rows that
its mask selects; tokens beyond an expert's capacity pass unchanged.
"""

from __future__ import annotations

from simcore.base.record import dataclass
from simcore.workload import ops
from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_mlp import plain_activation
from simcore.workload.archs.towers import Tower
from simcore.workload.graph import Kernel, Op
from simcore.workload.saved import Saved

#: Most experts: the products of each run one after the other, and are kernels of their own here.
MOST_EXPERTS = 1000


@dataclass(frozen=True)
class Switch:
    """A switch layer: ``busy`` of ``experts`` share each sequence equally.

    ``capacity``: largest number of tokens of a sequence per expert.
    """

    experts: int
    capacity: int
    busy: int

    def __post_init__(self) -> None:
        if not 1 <= self.busy <= self.experts:
            raise ValueError(f"busy_experts {self.busy} is not within 1..{self.experts}")
        if self.experts > MOST_EXPERTS:
            raise ValueError(f"experts {self.experts} is more than {MOST_EXPERTS}, the most here")
        if self.capacity < 1:
            raise ValueError(f"expert_capacity {self.capacity} must be positive")

    def feed(self, body: Body, t: Tower) -> None:
        """Add the router, the rows of each expert in turn, and their weighted results."""
        each = min(float(self.capacity), t.rows / self.busy)
        if t.drop:
            body.add(_jitter(t.elems))
        body.linear("router", t.rows, t.hidden, self.experts, reads="norm2", wide=True)
        body.add(
            _route(float(t.rows), self.experts),
            ops.copy("states.clone", t.elems, as_it_lies=True),
            _choose(float(t.rows), each * t.hidden, self.busy),
        )
        with body.within("experts"):
            for idx in range(self.busy):
                # The gradient of a ReLU needs only its output, which the second product saves.
                body.add(ops.linear(f"expert{idx}.wi", each, t.hidden, t.ffn, formatted=True))
                body.add(plain_activation(t.mlp, each * t.ffn))
                if t.drop:
                    body.add(ops.dropout(f"expert{idx}.dropout", each * t.ffn))
                body.add(ops.linear(f"expert{idx}.wo", each, t.ffn, t.hidden, formatted=True))
        for idx in range(self.experts):
            body.param(f"expert{idx}.wi.weight", t.hidden * t.ffn)
            body.param(f"expert{idx}.wo.weight", t.ffn * t.hidden)
        body.add(
            _put_back(float(t.rows), t.elems, each * t.hidden, self.busy),
            ops.binary("probs.product", t.elems, broadcast=t.rows, saves=t.elems, grads=2),
            ops.accumulate("router.fork", t.elems, times=2),
        )


def _jitter(elems: float) -> Op:
    """The router's inputs times uniform noise, in training: fp32 noise is drawn and saved."""
    fwd = (
        Kernel(kind="elementwise", raw_bytes=4.0 * elems),
        Kernel(kind="elementwise", raw_bytes=12.0 * elems),
    )
    bwd = (Kernel(kind="elementwise", raw_bytes=12.0 * elems),)
    return Op(name="jitter", fwd=fwd, bwd=bwd, saved=Saved(raw_bytes=4.0 * elems))


def _route(rows: float, experts: int) -> Op:
    """Softmax; argmax, one-hot (zeros, scatter), running count, capacity, product; maximum.

    The one-hot tensors are int64.
    """
    scores = rows * experts
    fwd = (
        Kernel(kind="softmax", high=2 * scores),
        Kernel(kind="reduction", high=2 * scores, raw_bytes=16.0 * rows, launches=2.0),
        Kernel(kind="elementwise", raw_bytes=66.0 * scores, launches=5.0),
    )
    bwd = (
        Kernel(kind="gather", high=scores + rows, raw_bytes=8.0 * rows),
        Kernel(kind="softmax", high=3 * scores),
    )
    saved = Saved(raw_bytes=4.0 * scores + 8.0 * rows)
    return Op(name="route", fwd=fwd, bwd=bwd, saved=saved)


#: Kernels of an index that is a mask: cast to bool, count, select (two), of int64 rows and columns.
_MASK_LAUNCHES = 4.0


def _choose(rows: float, moved: float, busy: int) -> Op:
    """``moved`` elements gathered for each of ``busy`` experts; backward adds them to zeros."""
    mask = Kernel(kind="elementwise", raw_bytes=26.0 * rows * busy, launches=_MASK_LAUNCHES * busy)
    take = Kernel(kind="gather", low=2 * moved * busy, launches=float(busy))
    back = Kernel(kind="gather", low=3 * moved * busy, launches=2.0 * busy)
    return Op(name="choose", fwd=(mask, take), bwd=(back,), saved=Saved(raw_bytes=16.0 * rows))


def _put_back(rows: float, elems: float, moved: float, busy: int) -> Op:
    """Results written over their tokens' states, expert by expert.

    Backward clones the whole gradient and clears those rows of it, once per expert.
    """
    mask = Kernel(kind="elementwise", raw_bytes=26.0 * rows * busy, launches=_MASK_LAUNCHES * busy)
    put = Kernel(kind="gather", low=2 * moved * busy, launches=float(busy))
    bwd = (
        Kernel(kind="copy", low=2 * elems * busy, launches=float(busy)),
        Kernel(kind="gather", low=3 * moved * busy, launches=2.0 * busy),
    )
    return Op(name="put_back", fwd=(mask, put), bwd=bwd, saved=Saved(raw_bytes=16.0 * rows))
