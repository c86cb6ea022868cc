"""Reads measured kernels of linear attention as the kernels that the same op has in a step.

A row is one call of a serving framework: a convolution, or a whole scan of several kernels. What
each framework calls is stated by aiconfigurator's collectors (collector/trtllm, sglang and vllm:
collect_gdn.py, collect_kda.py, collect_mamba2.py), which wrote the table.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from math import ceil
from typing import Any, Final

import numpy as np

from simcore.base.arrays import Array, NDArray
from simcore.base.errors import DataError, SimcoreError
from simcore.base.record import dataclass
from simcore.base.units import MICRO
from simcore.calibrate.tables import OnBad, RowsRead, Table, mark_repeats
from simcore.hardware.spec import GPUS
from simcore.workload import ops
from simcore.workload.graph import Affine, Kernel, KernelKind
from simcore.workload.ops.delta import CHUNK

#: Bytes of an element of the table's tensors: bf16.
_WIDTH: Final = 2.0
#: Tokens from which on a call counts as large.
LARGE_TOKENS: Final = 16384
#: Tokens and channels of a program of Triton's convolution (causal_conv1d_triton.py: BLOCK_M 8,
#: BLOCK_N 256), and tokens that a block of the CUDA one reads at a time (causal_conv1d_fwd.cu,
#: kChunkSize: 128 threads, 8 elements each).
_TRITON_TOKENS, _CUDA_TOKENS = 8, 128 * 8


@dataclass(frozen=True)
class LinearBatch:
    """Calls of one class of linear attention's kernels on one device; arrays [rows, kernels].

    ``cls``: class of ``linear_attention.yaml``. ``n_bytes``: memory traffic; ``work``: that of all
    thread ``blocks`` (``Kernel.block_clocks``). ``kinds`` [kernels]: the kind of each kernel.
    Further arrays are [rows]: ``line`` of the file; ``tokens``; ``programs``: thread blocks that a
    host lists for a convolution; ``loop_bytes``: bytes between two uses of a tensor in a
    benchmark's loop; ``time_s``.
    """

    gpu: str
    op: str
    kernel: str
    framework: str
    cls: str
    source: str
    kinds: tuple[KernelKind, ...]
    line: NDArray[np.intp]
    tokens: Array
    programs: Array
    loop_bytes: Array
    n_bytes: Array
    work: Array
    blocks: Array
    time_s: Array

    def __len__(self) -> int:
        return len(self.time_s)

    @property
    def large(self) -> NDArray[np.bool_]:
        """Whether a call has many tokens [rows]."""
        return self.tokens >= LARGE_TOKENS

    def take(self, rows: NDArray[Any]) -> LinearBatch:
        """The batch with the rows that ``rows`` selects, a mask or indices."""
        return replace(self, **{name: getattr(self, name)[rows] for name in _ARRAYS})


_ARRAYS: Final = ("line", "tokens", "programs", "loop_bytes", "n_bytes", "work", "blocks", "time_s")
Row = dict[str, float]


@dataclass(frozen=True)
class Call:
    """What a framework's call runs.

    ``cls``: its class. ``kernels``: the kernels of one sequence of a row. ``hosted``: the host
    prepares a list of the grid's programs and copies it to the device.
    """

    cls: str
    kernels: Callable[[Row], Sequence[Kernel]]
    hosted: bool = False


def _delta(row: Row, *, normed: bool, by_channel: bool = False) -> Sequence[Kernel]:
    """The kernels of fla's chunked delta rule; ``normed``: q and k are normalised in the call."""
    shape = ops.DeltaShape(
        seq=int(row["seq"]), key_heads=int(row["k_heads"]), value_heads=int(row["v_heads"]),
        key_dim=int(row["head_k_dim"]), value_dim=int(row["head_v_dim"]), conv=int(row["d_conv"]),
        by_channel=by_channel,
    )  # fmt: skip
    kernels = ops.delta_rule("", shape, repeated=False).fwd
    return kernels if normed else kernels[1:]


def _fused_delta(row: Row) -> Sequence[Kernel]:
    """One kernel that reads q, k and v once and keeps a head's state on its SM (FlashInfer)."""
    keys, values = row["k_heads"] * row["head_k_dim"], row["v_heads"] * row["head_v_dim"]
    return (_chain(row, row["seq"] * (2 * keys + 2 * values)),)


