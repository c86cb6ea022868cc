"""What each precision holds and moves for an element, written down from the programs' own terms."""

from __future__ import annotations

from typing import Any

import pytest
from strategies import on_by_default

from simcore.base.errors import UnknownName
from simcore.strategy.precision import (
    MAIN_GRADS,
    PRECISIONS,
    Precision,
    precision_named,
    with_main_grads,
    with_remainders,
)

#: Bytes of (weight, gradient, master copy, narrow and wide activation, autocast's copy), the peak
#: of products, and what else differs from the defaults of ``Precision``. Microscaling (OCP MX): 8
#: bits for 32 elements; NVFP4: 8 bits for 16 elements of 4 bits.
HELD: dict[str, tuple[int, int, int, int, int, int, str, dict[str, Any]]] = {
    "fp32": (4, 4, 0, 4, 4, 0, "fp32", {"conv_peak": "tf32"}),
    "fp32-ieee": (4, 4, 0, 4, 4, 0, "fp32", {}),
    "tf32": (4, 4, 0, 4, 4, 0, "tf32", {}),
    "amp-fp16": (4, 4, 0, 2, 4, 2, "fp16", {}),
    "amp-bf16": (4, 4, 0, 2, 4, 2, "bf16", {}),
    "fp16": (2, 2, 4, 2, 2, 0, "fp16", {}),
    "bf16": (2, 2, 4, 2, 2, 0, "bf16", {}),
    "fp16-true": (2, 2, 0, 2, 2, 0, "fp16", {"narrow_state": True}),
    "bf16-true": (2, 2, 0, 2, 2, 0, "bf16", {"narrow_state": True}),
    "fp8": (2, 2, 4, 2, 2, 0, "fp8",
            {"input_bytes": 1.0, "operand_bytes": 1.0, "cast_read_bytes": 2.0}),
    "fp8-true": (2, 2, 0, 2, 2, 2, "fp8",
                 {"input_bytes": 1.0, "operand_bytes": 1.0, "cast_read_bytes": 2.0,
                  "narrow_state": True}),
    "fp8-dynamic": (2, 2, 4, 2, 2, 0, "fp8", {"operand_bytes": 1.0, "cast_read_bytes": 4.0}),
    "fp8-rowwise": (2, 2, 4, 2, 2, 0, "fp8",
                    {"operand_bytes": 1.0, "cast_read_bytes": 6.0, "block_scaled": True,
                     "weight_cast_bytes": (3.0, 7.0), "gather_bytes": 2.0}),
    "mxfp8": (2, 2, 4, 2, 2, 0, "fp8",
              {"input_bytes": 1.03125, "operand_bytes": 1.03125, "cast_read_bytes": 2.0,
               "block_scaled": True, "nvidia_family": "Blackwell"}),
    "nvfp4": (2, 2, 4, 2, 2, 0, "fp4",
              {"input_bytes": 0.5625, "operand_bytes": 0.5625, "cast_read_bytes": 2.0,
               "block_scaled": True}),
    "mxfp4": (2, 2, 4, 2, 2, 0, "fp4",
              {"input_bytes": 0.53125, "operand_bytes": 0.53125, "cast_read_bytes": 2.0,
               "block_scaled": True}),
}  # fmt: skip


def test_every_precision_is_written_down() -> None:
    assert set(HELD) == set(PRECISIONS)


@pytest.mark.parametrize("name", HELD)
def test_bytes_of_each_kind_of_tensor(name: str) -> None:
    *widths, peak, others = HELD[name]
    made = PRECISIONS[name]
    assert made == Precision(name, *widths, peak, made.fallbacks, made.meaning, **others)
    assert made.meaning


def test_products_fall_back_to_wider_formats() -> None:
    assert PRECISIONS["fp32"].fallbacks == PRECISIONS["fp32-ieee"].fallbacks == ()
    for name in ("tf32", "amp-fp16", "amp-bf16", "fp16", "bf16", "fp16-true", "bf16-true"):
        assert PRECISIONS[name].fallbacks == ("fp32",), name
    for name in ("fp8", "fp8-dynamic", "fp8-rowwise", "mxfp8"):
        assert PRECISIONS[name].fallbacks == ("bf16", "fp16"), name
    for name in ("nvfp4", "mxfp4"):
        assert PRECISIONS[name].fallbacks == ("fp8", "bf16"), name


