"""Multi-head latent attention between its products and the attention kernel, and the head's format.

Bytes of Megatron-Core's tensor operations and of its fused kernel are counted by hand.
"""

from typing import Any

import pytest

from simcore.workload.archs.transformer import build
from simcore.workload.graph import Op

SEQ, HEADS, PLAIN, TURNED, VALUE = 8, 4, 6, 2, 5
MODEL: dict[str, Any] = {
    "name": "small", "layers": 1, "hidden": 16, "heads": HEADS, "vocab": 32, "seq_len": SEQ,
    "positions": "rope", "norm": "rmsnorm", "bias": False, "kv_rank": 4, "rope_dim": TURNED,
    "head_dim": PLAIN + TURNED, "value_dim": VALUE, "fused_pointwise": True, "tied": False,
}  # fmt: skip


def ops_of(**settings: Any) -> dict[str, Op]:
    return {op.name: op for b in build(**{**MODEL, **settings}).blocks for op in b.ops}


def test_one_kernel_writes_keys_and_values() -> None:
    found = ops_of()
    written = SEQ * HEADS * (PLAIN + TURNED + VALUE)
    assert sum(k.low for k in found["rope.kv"].fwd) == 2 * written
    assert sum(k.low for k in found["rope.q"].fwd) == 2 * SEQ * HEADS * TURNED
    assert "kv.expand" not in found and "values" not in found


def test_tensor_operations_copy_queries_keys_and_values() -> None:
    """Without the kernel: cat of q, cat of k, and values.contiguous()."""
    found = ops_of(fused_rope=False)
    keys = SEQ * HEADS * (PLAIN + TURNED)
    assert found["rope.q"].fwd[-1].low == 2 * keys  # the parts of q are joined again
    assert sum(k.low for k in found["kv.expand"].fwd) == 2 * keys
    assert sum(k.low for k in found["values"].fwd) == 2 * SEQ * HEADS * VALUE


@pytest.mark.parametrize("in_format", [False, True])
def test_the_head_in_the_format_of_the_layers(in_format: bool) -> None:
    head = ops_of(head_in_format=in_format)["head"]
    assert all(k.wide is not in_format for k in (*head.fwd, *head.bwd))
    # its input is then cast as a layer's product's is
    assert head.fwd[0].cast == SEQ * 16 * in_format
