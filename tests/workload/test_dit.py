"""DiT, Latte and STDiT against published figures and against real modules on the CPU."""

from __future__ import annotations

import math
from collections.abc import Callable

import pytest
import torch
from reference.diffusion import DiffusionLoss, DiT, Latte, STDiT
from reference.meter import KernelMeter, Step, measure_step
from torch import nn
from torch.utils.flop_counter import FlopCounterMode

from simcore.base.errors import InvalidConfig
from simcore.base.units import GIGA
from simcore.workload.archs import ARCHS
from simcore.workload.archs import layers as _layers  # noqa: F401  (registers)
from simcore.workload.graph import Kernel, Workload
from simcore.workload.models import MODELS

#: model, parameters, forward FLOP: the published or independently counted figures.
PUBLISHED = [
    ("latte-s", 32_480_672, 187.3 * GIGA),
    ("latte-b", 129_547_040, 728.2 * GIGA),
    ("latte-l", 456_815_648, 2_570.2 * GIGA),
    ("latte-xl", 673_681_568, 3_785.9 * GIGA),
    ("dit-xl-2", 674_834_720, 2 * 118.64 * GIGA),  # Peebles & Xie 2023, table 4, in multiply-adds
    ("stdit-xl-2", 759_620_768, 5_706.2 * GIGA),
]

FULL_MODULES: dict[str, Callable[[], nn.Module]] = {
    "latte-s": lambda: Latte(12, 384, 6),
    "latte-b": lambda: Latte(12, 768, 12),
    "latte-l": lambda: Latte(24, 1024, 16),
    "latte-xl": lambda: Latte(28, 1152, 16),
    "dit-xl-2": lambda: DiT(28, 1152, 16),
    "stdit-xl-2": lambda: STDiT(28, 1152, 16),
}


def small(arch: str, depth: int = 2, batch: int = 2, **changes: object) -> tuple[Workload, Step]:
    """The same small model as a Workload and as a measured torch step at ``batch``."""
    torch.manual_seed(0)
    config: dict[str, object] = {"depth": depth, "hidden": 64, "heads": 4, "image": 128, **changes}
    mode, classes = str(changes.get("attention", "math")), int(str(changes.get("num_classes", 0)))
    labels = (torch.zeros(batch, dtype=torch.long),) if classes else ()
    if arch == "dit":
        config |= {"attention": mode, "num_classes": classes}
        model: nn.Module = DiT(depth, 64, 4, latent=16, mode=mode, classes=classes)
        shape, channel_dim, extra = (4, 16, 16), 1, labels
    elif arch == "latte":
        config |= {"attention": mode, "frames": 4}
        model = Latte(depth, 64, 4, latent=16, frames=4, mode=mode, classes=classes)
        shape, channel_dim, extra = (4, 4, 16, 16), 2, labels
    else:
        config |= {"frames": 4, "caption_tokens": 5, "caption_width": 32}
        model = STDiT(depth, 64, 4, latent=16, frames=4, caption_channels=32, caption_tokens=5)
        shape, channel_dim, extra = (4, 4, 16, 16), 1, (torch.randn(batch, 1, 5, 32),)
    workload = ARCHS[arch](name="small", sample_unit="sample", **config)
    loss = DiffusionLoss()
    x0 = torch.randn(batch, *shape)

    def forward() -> torch.Tensor:
        t = torch.randint(0, 1000, (batch,))
        noise = torch.randn_like(x0)
        xt = loss.noised(x0, t, noise)
        return loss(model(xt, t, *extra), x0, xt, t, noise, channel_dim)

    assert workload.trainable_numel == sum(p.numel() for p in model.parameters() if p.requires_grad)
    return workload, measure_step(model, forward)


SMALL = [
    pytest.param("latte", {"attention": "math"}, id="latte-math"),
    pytest.param("latte", {"attention": "flash"}, id="latte-flash"),
    pytest.param("latte", {"attention": "math", "num_classes": 10}, id="latte-classes"),
    pytest.param("dit", {"attention": "math", "num_classes": 10}, id="dit-math"),
    pytest.param("dit", {"attention": "flash"}, id="dit-flash"),
    pytest.param("stdit", {}, id="stdit"),
]


def kernels(workload: Workload, side: str) -> list[Kernel]:
    return [k for b in workload.instances() for op in b.ops for k in getattr(op, side)]


def launches(workload: Workload, side: str) -> float:
    return sum(k.launches for k in kernels(workload, side))


def elems(workload: Workload, side: str, batch: int) -> float:
    return sum(
        (k.low + k.high + k.raw_bytes / 4) * batch + k.weight for k in kernels(workload, side)
    )


