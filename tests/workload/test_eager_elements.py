"""What records take one by one, and move, beside traces of eager modules: a layer, both ways.

A layer is the difference of nets of three layers and two. Products and attention are left out on
both sides, and the casts of weights, which the price of a step has beside its kernels.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

torch = pytest.importorskip("torch")

import transformers  # noqa: E402
from reference.bert import Bert  # noqa: E402
from reference.diffusion import DiT  # noqa: E402
from reference.transformer import Gpt2  # noqa: E402
from torch import nn  # noqa: E402

from simcore.step.kernels import kernel_table  # noqa: E402
from simcore.step.transients import COMPUTE_KINDS  # noqa: E402
from simcore.strategy.precision import PRECISIONS  # noqa: E402
from simcore.workload.archs.body_layers import BodyList  # noqa: E402
from simcore.workload.archs.layers import LayerList  # noqa: E402
from simcore.workload.archs.transformer import build as transformer  # noqa: E402
from simcore.workload.graph import FLASH_KINDS, Block, Workload  # noqa: E402
from simcore.workload.trace.record import OpRecord, Trace  # noqa: E402
from simcore.workload.trace.tracer import trace  # noqa: E402

bert = BodyList("bert")
t5 = BodyList("t5")

dit = LayerList("dit")

B, SEQ, DIM, HEADS, FFN, VOCAB = 2, 64, 128, 4, 224, 101
RANK = 8
ELEMS, SCORES = B * SEQ * DIM, B * HEADS * SEQ * SEQ
IDS = torch.zeros(B, SEQ, dtype=torch.long)
PASSES = ("forward", "backward")
AUTOCAST = {"fp32-ieee": None, "amp-bf16": "bf16"}
_SHAPE: dict[str, Any] = {
    "name": "x", "layers": 2, "hidden": DIM, "heads": HEADS, "vocab": VOCAB, "seq_len": SEQ,
}  # fmt: skip
_LLAMA: dict[str, Any] = {
    **_SHAPE, "mlp": "swiglu", "positions": "rope", "norm": "rmsnorm_eager", "bias": False,
    "fused_qkv": False, "tied": False, "ffn": FFN,
}  # fmt: skip
Pair = tuple[float, float]  # elements one by one, bytes


def _of_weight(t: Trace, op: OpRecord) -> bool:
    maker = t.ops[op.owner] if op.phase == "backward" and op.owner >= 0 else op
    pieces = (p for k in maker.kernels for p in (*k.reads, *k.writes))
    return "_to_copy" == op.name == maker.name and any(
        p.role in ("parameter", "cast") for p in pieces
    )


def _traced(t: Trace, phase: str) -> Pair:
    kernels = [
        k
        for op in t.ops if op.phase == phase and not _of_weight(t, op)
        for k in op.kernels if k.kind not in (*COMPUTE_KINDS, *FLASH_KINDS) and not k.casts
    ]  # fmt: skip
    return float(sum(k.indexed for k in kernels)), float(sum(k.n_bytes for k in kernels))


def layer_of(make: Callable[[int], nn.Module], inputs: Any, precision: str) -> dict[str, Pair]:
    """Of a traced layer, by pass."""

    def loss(out: Any) -> Any:
        for name in ("logits", "last_hidden_state"):
            out = getattr(out, name, out)
        return out.float().mean()

    two, three = (
        trace(make(n).train(), inputs, loss=loss, autocast=AUTOCAST[precision]) for n in (2, 3)
    )
    return {
        p: tuple(b - a for a, b in zip(_traced(two, p), _traced(three, p), strict=True))
        for p in PASSES
    }  # type: ignore[return-value]


def record_of(block: Block, precision: str) -> dict[str, Pair]:
    """The same of a record."""
    one = Workload(name="one", sample_unit="sample", blocks=(block,), order=(0,))
    table = kernel_table(one, PRECISIONS[precision])
    if PRECISIONS[precision].cast_bytes:  # gradients of weights' casts are rows of fixed size
        fixed_casts = sum(op.gemm_weight for op in block.ops) * 6.0
    else:
        fixed_casts = 0.0
    ends = [*table.phase_start[1:], len(table.kernels)]
    found = {}
    for phase, start, end in zip(PASSES, table.phase_start, ends, strict=False):
        rows = [r for r in range(start, end) if table["flop"][r] == 0]
        indexed = sum(table["count"][r] * table["indexed"][r] for r in rows) * B
        moved = sum(table["count"][r] * table["n_bytes"][r] @ (1.0, B) for r in rows)
        found[phase] = (indexed, moved - fixed_casts * (phase == "backward"))
    return found


def _layer(workload: Workload, name: str = "layer") -> Block:
    return next(b for b in workload.blocks if b.name == name)


def check(
    block: Block, make: Callable[[int], nn.Module], inputs: Any, precision: str, *,
    apart: dict[str, float] | None = None, rel: float = 0.03,
) -> None:  # fmt: skip
    """``apart``: elements that the trace has one by one beyond the record, and why in the test."""
    truth, ours = layer_of(make, inputs, precision), record_of(block, precision)
    for phase in PASSES:
        beyond = (apart or {}).get(phase, 0.0)
        assert ours[phase][0] == pytest.approx(truth[phase][0] - beyond, rel=1e-2, abs=1), phase
        assert ours[phase][1] == pytest.approx(truth[phase][1], rel=rel), phase


@pytest.mark.parametrize("precision", AUTOCAST)
@pytest.mark.parametrize("fused", [True, False])
def test_bert(fused: bool, precision: str) -> None:
    block = _layer(bert(**_SHAPE, attention="sdpa" if fused else "eager"))

    def make(n: int) -> nn.Module:
        return Bert(n, DIM, HEADS, 4 * DIM, vocab=VOCAB, positions=SEQ, sdpa=fused)

    # The record reads the cast of probabilities to 16 bit one by one, which has vector loads.
    written_out = SCORES * (precision == "amp-bf16" and not fused)
    check(block, make, (IDS, IDS, IDS + 1), precision, apart=dict.fromkeys(PASSES, -written_out))


@pytest.mark.parametrize("precision", AUTOCAST)
@pytest.mark.parametrize("mlp", ["gelu", "gelu_new"])
def test_gpt2(mlp: str, precision: str) -> None:
    block = _layer(transformer(**_SHAPE, mlp=mlp, dropout=0.1))

    def make(n: int) -> nn.Module:
        return Gpt2(n, DIM, HEADS, VOCAB, SEQ, written_out=mlp == "gelu_new")

    check(block, make, (IDS,), precision)


@pytest.mark.parametrize("precision", AUTOCAST)
def test_llama(precision: str) -> None:
    """As many heads of k as of q, so that nothing is repeated for the CPU's attention."""
    block = _layer(transformer(**_LLAMA))

    # The record reads the casts to 16 bit after its two norms one by one, which have vector loads;
    # the trace reads those of their gradients to fp32 so.
    beyond = -2 * ELEMS * (precision == "amp-bf16")
    check(
        block, lambda n: llama(n, torch.float32, False), (IDS,), precision,
        apart={"forward": beyond, "backward": -beyond}, rel=0.06,
    )  # fmt: skip


