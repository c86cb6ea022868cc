"""Which elements of traced ops are taken one by one: by strides and types, as torch has them."""

from __future__ import annotations

from typing import Any

import pytest

torch = pytest.importorskip("torch")

from simcore.workload.ops import pool_elements  # noqa: E402
from simcore.workload.trace.indexed import indexed_elements  # noqa: E402

X = torch.zeros(4, 6, 8)
LAST = X.to(torch.bfloat16)


@pytest.mark.parametrize(
    ("name", "args", "out", "elements"),
    [
        ("add", (X, X), X, 0),
        ("add", (X.transpose(0, 1), X.transpose(0, 1)), X.transpose(0, 1), 0),  # alike, dense
        ("mul", (X, torch.zeros(8)), X, 192),  # broadcast over rows
        ("mul", (X, torch.zeros(4, 6, 1)), X, 192),
        ("mul", (X, torch.tensor(2.0)), X, 0),  # a number
        ("mul", (LAST, X), X, 192),  # converts
        ("where", (X > 0, X, X), X, 0),  # a mask is read as it is
        ("neg", (X[..., ::2],), torch.zeros(4, 6, 4), 96),  # strided
        ("clone", (X.transpose(0, 1),), torch.zeros(6, 4, 8), 192),  # turned
        ("clone", (X,), X, 0),  # a memcpy
        ("_to_copy", (X,), LAST, 0),
        ("cat", ([X, X], -1), torch.zeros(4, 6, 16), 0),
        ("cat", ([X[..., :4], X[..., 4:]], -1), X, 192),
        ("slice_backward", (torch.zeros(4, 6, 4), (4, 6, 8), 2, 0, 4, 1), X, 96),
    ],
)
def test_elements(name: str, args: Any, out: Any, elements: int) -> None:
    kind = "copy" if name in ("clone", "_to_copy", "cat", "slice_backward") else "elementwise"
    assert indexed_elements(kind, name, args, out) == elements


def test_pools_and_upsampling_have_kernels_of_their_own() -> None:
    halved = torch.zeros(4, 6, 4)
    for name in ("avg_pool2d", "upsample_nearest2d"):
        assert indexed_elements("elementwise", name, (X,), halved) == 0


@pytest.mark.parametrize("channels_last", [False, True])
def test_max_pooling_is_counted_by_outputs_then_inputs(channels_last: bool) -> None:
    at = torch.channels_last if channels_last else torch.contiguous_format
    x = torch.zeros(2, 3, 8, 8).to(memory_format=at)
    pooled, places = torch.nn.functional.max_pool2d(x, 2, return_indices=True)
    forward, backward = pool_elements(384, 96, 4, channels_last=channels_last)
    name = "max_pool2d_with_indices"
    assert indexed_elements("elementwise", name, (x, [2, 2]), (pooled, places)) == forward
    args = (pooled, x, [2, 2], [2, 2], [0, 0], [1, 1], False, places)
    assert indexed_elements("elementwise", f"{name}_backward", args, x) == backward


def test_norms_and_products_have_kernels_of_their_own() -> None:
    assert indexed_elements("norm", "native_layer_norm", (X, torch.zeros(8)), X) == 0
    assert indexed_elements("reduction", "sum", (X.transpose(0, 1),), torch.zeros(4)) == 0
