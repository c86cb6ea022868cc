"""Decoder-only models against published counts, closed forms and reference modules."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Literal

import pytest
import torch
from reference import measure
from reference.transformer import Gpt2, Llama
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from simcore.base.errors import InvalidConfig
from simcore.step.transients import backward_bytes
from simcore.strategy.precision import PRECISIONS
from simcore.workload import ops
from simcore.workload.archs.transformer import build
from simcore.workload.models import MODELS
from simcore.workload.trace.autocast import cuda_policy

_SMALL: dict[str, Any] = {"layers": 2, "hidden": 64, "heads": 4, "vocab": 100, "seq_len": 32}
_LLAMA: dict[str, Any] = {
    "mlp": "swiglu", "positions": "rope", "norm": "rmsnorm", "bias": False, "fused_qkv": False,
    "tied": False,
}  # fmt: skip


def _step(model: nn.Module, ids: Tensor, held: list[Tensor]) -> Callable[[], Tensor]:
    labels = torch.randint(0, 100, ids.shape)

    def step() -> Tensor:
        logits = model(ids)
        held[:] = [logits]
        # the copy stands for the shift by one position, which keeps every row here
        return F.cross_entropy(logits.clone().view(-1, logits.shape[-1]), labels.view(-1))

    return step


@pytest.mark.parametrize(
    ("layers", "hidden", "heads", "published"),
    [
        (12, 768, 12, 124_439_808),
        (24, 1024, 16, 354_823_168),
        (36, 1280, 20, 774_030_080),
        (48, 1600, 25, 1_557_611_200),
    ],
)
def test_gpt2_parameters_match_the_published_count_and_the_module(
    layers: int, hidden: int, heads: int, published: int
) -> None:
    workload = build(name="g", layers=layers, hidden=hidden, heads=heads, vocab=50257, seq_len=1024)
    assert workload.trainable_numel == published
    assert measure.built_param_sizes(workload) == measure.param_sizes(
        lambda: Gpt2(layers, hidden, heads)
    )


def test_llama_2_7b_has_its_published_parameters() -> None:
    # Touvron et al. 2023 (6.7B); 6,738,415,616 follows from the released configuration
    workload = build(
        name="l", layers=32, hidden=4096, heads=32, ffn=11008, vocab=32000, seq_len=4096, **_LLAMA
    )
    assert workload.trainable_numel == 6_738_415_616


def test_llama_3_8b_has_its_published_parameters() -> None:
    # Grattafiori et al. 2024 (8B); 8,030,261,248 follows from the released configuration
    workload = build(
        name="l", layers=32, hidden=4096, heads=32, kv_heads=8, ffn=14336, vocab=128256,
        seq_len=8192, **_LLAMA,
    )  # fmt: skip
    assert workload.trainable_numel == 8_030_261_248


def test_gpt2_flop_match_the_counter_and_the_closed_form() -> None:
    layers, d, seq, vocab = 12, 768, 1024, 50257
    shape = {"layers": layers, "hidden": d, "heads": 12, "vocab": vocab, "seq_len": seq}
    unmasked = build(name="g", attention="math", **shape).forward_flop
    ids = torch.empty(1, seq, dtype=torch.long, device="meta")
    truth = measure.forward_flop(lambda: Gpt2(layers, d, 12, flash=False), ids)
    assert unmasked == pytest.approx(truth, rel=1e-9)
    matmul = layers * 24 * seq * d**2 + 2 * seq * d * vocab
    assert unmasked == pytest.approx(matmul + layers * 4 * seq**2 * d, rel=1e-12)
    # the causal kernel skips half of the scores
    causal = build(name="g", attention="flash", **shape).forward_flop
    assert causal == pytest.approx(matmul + layers * 2 * seq**2 * d, rel=1e-12)


def test_llama_flop_match_the_counter() -> None:
    workload = build(name="l", kv_heads=2, ffn=160, attention="math", **_SMALL, **_LLAMA)
    ids = torch.empty(1, 32, dtype=torch.long, device="meta")
    truth = measure.forward_flop(lambda: Llama(2, 64, 4, 2, 160, 100), ids)
    assert workload.forward_flop == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("attention", ["flash", "math"])
@pytest.mark.parametrize("mlp", ["gelu", "gelu_new"])
@pytest.mark.parametrize("layers", [1, 2])
def test_gpt2_saved_storages_and_launches_match_the_module(
    attention: str, mlp: str, layers: int
) -> None:
    # flash: the CPU's flash kernel, without dropout inside, which would save a seed only
    batch = 2
    shape = {**_SMALL, "layers": layers, "dropout": 0.1}
    workload = build(name="g", attention=attention, mlp=mlp, **shape)
    flash, written_out = attention == "flash", mlp == "gelu_new"
    model = Gpt2(layers, 64, 4, 100, 32, flash=flash, written_out=written_out)
    held: list[Tensor] = []
    step = _step(model, torch.randint(0, 100, (batch, 32)), held)
    step()
    # the step holds its logits
    truth = measure.saved_bytes(model, step) + held[0].untyped_storage().nbytes()
    assert measure.built_saved_bytes(workload) * batch == pytest.approx(truth, rel=1e-3)
    forward, backward = measure.dispatched(model, step)
    ours = measure.built_launches(workload)
    assert ours[0] == forward.total()
    # a clone hands its gradient on; the cast or shift that it stands for launches one kernel
    extra = ours[1] - backward.total() - 1
    # written out, torch joins one of the three gradients without a copy of its own
    assert 0 <= extra <= (0 if flash else layers)


def test_llama_saved_storages_match_the_module() -> None:
    batch, seq = 2, 32
    workload = build(name="l", kv_heads=2, ffn=160, **_SMALL, **_LLAMA)
    model = Llama(2, 64, 4, 2, 160, 100)
    held: list[Tensor] = []
    step = _step(model, torch.randint(0, 100, (batch, seq)), held)
    step()
    rope_bytes = 2 * seq * 16 * 4  # cosines and sines of one sequence, once a batch
    truth = measure.saved_bytes(model, step) + held[0].untyped_storage().nbytes() - rope_bytes
    assert measure.built_saved_bytes(workload) * batch == pytest.approx(truth, rel=1e-4)


def test_fewer_kv_heads_save_less_and_never_more() -> None:
    full, grouped = (build(name="l", kv_heads=kv, **_SMALL, **_LLAMA).saved.low for kv in (4, 2))
    # k and v of two heads less, in each of two layers
    assert full - grouped == 2 * 2 * 2 * 16 * 32


class _Casts(TorchDispatchMode):
    """Casts of tensors of ``numel`` elements."""

    def __init__(self, numel: int) -> None:
        super().__init__()
        self.numel, self.found = numel, 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        out = func(*args, **(kwargs or {}))
        self.found += func is torch.ops.aten._to_copy.default and out.numel() == self.numel
        return out


@pytest.mark.parametrize("drop", [False, True])
@pytest.mark.parametrize("mask", ["add", "where"])
def test_casts_of_scores_are_autocasts(mask: Literal["add", "where"], drop: bool) -> None:
    """One less than torch's each way before a softmax of 16 bit, which fp16's kernel has in it."""
    batch, heads, seq, dim = 2, 3, 32, 8
    q, k, v = (torch.randn(batch, heads, seq, dim, requires_grad=True) for _ in range(3))
    with _Casts(batch * heads * seq * seq) as forward, cuda_policy(), \
            torch.autocast("cpu", dtype=torch.bfloat16):  # fmt: skip
        scores = (q @ k.transpose(-1, -2)) / dim**0.5
        if mask == "add":
            scores = scores + torch.zeros(batch, 1, 1, seq)
        else:
            scores = scores.masked_fill(torch.zeros(seq, seq, dtype=torch.bool), -1e9)
        out = F.dropout(torch.softmax(scores, -1), 0.1 * drop) @ v
    with _Casts(batch * heads * seq * seq) as backward:
        out.sum().backward()
    parts = ops.attention_eager("a", heads, seq, seq, dim, mask=mask, drop=drop)
    (cast,) = (op for op in parts if op.name == "a.cast")
    left_out = mask == "where"
    assert len(cast.fwd) == forward.found - left_out
    assert len(cast.bwd) == backward.found - left_out
    elems = heads * seq * seq
    for name, moved in (("amp-bf16", 6 * elems), ("fp32", 0), ("bf16", 0)):
        p = PRECISIONS[name]
        for kernel in (*cast.fwd, *cast.bwd):
            assert kernel.low * p.low_bytes + kernel.high * p.high_bytes == moved


@pytest.mark.parametrize(("rank", "products"), [(0, 3), (4, 2)])
def test_a_chunked_loss_does_in_forward_what_others_do_in_backward(
    rank: int, products: int
) -> None:
    """The model's FLOP are the same; a frozen head (Liger: ``grad_weight`` is None) has no gradient
    and, as any chunked one, no logits: 2 r h bytes are kept in 16 bit, of 2 r V."""
    made = [build(name="l", lora_rank=rank, loss=loss, **_SMALL, **_LLAMA)
            for loss in ("compiled", "chunked")]  # fmt: skip
    assert made[0].forward_flop == made[1].forward_flop
    assert made[0].frozen_weight_flop == made[1].frozen_weight_flop
    assert made[0].trainable_numel == made[1].trainable_numel
    (head,) = (op for op in made[1].blocks[-1].ops if op.name == "head")
    work = sum(k.flop for k in (*head.fwd, *head.bwd))
    assert work == products * 2 * 32 * 64 * 100
    assert head.saved.low == 32 * 64
    assert head.grad_early == (0 if rank else 64 * 100)


@pytest.mark.parametrize(
    "wrong",
    [
        {"norm": "batch"}, {"mlp": "tanh"}, {"positions": "relative"}, {"attention": "sdpa"},
        {"heads": 7}, {"kv_heads": 3}, {"seq_len": 0}, {"max_positions": 16},
        {"top_groups": 2, "experts": 8}, {"expert_groups": 3, "experts": 8},
        {"top_k": 5, "experts": 8, "expert_groups": 4, "top_groups": 2},
    ],
)  # fmt: skip
def test_wrong_settings_are_refused(wrong: dict[str, int | str]) -> None:
    key = next(iter(wrong)).replace("max_positions", "seq_len")
    with pytest.raises(ValueError, match=key):
        build(**{"name": "g", **_SMALL, **wrong})


def _attention_flop(**settings: Any) -> list[float]:
    """Forward FLOP of each layer's attention kernel."""
    workload = build(name="small", **{**_SMALL, **_LLAMA, "layers": 4, **settings})
    return [
        sum(k.flop for op in block.ops for k in op.fwd if k.kind == "attention")
        for block in workload.instances()
        if block.recomputable
    ]


