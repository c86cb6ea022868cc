"""BERT with its classification head against published counts and a reference module."""

from __future__ import annotations

import pytest
import torch
from reference import measure
from reference.bert import Bert
from torch import Tensor
from torch.nn import functional as F

from simcore.workload.archs.body_layers import BodyList
from simcore.workload.models import MODELS

build = BodyList("bert")


def _inputs(batch: int, seq: int, vocab: int) -> tuple[Tensor, Tensor, Tensor]:
    ids = torch.randint(0, vocab, (batch, seq))
    return ids, torch.zeros_like(ids), torch.ones_like(ids)


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "published"),
    [(12, 768, 12, 109_483_778), (24, 1024, 16, 335_143_938)],
)
def test_parameters_match_the_published_count_and_the_module(
    layers: int, hidden: int, heads: int, published: int
) -> None:
    workload = build(name="b", layers=layers, hidden=hidden, heads=heads)
    assert workload.trainable_numel == published
    assert measure.built_param_sizes(workload) == measure.param_sizes(
        lambda: Bert(layers, hidden, heads, 4 * hidden)
    )


def test_flop_match_the_counter_and_the_closed_form() -> None:
    seq, hidden, layers = 128, 768, 12
    workload = build(name="b", layers=layers, hidden=hidden, heads=12, seq_len=seq)
    meta = tuple(t.to("meta") for t in _inputs(1, seq, 10))
    truth = measure.forward_flop(lambda: Bert(layers, hidden, 12, 4 * hidden), *meta)
    assert workload.forward_flop == pytest.approx(truth, rel=1e-9)
    closed = layers * (24 * seq * hidden**2 + 4 * seq**2 * hidden) + 2 * hidden * (hidden + 2)
    assert workload.forward_flop == pytest.approx(closed, rel=1e-12)


@pytest.mark.parametrize("pooling", ["mean", "first"])
def test_texts_have_a_pooler_that_they_do_not_use(pooling: str) -> None:
    """AutoModel loads it beside the layers; Sentence Transformers takes its rows from these."""
    seq, hidden, layers = 64, 128, 3
    sizes = {"layers": layers, "hidden": hidden, "heads": 2, "seq_len": seq}
    workload = build(name="b", head="embedding", pooling=pooling, **sizes)
    classifier = 2 * (hidden + 1)
    assert build(name="b", **sizes).trainable_numel - workload.trainable_numel == classifier
    closed = layers * (24 * seq * hidden**2 + 4 * seq**2 * hidden)
    assert workload.forward_flop == pytest.approx(closed, rel=1e-12)


@pytest.mark.parametrize("attention", ["eager", "sdpa"])
def test_saved_storages_and_launches_match_the_module(attention: str) -> None:
    # sdpa: dropout inside the kernel saves no tensor; the reference leaves it out
    batch, seq, hidden = 2, 32, 64
    workload = build(
        name="b", layers=2, hidden=hidden, heads=4, vocab=100, seq_len=seq, max_positions=64,
        attention=attention,
    )  # fmt: skip
    model = Bert(2, hidden, 4, 4 * hidden, vocab=100, positions=64, sdpa=attention == "sdpa")
    inputs, labels = _inputs(batch, seq, 100), torch.tensor([0, 1])

    def step() -> Tensor:
        return F.cross_entropy(model(*inputs), labels)

    truth = measure.saved_bytes(model, step)
    assert measure.built_saved_bytes(workload) * batch == pytest.approx(truth, rel=1e-3)
    forward, backward = measure.dispatched(model, step)
    assert measure.built_launches(workload) == (forward.total(), backward.total())


def test_dropout_off_drops_masks_and_dropped_copies() -> None:
    batch, seq = 2, 32
    workload = build(
        name="b", layers=2, hidden=64, heads=4, vocab=100, seq_len=seq, max_positions=64, dropout=0
    )
    model = Bert(2, 64, 4, 256, vocab=100, positions=64, p=0.0)
    inputs, labels = _inputs(batch, seq, 100), torch.tensor([0, 1])
    truth = measure.saved_bytes(model, lambda: F.cross_entropy(model(*inputs), labels))
    assert measure.built_saved_bytes(workload) * batch == pytest.approx(truth, rel=1e-3)


@pytest.mark.parametrize(
    "wrong", [{"attention": "flash3"}, {"heads": 7}, {"seq_len": 513}, {"seq_len": 0}]
)
def test_wrong_settings_are_refused(wrong: dict[str, int | str]) -> None:
    with pytest.raises(ValueError, match=next(iter(wrong))):
        build(**{"name": "b", "layers": 2, "hidden": 64, "heads": 4, **wrong})


def test_epilogues_leave_out_gelu_and_sums_of_biases_gradients() -> None:
    """Of a layer's six products; what is kept and multiplied stays, GELU's operand is written."""
    size = {"name": "b", "layers": 1, "hidden": 64, "heads": 4, "vocab": 100, "seq_len": 32}
    plain, fused = (build(**size, epilogues=e) for e in (False, True))  # type: ignore[arg-type]
    assert fused.saved == plain.saved and fused.forward_flop == plain.forward_flop
    before, after = measure.built_launches(plain), measure.built_launches(fused)
    assert (before[0] - after[0], before[1] - after[1]) == (1, 1 + 6)
    layers = [next(b for b in w.blocks if b.name == "layer") for w in (plain, fused)]
    inner, width = 32 * 256, 32 * 64
    forward, backward = (
        [sum(k.low + k.high for op in block.ops for k in getattr(op, way)) for block in layers]
        for way in ("fwd", "bwd")
    )
    assert forward[0] - forward[1] == 2 * inner - inner
    sums = 3 * width + width + inner + width  # q, k and v, the output, up, down
    assert backward[0] - backward[1] == 3 * inner + sums - inner


@pytest.mark.parametrize(("word", "same"), [("math", "eager"), ("flash", "sdpa")])
def test_kernels_have_the_names_of_other_models_too(word: str, same: str) -> None:
    record = MODELS["bert-base"]
    assert record.build(attention=word).blocks == record.build(attention=same).blocks