@pytest.mark.parametrize(
    ("name", "each", "one_copy"),
    [("fp8", 4.0, 3.0), ("fp8-dynamic", 6.0, 5.0), ("fp8-rowwise", 8.0, 8.0),
     ("mxfp8", 4.0625, 4.0625), ("bf16", 0.0, 0.0)],
)  # fmt: skip
def test_a_cast_reads_once_and_writes_twice_unless_one_copy_serves(
    name: str, each: float, one_copy: float
) -> None:
    """Operands with a scale for each block need both copies whatever the device's products take."""
    assert PRECISIONS[name].cast_traffic_bytes() == each
    assert PRECISIONS[name].cast_traffic_bytes(either_layout=True) == one_copy


def test_what_follows_from_the_widths() -> None:
    held = PRECISIONS
    assert [n for n in HELD if held[n].autocasts] == ["amp-fp16", "amp-bf16"]
    assert [n for n in HELD if held[n].micro_scaled] == ["mxfp8", "nvfp4", "mxfp4"]
    # adapters' base: in the products' format under autocast, else as weights are
    assert [held[n].base_bytes for n in ("fp32", "amp-bf16", "bf16")] == [4, 2, 2]
    assert [held[n].product_bytes for n in ("fp32", "fp8", "fp8-dynamic")] == [4, 1, 2]
    # tensor ranks gather operands, which are narrower than what they sum up
    shares = [held[n].gathered_frac for n in ("bf16", "fp8", "fp8-rowwise", "nvfp4")]
    assert shares == [1.0, 0.5, 1.0, 0.28125]


def test_sums_of_gradients() -> None:
    bf16, amp = PRECISIONS["bf16"], PRECISIONS["amp-bf16"]
    assert MAIN_GRADS == ("weights", "fused", "fp32")
    fused, wide = (with_main_grads(bf16, word) for word in ("fused", "fp32"))
    assert (fused.grad_bytes, fused.main_grads, fused.fused_grad_sum) == (2, True, True)
    assert (wide.grad_bytes, wide.main_grads, wide.fused_grad_sum) == (4, True, True)
    assert with_main_grads(amp, "fused") is amp  # its gradients are fp32 anyway
    assert with_main_grads(bf16, "weights") is bf16
    with pytest.raises(UnknownName, match="main-grads 'wide'"):
        with_main_grads(bf16, "wide")


def test_names_in_any_case_and_torchs() -> None:
    assert precision_named("BF16_True").name == "bf16-true"
    assert [precision_named(n).name for n in ("float32", "float16", "bfloat16")] == [
        "fp32", "fp16", "bf16",
    ]  # fmt: skip
    with pytest.raises(UnknownName, match="did you mean 'fp8'"):
        precision_named("fp88")


def test_only_lower_halves_of_bf16_master_weights_are_stored() -> None:
    assert with_remainders(PRECISIONS["bf16"]).master_bytes == 2
    assert with_remainders(PRECISIONS["fp8"]).master_bytes == 2
    for name in ("fp16", "bf16-true", "fp32", "amp-bf16"):  # no bf16 weights with a master copy
        assert with_remainders(PRECISIONS[name]) is PRECISIONS[name], name
    assert with_remainders(PRECISIONS["bf16"], wanted=False) is PRECISIONS["bf16"]


def test_nothing_special_is_assumed_of_a_format() -> None:
    plain = Precision("x", 4, 4, 0, 4, 4, 0, "fp32", (), "words")
    assert not any((plain.main_grads, plain.fused_grad_sum, plain.block_scaled, plain.narrow_state))
    assert (plain.input_bytes, plain.operand_bytes, plain.cast_read_bytes) == (0.0, 0.0, 0.0)
    assert (plain.weight_cast_bytes, plain.gather_bytes, plain.conv_peak) == ((0.0, 0.0), 0.0, None)


def test_cudnn_computes_norms_of_fp32_weights_and_of_no_bf16() -> None:
    """ATen's _select_batch_norm_backend: no bf16, and fp16 with fp32 weights only."""
    torchs = {"amp-bf16", "bf16", "bf16-true", "fp16-true"}
    plain = {"fp32", "fp32-ieee", "tf32", "amp-fp16", "fp16"} | torchs
    assert {name for name in plain if PRECISIONS[name].native_norms} == torchs


def test_a_precision_stores_nothing_beside_what_it_says() -> None:
    assert on_by_default(Precision) == {}
