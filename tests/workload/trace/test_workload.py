"""A traced model as a workload: against real DDP, against the hand-written architectures."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
import torch.distributed as dist
from reference import diffusion as diffusion_reference
from reference import measure
from reference.bert import Bert
from reference.buckets import DDP, two_processes
from reference.diffusion import DiffusionLoss, DiT, Latte, STDiT
from reference.encoders import Encoder, T5Encoder
from reference.mnist import MnistNet
from reference.nets import BY_NAME, Stack
from reference.resnet import ResNet
from reference.transformer import Gpt2
from reference.vit import ViT
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.parallel import DistributedDataParallel

from simcore.base.errors import UsageError
from simcore.base.units import MIB
from simcore.step.program import gradient_buckets
from simcore.workload.archs import ARCHS, FROZEN_ARCHS, load
from simcore.workload.graph import Workload
from simcore.workload.trace.convert import workload_of
from simcore.workload.trace.tracer import trace

Inputs = Callable[[int], tuple[Any, ...]]


def converted(
    target: Any, inputs: Inputs, batches: tuple[int, int] = (2, 3), **options: Any
) -> Workload:
    one, two = (trace(target, inputs(b), **options) for b in batches)
    return workload_of((one, two), batches, name="net")


# -- gradients -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "file"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()


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


def _classify(output: Tensor) -> Tensor:
    return F.cross_entropy(output, torch.zeros(output.shape[0], dtype=torch.long))


def _language(output: Tensor) -> Tensor:
    # the copy stands for the shift by one position, which keeps every row here
    rows = output.clone().view(-1, output.shape[-1])
    return F.cross_entropy(rows, torch.zeros(rows.shape[0], dtype=torch.long))


def _ids(b: int) -> tuple[Tensor, ...]:
    return (torch.zeros(b, 32, dtype=torch.long),)


_GPT: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100, "seq_len": 32}
_LLAMA: dict[str, Any] = {
    **_GPT, "mlp": "swiglu", "positions": "rope", "norm": "rmsnorm", "bias": False,
    "fused_qkv": False, "tied": False, "kv_heads": 2, "ffn": 160,
}  # fmt: skip


def _images(size: int, channels: int = 3) -> Inputs:
    return lambda b: (torch.zeros(b, channels, size, size),)


def _bert(b: int) -> tuple[Tensor, ...]:
    ids = torch.zeros(b, 32, dtype=torch.long)
    return ids, ids, ids


BUILDERS: dict[str, tuple[str, dict[str, Any], Callable[[], nn.Module], Inputs, Any]] = {
    "mnist": ("mnist_cnn", {}, MnistNet, _images(28, 1),
              lambda o: F.nll_loss(o, torch.zeros(o.shape[0], dtype=torch.long))),
    "resnet-18": ("resnet", {"depth": 18, "image": 64, "classes": 10},
                  lambda: ResNet((2, 2, 2, 2), False, 10), _images(64), _classify),
    "resnet-50": ("resnet", {"depth": 50, "image": 64, "classes": 10},
                  lambda: ResNet((3, 4, 6, 3), True, 10), _images(64), _classify),
    "vit": ("vit", {"layers": 2, "hidden": 64, "heads": 4, "image": 32, "patch": 8, "classes": 10},
            lambda: ViT(2, 64, 4, 256, image=32, patch=8, classes=10), _images(32), _classify),
    "bert": ("bert", {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100, "seq_len": 32,
                      "max_positions": 64, "attention": "eager"},
             lambda: Bert(2, 64, 4, 256, vocab=100, positions=64), _bert, _classify),
    "bert-sdpa": ("bert", {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100, "seq_len": 32,
                           "max_positions": 64, "attention": "sdpa"},
                  lambda: Bert(2, 64, 4, 256, vocab=100, positions=64, sdpa=True), _bert,
                  _classify),
    "gpt2": ("transformer", {**_GPT, "dropout": 0.1}, lambda: Gpt2(2, 64, 4, 100, 32), _ids,
             _language),
    "gpt2-math": ("transformer", {**_GPT, "dropout": 0.1, "attention": "math"},
                  lambda: Gpt2(2, 64, 4, 100, 32, flash=False), _ids, _language),
}  # fmt: skip


def _saved(workload: Workload) -> float:
    return measure.built_saved_bytes(workload)


@pytest.mark.parametrize("name", BUILDERS)
def test_builders_agree_with_a_trace(name: str) -> None:
    arch, config, make, inputs, loss = BUILDERS[name]
    load(arch)
    built = ARCHS[arch](name=name, **config)
    ours = converted(make(), inputs, loss=loss)
    assert measure.built_param_sizes(ours) == measure.built_param_sizes(built)
    assert ours.forward_flop == pytest.approx(built.forward_flop, rel=0.01)
    assert _saved(ours) == pytest.approx(_saved(built), rel=0.02)


def _flop(workload: Workload, side: str) -> float:
    return sum(k.flop for b in workload.instances() for op in b.ops for k in getattr(op, side))


@pytest.mark.parametrize("name", [n for n in BUILDERS if n != "bert"])
def test_backward_and_traffic_agree_too(name: str) -> None:
    arch, config, make, inputs, loss = BUILDERS[name]
    load(arch)
    built = ARCHS[arch](name=name, **config)
    ours = converted(make(), inputs, loss=loss, attention="native")
    assert _flop(ours, "bwd") == pytest.approx(_flop(built, "bwd"), rel=0.01)
    forward, backward = measure.built_launches(built)
    labels = 1  # the loss of this test makes its labels
    assert measure.built_launches(ours) == (
        pytest.approx(forward + labels, abs=1), pytest.approx(backward, rel=0.05),
    )  # fmt: skip


DIFFUSION = {
    "dit": (lambda: DiT(2, 64, 4, latent=16, classes=10), (4, 16, 16), 1,
            {"num_classes": 10, "attention": "math"}),
    "latte": (lambda: Latte(2, 64, 4, latent=16, frames=4), (4, 4, 16, 16), 2,
              {"frames": 4, "attention": "math"}),
    "stdit": (lambda: STDiT(2, 64, 4, latent=16, frames=4, caption_channels=32, caption_tokens=5),
              (4, 4, 16, 16), 1, {"frames": 4, "caption_tokens": 5, "caption_width": 32}),
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
        if arch == "dit":
            extra = (torch.zeros(b, dtype=torch.long),)
        elif arch == "stdit":
            extra = (torch.randn(b, 1, 5, 32),)
        return (torch.zeros(b, *shape), torch.zeros(b, dtype=torch.long), *extra)

    def step(x0: Tensor, t: Tensor, *extra: Tensor) -> Tensor:
        noise = torch.randn_like(x0)
        xt = diffusion.noised(x0, t, noise)
        return diffusion(model(xt, t, *extra), x0, xt, t, noise, channel_dim)

    ours = converted(step, inputs, modules=(model,))
    assert measure.built_param_sizes(ours) == measure.built_param_sizes(built)
    assert ours.forward_flop == pytest.approx(built.forward_flop, rel=0.01)
    assert _saved(ours) == pytest.approx(_saved(built), rel=0.02)


@pytest.mark.parametrize("arch", ["t5_encoder", "autoencoder_kl_encoder"])
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
        ours = converted(Encoder(32), _images(64))
    assert ours.forward_flop == pytest.approx(
        sum(k.flop for op in built.ops for k in op.fwd), rel=0.01
    )