def fp32_saved_bytes(workload: Workload) -> float:
    return 4 * (workload.saved.low + workload.saved.high) + workload.saved.raw_bytes


@pytest.mark.parametrize(("name", "params", "flop"), PUBLISHED)
def test_published_figures(name: str, params: int, flop: float) -> None:
    record = MODELS[name]
    workload = record.build()
    assert workload.trainable_numel == params == record.params.value
    assert workload.forward_flop == pytest.approx(flop, rel=5e-3)


@pytest.mark.parametrize("name", FULL_MODULES)
def test_parameters_of_the_module_in_definition_order(name: str) -> None:
    with torch.device("meta"):
        module = FULL_MODULES[name]()
    truth = [p.numel() for p in module.parameters() if p.requires_grad]
    ours = [p.numel for block in MODELS[name].build().instances() for p in block.params]
    assert ours == truth


def test_frozen_tables_are_buffers_and_not_trained() -> None:
    with torch.device("meta"):
        latte, stdit = Latte(24, 1024, 16), STDiT(28, 1152, 16)
    frozen = sum(p.numel() for p in latte.parameters() if not p.requires_grad)
    assert MODELS["latte-l"].build().buffers_numel == frozen == 262_144 + 16_384
    assert MODELS["stdit-xl-2"].build().buffers_numel == sum(b.numel() for b in stdit.buffers())


def test_class_conditional_latte_adds_its_table() -> None:
    assert MODELS["latte-xl"].build(num_classes=101).trainable_numel == 673_799_072
    assert MODELS["latte-l"].build(num_classes=101).trainable_numel == 456_920_096


@pytest.mark.parametrize("name", ["latte-s", "dit-xl-2"])
def test_flop_match_the_flop_counter(name: str) -> None:
    """Full size on the meta device; attention written out, as the counter knows it."""
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        if name == "dit-xl-2":
            y = torch.zeros(1, dtype=torch.long)
            DiT(28, 1152, 16)(torch.empty(1, 4, 32, 32), torch.zeros(1), y)
        else:
            Latte(12, 384, 6)(torch.empty(1, 16, 4, 32, 32), torch.zeros(1))
    ours = MODELS[name].build(attention="math").forward_flop
    assert ours == pytest.approx(counter.get_total_flops(), rel=1e-9)


def test_backward_does_twice_the_forward_but_for_the_first_convolution() -> None:
    workload = MODELS["latte-l"].build()
    ratio = sum(k.flop for k in kernels(workload, "bwd")) / workload.forward_flop
    assert ratio == pytest.approx(2.0, rel=1e-3)


@pytest.mark.parametrize(("arch", "changes"), SMALL)
@pytest.mark.parametrize("batch", [2, 3])
def test_saved_storages_match_autograd(arch: str, changes: dict[str, object], batch: int) -> None:
    workload, step = small(arch, batch=batch, **changes)
    assert batch * fp32_saved_bytes(workload) == pytest.approx(step.saved_bytes, rel=2e-4)


def test_saved_storages_match_autograd_at_batch_one() -> None:
    """At batch 1 the rearrangements are views; the storages that stay are the same."""
    workload, step = small("latte", batch=1, depth=4)
    assert fp32_saved_bytes(workload) == pytest.approx(step.saved_bytes, rel=0.01)


@pytest.mark.parametrize(("arch", "changes"), SMALL)
def test_launches_of_a_block_match_the_dispatcher(arch: str, changes: dict[str, object]) -> None:
    """Two more blocks: every kernel more that torch runs is one more here, and no other."""
    (short, short_step), (long, long_step) = (small(arch, depth=d, **changes) for d in (2, 4))
    fwd = launches(long, "fwd") - launches(short, "fwd")
    assert fwd == long_step.fwd.n_launches - short_step.fwd.n_launches

    bwd = launches(long, "bwd") - launches(short, "bwd")
    extra = long_step.bwd.launches - short_step.bwd.launches
    flash = extra["simcore_reference.flash_backward"]
    truth = extra.total() + 2 * flash  # three kernels on a GPU
    truth -= extra["aten.zeros"]  # for a log-sum-exp that has no gradient
    if arch == "stdit":
        truth -= extra["layout copy"]  # apex's norm keeps the copy that its forward made
    assert bwd == pytest.approx(truth, abs=2)


@pytest.mark.parametrize(("arch", "changes"), SMALL)
def test_traffic_matches_the_dispatcher(arch: str, changes: dict[str, object]) -> None:
    workload, step = small(arch, depth=4, **changes)
    skipped = step.bwd.elems["layout copy"] if arch == "stdit" else 0
    assert elems(workload, "fwd", 2) == pytest.approx(step.fwd.n_elems, rel=0.02)
    assert elems(workload, "bwd", 2) == pytest.approx(step.bwd.n_elems - skipped, rel=0.02)


