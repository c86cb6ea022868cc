"""Momentum contrast against two ResNets: the keys' runs forward, and nothing of it is trained."""

from __future__ import annotations

import pytest

from simcore.workload.graph import Workload
from simcore.workload.models import MODELS


def _trained(name: str, **settings: object) -> int:
    built = MODELS[name].build(**settings)
    return sum(p.numel for i in built.order for p in built.blocks[i].params)


def _backward(built: Workload) -> float:
    ops = (op for i in built.order for op in built.blocks[i].ops)
    return sum(kernel.flop for op in ops for kernel in op.bwd)


def test_the_network_of_keys_doubles_forward_and_trains_nothing() -> None:
    one, both = MODELS["resnet-50"].build(classes=128), MODELS["moco-resnet-50"].build()
    assert _trained("moco-resnet-50") == _trained("resnet-50", classes=128) == 23_770_304
    queue = 2.0 * 128 * 65537  # a query and everything that it is compared with
    assert both.forward_flop == pytest.approx(2 * one.forward_flop + queue, rel=1e-6)
    # backward makes gradients of features, not of the queue
    assert _backward(both) == pytest.approx(_backward(one) + queue, rel=1e-6)


def test_the_network_of_keys_and_the_queue_are_held() -> None:
    held = [MODELS["moco-resnet-50"].build(queue=n).buffers_numel for n in (65536, 16384)]
    assert held[0] - held[1] == 128 * (65536 - 16384)
    alone = MODELS["resnet-50"].build(classes=128).buffers_numel
    assert held[1] - 2 * alone == pytest.approx(23_770_304 + 128 * 16385, rel=1e-3)
