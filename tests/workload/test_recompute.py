"""Selective recompute against the papers' counts."""

import pytest

from simcore.base.errors import UnknownName
from simcore.step.transients import saved_bytes
from simcore.strategy.precision import PRECISIONS
from simcore.workload.archs import ARCHS, load
from simcore.workload.models import MODELS
from simcore.workload.recompute import MODULES, head_recomputed, modules_named, recomputed

load("transformer")
SEQ, HIDDEN, HEADS = 1024, 2304, 24


def model(**changes):
    shape = {
        "layers": 3, "hidden": HIDDEN, "heads": HEADS, "ffn": 4 * HIDDEN, "vocab": 32000,
        "seq_len": SEQ, "dropout": 0.1, "attention": "fused_softmax", "fused_pointwise": True,
    }  # fmt: skip
    return ARCHS["transformer"](name="x", **{**shape, **changes})


def layer(workload):
    return next(b for b in workload.blocks if b.recomputable)


def kept_bytes(workload):
    p, saved = PRECISIONS["fp16"], layer(workload).saved
    return saved_bytes(saved, p)


def flop(workload, *, backward):
    return sum(k.flop for op in layer(workload).ops for k in (op.bwd if backward else op.fwd))


@pytest.mark.parametrize("attention", ["fused_softmax", "math"])
def test_core_attention_leaves_34_sbh(attention):
    """Korthikanti et al. 2022: sb (34 h + 5 a s) without, 34 sbh with selective recompute."""
    whole = model() if attention == "fused_softmax" else model(attention="math", dropout=0.0)
    less = recomputed(whole, ("core_attn",))
    scores = HEADS * SEQ * SEQ
    dropped = 5 if attention == "fused_softmax" else 2  # without dropout: the probabilities
    assert kept_bytes(whole) - kept_bytes(less) == pytest.approx(dropped * scores, rel=1e-6)
    if attention == "fused_softmax":
        assert kept_bytes(less) == pytest.approx(34 * SEQ * HIDDEN, rel=0.01)


def test_core_attention_costs_its_two_products_again():
    """4 b s^2 h FLOP a layer: Korthikanti et al. 2022, appendix A."""
    whole = model()
    again = flop(recomputed(whole, ("core_attn",)), backward=True) - flop(whole, backward=True)
    assert again == pytest.approx(4 * SEQ * SEQ * HIDDEN)
    assert recomputed(whole, ("core_attn",)).forward_flop == whole.forward_flop


def test_a_norm_computed_again_is_not_kept_for_the_product_behind():
    whole = model()
    less = recomputed(whole, ("layernorm",))
    # two norms' outputs of s h elements in 16 bit: the inputs of qkv and up
    assert kept_bytes(whole) - kept_bytes(less) == pytest.approx(2 * 2 * SEQ * HIDDEN)


def test_operators_run_half_of_the_products_again():
    whole = model(attention="flash", norm="rmsnorm", mlp="swiglu", bias=False, dropout=0.0)
    again = recomputed(whole, ("operators",))
    products = [op.fwd[0].flop for op in layer(whole).ops if op.fwd and op.fwd[0].kind == "gemm"]
    more = flop(again, backward=True) - flop(whole, backward=True)
    assert more == pytest.approx(sum(products[1::2]))
    assert kept_bytes(again) < kept_bytes(whole)


@pytest.mark.parametrize(("qk_norm", "again"), [(False, 3), (True, 6)])
def test_all_but_attention_keeps_its_inputs_and_runs_the_other_products_again(qk_norm, again):
    """out, gate and up (and q, k, v before norms of q and k) run again; down need not.

    Kept are the layer's input, q, k, v and the result, of 16 bit an element each.
    """
    whole = model(attention="flash", norm="rmsnorm", mlp="swiglu", bias=False, dropout=0.0,
                  fused_qkv=False, fused_gate_up=False, qk_norm=qk_norm)  # fmt: skip
    less = recomputed(whole, ("all_but_attention",), 0, stops_early=True)
    products = {op.name: op.fwd[0].flop for op in layer(whole).ops
                if op.fwd and op.fwd[0].kind == "gemm"}  # fmt: skip
    names = ["attention.out", "gate", "up", *("q", "k", "v") * qk_norm]
    more = flop(less, backward=True) - flop(whole, backward=True)
    assert len(names) == again
    assert more == pytest.approx(sum(products[n] for n in names))
    element = SEQ * HIDDEN
    assert kept_bytes(less) == pytest.approx(5 * 2 * element, rel=0.01)


