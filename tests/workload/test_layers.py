"""Networks as lists of layers: values, conditions, repetition, and the records that ship."""

from __future__ import annotations

from inspect import signature
from typing import Any

import pytest

from simcore.base.database import read_yaml, shipped_root
from simcore.base.errors import InvalidConfig
from simcore.workload.archs import (
    BODY_LISTS,
    FROZEN_BODY_LISTS,
    FROZEN_LAYER_LISTS,
    LAYER_LISTS,
)
from simcore.workload.archs.body_layers import BodyList
from simcore.workload.archs.layers import LayerList, Layers, Values
from simcore.workload.archs.tape import Tape
from simcore.workload.graph import Affine, Kernel
from simcore.workload.resolve import resolve_model
from simcore.workload.saved import Saved

_FOLDER = shipped_root() / "models_db" / "architectures"


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (7, 7),
        ("relu", "relu"),
        ("=width", 30),
        ("layer$stage.1", "layer2.1"),
        (["=width", 1], [30, 1]),
        ({"low": "=2 * width", "launches": 3}, {"low": 60, "launches": 3}),
        ({"of": "=act", "silu": "=width * 2", "else": 0}, 60),
        ({"of": "=stage", "1": 5, "else": 6}, 6),
        ({"of": "=se", "true": 5, "else": 6}, 5),
    ],
)
def test_a_value_is_a_formula_a_text_with_names_a_table_or_itself(value: Any, meant: Any) -> None:
    assert Values({"width": 30, "stage": 2, "act": "silu", "se": True})(value) == meant


def test_a_table_without_else_names_what_it_lists() -> None:
    with pytest.raises(ValueError, match="depth 7 is none of 18, 34"):
        Values({"depth": 7})({"of": "=depth", "18": 1, "34": 2})


def _run(layers: list[dict[str, Any]], **named: Any) -> tuple[Tape, Any]:
    tape = Tape()
    return tape, Layers(tape, Values(named)).run(layers, tape.input(3, (8, 8)))


def test_rows_give_values_to_names_and_a_stride_is_the_first_repetitions() -> None:
    convolve = {"conv": {"name": "c$stage.$number", "channels": "=width", "kernel": 3,
                         "stride": "=stride"}}  # fmt: skip
    rows = {"rows": [[4, 2], [6, 1]], "columns": ["width", "stride"], "times": 2}
    tape, out = _run([{"repeat": {**rows, "layers": [convolve]}}, {"block": {"name": "b"}}])
    assert (out.c, out.grid) == (6, (4, 4))
    names = [op.name for op in tape.blocks[0].ops]
    assert names == ["c1.1.conv", "c1.2.conv", "c2.1.conv", "c2.2.conv"]