class Adapted(nn.Module):
    """A frozen product with an adapter beside it (PEFT, tuners/lora/layer.py, Linear.forward)."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.base = base.requires_grad_(False)
        self.down = nn.Linear(base.in_features, RANK, bias=False)
        self.up = nn.Linear(RANK, base.out_features, bias=False)

    def forward(self, x: Any) -> Any:
        result = self.base(x)
        added = self.up(self.down(x.to(self.down.weight.dtype))) * 2.0
        return (result + added).to(result.dtype)


def llama(n: int, dtype: Any, adapted: bool) -> nn.Module:
    config = transformers.LlamaConfig(
        vocab_size=VOCAB, hidden_size=DIM, num_attention_heads=HEADS, intermediate_size=FFN,
        num_key_value_heads=HEADS, max_position_embeddings=SEQ, num_hidden_layers=n,
        attn_implementation="sdpa", use_cache=False,
    )  # fmt: skip
    model = transformers.LlamaForCausalLM(config)
    if adapted:
        model.requires_grad_(False)
        model.enable_input_require_grads()
        for layer in model.model.layers:
            for part in (layer.self_attn, layer.mlp):
                for name, product in list(part.named_children()):
                    if isinstance(product, nn.Linear):
                        setattr(part, name, Adapted(product))
    return model.to(dtype)


@pytest.mark.parametrize("adapted", [False, True])
@pytest.mark.parametrize("precision", ["fp32-ieee", "bf16-true"])
def test_llama_with_and_without_adapters(precision: str, adapted: bool) -> None:
    """In one width throughout: what is moved, and how many kernels move it."""
    dtype = torch.float32 if precision == "fp32-ieee" else torch.bfloat16
    block = _layer(transformer(**_LLAMA, lora_rank=RANK * adapted))
    two, three = (trace(llama(n, dtype, adapted).train(), (IDS,), loss=_mean) for n in (2, 3))
    ours = record_of(block, precision)
    one = Workload(name="one", sample_unit="sample", blocks=(block,), order=(0,))
    launches = kernel_table(one, PRECISIONS[precision]).launches_per_phase
    for at, phase in enumerate(PASSES):
        moved = _traced(three, phase)[1] - _traced(two, phase)[1]
        kernels = _kernels(three, phase) - _kernels(two, phase)
        assert ours[phase][1] == pytest.approx(moved, rel=0.03), phase
        assert launches[at] == pytest.approx(kernels, rel=0.13), phase
    assert sum(launches) == pytest.approx(
        sum(_kernels(three, p) - _kernels(two, p) for p in PASSES), rel=0.08
    )


def test_adapters_in_fp32_beside_16_bit_weights() -> None:
    """Under autocast: their casts, which the trace has of their small weights too."""
    block = _layer(transformer(**_LLAMA, lora_rank=RANK, lora_wide=True))

    def make(n: int) -> nn.Module:
        model = llama(n, torch.bfloat16, True)
        for module in model.modules():
            if isinstance(module, Adapted):
                module.down.float()
                module.up.float()
        return model.train()

    two, three = (trace(make(n), (IDS,), loss=_mean, autocast="bf16") for n in (2, 3))
    ours = record_of(block, "bf16-true")
    for phase in PASSES:
        moved = _traced(three, phase)[1] - _traced(two, phase)[1]
        assert ours[phase][1] == pytest.approx(moved, rel=0.03), phase


class FourBit(nn.Module):
    """What bitsandbytes' Linear4bit does with its tensors, its weight as spread to 16 bit."""

    def __init__(self, base: nn.Linear) -> None:
        super().__init__()
        self.in_features, self.out_features = base.in_features, base.out_features
        self.weight = nn.Parameter(base.weight.detach().bfloat16(), requires_grad=False)

    def forward(self, x: Any) -> Any:
        return nn.functional.linear(x.to(self.weight.dtype), self.weight).to(x.dtype)