@pytest.mark.parametrize("name", MODULES)
def test_no_module_keeps_more_or_works_less(name):
    whole = model()
    less = recomputed(whole, (name,))
    assert flop(less, backward=False) == flop(whole, backward=False)
    assert flop(less, backward=True) >= flop(whole, backward=True)
    assert recomputed(whole, ()) is whole


def test_recompute_by_operator_saves_what_ranks_exchange_and_no_grouped_product() -> None:
    """Per token of DeepSeek-V2-Lite: every second of q, kv_a, kv_b, out and the shared experts'
    three products, attention's output and the layer's input; with exchanges 2 x 6 rows of 2,048.
    """
    model = MODELS["deepseek-v2-lite"].build(seq_len=1)

    def saved(exchanges: bool) -> float:
        again = recomputed(model, ("operators",), exchanges=exchanges)
        layer = next(b for b in again.blocks if b.name == "layer experts")
        return layer.saved.low + layer.saved.high

    products = 16 * 192 + 16 * 256 + 2816 + 2048  # q, kv_b, shared gate and down
    assert saved(False) == pytest.approx(products + 16 * 128 + 2048)
    assert saved(True) - saved(False) == 2 * 6 * 2048


def test_unknown_module_is_told():
    with pytest.raises(UnknownName, match="core_attn"):
        modules_named("core_atn")


def test_some_layers_are_recomputed_from_the_input_on():
    """Of 3 layers 2 run again: their FLOP once more, and their input is all they keep."""
    whole = model()
    some = recomputed(whole, ("layer",), 2)
    one = sum(k.flop for op in layer(whole).ops for k in op.fwd)

    def total(workload):
        return sum(k.flop for b in workload.instances() for op in b.ops for k in op.bwd)

    assert total(some) - total(whole) == pytest.approx(2 * one)
    kinds = [b for b in some.instances() if b.recomputable]
    assert [b.saved == layer(whole).saved for b in kinds] == [False, False, True]
    p = PRECISIONS["fp16"]
    kept = kinds[0].saved.low * p.low_bytes + kinds[0].saved.high * p.high_bytes
    assert kept == pytest.approx(2 * SEQ * HIDDEN)
    assert some.trainable_numel == whole.trainable_numel
    assert total(recomputed(whole, ("layer",), 3)) == total(recomputed(whole, ("layer",)))


def test_shared_experts_run_again_from_their_input():
    """DeepSeek's two shared experts of 1408: gate, up, the activated gate and the product."""
    from simcore.workload.models import MODELS

    whole = MODELS["deepseek-v2-lite"].build(seq_len=1024)
    less = recomputed(whole, ("shared_experts",))
    block = next(b for b in reversed(whole.blocks) if b.recomputable)
    again = next(b for b in reversed(less.blocks) if b.recomputable)
    kept, left = block.saved, again.saved
    dropped = kept.low + kept.matmul - left.low - left.matmul
    assert dropped == pytest.approx(4 * 1024 * 2 * 1408)
    assert less.trainable_numel == whole.trainable_numel


def test_a_head_that_runs_again_is_four_products_and_not_three():
    """Its loss runs once; norm and product keep their inputs alone."""
    built = model(norm="rmsnorm_eager")
    again = head_recomputed(built)

    def block(workload, name):
        return next(b for b in workload.blocks if b.name == name)

    def products(workload, name):
        kernels = [k for op in block(workload, name).ops for k in (*op.fwd, *op.bwd)]
        return sum(k.kind == "gemm" for k in kernels)

    assert (products(built, "head"), products(again, "head")) == (3, 4)
    assert layer(built) == layer(again)
    before, head = block(built, "head"), block(again, "head")
    by_name = {op.name: op for op in head.ops}
    assert by_name["norm"].saved == by_name["head"].saved
    losses = [op for op in before.ops if op.name.startswith("loss")]
    assert losses and all(op in head.ops for op in losses)
    p = PRECISIONS["bf16"]
    assert saved_bytes(head.saved, p) < saved_bytes(before.saved, p)


