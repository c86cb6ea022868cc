"""Models of vision libraries by name: what their authors publish, and every way to be wrong."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from simcore import api
from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.cli.main import run
from simcore.workload.graph import Workload
from simcore.workload.resolve import resolve_model
from simcore.workload.trace import trace_zoo
from simcore.workload.trace.zoos import ZOOS, AttentionForm, Zoo, ready_torchvision, zoo_of

ready_torchvision()
timm = pytest.importorskip(
    "timm", reason="timm or its torchvision is not installed: pip install '.[vision]'"
)
from torchvision import models  # noqa: E402  (timm needs it)

MEGA, GIGA = 1e6, 1e9


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path_factory.getbasetemp() / "zoo"
    monkeypatch.setenv("SIMCORE_TRACE_CACHE", str(folder))


def counted(workload: Workload) -> tuple[float, float]:
    """Parameters [M] and multiply-adds of a forward pass [G]."""
    return workload.trainable_numel / MEGA, workload.forward_flop / 2 / GIGA


@pytest.mark.parametrize(
    ("name", "params_m", "gmacs"),
    [
        # timm's results/results-imagenet.csv and its model cards, at the size of training
        ("timm:resnet50", 25.56, 4.11),
        ("timm:swin_tiny_patch4_window7_224", 28.29, 4.51),
        ("timm:convnext_tiny", 28.59, 4.47),
        ("timm:mambaout_tiny", 26.55, 4.49),
        ("timm:fastvit_t8", 4.03, 0.70),
        ("timm:efficientvit_b1", 9.10, 0.53),
    ],
)
def test_work_and_parameters_are_those_published(name: str, params_m: float, gmacs: float) -> None:
    params, macs = counted(trace_zoo(name).build())
    assert params == pytest.approx(params_m, abs=0.006)
    # theirs count poolings and activations too, ours what matrix units and convolutions do
    assert macs == pytest.approx(gmacs, rel=0.03)


@pytest.mark.parametrize("name", ["resnet18", "mobilenet_v3_small", "efficientnet_v2_s"])
def test_torchvision_s_own_figures(name: str) -> None:
    """Its weights say parameters and 1e9 multiply-adds at the size they were judged at."""
    meta = models.get_model_weights(name).DEFAULT.meta
    workload = trace_zoo(f"torchvision:{name}").build()
    assert workload.trainable_numel == meta["num_params"]
    assert counted(workload)[1] == pytest.approx(meta["_ops"], rel=0.01)


def test_the_libraries_and_models_db_agree() -> None:
    """Three descriptions of one network: two traces and the builder."""
    theirs = [trace_zoo(f"{zoo}:resnet50").build() for zoo in ("timm", "torchvision")]
    ours = resolve_model("resnet-50-nchw").build()
    for other in theirs:
        assert other.trainable_numel == ours.trainable_numel
        assert other.forward_flop == pytest.approx(ours.forward_flop, rel=1e-3)
    steps = [
        api.predict(m, "1xA100", micro_batch=128, precision="amp-bf16", optimizer="sgd").step_time_s
        for m in ("timm:resnet50", "torchvision:resnet50", "resnet-50-nchw")
    ]
    assert [s.value for s in steps] == pytest.approx([steps[0].value] * 3, rel=0.03)


def test_a_classifier_beside_the_last_one_is_trained_too() -> None:
    whole = trace_zoo("torchvision:inception_v3").build()
    with torch.device("meta"):
        module = models.inception_v3(weights=None, init_weights=False)
    assert whole.trainable_numel == sum(p.numel() for p in module.parameters())
    ready = {p.name for b in whole.blocks for p in b.params}
    assert any(name.startswith("AuxLogits") for name in ready)
    assert not [n for n in trace_zoo("torchvision:inception_v3").notes if "no gradient" in n]


def test_another_size_of_image() -> None:
    """A convolution's work grows with its pixels; a ViT is built for the size."""
    large = "float32[B,3,448,448]"
    for name, tokens in (("timm:resnet18", 4.0), ("torchvision:resnet18", 4.0)):
        small, big = (trace_zoo(name, i).build().forward_flop for i in ((), (large,)))
        assert big / small == pytest.approx(tokens, rel=0.01)
    for name in ("timm:vit_tiny_patch16_224", "torchvision:vit_b_32"):
        small, big = (trace_zoo(name, i).build() for i in ((), (large,)))
        assert big.forward_flop > 4.0 * small.forward_flop  # four times the tokens, and attention
        assert big.trainable_numel > small.trainable_numel  # places of more patches
    gray = trace_zoo("timm:resnet18", ("float32[B,1,224,224]",)).build()
    assert gray.trainable_numel == trace_zoo("timm:resnet18").build().trainable_numel - 2 * 64 * 49


