"""Deep models from shallow traces: equal to the full trace, or not taken."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import fields
from typing import Any

import pytest
import torch
from reference.nets import Stack
from reference.transformer import Gpt2, Llama
from reference.vit import ViT
from torch import Tensor, nn

from simcore.workload.graph import Workload
from simcore.workload.trace import callables, depth
from simcore.workload.trace.callables import Built, traced_workload

_META = torch.device("meta")
_IDS = torch.zeros(2, 16, dtype=torch.long, device=_META)
_ROWS = torch.zeros(2, 6, 32, device=_META)


@pytest.fixture(autouse=True)
def few_are_deep(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(depth, "LEAST", 7)


def shallow_and_full(
    model: nn.Module, sample: Tensor, monkeypatch: pytest.MonkeyPatch
) -> tuple[Workload, Workload, bool]:
    """From few layers, from all of them, and whether the first was taken."""
    taken: list[Any] = []
    plain = callables._from_shallow
    monkeypatch.setattr(callables, "_from_shallow", lambda *a: taken.append(plain(*a)) or taken[-1])
    built = Built(model, (sample,), None)
    first = traced_workload(built, (), "net")
    monkeypatch.setattr(callables, "equal_layers", lambda root: None)
    return first, traced_workload(built, (), "net"), bool(taken and taken[0])


class Counted(Stack):
    """Every layer's own constant, kept for backward; frozen scales."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers)
        for layer in self.layers:
            layer.register_buffer("scale", torch.ones(6, 32))
            layer.up.bias.requires_grad_(False)

    def forward(self, x: Tensor) -> Tensor:
        for layer in self.layers:
            x = layer(x) * layer.scale
        return x


NETS: dict[str, tuple[Callable[[], nn.Module], Tensor]] = {
    "gpt2": (lambda: Gpt2(7, 32, 4, 60, 16, p=0.0), _IDS),
    "llama": (lambda: Llama(7, 32, 4, 2, 80, 60), _IDS),
    "vit": (
        lambda: ViT(7, 32, 4, 64, image=32, patch=16, classes=5),
        torch.zeros(2, 3, 32, 32, device=_META),
    ),
    "counted": (lambda: Counted(7), _ROWS),
    "checkpointed": (lambda: Stack(7, recompute="plain"), _ROWS),
}


@pytest.mark.parametrize("name", NETS)
def test_from_few_layers_is_the_full_trace(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    make, sample = NETS[name]
    with _META:
        model = make()
    ours, truth, taken = shallow_and_full(model, sample, monkeypatch)
    assert taken
    for field in fields(Workload):
        assert getattr(ours, field.name) == getattr(truth, field.name), field.name


class Collected(Stack):
    """What comes after the layers grows with their number."""

    def forward(self, x: Tensor) -> Tensor:
        kept = []
        for layer in self.layers:
            x = layer(x)
            kept.append(x)
        return torch.cat(kept, dim=-1)


class EverySixth(Stack):
    """What the layers' owner does depends on which layer it is."""

    def forward(self, x: Tensor) -> Tensor:
        for i, layer in enumerate(self.layers):
            x = layer(x)
            if i % 6 == 5:
                x = torch.tanh(x)
        return x


class Numbered(Stack):
    """As many layers as were asked for, by their number."""

    def forward(self, x: Tensor) -> Tensor:
        for i in range(8):
            x = self.layers[i](x)
        return x


class _Numbered(nn.Module):
    """A layer that knows which it is; number 5 does more."""

    def __init__(self, number: int, minds: bool) -> None:
        super().__init__()
        self.layer_idx, self.minds = number, minds
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x: Tensor) -> Tensor:
        y = self.up(x)
        return x + self.down(torch.tanh(y) if self.minds and self.layer_idx == 5 else y)


class Told(Stack):
    """Layers that do what their number says."""

    minds = True

    def __init__(self, layers: int) -> None:
        super().__init__(1)
        self.layers = nn.ModuleList(_Numbered(i, self.minds) for i in range(layers))


class Indifferent(Told):
    minds = False


class Tied(Stack):
    """Two layers share a matrix."""

    def __init__(self, layers: int) -> None:
        super().__init__(layers)
        self.layers[1].up.weight = self.layers[0].up.weight


@pytest.mark.parametrize("kind", [Collected, EverySixth, Numbered, Told, Tied])
def test_what_is_not_exact_is_traced_in_full(
    kind: type[Stack], monkeypatch: pytest.MonkeyPatch
) -> None:
    with _META:
        model = kind(8)
    ours, truth, taken = shallow_and_full(model, _ROWS, monkeypatch)
    assert not taken
    assert ours.blocks == truth.blocks and ours.order == truth.order
    assert len(list(model.layers)) == 8


def test_a_number_that_changes_nothing_is_no_difference(monkeypatch: pytest.MonkeyPatch) -> None:
    with _META:
        model = Indifferent(7)
    ours, truth, taken = shallow_and_full(model, _ROWS, monkeypatch)
    assert taken and ours.blocks == truth.blocks and ours.order == truth.order


def test_layers_of_different_widths_are_not_equal() -> None:
    layers = nn.Sequential(*(nn.Sequential(nn.Linear(8, 8), nn.Dropout(0.1 * (i > 4)))
                             for i in range(10)))  # fmt: skip
    assert depth.equal_layers(layers) is None
    layers = nn.Sequential(nn.Linear(4, 8), *(nn.Linear(8, 8) for _ in range(7)), nn.Linear(8, 2))
    found = depth.equal_layers(layers)
    assert found is not None and (found.start, found.stop) == (1, 8)
    with found.cut_to(3):
        assert [m.out_features for m in layers] == [8, 8, 8, 8, 2]
    assert len(layers) == 9
