"""Neural collaborative filtering, NeuMF (He et al. 2017): two pairs of tables, a small MLP."""

from __future__ import annotations

from simcore.workload import ops
from simcore.workload.archs import ARCHS
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Block, Param, Workload


@ARCHS.register("neumf")
def build(
    *,
    name: str,
    sample_unit: str = "pair",
    users: int,
    items: int,
    factors: int = 64,
    mlp: str = "256,256,128,64",
    dropout: float = 0.5,
) -> Workload:
    """NeuMF over one (user, item) pair per sample; ``mlp``: widths from the joined input on."""
    try:
        widths = [int(w) for w in mlp.split(",")]
    except ValueError:
        raise ValueError(f"mlp {mlp!r} is not a list of widths such as '256,256,128,64'") from None
    if widths[0] % 2:
        raise ValueError(f"mlp's first width {widths[0]} joins two equal halves: it must be even")
    half = widths[0] // 2
    sizes = (("user.mf", users, factors), ("item.mf", items, factors),
             ("user.mlp", users, half), ("item.mlp", items, half))  # fmt: skip
    tables = Block(
        name="tables",
        ops=tuple(ops.embedding(part, 1, dim, rows) for part, rows, dim in sizes),
        params=tuple(Param(f"{part}.weight", rows * dim) for part, rows, dim in sizes),
    )
    tape = Tape()
    tape.op(ops.binary("product", factors, saves=2 * factors, grads=2))
    tape.op(ops.copy("join", widths[0], as_it_lies=True))
    x = T(widths[0], (1,))
    for i, width in enumerate(widths[1:]):
        x = tape.linear(f"mlp{i}", x, width, act="relu")
        x = tape.dropout(f"dropout{i}", x) if dropout else x
    tape.op(ops.copy("join2", factors + x.c, as_it_lies=True))
    x = tape.linear("score", T(factors + x.c, (1,)), 1)
    # Binary cross-entropy saves the logit and its label.
    tape.op(ops.activation("loss", 2.0, launches=2.0, high=True))
    tape.op(ops.loss_seed())
    tape.block("net")
    net = tape.workload(name, sample_unit, input_bytes=8.0 + 8.0 + 4.0)
    return net.replace(blocks=(tables, *net.blocks), order=(0, *(i + 1 for i in net.order)))
