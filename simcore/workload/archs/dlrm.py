"""DLRM v2: recommender with a deep and cross network (Naumov et al. 2019, Wang et al. 2021).

Embedding tables are shared out over ranks and updated inside their backward kernel, so that they
have no dense gradient. The optimizer's state is one number a row (TorchRec on FBGEMM:
EXACT_ROWWISE_ADAGRAD).
"""

from __future__ import annotations

from simcore.base.units import FP32_BYTES, INT64_BYTES
from simcore.workload import ops
from simcore.workload.archs import ARCHS, FROZEN_ARCHS
from simcore.workload.archs.tape import T, Tape
from simcore.workload.graph import Frozen, Kernel, Op, Workload


def _numbers(key: str, text: str) -> tuple[int, ...]:
    try:
        found = tuple(int(word) for word in text.split(","))
    except ValueError:
        raise ValueError(f"{key} {text!r} is not a list of numbers such as '512,256,128'") from None
    if min(found) < 1:
        raise ValueError(f"{key} has {min(found)}, which is no number of at least 1")
    return found


@FROZEN_ARCHS.register("embedding_tables")
def embedding_tables(
    *, name: str, rows: str, lookups: str, dim: int = 128, table_ranks: int = 8
) -> Frozen:
    """A rank's share of tables, which are divided over ``table_ranks`` GPUs.

    ``rows``: rows of each table. ``lookups``: rows of each table that a sample reads. Both are
    lists with commas. A rank looks up the samples of all ``table_ranks`` GPUs in its own tables,
    which is as much work as its own samples in all tables. Forward reads a row; backward reads,
    changes and writes it. The exchange of vectors between GPUs is not counted.
    """
    sizes, counts = _numbers("rows", rows), _numbers("lookups", lookups)
    if len(sizes) != len(counts):
        raise ValueError(f"{len(sizes)} rows and {len(counts)} lookups are not of the same tables")
    found, pooled = float(sum(counts)) * dim, float(len(counts)) * dim
    forward = Kernel(kind="gather", raw_bytes=FP32_BYTES * (found + pooled))
    ids = Kernel(kind="elementwise", raw_bytes=4.0 * INT64_BYTES * sum(counts), launches=12.0)
    update = Kernel(kind="gather", raw_bytes=FP32_BYTES * (2.0 * found + pooled), launches=8.0)
    ops_of = (
        Op(name="tables.lookup", fwd=(ids, forward)), Op(name="tables.update", fwd=(ids, update)),
    )  # fmt: skip
    return Frozen(name=name, resident_numel=sum(sizes) * dim // table_ranks, ops=ops_of)


@ARCHS.register("dlrm")
def build(
    *,
    name: str,
    sample_unit: str = "sample",
    lookups: str,
    dim: int = 128,
    dense_features: int = 13,
    bottom: str = "512,256,128",
    top: str = "1024,1024,512,256,1",
    cross_layers: int = 3,
    cross_rank: int = 512,
) -> Workload:
    """DLRM v2 without its tables.

    ``lookups``: rows of each table that a sample reads, a list with commas.
    ``bottom``, ``top``: widths of both multilayer perceptrons. ``cross_layers`` layers of rank
    ``cross_rank`` multiply the joined vectors, each of ``dim`` elements.
    """
    counts = _numbers("lookups", lookups)
    widths = _numbers("bottom", bottom)
    if widths[-1] != dim:
        raise ValueError(f"bottom ends in {widths[-1]}, which is not the tables' dim {dim}")
    tape = Tape()
    x = tape.input(dense_features, (1,))
    for i, width in enumerate(widths):
        x = tape.linear(f"bottom{i}", x, width, act="relu")
    wide = (len(counts) + 1) * dim
    tape.op(ops.copy("join", wide, as_it_lies=True))
    x = T(wide, (1,))
    for i in range(cross_layers):
        y = tape.linear(f"cross{i}.v", x, cross_rank, bias=False)
        y = tape.linear(f"cross{i}.w", y, wide)
        tape.op(ops.binary(f"cross{i}.product", wide, saves=wide, grads=2))
        x = tape.add(f"cross{i}.sum", T(wide, (1,)), x)
    heads = _numbers("top", top)
    for i, width in enumerate(heads):
        last = i == len(heads) - 1
        x = tape.linear(f"top{i}", x, width, act="none" if last else "relu")
    # Binary cross-entropy saves the logit and its label.
    tape.op(ops.activation("loss", 2.0, launches=2.0, high=True))
    tape.op(ops.loss_seed())
    tape.block("net")
    inputs = FP32_BYTES * (dense_features + 1) + INT64_BYTES * sum(counts)
    return tape.workload(name, sample_unit, input_bytes=inputs)