def test_a_4_bit_base_prepared_for_training_hands_on_fp32() -> None:
    """PEFT's prepare_model_for_kbit_training: norms and residual sum are fp32, and so each result.

    Ours without what spreads the weights; the trace casts adapters' small weights, too.
    """
    block = _layer(transformer(**_LLAMA, lora_rank=RANK, quantised_base="nf4"))
    block = replace(block, ops=tuple(o for o in block.ops if not o.name.endswith(".dequantise")))

    def make(n: int) -> nn.Module:
        model = llama(n, torch.float32, True)
        for module in model.modules():
            if isinstance(module, Adapted):
                module.base = FourBit(module.base)
        return model.train()

    two, three = (trace(make(n), (IDS,), loss=_mean, autocast="bf16") for n in (2, 3))
    ours = record_of(block, "amp-bf16")
    for phase in PASSES:
        moved = _traced(three, phase)[1] - _traced(two, phase)[1]
        assert ours[phase][1] == pytest.approx(moved, rel=0.04), phase


def test_in_one_width_wide_adapters_are_as_others() -> None:
    plain, wide = (
        record_of(_layer(transformer(**_LLAMA, lora_rank=RANK, lora_wide=w)), "fp32-ieee")
        for w in (False, True)
    )
    assert plain == wide