def test_channels_last_is_read_from_the_strides() -> None:
    def first(layout: str) -> float:
        blocks = trace_zoo("timm:resnet18", (f"float32[B,3,224,224]{layout}",)).build().blocks
        return sum(k.relaid for b in blocks for op in b.ops for k in (*op.fwd, *op.bwd))

    assert first("") > 0.0 == first(" channels_last")


def test_attention_as_it_was_written_before_pytorch_2() -> None:
    def kinds(form: AttentionForm) -> list[str]:
        built = trace_zoo("timm:vit_tiny_patch16_224", (), form).build()
        blocks = [built.blocks[i] for i in built.order]
        return [k.kind for b in blocks for op in b.ops if ".attn" in f".{op.name}" for k in op.fwd]

    own, written = kinds("own"), kinds("written")
    assert own.count("attention") == 12 and "softmax" not in own
    assert written.count("softmax") == 12 and "attention" not in written
    assert timm.layers.use_fused_attn()  # as it was


def test_a_job_may_ask_for_it() -> None:
    fused, written = (
        api.predict("timm:vit_tiny_patch16_224", "1xA100", micro_batch=8, attention=attention)
        for attention in (None, "math")
    )
    assert written.memory.terms["activations"] > 1.1 * fused.memory.terms["activations"]
    with pytest.raises(InvalidConfig, match=r"no attention kernel.*except math"):
        api.predict("timm:vit_tiny_patch16_224", "1xA100", attention="flash")
    with pytest.raises(InvalidConfig, match=r"no attention kernel to choose \(--attention\)$"):
        api.predict("torchvision:vit_b_16", "1xA100", attention="math")


def test_everywhere_a_model_is_named() -> None:
    sweep = api.sweep("timm:resnet18,resnet-18", "A100:1x1,2", micro_batch=[32, 64])
    assert sweep.n_points == 8
    plan = api.plan("timm:resnet18", "2xA100", global_batch=64, steps=100)
    assert plan.best is not None
    assert api.model_named("timm:resnet18") is trace_zoo("timm:resnet18")


def test_it_is_traced_once(monkeypatch: pytest.MonkeyPatch) -> None:
    first = resolve_model("timm:resnet18")
    trace_zoo.cache_clear()
    monkeypatch.setattr(ZOOS["timm"], "find", None, raising=False)  # would fail
    again = resolve_model("timm:resnet18")
    assert again is not first and again.build().blocks == first.build().blocks


@pytest.mark.parametrize(
    ("name", "micro_batch", "title"),
    [
        # options of timm's train.py and of torchvision's references/classification/train.py
        ("timm:resnet18", 128, "timm:resnet18 (ResNet, 224 x 224)"),
        ("torchvision:inception_v3", 32, "torchvision:inception_v3 (Inception3, 299 x 299)"),
    ],
)
def test_trained_as_its_library_does(name: str, micro_batch: int, title: str) -> None:
    found = api.predict(name, "1xA100")
    assert (found.micro_batch, found.optimizer, found.precision) == (micro_batch, "sgd", "fp32")
    assert found.model_full_name == title
    (told,) = (a for a in found.assumptions if "training defaults" in a)
    assert f"{name.partition(':')[0]}'s train.py" in told and f"micro-batch {micro_batch}" in told


