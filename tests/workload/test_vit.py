"""Vision transformers against torchvision's published figures and a reference module."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from reference import measure
from reference.vit import ViT
from torch.nn import functional as F

from simcore.workload.archs.body_layers import BodyList

build = BodyList("vit")

_SHAPES = [(12, 768, 12, 86_567_656, 17.56), (24, 1024, 16, 304_326_632, 61.55)]


@pytest.mark.parametrize(("layers", "hidden", "heads", "published", "_gmac"), _SHAPES)
def test_parameters_match_the_published_count_and_the_module(
    layers: int, hidden: int, heads: int, published: int, _gmac: float
) -> None:
    workload = build(name="v", layers=layers, hidden=hidden, heads=heads)
    assert workload.trainable_numel == published
    assert measure.built_param_sizes(workload) == measure.param_sizes(
        lambda: ViT(layers, hidden, heads, 4 * hidden)
    )


@pytest.mark.parametrize(("layers", "hidden", "heads", "_published", "gmac"), _SHAPES)
def test_flop_match_the_counter_and_the_published_figure(
    layers: int, hidden: int, heads: int, _published: int, gmac: float
) -> None:
    ours = build(name="v", layers=layers, hidden=hidden, heads=heads).forward_flop
    x = torch.empty(1, 3, 224, 224, device="meta")
    truth = measure.forward_flop(lambda: ViT(layers, hidden, heads, 4 * hidden), x)
    assert ours == pytest.approx(truth, rel=1e-9)
    giga = 10.0**9
    assert ours / giga == pytest.approx(2 * gmac, rel=0.005)


@pytest.mark.parametrize("layers", [1, 2])
def test_saved_storages_and_launches_match_the_module(layers: int) -> None:
    batch = 2
    workload = build(name="v", layers=layers, hidden=64, heads=4, image=32, patch=8, classes=10)
    model = ViT(layers, 64, 4, 256, image=32, patch=8, classes=10)
    x, labels = torch.randn(batch, 3, 32, 32), torch.tensor([1, 2])

    def step() -> torch.Tensor:
        return F.cross_entropy(model(x), labels)

    truth = measure.saved_bytes(model, step)
    assert measure.built_saved_bytes(workload) * batch == pytest.approx(truth, rel=1e-3)
    forward, backward = measure.dispatched(model, step)
    ours = measure.built_launches(workload)
    assert ours[0] == forward.total()
    # layer norm's backward makes its permuted gradient contiguous: a copy torch does not dispatch
    assert ours[1] - backward.total() == layers


def test_scores_in_memory_by_hand() -> None:
    """8 heads of 17 x 17 scores, which no mask halves."""
    shape = {"layers": 1, "hidden": 64, "heads": 8, "image": 32, "patch": 8, "classes": 10}
    flash, xla = build(name="v", **shape), build(name="v", **shape, attention="xla")
    assert xla.forward_flop == flash.forward_flop
    scores, tokens = 8 * 17 * 17, 17 * 64
    low = measure.built_saved_bytes(xla) - measure.built_saved_bytes(flash)
    # the probabilities instead of a log-sum-exp a row; the merged output beside its heads'
    assert low == pytest.approx(4 * scores - 4 * 8 * 17, abs=4 * tokens)
    dropped = build(name="v", **shape, dropout=0.1)
    masks = sum(op.saved.raw_bytes for op in dropped.blocks[1].ops if "dropout" in op.name)
    assert masks == 17 * (64 + 4 * 64 + 64)


@pytest.mark.parametrize("wrong", [{"heads": 7}, {"patch": 15}, {"attention": "fused"}])
def test_wrong_settings_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        build(**{"name": "v", "layers": 2, "hidden": 64, "heads": 4, **wrong})


class _TimmAttention(torch.nn.Module):
    """timm's before 0.9 (models/vision_transformer.py): one product, views, scores in memory."""

    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.qkv = torch.nn.Linear(hidden, 3 * hidden)
        self.proj = torch.nn.Linear(hidden, hidden)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        b, n, c = x.shape
        q, k, v = self.qkv(x).reshape(b, n, 3, self.heads, c // self.heads).permute(2, 0, 3, 1, 4)
        scores = (q @ k.transpose(-2, -1)) * (c // self.heads) ** -0.5
        return self.proj((scores.softmax(dim=-1) @ v).transpose(1, 2).reshape(b, n, c))


class _TimmBlock(torch.nn.Module):
    def __init__(self, hidden: int, heads: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = torch.nn.LayerNorm(hidden), torch.nn.LayerNorm(hidden)
        self.attn = _TimmAttention(hidden, heads)
        self.up, self.down = (
            torch.nn.Linear(hidden, 4 * hidden), torch.nn.Linear(4 * hidden, hidden),
        )  # fmt: skip

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.attn(self.norm1(x))
        return x + self.down(F.gelu(self.up(self.norm2(x))))


def test_attention_written_out_keeps_and_launches_what_timms_does() -> None:
    """Two layers more on 17 tokens of two images."""
    batch, tokens = 2, 17

    def both(layers: int) -> tuple[float, float, tuple[float, float], tuple[int, int]]:
        built = build(
            name="v", layers=layers, hidden=64, heads=4, image=32, patch=8, attention="math"
        )
        model = torch.nn.Sequential(*(_TimmBlock(64, 4) for _ in range(layers)))
        x = torch.randn(batch, tokens, 64, requires_grad=True)

        def step() -> torch.Tensor:
            return model(x).sum()

        forward, backward = measure.dispatched(model, step)
        return (
            measure.built_saved_bytes(built) * batch, measure.saved_bytes(model, step),
            measure.built_launches(built), (forward.total(), backward.total()),
        )  # fmt: skip

    short, long = both(1), both(3)
    assert long[0] - short[0] == long[1] - short[1]
    assert long[2][0] - short[2][0] == long[3][0] - short[3][0]
    norms = 4  # on a GPU a norm's weights have a kernel of their own
    assert long[2][1] - short[2][1] == long[3][1] - short[3][1] + norms
