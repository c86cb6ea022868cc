"""What a layer of an eager module keeps for backward, beside traces of it, to the byte.

A layer is the difference of nets of three layers and two. Copies of weights that autocast keeps
are a term of their own in the engine. Dropout of transformers' models is off: on a processor it
keeps masks of the tensor's width, where CUDA's keep a byte, as the references here have it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import transformers  # noqa: E402
from reference.bert import Bert  # noqa: E402
from reference.diffusion import DiT  # noqa: E402
from reference.transformer import Gpt2  # noqa: E402
from torch import nn  # noqa: E402

from simcore.step.transients import saved_bytes  # noqa: E402
from simcore.strategy.precision import PRECISIONS  # noqa: E402
from simcore.workload.archs.body import Body  # noqa: E402
from simcore.workload.archs.body_layers import BodyList  # noqa: E402
from simcore.workload.archs.layers import LayerList  # noqa: E402
from simcore.workload.archs.lm_mlp import MlpShape, dense  # noqa: E402
from simcore.workload.archs.transformer import build as transformer  # noqa: E402
from simcore.workload.graph import Block, Workload  # noqa: E402
from simcore.workload.trace.tracer import trace  # noqa: E402

bert = BodyList("bert")
t5 = BodyList("t5")

dit = LayerList("dit")

B, SEQ, DIM, HEADS, FFN, VOCAB = 2, 64, 128, 4, 224, 101
IDS = torch.zeros(B, SEQ, dtype=torch.long)
WIDTHS = ("fp32-ieee", "amp-bf16")
_SHAPE: dict[str, Any] = {
    "name": "x", "layers": 2, "hidden": DIM, "heads": HEADS, "vocab": VOCAB, "seq_len": SEQ,
}  # fmt: skip
_LLAMA: dict[str, Any] = {
    **_SHAPE, "mlp": "swiglu", "positions": "rope", "norm": "rmsnorm_eager", "bias": False,
    "fused_qkv": False, "tied": False, "ffn": FFN, "head_dim": DIM // HEADS,
}  # fmt: skip


def _kept(make: Callable[[int], nn.Module], inputs: Any, precision: str) -> int:
    def loss(out: Any) -> Any:
        for name in ("logits", "last_hidden_state"):
            out = getattr(out, name, out)
        return out.float().mean()

    autocast = "bf16" if precision.startswith("amp") else None
    width = torch.bfloat16 if precision == "bf16-true" else torch.float32
    two, three = (
        trace(make(n).to(width).train(), inputs, loss=loss, autocast=autocast) for n in (2, 3)
    )
    return three.saved_bytes() - two.saved_bytes()


def check(block: Block, make: Callable[[int], nn.Module], inputs: Any, precision: str) -> None:
    ours = saved_bytes(block.saved, PRECISIONS[precision]) * B
    assert ours == _kept(make, inputs, precision)


def _layer(workload: Workload, name: str = "layer") -> Block:
    return next(b for b in workload.blocks if b.name == name)


@pytest.mark.parametrize("precision", WIDTHS)
@pytest.mark.parametrize("p", [0.0, 0.1])
@pytest.mark.parametrize("fused", [True, False])
def test_bert(fused: bool, p: float, precision: str) -> None:
    """q, k and v each keep their 16-bit copy of the norm's output under autocast."""
    block = _layer(bert(**_SHAPE, attention="sdpa" if fused else "eager", dropout=p))

    def make(n: int) -> nn.Module:
        return Bert(n, DIM, HEADS, 4 * DIM, vocab=VOCAB, positions=SEQ, sdpa=fused, p=p)

    check(block, make, (IDS, IDS, IDS + 1), precision)


@pytest.mark.parametrize("precision", WIDTHS)
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
def test_bert_of_transformers(attention: str, precision: str) -> None:
    def make(n: int) -> nn.Module:
        config = transformers.BertConfig(
            vocab_size=VOCAB, hidden_size=DIM, num_attention_heads=HEADS, num_hidden_layers=n,
            intermediate_size=4 * DIM, max_position_embeddings=SEQ, hidden_dropout_prob=0.0,
            attention_probs_dropout_prob=0.0, attn_implementation=attention,
        )  # fmt: skip
        return transformers.BertForSequenceClassification(config)

    block = _layer(bert(**_SHAPE, attention=attention, dropout=0.0))
    check(block, make, (IDS, IDS + 1), precision)


@pytest.mark.parametrize("precision", WIDTHS)
@pytest.mark.parametrize("p", [0.0, 0.1])
@pytest.mark.parametrize("fused", [True, False])
def test_gpt2(fused: bool, p: float, precision: str) -> None:
    """Scores written out keep six bytes each under autocast, and a seventh with dropout."""
    attention = "flash" if fused else "math"
    block = _layer(transformer(**_SHAPE, mlp="gelu_new", dropout=p, attention=attention))

    def make(n: int) -> nn.Module:
        return Gpt2(n, DIM, HEADS, VOCAB, SEQ, written_out=True, p=p, flash=fused)

    check(block, make, (IDS,), precision)