@pytest.mark.parametrize(("deep", "kinds"), [(True, ["conv", "relu"]), (False, ["conv"])])
def test_a_layer_is_left_out_by_its_condition(deep: bool, kinds: list[str]) -> None:
    layers = [
        {"conv": {"name": "x", "channels": 4, "kernel": 1}},
        {"act": {"name": "x", "kind": "relu", "when": "=deep"}},
        {"mean": {"name": "x", "when": "=not True"}},
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


def test_branches_read_one_tensor_and_a_join_those_it_names() -> None:
    conv = {"conv": {"name": "x", "channels": 5, "kernel": 1}}
    _, joined = _run([{"concat": {"name": "cat", "branches": [[conv], [conv, conv], []]}}])
    assert joined.c == 5 + 5 + 3
    grow = [{"concat": {"from": "=kept", "name": "cat"}}, conv, {"let": {"kept": "=kept + [x]"}}]
    dense = [{"let": {"kept": "=[x]"}}, {"repeat": {"times": 3, "layers": grow}}]
    _, grown = _run([*dense, {"concat": {"from": "=kept", "name": "cat"}}])
    assert grown.c == 3 + 3 * 5


def test_a_part_of_a_record_knows_its_arguments_and_its_names_stay_within() -> None:
    wide = [{"let": {"width": "=2 * width"}},
            {"conv": {"name": "$name", "channels": "=width", "kernel": 1}}]  # fmt: skip
    tape, values = Tape(), Values({"width": 3})
    layers = [{"wide": {"name": "a", "width": 4, "as": "made"}}, {"block": {"name": "b"}}]
    out = Layers(tape, values, {"wide": wide}).run(layers, tape.input(3, (8, 8)))
    assert (out.c, values.named["made"].c, values.named["width"]) == (8, 8, 3)
    assert [op.name for op in tape.blocks[0].ops] == ["a.conv"]


def test_an_operator_of_a_record_is_its_kernels_and_what_it_saves() -> None:
    op = {"name": "o", "forward": [{"copy": {"low": "=2 * x.elems", "awaited": [1, 2]}}],
          "backward": [{"reduction": {"high": "=x.elems"}}], "saved": {"high": 5},
          "makes": {"channels": 7}, "saves_inputs": True}  # fmt: skip
    first = {"conv": {"name": "c", "channels": 4, "kernel": 1}}
    tape, out = _run([first, {"op": op}, {"block": {"name": "b"}}])
    made = tape.blocks[0].ops[1]
    assert (out.c, out.grid) == (7, (8, 8))
    assert made.fwd == (Kernel(kind="copy", low=2 * 4 * 64, awaited=Affine(1, 2)),)
    assert made.bwd == (Kernel(kind="reduction", high=4 * 64),)
    assert made.saved == Saved(low=4 * 64, high=5)


def test_equal_blocks_run_once_and_stand_as_often_as_is_said() -> None:
    conv = {"conv": {"name": "c", "channels": 3, "kernel": 1}}
    pair = [conv, {"block": {"name": "a", "boundary": {"high": 5}}}, conv, {"block": {"name": "b"}}]
    tape, _ = _run([{"copies": {"times": 3, "layers": pair}}])
    assert [block.name for block in tape.blocks] == ["a", "b"]
    assert tape.order == [0, 1] * 3
    assert [block.boundary for block in tape.blocks] == [Saved(high=5), Saved()]


@pytest.mark.parametrize(("run", "names"), [(True, ["c.conv", "d.conv"]), (False, ["d.conv"])])
def test_layers_that_do_not_run_count_by_their_parameters(run: bool, names: list[str]) -> None:
    one, two = ({"conv": {"name": n, "channels": 4, "kernel": 1}} for n in "cd")
    tape, _ = _run([{"counted": {"run": run, "layers": [one]}}, two, {"block": {"name": "b"}}])
    assert [op.name for op in tape.blocks[0].ops] == names
    assert tape.blocks[0].numel == 3 * 4 + 4 * 4


def test_an_unknown_kind_of_layer_is_an_error() -> None:
    with pytest.raises(KeyError, match="convolve"):
        _run([{"convolve": {"name": "x"}}])


def test_each_record_is_an_architecture_and_states_defaults_among_its_choices() -> None:
    names = {*LAYER_LISTS.values(), *FROZEN_LAYER_LISTS, *BODY_LISTS, *FROZEN_BODY_LISTS}
    # parts of others
    names |= {"feature_pyramid", "diffusion", "labelled_diffusion", "flow", "image_and_text",
              "image_text_pairs", "class_token", "encoder_decoder", "token_encoder"}  # fmt: skip
    assert {path.stem for path in _FOLDER.glob("*.yaml")} == names
    for name in names:
        record = read_yaml(_FOLDER / f"{name}.yaml")
        for stated in record["settings"].values():
            if isinstance(stated, dict) and "choices" in stated:
                assert stated["default"] in stated["choices"]
        kind = BodyList if "body" in record else LayerList
        parameters = signature(kind(name)).parameters
        unit = [] if "frozen" in record else ["sample_unit"]
        assert list(parameters) == ["name", *unit, *record["settings"]]


def test_settings_of_a_record_are_typed_and_misspelled_ones_are_corrected() -> None:
    assert resolve_model("vgg-16", settings="image=64 batch_norm=yes").build().n_buffers == 3 * 13
    with pytest.raises(InvalidConfig, match="did you mean 'image'"):
        resolve_model("vgg-16", settings="imge=64")
    with pytest.raises(InvalidConfig, match="image must be a whole number"):
        resolve_model("vgg-16", settings="image=big")
    with pytest.raises(InvalidConfig, match="arch:resnet needs its dimensions: --set depth="):
        resolve_model("arch:resnet", settings="image=64")


@pytest.mark.parametrize("text", ["", "64x", "64xa", "0x64", "64,64"])
def test_a_list_of_numbers_says_what_it_should_be(text: str) -> None:
    with pytest.raises(ValueError, match=r"image .* list of numbers of at least 1 such as 128x64"):
        LayerList("vnet")(name="x", image=text)


def test_a_network_within_another_may_be_frozen_in_part() -> None:
    tape, values = Tape(norms="constant"), Values({})
    net = {"network": {"record": "resnet", "depth": 50, "frozen_stages": 2}}
    Layers(tape, values).run([net], tape.input(3, (64, 96)))
    maps = values.named["results"]
    assert [maps[f"layer{i}"].grid for i in (1, 2, 3, 4)] == [(16, 24), (8, 12), (4, 6), (2, 3)]
    assert [maps[f"layer{i}"].grad for i in (1, 2, 3)] == [False, False, True]
    trained = [sum(p.numel for b in tape.blocks if b.name == f"layer{i}" for p in b.params)
               for i in (1, 2)]  # fmt: skip
    assert trained == [0, 0]
