"""U-ViT against the paper's figures and against a real module on the CPU."""

from __future__ import annotations

import pytest
import torch
from reference.meter import Step, measure_step
from reference.uvit import UViT
from torch.utils.flop_counter import FlopCounterMode

from simcore.base.errors import InvalidConfig
from simcore.base.units import GIGA
from simcore.workload.archs.layers import LayerList
from simcore.workload.graph import Kernel, Workload
from simcore.workload.models import MODELS

uvit = LayerList("uvit")


def _small(mode: str, depth: int = 2, batch: int = 2) -> tuple[Workload, Step]:
    """The same small model as a Workload and as a measured torch step."""
    torch.manual_seed(0)
    model = UViT(depth, 64, 4, latent=16, mode=mode, classes=10)
    x0, y = torch.randn(batch, 4, 16, 16), torch.zeros(batch, dtype=torch.long)

    def forward() -> torch.Tensor:
        t, noise = torch.rand(batch), torch.randn_like(x0)
        xt = x0 * t.view(-1, 1, 1, 1) + noise * (1 - t.view(-1, 1, 1, 1))
        return (noise - model(xt, t, y)).pow(2).flatten(1).mean(-1).mean()

    workload = uvit(
        name="x", depth=depth, hidden=64, heads=4, image=128, num_classes=10, attention=mode
    )
    return workload, measure_step(model, forward)


def _kernels(workload: Workload, side: str) -> list[Kernel]:
    return [k for b in workload.instances() for op in b.ops for k in getattr(op, side)]


def _elems(workload: Workload, side: str, batch: int) -> float:
    return sum(
        (k.low + k.high + k.raw_bytes / 4) * batch + k.weight for k in _kernels(workload, side)
    )


def _fp32_saved(workload: Workload) -> float:
    saved = workload.saved
    return 4 * (saved.low + saved.high) + saved.raw_bytes


def test_h2_has_the_papers_parameters_and_work() -> None:
    """Bao et al. 2023, table 1: 501 M and, in README, 133.29 G multiply-adds at 256 x 256.

    By hand: 29 blocks of 12 d^2, 14 joins of 2 d^2 on 258 tokens, two products of 258 x 258.
    """
    with torch.device("meta"):
        twin = UViT(28, 1152, 16)
    workload = MODELS["u-vit-h-2"].build()
    truth = sorted(p.numel() for p in twin.parameters())
    assert sorted(p.numel for b in workload.instances() for p in b.params) == truth
    assert workload.trainable_numel == 500_832_016
    d, n = 1152, 258
    by_hand = (29 * 12 + 14 * 2) * d * d * n + 29 * 2 * n * n * d + 256 * d * 16 + n * d * 16
    assert workload.forward_flop == pytest.approx(2 * by_hand, rel=1e-9)
    assert workload.forward_flop / 2 / GIGA == pytest.approx(133.29, rel=2e-3)


def test_flop_match_the_flop_counter() -> None:
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        x, y = torch.empty(1, 4, 32, 32), torch.zeros(1, dtype=torch.long)
        UViT(4, 128, 4)(x, torch.zeros(1), y)
    ours = uvit(name="x", depth=4, hidden=128, heads=4, attention="math")
    assert ours.forward_flop == pytest.approx(counter.get_total_flops(), rel=1e-9)


@pytest.mark.parametrize("mode", ["math", "flash"])
def test_saved_storages_match_autograd(mode: str) -> None:
    workload, step = _small(mode, depth=4)
    assert 2 * _fp32_saved(workload) == pytest.approx(step.saved_bytes, rel=2e-3)


@pytest.mark.parametrize("mode", ["math", "flash"])
def test_launches_of_a_pair_of_blocks_match_the_dispatcher(mode: str) -> None:
    """Two blocks more, one of each half: every kernel more that torch runs is one more here."""
    (short, short_step), (long, long_step) = _small(mode, 2), _small(mode, 4)

    def more(side: str) -> float:
        return sum(k.launches for k in _kernels(long, side)) - sum(
            k.launches for k in _kernels(short, side)
        )

    assert more("fwd") == long_step.fwd.n_launches - short_step.fwd.n_launches
    extra = long_step.bwd.launches - short_step.bwd.launches
    # three kernels on a GPU, without the gradient of a log-sum-exp, which is cleared here
    truth = extra.total() + 2 * extra["simcore_reference.flash_backward"] - extra["aten.zeros"]
    truth += extra["aten.select_backward"]  # clears, then copies
    truth += extra["aten.native_layer_norm_backward"]  # towards the input, towards the weights
    assert more("bwd") == truth


@pytest.mark.parametrize("mode", ["math", "flash"])
def test_traffic_matches_the_dispatcher(mode: str) -> None:
    workload, step = _small(mode, depth=4)
    assert _elems(workload, "fwd", 2) == pytest.approx(step.fwd.n_elems, rel=0.02)
    # More than the meter sees of one operator: select's backward clears what it then copies into,
    # a norm's reads both of its operands again for the gradients of weight and bias.
    rows = 2 * 66 * 64
    more = rows * step.bwd.launches["aten.select_backward"]
    more += 2 * rows * (2 * 5 + 1)
    assert _elems(workload, "bwd", 2) == pytest.approx(step.bwd.n_elems + more, rel=0.01)


def test_autocast_keeps_probabilities_in_fp32_and_in_16_bit() -> None:
    """16 heads of 258 x 258 in each of 29 blocks: 6 bytes a score."""
    math, flash = (
        uvit(name="x", depth=28, hidden=1152, heads=16, attention=a) for a in ("math", "flash")
    )
    scores = 29 * 16 * 258**2
    assert math.saved.autocast == math.saved.high - flash.saved.high == scores


def test_a_checkpoint_keeps_each_skip_once() -> None:
    """What joins is the input of a block of the first half, which is kept already."""
    workload = uvit(name="x", depth=4, hidden=64, heads=4, image=128, num_classes=10)
    kept = [b.boundary for b in workload.instances() if b.recomputable]
    rows = 66 * 64
    assert [(s.high, s.low) for s in kept] == [(rows, 0)] * 3 + [(0, rows)] * 2


@pytest.mark.parametrize(
    ("changes", "words"),
    [({"depth": 27}, "mirror image"), ({"attention": "flsh"}, "math, flash"),
     ({"heads": 7}, "multiple of heads")],
)  # fmt: skip
def test_what_cannot_be_built_says_why(changes: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidConfig, match=words):
        MODELS["u-vit-h-2"].build(**changes)  # type: ignore[arg-type]


def test_the_autoencoder_is_held_but_only_draws() -> None:
    """The data set holds means and deviations: 8 x 32 x 32 floats and a label go up."""
    workload = MODELS["u-vit-h-2"].build()
    (held,) = workload.frozen
    assert held.resident_numel == 83_653_863
    assert [op.name for op in held.ops] == ["sample"] and held.transient_low == 0
    assert workload.input_bytes == 8 * 32 * 32 * 4 + 8