def test_show_knows_them_and_list_says_where_they_are(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["show", "model", "timm:resnet18"]) == 0
    shown = capsys.readouterr().out
    assert "11,689,512" in shown and len(shown.splitlines()) < 30
    assert run(["list", "models", "timm:resnet"]) == 2
    assert "names by timm.list_models()" in capsys.readouterr().err


# -- what cannot be --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("timm:resnt50", "did you mean 'resnet50'"),
        ("timm:resnet50.a1_in2k", "unknown tag of timm's resnet50 'a1_in2k'.*a1_in1k"),
        ("torchvision:resnet5", "unknown model of torchvision 'resnet5': did you mean 'resnet50'"),
        ("timm:", "names no model of timm"),
        ("torchvision:fasterrcnn_resnet50_fpn", "belongs to torchvision.models.detection"),
        ("torchvision:lraspp_mobilenet_v3_large", "belongs to torchvision.models.segmentation"),
        ("timm:hf-hub:timm/resnet50.a1_in1k", "unknown model of timm"),
        ("timm:/etc/passwd", "unknown model of timm"),
        ("torchvision:os.getcwd", "unknown model of torchvision"),
    ],
)
def test_wrong_names_are_one_sentence(
    name: str, says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(UsageError, match=says):
        resolve_model(name)
    assert run(["predict", "--model", name, "--gpus", "1xA100"]) == 2
    told = capsys.readouterr().err
    assert told.startswith("error: ") and told.count("\n") == 1


@pytest.mark.parametrize("inputs", ["float32[B,224]", "int64[B,3]"])
def test_wrong_inputs_are_one_sentence(inputs: str) -> None:
    with pytest.raises(UsageError, match="takes one batch of images"):
        resolve_model("timm:resnet18", inputs=(inputs,))


def test_a_size_is_that_of_the_input_channels_first() -> None:
    with pytest.raises(UsageError, match=r"channels come first, as in float32\[B,3,288,288\]"):
        resolve_model("timm:resnet18", inputs=("float32[B,288,288,3]",))
    with pytest.raises(UsageError, match=r"--input 'float32\[B,3,288,288\]'"):
        api.predict("timm:resnet18", "1xA100", resolution="288")
    with pytest.raises(UsageError, match=r"did you mean timm:resnet18\?"):
        resolve_model("tim:resnet18")


def test_a_plan_asks_for_samples_once(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["plan", "--model", "timm:resnet18", "--gpus", "T4", "--epochs", "2"]
    assert run(words) == 2
    told = capsys.readouterr().err
    assert "epochs x samples" in told and told.count("\n") == 1


def test_a_library_that_is_not_installed_says_how() -> None:
    class Absent(Zoo):
        name = "absent"
        packages = ("simcore-absent",)

        def find(self, *_: object) -> None:  # type: ignore[override]
            raise AssertionError

    with pytest.raises(UsageError, match=r"need simcore-absent.*pip install '.\[vision\]'"):
        Absent().versions()


def test_only_their_names_are_theirs() -> None:
    assert zoo_of("mypkg.net:build") is None and zoo_of("timm") is None
    found = zoo_of("timm:resnet18")
    assert found is not None and found[0] is ZOOS["timm"] and found[1] == "resnet18"


def test_nothing_is_downloaded_nor_looked_up(tmp_path: Path) -> None:
    """In a process of its own, whose sockets fail, with an empty cache."""
    program = (
        "import socket\n"
        "def refuse(*a, **k): raise OSError('no network here')\n"
        "socket.socket.connect = socket.getaddrinfo = refuse\n"
        "from simcore.workload.trace import trace_zoo\n"
        "for name in ('timm:resnet18', 'torchvision:resnet18'):\n"
        "    print(trace_zoo(name).build().trainable_numel)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False,
        env={**os.environ, "SIMCORE_TRACE_CACHE": str(tmp_path)},
    )  # fmt: skip
    assert done.stdout.split() == ["11689512"] * 2, done.stderr[-500:]


def test_unknown_names_name_the_kind() -> None:
    with pytest.raises(UnknownName) as told:
        resolve_model("timm:zzzzzz")
    assert "timm.list_models()" in str(told.value) and len(str(told.value)) < 200
