"""Networks as lists of layers: values, conditions, repetition, and the records that ship."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

from simcore.base.database import read_yaml, shipped_root
from simcore.base.errors import InvalidConfig
from simcore.workload.archs import LAYER_LISTS
from simcore.workload.archs.layers import LayerList, Layers, Values, feature_maps, round8
from simcore.workload.archs.tape import Tape
from simcore.workload.resolve import resolve_model

_FOLDER = shipped_root() / "models_db" / "architectures"


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (7, 7),
        ("relu", "relu"),
        ("$width", 30),
        ("layer$stage.1", "layer2.1"),
        (["$width", 1], [30, 1]),
        ({"times": ["$width", 2], "over": 7}, 60 // 7),
        ({"round8": ["$width", 1.4]}, 40),
        ({"ceil": ["$width", 0.11]}, 4),
        ({"most": [1, "$stage"]}, 2),
        ({"same": ["$act", "silu"]}, True),
        ({"all": [True, {"same": ["$stage", 3]}]}, False),
        ({"any": [False, {"same": ["$stage", 2]}]}, True),
        ({"of": "$act", "silu": {"times": ["$width", 2]}, "else": 0}, 60),
        ({"of": "$stage", "1": 5, "else": 6}, 6),
        ({"of": "$se", "true": 5, "else": 6}, 5),
    ],
)
def test_a_value_is_a_number_a_name_or_one_of_a_few_operations(value: Any, meant: Any) -> None:
    assert Values({"width": 30, "stage": 2, "act": "silu", "se": True})(value) == meant


def test_a_table_without_else_names_what_it_lists() -> None:
    with pytest.raises(ValueError, match="depth 7 is none of 18, 34"):
        Values({"depth": 7})({"of": "$depth", "18": 1, "34": 2})


def test_channels_are_multiples_of_eight_but_never_a_tenth_less() -> None:
    assert [round8(w) for w in (3, 12, 44.8, 11, 27.9)] == [8, 16, 48, 16, 32]


def _run(layers: list[dict[str, Any]], **named: Any) -> tuple[Tape, Any]:
    tape = Tape()
    return tape, Layers(tape, Values(named)).run(layers, tape.input(3, (8, 8)))


def test_rows_give_values_to_names_and_a_stride_is_the_first_repetitions() -> None:
    convolve = {"conv": {"name": "c$stage.$number", "channels": "$width", "kernel": 3,
                         "stride": "$stride"}}  # fmt: skip
    rows = {"rows": [[4, 2], [6, 1]], "columns": ["width", "stride"], "times": 2}
    tape, out = _run([{"repeat": {**rows, "layers": [convolve]}}, {"block": {"name": "b"}}])
    assert (out.c, out.grid) == (6, (4, 4))
    names = [op.name for op in tape.blocks[0].ops]
    assert names == ["c1.1.conv", "c1.2.conv", "c2.1.conv", "c2.2.conv"]


@pytest.mark.parametrize(("deep", "kinds"), [(True, ["conv", "relu"]), (False, ["conv"])])
def test_a_layer_is_left_out_by_its_condition(deep: bool, kinds: list[str]) -> None:
    layers = [
        {"conv": {"name": "x", "channels": 4, "kernel": 1}},
        {"act": {"name": "x", "kind": "relu", "when": "$deep"}},
        {"mean": {"name": "x", "unless": True}},
        {"block": {"name": "b"}},
    ]
    tape, _ = _run(layers, deep=deep)
    assert [op.name.removeprefix("x.") for op in tape.blocks[0].ops] == kinds


def test_a_residual_without_a_shortcut_is_no_sum_where_shapes_differ() -> None:
    same, wider = (
        _run([{"residual": {"name": "sum", "layers": [
            {"conv": {"name": "x", "channels": c, "kernel": 1}}]}}, {"block": {"name": "b"}}])[0]
        for c in (3, 4)
    )  # fmt: skip
    assert [op.name for op in same.blocks[0].ops] == ["x.conv", "sum"]
    assert [op.name for op in wider.blocks[0].ops] == ["x.conv"]


def test_branches_read_one_tensor_and_dense_layers_all_before_them() -> None:
    conv = {"conv": {"name": "x", "channels": 5, "kernel": 1}}
    _, joined = _run([{"concat": {"name": "cat", "branches": [[conv], [conv, conv], []]}}])
    assert joined.c == 5 + 5 + 3
    _, grown = _run([{"dense": {"name": "cat", "times": 3, "layers": [conv]}}])
    assert grown.c == 3 + 3 * 5


def test_an_unknown_kind_of_layer_is_an_error() -> None:
    with pytest.raises(KeyError, match="convolve"):
        _run([{"convolve": {"name": "x"}}])


def test_each_record_is_an_architecture_and_states_defaults_among_its_choices() -> None:
    assert {path.stem for path in _FOLDER.glob("*.yaml")} == set(LAYER_LISTS.values())
    for name in set(LAYER_LISTS.values()):
        record = read_yaml(_FOLDER / f"{name}.yaml")
        for stated in record["settings"].values():
            if isinstance(stated, dict):
                assert stated["default"] in stated["choices"]
        parameters = signature(LayerList(name)).parameters
        assert list(parameters) == ["name", "sample_unit", *record["settings"]]


def test_settings_of_a_record_are_typed_and_misspelled_ones_are_corrected() -> None:
    assert resolve_model("vgg-16", settings="image=64 batch_norm=yes").build().n_buffers == 3 * 13
    with pytest.raises(InvalidConfig, match="did you mean 'image'"):
        resolve_model("vgg-16", settings="imge=64")
    with pytest.raises(InvalidConfig, match="image must be a whole number"):
        resolve_model("vgg-16", settings="image=big")
    with pytest.raises(InvalidConfig, match="arch:resnet needs its dimensions: --set depth="):
        resolve_model("arch:resnet", settings="image=64")


def test_feature_maps_of_frozen_stages_have_no_gradient() -> None:
    tape = Tape(norms="constant")
    maps = feature_maps(tape, "resnet", (64, 96), depth=50, frozen_stages=2)
    assert [maps[f"layer{i}"].grid for i in (1, 2, 3, 4)] == [(16, 24), (8, 12), (4, 6), (2, 3)]
    assert [maps[f"layer{i}"].grad for i in (1, 2, 3)] == [False, False, True]
    trained = [sum(p.numel for b in tape.blocks if b.name == f"layer{i}" for p in b.params)
               for i in (1, 2)]  # fmt: skip
    assert trained == [0, 0]
