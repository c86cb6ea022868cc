"""Settings of a model as words of a job, and models of free dimensions."""

from pathlib import Path

import pytest

from simcore import api
from simcore.answer.request import make_request
from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.workload.archs import ARCHS
from simcore.workload.models import MODELS, setting_kinds
from simcore.workload.resolve import resolve_model
from simcore.workload.settings import as_words, settable_archs, settings_given

#: A GPT of 24 layers: its parameters by hand, below.
GPT = {"layers": 24, "hidden": 1024, "heads": 16, "vocab": 50304, "seq_len": 1024}


def test_a_model_of_free_dimensions_has_the_parameters_that_follow_from_them() -> None:
    """Of a layer 12 h^2 of products, 9 h of their biases and 4 h of two norms; a tied table."""
    h, n, v, s = (GPT[k] for k in ("hidden", "layers", "vocab", "seq_len"))
    built = resolve_model("arch:transformer", settings=GPT).build()
    assert built.trainable_numel == n * (12 * h * h + 9 * h + 4 * h) + (v + s) * h + 2 * h


@pytest.mark.parametrize(
    "given",
    [
        {"layers": 16, "bias": False},
        ["layers=16", "bias=false"],
        "layers=16 bias=off",
        ("layers=16 bias=no",),
    ],
)
def test_settings_are_read_from_mappings_and_texts(given: object) -> None:
    config = resolve_model("gpt2", settings=given).config  # type: ignore[attr-defined]
    assert (config["layers"], config["bias"]) == (16, False)


@pytest.mark.parametrize("name", ["gpt2", "bert-base", "resnet50", "vit-b-16", "dit-xl-2"])
def test_a_setting_changes_what_its_entry_says(name: str) -> None:
    """Setting all that an entry says on its bare architecture makes the same network."""
    record = MODELS[name]
    bare = resolve_model(f"arch:{record.arch}", settings=record.config).build()
    own = record.build()
    assert bare.trainable_numel == own.trainable_numel
    assert bare.forward_flop == own.forward_flop


def test_every_architecture_can_be_named() -> None:
    assert {"transformer", "vit", "t5", "unet", "rcnn"} <= set(settable_archs())
    assert "traced" not in settable_archs() and "t5_encoder" not in settable_archs()
    assert all(name in ARCHS and "name" not in setting_kinds(name) for name in settable_archs())


def test_words_read_back_as_they_were() -> None:
    given = {"layers": 16, "dropout": 0.1, "bias": False, "norm": "rmsnorm", "rotary_share": 1e-7}
    config = resolve_model("gpt2", settings=as_words(given)).config  # type: ignore[attr-defined]
    assert {k: config[k] for k in given} == given


@pytest.mark.parametrize(
    ("model", "given", "says"),
    [
        ("gpt2", "layer=3", "did you mean 'layers'"),
        ("gpt2", "layers=x", "layers must be a whole number"),
        ("gpt2", "dropout=none", "dropout must be a number"),
        ("gpt2", "bias=maybe", "bias must be true or false"),
        ("gpt2", "layers", "is not KEY=VALUE"),
        ("gpt2", "layers=2 layers=3", "gives layers twice"),
        ("arch:transformer", "layers=2 hidden=64", "needs its dimensions: --set heads="),
    ],
)
def test_what_is_wrong_with_settings(model: str, given: str, says: str) -> None:
    with pytest.raises(InvalidConfig, match=says):
        resolve_model(model, settings=given)


def test_an_unknown_architecture_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'transformer'"):
        resolve_model("arch:transfomer", settings=GPT)


def test_an_unknown_setting_without_a_near_one_lists_the_model_s_own() -> None:
    with pytest.raises(InvalidConfig, match=r"'foo': known are layers, hidden, heads, .* …$"):
        resolve_model("gpt2", settings="foo=1")


def test_a_list_is_no_value_of_a_setting() -> None:
    with pytest.raises(InvalidConfig, match=r"layers must be text, a number .*, not \[1\]"):
        make_request("gpt2", "8xH100", settings={"layers": [1]})


@pytest.mark.parametrize("text", ["", " "])
def test_an_empty_name_is_no_model_of_the_current_folder(
    text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "config.json").write_text('{"model_type": "llama"}')
    monkeypatch.chdir(tmp_path)
    with pytest.raises(UnknownName, match="unknown model"):
        resolve_model(text)


def test_a_traced_network_has_no_settings(tmp_path: Path) -> None:
    code = tmp_path / "net.yaml"
    code.write_text(
        "name: net\nfull_name: net\narch: traced\nsample_unit: image\n"
        "params: {value: 1, source: x}\nsources: {x: y}\n"
        "training: {micro_batch: 1, precision: fp32, optimizer: sgd, source: x}\n"
    )
    with pytest.raises(UsageError, match="has no settings to change"):
        resolve_model(str(code), settings="layers=2")


def test_a_setting_wins_over_the_training_library() -> None:
    """Megatron's loss is over the cut vocabulary; a job that says otherwise has its own."""
    job = {"model": "llama3-8b", "gpus": "1x8xH100", "tp": 8, "precision": "bf16"}
    names = [
        {op.name for b in make_request(**job, **more).workload.blocks for op in b.ops}
        for more in ({}, {"settings": {"fused_gate_up": False}})
    ]
    assert names[0] != names[1]


@pytest.mark.parametrize(
    "words", [{"seq_len": 512, "settings": "seq_len=256"},
              {"attention": "flash", "settings": "attention=math"}],
)  # fmt: skip
def test_an_option_and_a_setting_of_one_thing_are_refused(words: dict[str, object]) -> None:
    with pytest.raises(InvalidConfig, match="not both"):
        make_request("gpt2", "1xA100", **words)


def test_settings_hold_for_all_points_of_a_sweep() -> None:
    """As the prediction of each point has them, of free dimensions too."""
    found = api.sweep("arch:transformer", "A100:1x1..2*2", settings=GPT, precision="amp-bf16")
    one = api.predict("arch:transformer", "1x2xA100", settings=GPT, precision="amp-bf16")
    (best,) = (p for p in found.best if p.cluster.startswith("1x2x"))
    assert best.step_time_s == pytest.approx(one.step_time_s.value, rel=1e-9)


def test_nothing_given_changes_nothing() -> None:
    assert settings_given(None) == {} == settings_given(())
    assert resolve_model("gpt2", settings="") is resolve_model("gpt2")
