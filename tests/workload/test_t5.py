"""The frozen T5 v1.1 encoder against its published size and a torch twin."""

from __future__ import annotations

import pytest
import torch
from reference.encoders import T5Encoder
from reference.meter import KernelMeter, LiveMeter
from torch.utils.flop_counter import FlopCounterMode

from simcore.base.errors import InvalidConfig
from simcore.base.units import TERA
from simcore.workload.archs.body_layers import BodyList
from simcore.workload.graph import Op, Workload
from simcore.workload.models import MODELS

t5 = BodyList("t5")

t5_encoder = BodyList("t5_encoder")

_SMALL = {"layers": 2, "width": 256, "inner": 640, "heads": 4, "head_dim": 64, "vocab": 100}


def small_module() -> T5Encoder:
    torch.manual_seed(0)
    return T5Encoder(2, 256, 640, 4, 64, 100)


def test_parameters_match_the_module() -> None:
    with torch.device("meta"):
        truth = sum(p.numel() for p in T5Encoder().parameters())
    assert t5_encoder(name="t5").resident_numel == truth == 4_762_310_656


def test_flop_match_the_flop_counter() -> None:
    with torch.device("meta"), FlopCounterMode(display=False) as counter:
        T5Encoder()(torch.zeros(1, 120, dtype=torch.long))
    ours = sum(k.flop for op in t5_encoder(name="t5").ops for k in op.fwd)
    assert ours == pytest.approx(counter.get_total_flops(), rel=1e-9)
    assert ours == pytest.approx(1.117 * TERA, rel=1e-3)


@pytest.mark.parametrize("tokens", [15, 40])
def test_peak_of_live_elements_matches_the_module(tokens: int) -> None:
    model, ids = small_module(), torch.zeros(1, tokens, dtype=torch.long)
    with torch.no_grad(), LiveMeter() as meter:
        model(ids)
    ours = t5_encoder(name="t5", tokens=tokens, **_SMALL).transient_low
    assert ours == pytest.approx(meter.peak, rel=0.02)


def test_launches_and_traffic_of_a_layer_match_the_dispatcher() -> None:
    """In fp32 the module has no casts and no clamps; both are what half precision adds."""
    batch, tokens = 2, 15
    module, ids = small_module(), torch.zeros(batch, tokens, dtype=torch.long)
    with torch.no_grad(), KernelMeter() as meter:
        module(ids)
    ours = t5_encoder(name="t5", tokens=tokens, **_SMALL)
    half_only = ("to_float", "to_half", "clamp")
    body = [op for op in ours.ops if "." in op.name and not op.name.endswith(half_only)]

    def launched(op: Op) -> float:
        return sum(k.launches for k in op.fwd) - 2 * op.name.endswith("norm")  # two casts

    embedding_and_bias, final_norm = 2 + 6, 6
    truth = meter.n_launches - embedding_and_bias - final_norm
    assert sum(map(launched, body)) == pytest.approx(truth, abs=2)
    moved = sum((k.low + k.high) * batch + k.weight for op in body for k in op.fwd)
    assert moved == pytest.approx(meter.n_elems, rel=0.1)


def test_half_precision() -> None:
    t5 = t5_encoder(name="t5")
    assert t5.bytes_per_param == 2
    assert all(not op.bwd and not op.saved.low for op in t5.ops)


def test_xla_runs_the_same_products_with_fewer_kernels() -> None:
    """Of eager T5 the products stay; scores are read for maximum, sum and quotient, and kept once.

    By hand, a layer of the encoder without dropout: q, k, v, the probabilities, and what each of
    its products reads.
    """
    shape = {"layers": 2, "hidden": 64, "heads": 4, "head_dim": 16, "ffn": 128, "mlp": "geglu"}
    eager, fused = (
        t5(name="x", seq_len=32, vocab=100, dropout=0.0, attention=a, **shape)
        for a in ("math", "xla")
    )
    assert fused.trainable_numel == eager.trainable_numel
    assert fused.forward_flop == eager.forward_flop

    def launches(workload: Workload) -> float:
        return sum(k.launches for b in workload.instances() for op in b.ops for k in op.fwd)

    assert launches(fused) < launches(eager) / 1.5
    layer = fused.blocks[1]
    rows, width, inner, scores = 32, 64, 128, 4 * 32 * 32
    # two norms' inputs; what q, k and v read, they themselves, context, what gate and up read, both
    # of them and their product
    kept = rows * width * (2 + 1 + 3 + 1 + 1) + 3 * rows * inner + scores
    assert layer.saved.low + layer.saved.high + layer.saved.matmul == kept


def test_adapters_are_on_q_and_v_of_every_attention() -> None:
    """PEFT's README, its first example: "trainable params: 2359296 || all params: 1231940608" of
    bigscience/mt0-large (mT5 large) with rank 8, which its T5 targets q and v of 24 + 2 x 24
    attentions make up: 144 x 8 x (1024 + 1024)."""
    plain, adapted = (MODELS["mt5-large"].build(**more) for more in ({}, {"lora_rank": 8}))
    assert adapted.trainable_numel == 2_359_296
    assert adapted.trainable_numel + adapted.frozen_base_numel == 1_231_940_608
    assert adapted.frozen_base_numel == plain.trainable_numel
    biased = [op for b in adapted.blocks for op in b.ops if "bias_grads" in op.name]
    assert not biased  # the table of position biases is frozen


def test_switch_layers_take_no_adapters() -> None:
    with pytest.raises(InvalidConfig, match="switch layers take no adapters"):
        MODELS["switch-base-8"].build(lora_rank=8)