@pytest.mark.parametrize(("seq", "chunk"), [(32, 8), (32, 12), (32, 32), (32, 100)])
def test_chunks_count_their_own_pairs(seq: int, chunk: int) -> None:
    lengths = [min(chunk, seq - start) for start in range(0, seq, chunk)]
    pairs = sum(n * n / 2 for n in lengths)  # half of a chunk's square lies before
    found = _attention_flop(
        seq_len=seq, window=chunk, chunked=True, window_pattern="wwwf", rope_pattern="rrrn"
    )
    assert found == [4 * 64 * pairs] * 3 + [4 * 64 * seq * seq / 2]


def test_layers_without_positions_turn_nothing() -> None:
    workload = build(name="small", **{**_SMALL, **_LLAMA, "rope_pattern": "rn"})
    turned, other = (b for b in workload.instances() if b.recomputable)
    assert [op for op in other.ops if "rope" in op.name] == []
    assert len([op for op in turned.ops if "rope" in op.name]) == 2
    assert (turned.name, other.name) == ("layer turned", "layer unturned")


def test_squared_relu_fused_is_one_kernel_each_way() -> None:
    plain, fused = (
        build(name="small", **_SMALL, mlp="relu2", fused_pointwise=f) for f in (False, True)
    )
    elems = 2 * 32 * 4 * 64  # of both layers
    assert measure.built_launches(plain) == tuple(
        n + more for n, more in zip(measure.built_launches(fused), (2, 6), strict=True)
    )
    relu = build(name="small", **_SMALL, mlp="relu")
    assert plain.saved.low - relu.saved.low == fused.saved.low - relu.saved.low == elems


