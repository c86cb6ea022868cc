"""Optimizers whose work follows from shapes: Adafactor and Muon on two matrices, by hand."""

from __future__ import annotations

import pytest

from simcore.base.record import replace
from simcore.strategy.optimizers import NS_STEPS, OPTIMIZERS, Matrix, fitted, matrices
from simcore.strategy.precision import PRECISIONS
from simcore.workload.graph import Block, Op, Param, Workload
from simcore.workload.ops import linear

BF16 = PRECISIONS["bf16"]
#: A repeated layer of one product 64 -> 256 with a bias, and a head 64 -> 1,000 of its own.
HIDDEN, WIDE, VOCAB, LAYERS = 64, 256, 1000, 3


def _product(name: str, rows: int, columns: int) -> Op:
    return linear(name, 16, rows, columns)


def net() -> Workload:
    """Three equal layers and a head; weights are those of their products."""
    layer = Block(
        name="layer",
        ops=(_product("up", HIDDEN, WIDE),),
        params=(Param("up", HIDDEN * WIDE), Param("up.bias", WIDE)),
        recomputable=True,
    )
    head = Block(
        name="head", ops=(_product("head", HIDDEN, VOCAB),), params=(Param("head", HIDDEN * VOCAB),)
    )
    return Workload(
        name="two", sample_unit="sample", blocks=(layer, head), order=(0,) * LAYERS + (1,)
    )


NUMEL = LAYERS * (HIDDEN * WIDE + WIDE) + HIDDEN * VOCAB


def test_matrices_are_those_of_trained_products() -> None:
    up, head = Matrix(HIDDEN, WIDE, 1.0, hidden=True), Matrix(HIDDEN, VOCAB, 1.0, hidden=False)
    assert list(matrices(net())) == [up, up, up, head]
    assert head.numel == HIDDEN * VOCAB
    assert Matrix(2.0, 3.0, 4.0, hidden=True).numel == 24.0
    assert net().trainable_numel == NUMEL


def test_adafactor_keeps_a_moment_for_each_row_and_column() -> None:
    """Shazeer & Stern 2018: rows + columns of a matrix, every element of a vector, in fp32."""
    moments = LAYERS * (HIDDEN + WIDE + WIDE) + HIDDEN + VOCAB
    found = fitted(OPTIMIZERS["adafactor"], net(), BF16)
    assert found.state_bytes == pytest.approx(4.0 * moments / NUMEL)
    assert found.traffic_elems == OPTIMIZERS["adafactor"].traffic_elems


def test_muon_orthogonalises_hidden_matrices_and_leaves_the_rest_to_adamw() -> None:
    """5 iterations of 4 s^2 l + 2 s^3 FLOP (Jordan et al. 2024), s = 64 and l = 256."""
    muon = OPTIMIZERS["muon"]
    rest = OPTIMIZERS[muon.for_the_rest]
    found = fitted(muon, net(), BF16)
    share = LAYERS * HIDDEN * WIDE / NUMEL
    flop = LAYERS * NS_STEPS * (4.0 * 64**2 * 256 + 2.0 * 64**3)
    assert found.flop == pytest.approx(flop / NUMEL)
    assert found.state_bytes == pytest.approx(share * 4.0 + (1 - share) * rest.state_bytes)
    # momentum 3, look-ahead 3, cast 1.5, norm 0.5, scaling 1, 5 x 1.5, decay 2, update 2.5
    assert found.traffic_elems == pytest.approx(share * 21.0 + (1 - share) * rest.traffic_elems)
    assert found.temporary_elems == pytest.approx((1 - share) * rest.temporary_elems)
    # 8 kernels and 3 products an iteration for each of 3 matrices; of 7 tensors 4 are others
    n_tensors = net().n_tensors
    assert n_tensors == 2 * LAYERS + 1
    loop = (LAYERS * 23 + (n_tensors - LAYERS) * rest.kernels_per_tensor) / n_tensors
    assert found.kernels_per_tensor == round(loop)
    lists = (LAYERS * 23 * 30 + (n_tensors - LAYERS) * rest.kernels) / n_tensors
    assert found.kernels == round(lists)