def _mean(out: Any) -> Any:
    return out.logits.float().mean()


def _kernels(t: Trace, phase: str) -> int:
    return sum(not k.casts for op in t.ops if op.phase == phase for k in op.kernels)


def test_phi3_reads_halves_of_one_product() -> None:
    """Gate and up are parts of rows: the activation and the product address elements."""
    whole = _layer(transformer(**_LLAMA))
    halves = _layer(transformer(**_LLAMA, fused_gate_up=True))

    def mlp(n: int, packed: bool) -> nn.Module:
        class Mlp(nn.Module):
            def __init__(self) -> None:
                super().__init__()
                self.up = nn.Linear(DIM, 2 * FFN, bias=False)
                self.gate, self.other = (nn.Linear(DIM, FFN, bias=False) for _ in range(2))
                self.down = nn.Linear(FFN, DIM, bias=False)

            def forward(self, x: Any) -> Any:
                gate, up = self.up(x).chunk(2, -1) if packed else (self.gate(x), self.other(x))
                return self.down(nn.functional.silu(gate) * up)

        return nn.Sequential(*(Mlp() for _ in range(n)))

    x = torch.zeros(B, SEQ, DIM)
    truth = [layer_of(lambda n, p=p: mlp(n, p), (x,), "fp32-ieee") for p in (False, True)]
    ours = [record_of(b, "fp32-ieee") for b in (whole, halves)]
    for phase in PASSES:
        assert ours[1][phase][0] - ours[0][phase][0] == truth[1][phase][0] - truth[0][phase][0] > 0


@pytest.mark.parametrize("precision", AUTOCAST)
def test_dit_with_attention_written_out(precision: str) -> None:
    """Under autocast the trace casts scores before the softmax, as fp16's kernel does in itself."""
    workload = dit(
        name="x", sample_unit="image", depth=2, hidden=DIM, heads=HEADS, image=128,
        attention="math",
    )  # fmt: skip
    t = torch.zeros(B, dtype=torch.long)
    beyond = SCORES * (precision == "amp-bf16")
    check(
        _layer(workload, "block"), lambda n: DiT(n, DIM, HEADS, latent=16, mode="math"),
        (torch.zeros(B, 4, 16, 16), t, t), precision,
        apart={"backward": beyond}, rel=0.12,
    )  # fmt: skip


def test_t5_in_fp32() -> None:
    """The clipped ReLU's CPU dropout moves more than CUDA's: elements alone are compared."""
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

    block = _layer(workload, "encoder layer")
    truth, ours = layer_of(make, (IDS, IDS + 1), "fp32-ieee"), record_of(block, "fp32-ieee")
    # the first sum keeps the bias' order of axes, and so does the CPU's copy of probabilities
    assert truth["forward"][0] - ours["forward"][0] in (0, SCORES)
    assert truth["backward"][0] == ours["backward"][0]


def test_sequence_parallel_ranks_share_elements_out() -> None:
    from simcore.workload.ops import rms_norm_eager
    from simcore.workload.sharding import _scaled

    for kernel in rms_norm_eager("norm", 64.0, 32).fwd:
        assert _scaled(kernel, 0.25).indexed == kernel.indexed / 4
