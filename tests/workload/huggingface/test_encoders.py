"""Encoders with fused attention, in fp32 and in 16 bit, against transformers on the CPU."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface import cases
from reference import measure
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from simcore.workload.archs import ARCHS, load
from simcore.workload.archs.body_layers import BodyList
from simcore.workload.graph import Workload
from simcore.workload.huggingface import read_config

albert = BodyList("albert")
modernbert = BodyList("modernbert")

load("bart")
load("deberta")
bart, deberta = ARCHS["bart"], ARCHS["deberta"]

_BATCH, _SEQ = 2, 48
#: Dropout on the CPU is other kernels than on a GPU: off.
_DROPOUTS = (
    "dropout", "attention_dropout", "activation_dropout", "hidden_dropout_prob",
    "attention_probs_dropout_prob", "classifier_dropout_prob",
)  # fmt: skip
_FUSED = [
    "modernbert", "modernbert classes", "modernbert mean", "bart", "bart relu", "mbart",
    "albert", "albert masked", "m2m_100", "electra", "electra masked",
]  # fmt: skip


def _step(model: nn.Module, inputs: dict[str, Any], held: list[Tensor]) -> Tensor:
    out = model(**inputs)
    held[:] = [out.logits]
    return out.loss  # type: ignore[no-any-return]


def _pair(
    case: str, folder: Path, attention: str, batch: int = _BATCH
) -> tuple[Workload, nn.Module, dict[str, Any]]:
    config = cases.config_of(case)
    for key in _DROPOUTS:
        if hasattr(config, key):
            setattr(config, key, 0.0)
    config._attn_implementation = attention
    config.use_cache = (
        False  # M2M-100 alone would copy the decoder's keys and values while it trains
    )
    torch.manual_seed(0)
    model = cases.model_of(config, "cpu").train()
    ids = torch.randint(3, 100, (batch, _SEQ))
    labels = torch.arange(batch) if "Sequence" in config.architectures[0] else ids
    workload = read_config(cases.written(config, folder)).build(seq_len=_SEQ)
    return workload, model, {"input_ids": ids, "labels": labels}


@pytest.mark.parametrize("width", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("case", _FUSED)
def test_storages_under_torchs_own_attention(case: str, width: torch.dtype, tmp_path: Path) -> None:
    # the mask of a local layer, which is written and kept as numbers, among them; in 16 bit the
    # CPU's norms keep means and deviations in it too
    workload, model, inputs = _pair(case, tmp_path, "sdpa")
    model, held = model.to(width), []

    def step() -> Tensor:
        return _step(model, inputs, held)

    step()
    truth = measure.saved_bytes(model, step) + held[0].untyped_storage().nbytes()
    s = workload.saved
    ours = width.itemsize * (s.low + s.high + s.matmul) + s.raw_bytes
    assert ours * _BATCH == pytest.approx(truth, rel=0.012)


@pytest.mark.parametrize("case", _FUSED)
def test_launches_are_those_of_the_dispatcher(case: str, tmp_path: Path) -> None:
    """In fp32, where casts are none. A gradient of half a head is zeros and a copy on a GPU."""
    workload, model, inputs = _pair(case, tmp_path, "sdpa")
    held: list[Tensor] = []
    forward, backward = measure.dispatched(model, lambda: _step(model, inputs, held))
    ours = measure.built_launches(workload)
    # what checks and shifts token ids, once a step
    assert ours[0] == pytest.approx(forward.total(), abs=3 if "modern" in case else 7)
    assert ours[1] == pytest.approx(backward.total() + backward["slice_backward"], abs=3)


def test_flash_attention_skips_what_a_local_layer_does_not_see() -> None:
    """By hand: of 64 tokens each sees 4 to either side, fewer at both ends, in 2 of 3 layers."""
    size: dict[str, Any] = {
        "name": "x", "layers": 3, "hidden": 32, "heads": 2, "ffn": 48, "vocab": 50, "seq_len": 64,
        "window": 8,
    }  # fmt: skip
    whole, skipped = modernbert(**size), modernbert(**size, attention="flash")
    seen = sum(min(i + 4, 63) - max(i - 4, 0) + 1 for i in range(64))
    assert whole.forward_flop - skipped.forward_flop == 2 * 4 * 32 * (64**2 - seen)
    # nor is there a mask
    assert whole.saved.low - skipped.saved.low == 2 * 64**2


_DEBERTA = ["deberta-v2", "deberta-v2 masked", "deberta-v2 apart"]


@pytest.mark.parametrize("case", _DEBERTA)
def test_a_further_sequence_of_deberta_costs_what_it_does(case: str, tmp_path: Path) -> None:
    """Between batches of 2 and 3, which have the table of positions in common.

    Of the table only what each sequence has a copy of is among that.
    """
    flop, kept = [], []
    for batch in (2, 3):
        workload, model, inputs = _pair(case, tmp_path, "eager", batch)
        inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
        held: list[Tensor] = []
        with FlopCounterMode(display=False) as counter:
            _step(model, inputs, held)
        flop.append(counter.get_total_flops())
        saved = measure.saved_bytes(model, lambda m=model, i=inputs, h=held: _step(m, i, h))
        kept.append(saved + held[0].untyped_storage().nbytes())
    assert workload.forward_flop == flop[1] - flop[0]
    assert measure.built_saved_bytes(workload) == pytest.approx(kept[1] - kept[0], rel=1e-3)
    # and of what they have in common the products are two of the table in each layer
    table = 2 * (10 if case != "deberta-v2 apart" else 64)
    assert 3 * flop[0] - 2 * flop[1] == 3 * 2 * 2 * table * 48**2


@pytest.mark.parametrize("case", _DEBERTA[:2])
def test_launches_of_deberta_are_those_of_the_dispatcher(case: str, tmp_path: Path) -> None:
    workload, model, inputs = _pair(case, tmp_path, "eager")
    inputs["attention_mask"] = torch.ones_like(inputs["input_ids"])
    held: list[Tensor] = []
    forward, backward = measure.dispatched(model, lambda: _step(model, inputs, held))
    ours, layers = measure.built_launches(workload), 3
    # a masked fill is a copy and the fill on a GPU; host scalars: one and four a layer
    roots = forward["sqrt"] * 2 + 1
    assert roots == 6 * layers + 1
    assert ours[0] == pytest.approx(forward.total() + layers - roots, abs=6)
    assert ours[1] == pytest.approx(backward.total() + layers, abs=6)


def test_dropout_of_deberta_keeps_masks_and_what_it_leaves_of_the_scores() -> None:
    size: dict[str, Any] = {
        "name": "x", "layers": 1, "hidden": 32, "heads": 2, "vocab": 50, "seq_len": 24,
        "buckets": 8,
    }  # fmt: skip
    with_, without = deberta(**size).saved, deberta(**size, dropout=0.0).saved
    scores, width = 2 * 24**2, 24 * 32
    # of tokens, of scores, behind both products of a layer, of the pooled row
    assert with_.raw_bytes - without.raw_bytes == width + scores + 2 * width + 32
    assert with_.low - without.low == scores


_SAMPLES, _LETTERS = 2000, 12
_SPEECH = ["wav2vec2", "wav2vec2 large", "hubert", "hubert large"]


def _clips(
    case: str, folder: Path, attention: str, **settings: Any
) -> tuple[Workload, nn.Module, dict[str, Any]]:
    config = cases.config_of(case)
    for key in ("hidden_dropout", "attention_dropout", "activation_dropout", "feat_proj_dropout",
                "final_dropout"):  # fmt: skip
        setattr(config, key, 0.0)
    config._attn_implementation = attention
    torch.manual_seed(0)
    model = cases.model_of(config, "cpu").train()
    record = read_config(cases.written(config, folder))
    given = {"samples": _SAMPLES, "target_len": _LETTERS, "attention": attention, **settings}
    inputs = {
        "input_values": torch.randn(_BATCH, _SAMPLES),
        "labels": torch.randint(1, 30, (_BATCH, _LETTERS)),
    }
    return record.build(**given), model, inputs


@pytest.mark.parametrize("frozen", [False, True], ids=["trained", "frozen"])
@pytest.mark.parametrize("attention", ["eager", "sdpa"])
@pytest.mark.parametrize("case", _SPEECH)
def test_speech_computes_and_keeps_what_transformers_does(
    case: str, attention: str, frozen: bool, tmp_path: Path
) -> None:
    workload, model, inputs = _clips(case, tmp_path, attention, frozen_features=frozen)
    if frozen:
        model.freeze_feature_encoder()
    held: list[Tensor] = []
    with FlopCounterMode(display=False) as counter:
        _step(model, inputs, held)
    truth = measure.saved_bytes(model, lambda: _step(model, inputs, held))
    truth += held[0].untyped_storage().nbytes()
    # weight norm makes the positions' weight anew, one for the whole batch
    taps = model.config.num_conv_pos_embeddings
    truth -= 4 * 48 * 12 * taps + 4 * taps
    assert measure.built_saved_bytes(workload) * _BATCH == pytest.approx(truth, rel=1e-3)
    assert workload.trainable_numel == cases.trained_numel(model)
    forward = workload.forward_flop
    forward += sum(k.flop for part in workload.frozen for op in part.ops for k in op.fwd)
    if attention == "eager":  # of the fused one the counter knows nothing on a CPU
        assert forward == counter.get_total_flops() / _BATCH


@pytest.mark.parametrize("case", _SPEECH)
def test_launches_of_speech_are_those_of_the_dispatcher(case: str, tmp_path: Path) -> None:
    workload, model, inputs = _clips(case, tmp_path, "sdpa")
    held: list[Tensor] = []
    forward, backward = measure.dispatched(model, lambda: _step(model, inputs, held))
    ours = measure.built_launches(workload)
    # copies to rows and to channels, which the CPU has within norms and convolutions
    copies = 2 + 3 * ("large" in case)
    assert ours[0] == pytest.approx(forward.total() + copies, abs=6)
    assert ours[1] == pytest.approx(backward.total() + copies, abs=6)


def test_dropout_of_bart_keeps_masks_and_what_it_leaves() -> None:
    size: dict[str, Any] = {
        "name": "x", "layers": 2, "hidden": 32, "heads": 2, "vocab": 50, "seq_len": 24,
        "target_len": 16, "mlp": "relu", "attention": "eager",
    }  # fmt: skip
    inner, width = 128, 32
    scores = 2 * 2 * (24 * 24 + 16 * 16 + 16 * 24)
    plain = bart(**size, dropout=0.0).saved
    hidden = bart(**size).saved
    # of both embeddings, of two sublayers of the encoder and three of the decoder
    assert hidden.raw_bytes - plain.raw_bytes == width * (24 * 5 + 16 * 7)
    assert (hidden.low, hidden.high) == (plain.low, plain.high)
    act = bart(**size, dropout=0.0, activation_dropout=0.1).saved
    assert act.raw_bytes - plain.raw_bytes == act.low - plain.low == inner * 2 * (24 + 16)
    probs = bart(**size, dropout=0.0, attention_dropout=0.1).saved
    assert probs.raw_bytes - plain.raw_bytes == probs.low - plain.low == scores


def test_depth_of_albert_adds_work_and_no_weights() -> None:
    """By hand: each further depth adds its gradients to the sum, three moves an element."""
    size: dict[str, Any] = {"name": "x", "hidden": 32, "heads": 2, "embedding": 8, "vocab": 50}
    one, three = albert(**size, layers=1), albert(**size, layers=3)
    assert three.trainable_numel == one.trainable_numel
    layer = next(b for b in one.blocks if b.name == "layer")
    assert three.forward_flop - one.forward_flop == pytest.approx(2 * layer.forward_flop)
    numel = 4 * (32 * 32 + 32) + 2 * 2 * 32 + (32 * 128 + 128) + (128 * 32 + 32)
    again = next(b for b in three.blocks if b.name == "layer again")
    moved = [sum(k.weight for op in b.ops for k in op.bwd) for b in (layer, again)]
    assert moved[1] - moved[0] == 3 * numel
    # autocast brings a weight to 16 bit once
    assert again.gemm_weights == (0, 0.0)