def test_loss_constants_match_the_dispatcher() -> None:
    """Copies of schedule tables to the device come on top: 2 while noising, 12 in the loss."""
    loss, batch = DiffusionLoss(), 2
    x0, xt = torch.randn(2, batch, 4, 4, 16, 16)
    out = torch.randn(batch, 4, 8, 16, 16, requires_grad=True)
    t = torch.randint(0, 1000, (batch,))
    with KernelMeter() as noising:
        torch.randint(0, 1000, (batch,))
        noise = torch.randn_like(x0)
        loss.noised(x0, t, noise)
    step = measure_step(nn.Identity(), lambda: loss(out, x0, xt, t, noise, 2))
    n = x0.numel()
    latte = MODELS["latte-s"].build()
    latent = 16 * 4 * 32**2
    ours = {op.name: op for b in (latte.blocks[0], latte.blocks[-1]) for op in b.ops}
    (drawn,), (fwd,), (bwd,) = ours["noise"].fwd, ours["loss"].fwd, ours["loss"].bwd
    assert noising.n_launches + 2 == drawn.launches
    assert step.fwd.n_launches + 12 == fwd.launches
    assert step.bwd.n_launches == bwd.launches
    assert noising.n_elems / n == pytest.approx(drawn.high / latent, rel=0.02)
    assert step.fwd.n_elems / n == pytest.approx(fwd.high / latent, rel=0.02)
    assert step.bwd.n_elems / n == pytest.approx(bwd.high / latent, rel=0.02)
    assert step.saved_bytes / 4 / n == pytest.approx(ours["loss"].saved.high / latent, rel=0.01)


def test_latte_l_by_hand() -> None:
    """Storages of one pair of blocks in units of a residual, by hand: 24 and 20.25, plus adaLN.

    Norm input, output and modulated twice, q k v, projection's input and output, MLP 4 + 4 + 1,
    scores 16 * 16 * 256^2 or 256 * 16 * 16^2; adaLN keeps nine rows' worth a conditioning row.
    """
    residual = 4096 * 1024
    pair = (20 + 4 + 20 + 0.25) * residual + 9 * 1024 * (16 + 256)
    ours = MODELS["latte-l"].build()
    spatial, temporal = ours.blocks[1].saved, ours.blocks[3].saved
    assert spatial.low + spatial.high + temporal.low + temporal.high == pair
    assert fp32_saved_bytes(ours) == pytest.approx(9.09 * GIGA, rel=1e-3)
    assert fp32_saved_bytes(MODELS["latte-xl"].build()) == pytest.approx(11.79 * GIGA, rel=1e-3)


def test_flash_keeps_no_scores() -> None:
    math_, flash = (MODELS["latte-l"].build(attention=a) for a in ("math", "flash"))
    scores = 12 * 16 * (16 * 256**2 + 256 * 16**2)
    merged = 24 * 4096 * 1024  # fused attention keeps its output beside the reshaped copy
    low = flash.saved.low + flash.saved.high - math_.saved.low - math_.saved.high
    assert low == merged - scores


def test_longer_clips_cost_what_they_should() -> None:
    short, long = (MODELS["latte-s"].build(frames=f) for f in (16, 32))
    assert long.tokens_per_sample == 2 * short.tokens_per_sample == 8192
    assert long.forward_flop > 2 * short.forward_flop * 0.99


@pytest.mark.parametrize(
    ("name", "changes"),
    [
        ("latte-l", {"depth": 3}),
        ("latte-l", {"image": 250}),
        ("latte-l", {"heads": 5}),
        ("latte-l", {"attention": "mth"}),
        ("dit-xl-2", {"frames": 16}),
        ("stdit-xl-2", {"image": 100}),
    ],
)
def test_bad_settings_are_refused(name: str, changes: dict[str, int | str]) -> None:
    with pytest.raises(InvalidConfig):
        MODELS[name].build(**changes)


def test_frozen_networks_ride_along() -> None:
    latte, stdit = MODELS["latte-xl"].build(), MODELS["stdit-xl-2"].build()
    assert math.isclose(latte.frozen_flop, 4_363.6 * GIGA, rel_tol=1e-4)
    assert math.isclose(stdit.frozen_flop, 4_363.6 * GIGA + 1_117.0 * GIGA, rel_tol=1e-3)
    assert [f.bytes_per_param for f in stdit.frozen] == [2, None]