@pytest.mark.parametrize("pattern", ["", "rx"])
def test_a_wrong_rope_pattern_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match="rope_pattern"):
        build(name="small", **_SMALL, rope_pattern=pattern)


@pytest.mark.parametrize("rank", [0, 4])
def test_an_eighth_of_the_logits_goes_back_at_a_time(rank: int) -> None:
    """torchtune's chunked output: the same work and logits kept, an eighth of their gradient; the
    head's own is summed chunk by chunk, of a frozen head there is none."""
    made = [
        build(name="l", lora_rank=rank, loss=loss, **_SMALL, **_LLAMA)
        for loss in ("compiled", "compiled_chunks")
    ]
    assert made[0].saved == made[1].saved and made[0].forward_flop == made[1].forward_flop
    heads = [next(op for op in w.blocks[-1].ops if op.name == "head") for w in made]
    losses = [next(op for op in w.blocks[-1].ops if op.name == "loss") for w in made]
    for whole, parts in (heads, losses):
        assert sum(k.flop for k in parts.bwd) == sum(k.flop for k in whole.bwd)
        assert sum(k.low for k in parts.bwd) == sum(k.low for k in whole.bwd)
    p = PRECISIONS["bf16-true"]
    held = [[backward_bytes(op, p).held for op in ops] for ops in (heads, losses)]
    for whole_bytes, part_bytes in held:
        assert part_bytes == pytest.approx(whole_bytes / 8)
    sums = [k for k in heads[1].bwd if k.kind == "elementwise"]
    assert sum(k.weight for k in sums) == (0 if rank else 3 * 7 * 64 * 100)


def test_a_further_token_after_a_layer_of_one_part_is_not_described() -> None:
    with pytest.raises(InvalidConfig, match="further token"):
        MODELS["mamba2-130m"].build(next_tokens=1)


def test_a_former_name_of_a_norm_still_counts() -> None:
    sizes = {"layers": 2, "hidden": 8, "heads": 2, "vocab": 11, "seq_len": 4}
    norms = ("rmsnorm_eager_wide", "rmsnorm_gemma", "rmsnorm_eager")
    now, former, other = (
        [block.ops for block in build(name="x", norm=norm, **sizes).blocks] for norm in norms
    )
    assert now == former != other


@pytest.mark.parametrize("tied", [True, False])
def test_a_text_s_embedding_has_no_logits(tied: bool) -> None:
    """Sentence Transformers takes the last token's row of the hidden states."""
    sizes = {"layers": 2, "hidden": 64, "heads": 2, "vocab": 1000, "seq_len": 32, "tied": tied}
    whole, texts = (build(name="g", loss=loss, **sizes) for loss in ("eager", "embedding"))
    assert whole.forward_flop - texts.forward_flop == 2 * 32 * 64 * 1000
    assert whole.trainable_numel - texts.trainable_numel == (0 if tied else 64 * 1000)