def _fused_by_channel(row: Row) -> Sequence[Kernel]:
    """FlashKDA's two kernels: what chunks of 16 tokens need, and the passing of states.

    The first reads q, k and decays, and writes both scaled by decays, and keys by the chunk's
    inverse; the second reads these and v (fla's pull request 990 describes both).
    """
    keys, values = row["k_heads"] * row["head_k_dim"], row["v_heads"] * row["head_v_dim"]
    tokens = row["seq"]
    return Kernel(kind="elementwise", low=tokens * 6 * keys), _chain(
        row, tokens * (3 * keys + 2 * values)
    )


def _chain(row: Row, low: float) -> Kernel:
    """The kernel that passes states of all heads over the chunks of a sequence."""
    chunks, heads = float(ceil(row["seq"] / CHUNK)), row["v_heads"]
    return Kernel(
        kind="chunk_states", low=low, blocks=Affine(0, heads), block_clocks=chunks * heads
    )


def _scan(row: Row) -> Sequence[Kernel]:
    """The kernels of mamba_ssm's chunked scan."""
    return ops.ssd_scan("", _ssd_shape(row), gated=False).fwd


def _ssd_shape(row: Row) -> ops.SsdShape:
    seq, heads, dim, state, groups, chunk = (int(row[c]) for c in (
        "seq", "nheads", "head_dim", "d_state", "n_groups", "chunk"))  # fmt: skip
    return ops.SsdShape(seq=seq, heads=heads, head_dim=dim, state=state, groups=groups,
                        chunk=chunk, conv=int(row["d_conv"]))  # fmt: skip


def _qkv_channels(row: Row) -> int:
    return int(2 * row["k_heads"] * row["head_k_dim"] + row["v_heads"] * row["head_v_dim"])