def copied(workload):
    """Elements that backward moves from what was computed again to what forward let go of."""
    return sum(k.low for op in layer(workload).ops for k in op.bwd
               if k.kind == "copy" and k.issues == 0.0)  # fmt: skip


def test_discarded_results_are_copied_back():
    """Megatron-LM, CheckpointWithoutOutput: read and written, beside the forward that runs again.

    Modules whose result stays are checkpointed as torch does, and hand on what they computed.
    """
    whole = model()
    assert copied(whole) == 0
    assert copied(recomputed(whole, ("layernorm",))) == 2 * 2 * SEQ * HIDDEN
    assert copied(recomputed(whole, ("core_attn",))) == 0


def latent():
    return MODELS["deepseek-v3"].build(layers=5, seq_len=SEQ, attention="flash")


def test_latent_attention_keeps_its_output_where_its_inputs_are_made_again():
    """DeepSeek-V3: 128 heads of q and k (192) and of v and the output (128), fp32 sums of rows."""
    whole = latent()
    less = recomputed(whole, ("mla_up_proj",))
    (kept,) = (op.saved for op in layer(less).ops if op.name == "attention")
    assert (kept.low, kept.raw_bytes) == (SEQ * 128 * 128, 4 * SEQ * 128)
    assert copied(less) == 2 * SEQ * 128 * (192 + 192 + 128)


def test_dense_feed_forward_layers_are_not_those_of_experts():
    """transformer_config.py: mlp are dense layers' modules, moe_act the experts' activations."""
    whole = latent()
    routed = {b.name for b in whole.blocks if any(op.name == "route" for op in b.ops)}
    assert routed
    for before, after in zip(whole.blocks, recomputed(whole, ("mlp",)).blocks, strict=True):
        assert (before.ops == after.ops) == (before.name in routed or not before.recomputable)


def test_experts_of_a_switch_layer_run_again_with_the_module_of_experts():
    """Their products belong to routed experts, whatever their names are."""
    load("t5")
    whole = MODELS["switch-base-8"].build()
    again = recomputed(whole, ("moe",))
    for before, after in zip(whole.blocks, again.blocks, strict=True):
        experts = [op.name for op in before.ops if op.part == "experts"]
        assert bool(experts) == ("switch" in before.name)
        more = [
            b.name for a, b in zip(before.ops, after.ops, strict=True) if len(a.bwd) < len(b.bwd)
        ]
        assert more == experts


def test_a_block_that_is_shared_by_depths_is_no_shared_expert():
    """Zamba's shared block and BART's tied table only have such names."""
    for name in ("zamba2-2.7b", "bart-base"):
        workload = MODELS[name].build()
        assert any(op.name.startswith("shared") for b in workload.blocks for op in b.ops)
        again = recomputed(workload, ("shared_experts",))
        assert [b.ops for b in again.blocks] == [b.ops for b in workload.blocks]


def test_parts_of_a_mixture_are_fields_of_its_ops_and_tensors():
    """Products and rows on the way to them, and tensors that expert parallelism spreads."""
    mixture = layer(model(experts=8, top_k=2, expert_ffn=64, shared_ffn=32, mlp="swiglu"))
    parts = {part: {op.name for op in mixture.ops if op.part == part}
             for part in ("experts", "exchange", "shared")}  # fmt: skip
    assert parts["exchange"] == {"dispatch", "combine"}
    assert parts["experts"] == {"experts.gate_up", "experts.down", "experts.forks"}
    assert {"shared.gate", "shared.up", "shared.down", "shared.sum"} <= parts["shared"]
    assert {p.name for p in mixture.params if p.routed} == {
        "experts.gate_up.weight", "experts.down.weight",
    }  # fmt: skip
    assert mixture.routed_numel == 8 * 3 * 64 * HIDDEN


def test_the_activation_of_a_dense_layer_is_not_kept() -> None:
    """The product behind GELU keeps its input, four times as wide as the layer, in 16 bits."""
    whole = model()
    less = kept_bytes(recomputed(whole, ("mlp_act",)))
    assert kept_bytes(whole) - less == 2 * 4 * SEQ * HIDDEN