def test_state_has_the_weights_width_where_nothing_is_fp32() -> None:
    adamw, narrow = OPTIMIZERS["adamw"], fitted(OPTIMIZERS["adamw"], net(), PRECISIONS["bf16-true"])
    assert narrow.state_bytes == adamw.state_bytes / 2
    assert narrow.traffic_elems == adamw.traffic_elems / 2
    plain = [o for o in map(OPTIMIZERS.__getitem__, OPTIMIZERS) if not o.own_state_width]
    for wide in (o for o in plain if not o.by_shape):
        half = fitted(wide, net(), PRECISIONS["bf16-true"])
        assert (half.traffic_elems, half.temporary_elems, half.state_bytes) == (
            wide.traffic_elems / 2, wide.temporary_elems / 2, wide.state_bytes / 2
        )  # fmt: skip
    eight_bit = next(o for o in map(OPTIMIZERS.__getitem__, OPTIMIZERS) if o.own_state_width)
    assert fitted(eight_bit, net(), PRECISIONS["bf16-true"]).state_bytes == eight_bit.state_bytes


def _alone(*params: Param, ops: tuple[Op, ...] = (), layers: int = 1) -> Workload:
    block = Block(name="part", ops=ops, params=params, recomputable=True)
    return Workload(name="part", sample_unit="sample", blocks=(block,), order=(0,) * layers)


def test_adafactor_keeps_rows_and_columns_of_tables_and_every_element_of_others() -> None:
    """Beside a product 64 wide: a table of 500 rows; a bias of 4 times, and one of 8 times the
    width, the square root of which a table must exceed; what is no whole number of rows."""
    up = Param("up", HIDDEN * WIDE)
    for numel, moments in ((500 * 64, 500 + 64), (9 * 64, 9 + 64), (8 * 64, 8 * 64),
                           (4 * 64, 4 * 64), (20 * 64 + 1, 20 * 64 + 1)):  # fmt: skip
        model = _alone(up, Param("more", numel), ops=(_product("up", HIDDEN, WIDE),))
        found = fitted(OPTIMIZERS["adafactor"], model, BF16)
        whole = HIDDEN + WIDE + moments
        assert found.state_bytes == pytest.approx(4.0 * whole / (HIDDEN * WIDE + numel)), numel


def test_adafactor_of_a_model_without_products_keeps_every_element() -> None:
    for params in ((Param("w", 1),), (Param("w", 640), Param("b", 10))):
        assert fitted(OPTIMIZERS["adafactor"], _alone(*params), BF16).state_bytes == 4.0
    assert fitted(OPTIMIZERS["adafactor"], _alone(), BF16).state_bytes == 0.0


def test_muon_of_matrices_alone_and_of_none() -> None:
    """23 kernels a matrix, also where two products have one weight; else those of AdamW."""
    muon = OPTIMIZERS["muon"]
    rest, up = OPTIMIZERS[muon.for_the_rest], _product("up", HIDDEN, WIDE)
    weight = Param("up", HIDDEN * WIDE)
    one = fitted(muon, _alone(weight, ops=(up,), layers=3), BF16)
    assert (one.kernels_per_tensor, one.kernels, one.temporary_elems) == (23, 23 * 30, 0.0)
    tied = fitted(muon, _alone(weight, ops=(up, up)), BF16)
    assert (tied.kernels_per_tensor, tied.kernels) == (2 * 23, 2 * 23 * 30)
    for params in ((Param("w", 1),), ()):
        none = fitted(muon, _alone(*params), BF16)
        assert (none.flop, none.state_bytes) == (0.0, rest.state_bytes)
        assert (none.kernels, none.kernels_per_tensor) == (rest.kernels, rest.kernels_per_tensor)


def test_muon_leaves_the_rest_to_any_optimizer() -> None:
    """Adagrad, whose update has two temporary tensors; the head has most of the elements."""
    muon = replace(OPTIMIZERS["muon"], for_the_rest="adagrad")
    share = LAYERS * HIDDEN * WIDE / NUMEL
    assert fitted(muon, net(), BF16).temporary_elems == pytest.approx(2.0 * (1.0 - share))