@pytest.mark.parametrize("precision", [*WIDTHS, "bf16-true"])
@pytest.mark.parametrize("attention", ["sdpa", "eager"])
@pytest.mark.parametrize("kind", ["Llama", "Qwen3"])
def test_llama_and_norms_of_q_and_k(kind: str, attention: str, precision: str) -> None:
    """Eager softmax is fp32 and cast back whatever the weights; q's norm reads 16 bit."""
    name = "flash" if attention == "sdpa" else attention
    block = _layer(transformer(**_LLAMA, attention=name, qk_norm=kind == "Qwen3"))

    def make(n: int) -> nn.Module:
        config = getattr(transformers, f"{kind}Config")(
            vocab_size=VOCAB, hidden_size=DIM, num_attention_heads=HEADS, intermediate_size=FFN,
            num_key_value_heads=HEADS, head_dim=DIM // HEADS, max_position_embeddings=SEQ,
            num_hidden_layers=n, attn_implementation=attention, use_cache=False,
        )  # fmt: skip
        return getattr(transformers, f"{kind}ForCausalLM")(config)

    check(block, make, (IDS,), precision)


@pytest.mark.parametrize("precision", WIDTHS)
def test_opt(precision: str) -> None:
    block = _layer(transformer(**_SHAPE, mlp="relu", fused_qkv=False))

    def make(n: int) -> nn.Module:
        config = transformers.OPTConfig(
            vocab_size=VOCAB, hidden_size=DIM, num_attention_heads=HEADS, ffn_dim=4 * DIM,
            word_embed_proj_dim=DIM, max_position_embeddings=SEQ, num_hidden_layers=n, dropout=0.0,
            attn_implementation="sdpa", use_cache=False,
        )  # fmt: skip
        return transformers.OPTForCausalLM(config)

    check(block, make, (IDS,), precision)


@pytest.mark.parametrize("precision", WIDTHS)
def test_t5(precision: str) -> None:
    """The ReLU's output is widened to the second product's weight, which autocast casts back."""
    workload = t5(
        name="x", layers=2, hidden=DIM, heads=HEADS, head_dim=32, ffn=FFN, vocab=VOCAB,
        seq_len=SEQ, dropout=0.0,
    )  # fmt: skip

    def make(n: int) -> nn.Module:
        config = transformers.T5Config(
            vocab_size=VOCAB, d_model=DIM, num_heads=HEADS, d_kv=32, d_ff=FFN, num_layers=n,
            dropout_rate=0.0, attn_implementation="eager", use_cache=False,
        )  # fmt: skip
        return transformers.T5EncoderModel(config)

    check(_layer(workload, "encoder layer"), make, (IDS, IDS + 1), precision)


@pytest.mark.parametrize("precision", WIDTHS)
def test_dit(precision: str) -> None:
    workload = dit(
        name="x", sample_unit="image", depth=2, hidden=DIM, heads=HEADS, image=128,
        attention="math",
    )  # fmt: skip
    t = torch.zeros(B, dtype=torch.long)
    check(
        _layer(workload, "block"), lambda n: DiT(n, DIM, HEADS, latent=16, mode="math"),
        (torch.zeros(B, 4, 16, 16), t, t), precision,
    )  # fmt: skip


@pytest.mark.parametrize("precision", WIDTHS)
def test_squared_relu(precision: str) -> None:
    """A square is a power, which autocast runs in fp32."""

    class Mlp(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.up, self.down = (nn.Linear(*s, bias=False) for s in ((DIM, FFN), (FFN, DIM)))

        def forward(self, x: Any) -> Any:
            return self.down(torch.relu(self.up(x)).square())

    body = Body()
    dense(body, MlpShape(seq=SEQ, hidden=DIM, ffn=FFN, kind="relu2", bias=False), "x")
    x = torch.zeros(B, SEQ, DIM)
    check(body.block("mlp"), lambda n: nn.Sequential(*(Mlp() for _ in range(n))), (x,), precision)


@pytest.mark.parametrize("precision", WIDTHS)
def test_adapters_of_one_norm_keep_copies_of_their_own(precision: str) -> None:
    """Adapters on q and v: under autocast each casts the norm's output for itself."""
    adapted = transformer(**_LLAMA, lora_rank=8, lora_targets="q_proj,v_proj")
    one = transformer(**_LLAMA, lora_rank=8, lora_targets="q_proj")
    p = PRECISIONS[precision]
    more = saved_bytes(_layer(adapted).saved, p) - saved_bytes(_layer(one).saved, p)
    between = 8 * SEQ * p.low_bytes  # what the second matrix reads
    assert more == between + SEQ * DIM * 2 * p.autocasts


def test_adapters_with_dropout_keep_inputs_of_their_own() -> None:
    """Each drops from the norm's output for itself, and keeps its mask and what is left; against
    what torch keeps of two frozen products with adapters."""

    def ours(dropout: float) -> float:
        model = transformer(
            **_LLAMA, lora_rank=8, lora_targets="q_proj,v_proj", lora_dropout=dropout
        )
        return saved_bytes(_layer(model).saved, PRECISIONS["fp32"])

    def kept(dropout: bool) -> int:
        base, down, up = torch.zeros(DIM, DIM), torch.zeros(DIM, 8), torch.zeros(8, DIM)
        down.requires_grad_(), up.requires_grad_()
        own = {t.untyped_storage().data_ptr() for t in (base, down, up)}
        found: dict[int, int] = {}

        def pack(t: torch.Tensor) -> torch.Tensor:
            storage = t.untyped_storage()
            found[storage.data_ptr()] = storage.nbytes()
            return t

        normed = torch.zeros(SEQ, DIM, requires_grad=True) + 1.0
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t):
            outs = []
            for _ in ("q", "v"):
                x = torch.native_dropout(normed, 0.1, True)[0] if dropout else normed
                outs.append(normed @ base + 2.0 * (x @ down @ up))
        return sum(n for at, n in found.items() if at not in own)

    assert ours(0.05) - ours(0.0) == kept(True) - kept(False)
