"""Layers that read a table of their own, and layers that share keys and values."""

from __future__ import annotations

import pytest

from simcore.workload.archs.transformer import build
from simcore.workload.graph import Workload

_SEQ, _HIDDEN, _KV = 32, 48, 2 * 16


def _model(**settings: object) -> Workload:
    sizes = {"layers": 6, "hidden": _HIDDEN, "vocab": 100, "seq_len": _SEQ, "heads": 4,
             "kv_heads": 2, "head_dim": 16, "fused_qkv": False, "bias": False, "norm": "rmsnorm",
             "positions": "rope", "residual": "sandwich"}  # fmt: skip
    return build(name="small", **{**sizes, **settings})


def test_layers_that_share_have_neither_weights_nor_products_of_keys_and_values() -> None:
    alone, shared = _model(), _model(shared_kv_layers=2)
    weights = 2 * _HIDDEN * _KV  # of keys and of values
    assert alone.trainable_numel - shared.trainable_numel == 2 * weights
    assert alone.forward_flop - shared.forward_flop == pytest.approx(2 * 2 * _SEQ * weights)


def test_keys_and_values_are_kept_once() -> None:
    """A sharing layer saves queries and output alone."""

    def kept(workload: Workload) -> float:
        return sum(op.saved.low for b in workload.instances() for op in b.ops
                   if op.name == "attention")  # fmt: skip

    assert kept(_model()) - kept(_model(shared_kv_layers=2)) == 2 * _SEQ * 2 * _KV


def test_the_table_has_a_width_for_each_layer() -> None:
    plain, more = _model(), _model(layer_input=8, layer_input_vocab=70)
    table, project, norm = 70 * 6 * 8, _HIDDEN * 6 * 8, 8
    in_a_layer = 2 * _HIDDEN * 8 + _HIDDEN  # gate and product back, and a norm
    assert more.trainable_numel - plain.trainable_numel == table + project + norm + 6 * in_a_layer
    products = project + 6 * 2 * _HIDDEN * 8
    assert more.forward_flop - plain.forward_flop == pytest.approx(2 * _SEQ * products)


@pytest.mark.parametrize(
    ("settings", "fits"),
    [
        ({"shared_kv_layers": 6}, False),  # no layer has any
        ({"shared_kv_layers": 5}, True),
        ({"shared_kv_layers": 5, "window": 8, "window_pattern": "wwwwwf"}, False),
        ({"shared_kv_layers": 2, "window": 8, "window_pattern": "wwf"}, True),
    ],
)
def test_shared_keys_come_from_a_layer_with_the_same_window(
    settings: dict[str, object], fits: bool
) -> None:
    if fits:
        _model(**settings)
        return
    with pytest.raises(ValueError, match="from a layer before them that has the same window"):
        _model(**settings)


def test_streams_of_which_a_layer_computes_one() -> None:
    """AltUp's and LAuReL's own weights, and products of all streams by a token's matrix."""
    plain = _model(residual="serial")
    streams = _model(residual="serial", streams=4, alternating=True, branch_rank=6)
    n, projections = 4, 2 * 3 * _HIDDEN**2
    router = _HIDDEN + _HIDDEN * n  # a norm and a product, of which both coefficients are made
    branch = 2 * _HIDDEN * 6 + _HIDDEN
    after = 2 * _HIDDEN  # norms of what attention and the feed-forward part add
    in_a_layer = router + n * n * n + n * n + _HIDDEN + branch + after
    assert streams.trainable_numel - plain.trainable_numel == projections + 6 * in_a_layer
    products = 2 * _HIDDEN * n + n**3 + n * n + 2 * _HIDDEN * 6 + _HIDDEN * n * n
    assert streams.forward_flop - plain.forward_flop == pytest.approx(
        2 * _SEQ * (projections + 6 * products)
    )


def test_sparse_gates_keep_their_input_too() -> None:
    settings = {"residual": "serial", "streams": 4, "alternating": True, "branch_rank": 6,
                "mlp": "geglu", "ffn": 64}  # fmt: skip

    def kept(workload: Workload) -> float:
        return sum(op.saved.low for b in workload.instances() for op in b.ops)

    assert kept(_model(**settings, sparse_layers=2)) - kept(_model(**settings)) == 2 * _SEQ * 64


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"streams": 1}, "alternating: takes streams of 2 or more"),
        ({"branch_rank": 0}, "branch_rank of 1 or more"),
        ({"experts": 4}, "without experts"),
        ({"index_heads": 2, "index_dim": 16, "index_top": 8}, "plain attention"),
        ({"dropout": 0.1}, "alternating: no dropout"),
        ({"alternating": False, "layer_input": 8}, "only with alternating ones"),
        ({"alternating": False, "shared_kv_layers": 2}, "only with alternating ones"),
    ],
)
def test_streams_refuse_parts_that_their_layers_would_leave_out(
    settings: dict[str, object], message: str
) -> None:
    streams = {"residual": "serial", "streams": 4, "alternating": True, "branch_rank": 6}
    with pytest.raises(ValueError, match=message):
        _model(**{**streams, **settings})


def test_latent_keys_and_values_are_not_shared() -> None:
    latent = {"kv_rank": 16, "q_rank": 16, "rope_dim": 8, "value_dim": 16}
    _model(**latent)
    with pytest.raises(ValueError, match="keys and values that are compressed"):
        _model(**latent, shared_kv_layers=2)


@pytest.mark.parametrize("setting", [{"branch_rank": 6}, {"sparse_layers": 2}])
def test_what_alternating_streams_alone_have_is_not_dropped(setting: dict[str, object]) -> None:
    with pytest.raises(ValueError, match="only with alternating streams"):
        _model(**setting)
