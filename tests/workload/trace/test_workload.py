"""A traced model as a workload: against real DDP, against the hand-written architectures."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface import cases
from reference import diffusion as diffusion_reference
from reference import measure
from reference.buckets import DDP, two_processes
from reference.builders import BUILDERS, ZOO, images
from reference.diffusion import DiffusionLoss, DiT, Latte, STDiT
from reference.encoders import Encoder, T5Encoder
from reference.nets import BY_NAME, Stack
from reference.uvit import UViT
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from simcore.base.errors import UsageError
from simcore.base.units import MIB
from simcore.step.program import gradient_buckets
from simcore.workload.archs import ARCHS, FILES, FROZEN_ARCHS, load
from simcore.workload.graph import Workload
from simcore.workload.huggingface import read_config
from simcore.workload.trace import convert
from simcore.workload.trace.tracer import trace

Inputs = Callable[[int], tuple[Any, ...]]


def converted(
    target: Any, inputs: Inputs, batches: tuple[int, int] = (2, 3), **options: Any
) -> Workload:
    one, two = (trace(target, inputs(b), **options) for b in batches)
    found = convert.converted(
        (one, two), batches, name="net", sample_unit="sample", tokens_per_sample=0.0
    )
    return convert.noted(*found)


# -- gradients -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    return two_processes(tmp_path_factory.mktemp("ranks"))


@pytest.mark.slow  # two processes start torch
@pytest.mark.parametrize("name", DDP)
def test_buckets_are_those_of_torch(
    process_group: None, logged: dict[str, dict[str, Any]], name: str
) -> None:
    torch.manual_seed(0)
    make, inputs = DDP[name]
    ddp = DistributedDataParallel(make())
    reported = logged[name]
    workload = converted(ddp, inputs)
    names = [n for n, p in ddp.module.named_parameters() if p.requires_grad]
    groups = reported["rebuilt_per_bucket_param_indices"].strip().split(",")
    theirs = [names[int(i)] for g in groups for i in g.split()]
    ours = [p for b in reversed(list(workload.instances())) for p in reversed(b.params)]
    sizes = dict(zip(names, (p.numel() for p in ddp.module.parameters()), strict=True))
    assert [p.numel for p in ours] == [sizes[n] for n in theirs]
    assert all(n.endswith(p.name) or "." in p.name for n, p in zip(theirs, ours, strict=True))
    buckets = gradient_buckets(workload, 4, 25 * MIB, MIB)
    assert [int(b.n_bytes) for b in buckets] == [
        int(s) for s in reported["rebuilt_bucket_sizes"].split(",")
    ]
    assert [b.n_tensors for b in buckets] == [len(g.split()) for g in groups]


# -- blocks ----------------------------------------------------------------------------------------


def test_equal_layers_are_one_block() -> None:
    workload = converted(Stack(5), BY_NAME["stack"].inputs)
    assert workload.order == (0, 1, 1, 1, 1, 1, 2)
    layer = workload.blocks[1]
    assert layer.recomputable and layer.boundary.low + layer.boundary.high == 6 * 32
    assert layer.numel == 2 * 32 + 32 * 128 + 128 + 128 * 32 + 32
    assert {p.name for p in layer.params} == {
        "norm.weight", "norm.bias", "up.weight", "up.bias", "down.weight", "down.bias",
    }  # fmt: skip


def test_layers_that_recompute_themselves_are_not_recomputed_again() -> None:
    workload = converted(BY_NAME["checkpoint"].make(), BY_NAME["checkpoint"].inputs)
    layer = workload.blocks[1]
    assert not layer.recomputable and any(op.name == "recompute" for op in layer.ops)


def test_frozen_and_unused_parameters() -> None:
    workload = converted(BY_NAME["tied"].make(), BY_NAME["tied"].inputs)
    assert workload.trainable_numel == 24 * 48 + 7 * 3 + 3
    assert workload.frozen[0].resident_numel == 48 * 48 + 48
    assert any("2 parameters get no gradient (unused.weight" in n for n in workload.notes)


def test_a_batch_that_was_not_traced_follows() -> None:
    net = BY_NAME["gpt2"]
    workload = converted(net.make(), net.inputs, attention="native")
    other = trace(net.make(), net.inputs(7), attention="native")
    fixed = 16 * 8  # position ids, one row whatever the batch
    held = other.held_bytes
    ours = measure.built_saved_bytes(workload) * 7
    assert ours == pytest.approx(other.saved_bytes("activation", "input") + held - fixed, rel=1e-4)
    assert workload.forward_flop * 7 == other.flop()


def test_a_model_that_sets_its_own_widths_keeps_its_bytes() -> None:
    net = BY_NAME["own-autocast"]
    saved = converted(net.make(), net.inputs).saved
    assert saved.low == saved.high == 0 and saved.raw_bytes > 0


def test_a_structure_that_depends_on_the_batch_is_refused() -> None:
    class Odd(Stack):
        def forward(self, x: Tensor) -> Tensor:
            return super().forward(x) if x.shape[0] == 2 else super().forward(x).tanh()

    with pytest.raises(UsageError, match="other operators at batch 3 than at batch 2"):
        converted(Odd(), BY_NAME["stack"].inputs)


# -- the hand-written architectures ----------------------------------------------------------------


def _saved(workload: Workload) -> float:
    return measure.built_saved_bytes(workload)


@pytest.mark.parametrize("name", [n for n, pair in ZOO.items() if pair.deep])
def test_builders_of_many_layers_agree_with_a_trace(name: str) -> None:
    """At one batch, less what is of a batch whatever its size: statistics of the norms."""
    pair = ZOO[name]
    load(pair.arch)
    built, model = ARCHS[pair.arch](name=name, **pair.config), pair.make()
    ours = trace(model, pair.inputs(2), loss=pair.loss)
    sizes = sorted(p.numel for p in ours.params if p.trained)
    assert sizes == measure.built_param_sizes(built)
    assert ours.flop() == pytest.approx(2 * built.forward_flop, rel=0.01)
    norms = [m for m in model.modules() if isinstance(m, nn.BatchNorm2d)]
    statistics = sum(2 * 4 * n.num_features for n in norms)
    assert ours.saved_bytes("activation", "input") + ours.held_bytes - statistics == (
        pytest.approx(2 * _saved(built), rel=0.02)
    )


@cache
def _both(name: str) -> tuple[Workload, Workload]:
    """A network as it is built by hand, and as it is traced."""
    pair = {**BUILDERS, **ZOO}[name]
    load(pair.arch)
    built = ARCHS[pair.arch](name=name, **pair.config)
    model = pair.make()

    def dropped(*inputs: Any) -> Tensor:
        return pair.loss(model(*inputs))

    if pair.drops_output:
        return built, converted(dropped, pair.inputs, modules=(model,))
    return built, converted(model, pair.inputs, loss=pair.loss)


@pytest.mark.parametrize("name", [*BUILDERS, *(n for n, pair in ZOO.items() if not pair.deep)])
def test_builders_agree_with_a_trace(name: str) -> None:
    built, ours = _both(name)
    pair = {**BUILDERS, **ZOO}[name]
    assert measure.built_param_sizes(ours) == measure.built_param_sizes(built)
    assert ours.forward_flop == pytest.approx(built.forward_flop, rel=0.01)
    assert _saved(ours) + pair.aside_bytes == pytest.approx(_saved(built), rel=0.02)


def _flop(workload: Workload, side: str) -> float:
    return sum(k.flop for b in workload.instances() for op in b.ops for k in getattr(op, side))


@pytest.mark.parametrize("name", [n for n in BUILDERS if n != "bert"])
def test_backward_and_traffic_agree_too(name: str) -> None:
    pair = BUILDERS[name]
    load(pair.arch)
    built = ARCHS[pair.arch](name=name, **pair.config)
    ours = converted(pair.make(), pair.inputs, loss=pair.loss, attention="native")
    assert _flop(ours, "bwd") == pytest.approx(_flop(built, "bwd"), rel=0.01)
    forward, backward = measure.built_launches(built)
    labels = 1  # the loss of this test makes its labels
    copies = 5 * (name == "vit")  # its norms' inputs are transposed views
    assert measure.built_launches(ours) == (
        pytest.approx(forward + labels + copies, abs=1),
        pytest.approx(backward + copies, rel=0.05),
    )  # fmt: skip


def _one_by_one(workload: Workload, side: str, *names: str) -> float:
    """Elements a sample that kernels of some ops, or of all, take one by one; without autocast."""
    return sum(
        k.indexed
        for b in workload.instances() for op in b.ops for k in getattr(op, side)
        if (not names or op.name in names) and k.low >= 0.0
    )  # fmt: skip


@pytest.mark.parametrize("name", ["mnist", "resnet-50", "vgg", "alexnet", "unet", "neumf"])
def test_elements_taken_one_by_one_agree_with_a_trace(name: str) -> None:
    """Biases of convolutions, gradients of means, crops; U-Net's and NeuMF's parts in backward
    wait in views until a product reads them."""
    built, ours = _both(name)
    sides = ("fwd",) if name in ("unet", "neumf") else ("fwd", "bwd")
    for side in sides:
        assert _one_by_one(built, side) == _one_by_one(ours, side)


@pytest.mark.parametrize(
    ("name", "built_ops", "traced_ops"),
    [
        # queries over keys, and the bias over both
        ("gnmt", ("attention.score",), ("attention.add",)),
        # a product's bias before the rearrangement of q, k and v
        ("vit", ("qkv.bias",), ("attention.add",)),
        # the padded, the shifted and the masked scores; queries with either bias
        (
            "transformer-xl",
            ("shift.pad", "scores.sum", "scores.mask", "q.content", "q.position"),
            ("constant_pad_nd", "add", "masked_fill"),
        ),
    ],
)
def test_what_is_broadcast_or_strided_agrees_with_a_trace(
    name: str, built_ops: tuple[str, ...], traced_ops: tuple[str, ...]
) -> None:
    built, ours = _both(name)
    assert _one_by_one(built, "fwd", *built_ops) == _one_by_one(ours, "fwd", *traced_ops) > 0


DIFFUSION = {
    "dit": (lambda: DiT(2, 64, 4, latent=16, classes=10), (4, 16, 16), 1,
            {"num_classes": 10, "attention": "math"}),
    "latte": (lambda: Latte(2, 64, 4, latent=16, frames=4), (4, 4, 16, 16), 2,
              {"frames": 4, "attention": "math"}),
    "stdit": (lambda: STDiT(2, 64, 4, latent=16, frames=4, caption_channels=32, caption_tokens=5),
              (4, 4, 16, 16), 1, {"frames": 4, "caption_tokens": 5, "caption_width": 32}),
    "uvit": (lambda: UViT(2, 64, 4, latent=16, classes=10), (4, 16, 16), 1,
             {"num_classes": 10, "attention": "math"}),
}  # fmt: skip


@pytest.mark.parametrize("arch", DIFFUSION)
def test_diffusion_builders_agree_with_a_trace(arch: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def sdpa(*qkv: Tensor) -> tuple[Tensor, None]:
        q, k, v = (t.transpose(1, 2) for t in qkv)
        return F.scaled_dot_product_attention(q, k, v).transpose(1, 2), None

    monkeypatch.setattr(diffusion_reference, "flash", sdpa)
    make, shape, channel_dim, config = DIFFUSION[arch]
    load(arch)
    built = ARCHS[arch](
        name=arch, sample_unit="sample", depth=2, hidden=64, heads=4, image=128, **config
    )
    model, diffusion = make(), DiffusionLoss()

    def inputs(b: int) -> tuple[Tensor, ...]:
        extra = ()
        if arch in ("dit", "uvit"):
            extra = (torch.zeros(b, dtype=torch.long),)
        elif arch == "stdit":
            extra = (torch.randn(b, 1, 5, 32),)
        return (torch.zeros(b, *shape), torch.zeros(b, dtype=torch.long), *extra)

    def step(x0: Tensor, t: Tensor, *extra: Tensor) -> Tensor:
        noise = torch.randn_like(x0)
        xt = diffusion.noised(x0, t, noise)
        out = model(xt, t, *extra)
        if arch == "uvit":  # a squared error of the noise alone
            return (noise - out).pow(2).flatten(1).mean(-1).mean()
        return diffusion(out, x0, xt, t, noise, channel_dim)

    ours = converted(step, inputs, modules=(model,))
    assert measure.built_param_sizes(ours) == measure.built_param_sizes(built)
    assert ours.forward_flop == pytest.approx(built.forward_flop, rel=0.01)
    assert _saved(ours) == pytest.approx(_saved(built), rel=0.02)


_FROZEN = ("t5_encoder", "autoencoder_kl_encoder")


@pytest.mark.parametrize("arch", _FROZEN)
def test_frozen_builders_agree_with_a_trace(arch: str) -> None:
    load(arch)
    if arch == "t5_encoder":
        config = {"layers": 2, "width": 64, "inner": 160, "heads": 4, "head_dim": 16, "vocab": 100}
        built = FROZEN_ARCHS[arch](name=arch, tokens=16, **config)
        model: nn.Module = T5Encoder(2, 64, 160, 4, 16, 100)
        ours = converted(model, lambda b: (torch.zeros(b, 16, dtype=torch.long),))
        assert ours.trainable_numel == built.resident_numel
    else:
        built = FROZEN_ARCHS[arch](name=arch, image=64, base_channels=32)
        ours = converted(Encoder(32), images(64))
    assert ours.forward_flop == pytest.approx(
        sum(k.flop for op in built.ops for k in op.fwd), rel=0.01
    )


_HF = {"t5": "t5", "whisper": "whisper", "clip": "clip"}


@pytest.mark.parametrize("arch", _HF)
def test_builders_of_published_configs_agree_with_a_trace(arch: str, tmp_path: Path) -> None:
    """Against transformers' own module of the config that the builder was read from."""
    off = {"dropout": 0.0, "dropout_rate": 0.0, "attention_dropout": 0.0, "activation_dropout": 0.0}
    config = cases.config_of(_HF[arch])
    config = cases.config_of(_HF[arch], **{k: v for k, v in off.items() if hasattr(config, k)})
    config._attn_implementation = "eager" if arch == "t5" else "sdpa"
    record = read_config(cases.written(config, tmp_path))
    assert record.arch == arch
    built, model = record.build(seq_len=24), cases.model_of(config, "cpu").train()

    def step(tokens: Tensor, pixels: Tensor | None = None) -> Tensor:
        if arch == "clip":
            return model(input_ids=tokens, pixel_values=pixels, return_loss=True).loss
        if arch == "whisper":
            return model(input_features=pixels, labels=tokens).loss
        return model(input_ids=tokens, labels=tokens).loss

    def inputs(b: int) -> tuple[Tensor, ...]:
        tokens = torch.full((b, 24), 5, dtype=torch.long)
        shape = {"clip": (b, 3, 32, 32), "whisper": (b, 16, 100)}.get(arch)
        return (tokens, torch.zeros(shape)) if shape else (tokens,)

    ours = converted(step, inputs, modules=(model,))
    assert measure.built_param_sizes(ours) == measure.built_param_sizes(built)
    assert ours.forward_flop == pytest.approx(built.forward_flop, rel=0.01)
    assert _saved(ours) == pytest.approx(_saved(built), rel=0.02)


#: Held against modules of diffusers, transformers and torch, or against the figures that a program
#: prints, each in a test of its own.
_BY_MODULE = (
    "mmdit", "wan", "clip_text_encoder", "mmdit_video", "cogvideox", "latent_unet", "modernbert",
    "deberta", "bart", "wav2vec2", "albert", "siglip", "zamba2", "mae",
    "ltx", "vit_rotary", "yolo_c2f", "yolo_c3", "yolo_c3k2", "jasper", "dlrm", "moco",
    "embedding_tables", "unet_volume", "vnet", "vision_encoder",
)  # fmt: skip


def test_every_builder_is_held_against_a_trace() -> None:
    """``traced`` reads back what a trace wrote, and has a test of its own (test_callables.py)."""
    compared = {pair.arch for pair in (*BUILDERS.values(), *ZOO.values())}
    compared |= {*DIFFUSION, *_FROZEN, *_HF, *_BY_MODULE, "traced"}
    assert compared == set(FILES)