def _conv(row: Row, *, calls: int = 1) -> Sequence[Kernel]:
    """Convolutions over q, k and v, which lie token by token."""
    one = ops.causal_conv("", int(row["seq"]), _qkv_channels(row) // calls, int(row["d_conv"]))
    return one.fwd * calls


def _conv_of_rows(row: Row, channels: float) -> Sequence[Kernel]:
    """The convolution of tensors whose channels lie in rows: a thread block a row."""
    pieces = channels * ceil(row["seq"] / _CUDA_TOKENS)
    elems = row["seq"] * channels
    return (Kernel(kind="causal_conv", low=2 * elems, blocks=Affine(0, pieces),
                   block_clocks=elems),)  # fmt: skip


#: (op, kernel, framework in small letters) -> what the call runs. TensorRT-LLM's sweep convolves
#: keys alone (collect_gdn.py: conv_channels = num_k_heads * head_k_dim).
CALLS: Final[dict[tuple[str, str, str], Call]] = {
    ("gdn", "chunk_gated_delta_rule", "trtllm"): Call(
        "delta_rule", lambda r: _delta(r, normed=False)),
    ("gdn", "chunk_gated_delta_rule", "sglang"): Call(
        "delta_rule_packed", lambda r: _delta(r, normed=True)),
    ("gdn", "chunk_gated_delta_rule_triton", "vllm"): Call(
        "delta_rule_packed", lambda r: _delta(r, normed=False)),
    ("gdn", "chunk_gated_delta_rule_flashinfer", "vllm"): Call(
        "delta_rule_fused", _fused_delta),
    ("kda", "chunk_kda", "sglang"): Call(
        "delta_rule_by_channel", lambda r: _delta(r, normed=True, by_channel=True)),
    ("kda", "chunk_kda_with_fused_gate", "vllm"): Call(
        "delta_rule_by_channel", lambda r: _delta(r, normed=True, by_channel=True)),
    ("kda", "flashkda_fwd", "vllm"): Call(
        "delta_rule_by_channel_fused", _fused_by_channel),
    ("gdn", "causal_conv1d_fn", "sglang"): Call("causal_conv", _conv),
    ("gdn", "causal_conv1d_fn", "vllm"): Call("causal_conv", _conv),
    ("kda", "causal_conv1d_fn_qkv3", "sglang"): Call(
        "causal_conv", lambda r: _conv(r, calls=3)),
    ("kda", "causal_conv1d_fn_qkv3", "vllm"): Call(
        "causal_conv_hosted", lambda r: _conv(r, calls=3), hosted=True),
    ("gdn", "causal_conv1d_fn", "trtllm"): Call(
        "causal_conv_rows", lambda r: _conv_of_rows(r, r["k_heads"] * r["head_k_dim"])),
    ("mamba2", "causal_conv1d_fn", "trtllm"): Call(
        "causal_conv_rows", lambda r: _conv_of_rows(r, _ssd_shape(r).channels)),
    ("mamba2", "mamba_chunk_scan_combined", "trtllm"): Call("delta_rule", _scan),
}  # fmt: skip

_NEEDS: Final = frozenset({"gpu", "op", "kernel", "phase", "batch", "seq", "time_us"})
_SIZES: Final = ("k_heads", "head_k_dim", "v_heads", "head_v_dim", "d_state", "nheads", "head_dim",
                 "n_groups", "chunk", "d_conv")  # fmt: skip


def is_linear_table(table: Table) -> bool:
    """Whether a table is a table of measured kernels of linear attention."""
    return table.columns.keys() >= _NEEDS


def linear_rows(table: Table, on_bad: OnBad = "skip") -> RowsRead[LinearBatch]:
    """The batches of one table, without calls that are not known or not of whole sequences.

    Raises DataError if it is no such table, or has bad rows and ``on_bad`` is "refuse".
    """
    if not is_linear_table(table):
        raise DataError("is no table of linear attention", file=table.path)
    time_s, batch, seq = (table.number(c) for c in ("time_us", "batch", "seq"))
    sizes = {c: table.number(c, 1.0) for c in _SIZES if c in table.columns}
    names = [table.text(c) for c in ("gpu", "op", "kernel", "framework", "source")]
    shape = [table.text(c) for c in table.columns if c not in ("time_us", "model", "d_model")]
    skipped: Counter[str] = Counter()
    groups: dict[tuple[str, ...], list[int]] = {}
    phases = table.text("phase")
    known = [CALLS.get((o, k, f.lower())) if p == "context" else None
             for o, k, f, p in zip(*names[1:4], phases, strict=True)]  # fmt: skip
    mark_repeats(table, [*shape, table.text("model")], [call is not None for call in known])
    for row, key in enumerate(zip(*names, strict=True)):
        if table.good[row] and known[row] is None:
            _, _, kernel, framework, _ = key
            skipped[f"{kernel} of {framework} in phase {phases[row]} is not known"] += 1
        elif table.good[row]:
            groups.setdefault(key, []).append(row)
    batches = []
    for (name, op, kernel, framework, source), rows in groups.items():
        try:
            gpu = GPUS[name].name
        except SimcoreError as err:
            skipped[str(err)] += len(rows)
            continue
        call = known[rows[0]]
        assert call is not None
        values = [{"seq": seq[i], **{c: v[i] for c, v in sizes.items()}} for i in rows]
        found = [call.kernels(value) for value in values]
        at = np.array(rows, dtype=np.intp)
        programs = seq[at] * batch[at] / _TRITON_TOKENS * len(found[0]) * call.hosted
        amounts = {
            amount_name: np.array([[amount(k) for k in kernels] for kernels in found])
            * batch[at, None]
            for amount_name, amount in _AMOUNTS.items()
        }
        # A chain of kernels counts the bytes of a tensor where it is written and where it is read.
        once = 1.0 if len(found[0]) == 1 else 0.5
        batches.append(LinearBatch(
            gpu=gpu, op=op, kernel=kernel, framework=framework, cls=call.cls, source=source,
            kinds=tuple(k.kind for k in found[0]), line=table.lines[at],
            tokens=seq[at] * batch[at], programs=programs,
            loop_bytes=once * amounts["n_bytes"].sum(axis=1), n_bytes=amounts["n_bytes"],
            work=amounts["work"], blocks=amounts["blocks"], time_s=time_s[at] * MICRO,
        ))  # fmt: skip
    return table.read(batches, skipped, on_bad)


_AMOUNTS: Final[dict[str, Callable[[Kernel], float]]] = {
    "n_bytes": lambda k: k.low * _WIDTH + k.raw_bytes,
    "work": lambda k: k.block_clocks,
    "blocks": lambda k: k.blocks.per_sample,
}
