"""A small mixture with more rows than balanced routing has: FLOP, bytes and kept bytes by hand.

seq 8, hidden 4, 4 experts of width 6, of which a token takes 2: 16 rows, 32 with twice as many.
"""

import pytest

from simcore.workload.archs.body import Body
from simcore.workload.archs.lm_mlp import MlpShape, RankShare, experts
from simcore.workload.archs.lm_settings import Experts, Implementation
from simcore.workload.archs.transformer import build
from simcore.workload.graph import Op

SEQ, HIDDEN, FFN, EXPERTS, TOP_K = 8, 4, 6, 4, 2
ROWS = SEQ * TOP_K
SMALL = {
    "name": "small", "layers": 3, "hidden": HIDDEN, "heads": 2, "vocab": 16, "seq_len": SEQ,
    "mlp": "swiglu", "experts": EXPERTS, "top_k": TOP_K, "expert_ffn": FFN,
}  # fmt: skip


def layer(rows: float = 1.0, permuted: float = 1.0) -> dict[str, Op]:
    body = Body()
    experts(
        body,
        MlpShape(seq=SEQ, hidden=HIDDEN, ffn=FFN, kind="swiglu", bias=False, fused_pointwise=True),
        Experts(experts=EXPERTS, top_k=TOP_K, expert_ffn=FFN),
        Implementation(),
        RankShare(expert_rows=rows, permuted_rows=permuted),
        "norm2",
    )  # fmt: skip
    return {op.name: op for op in body.ops}


@pytest.mark.parametrize("rows", [1.0, 2.0])
def test_products_and_what_they_keep(rows: float) -> None:
    found, n = layer(rows), ROWS * rows
    up, down = found["experts.gate_up"], found["experts.down"]
    assert up.fwd[0].flop == 2 * n * HIDDEN * 2 * FFN
    assert down.fwd[0].flop == 2 * n * FFN * HIDDEN
    assert [k.flop for k in down.bwd] == [down.fwd[0].flop] * 2
    # activations in and out; weights are read whole whatever the rows
    assert up.fwd[0].low == n * (HIDDEN + 2 * FFN)
    assert up.fwd[0].weight == EXPERTS * HIDDEN * 2 * FFN
    assert up.fwd[0].m.per_sample == n / EXPERTS and up.fwd[0].groups.fixed == EXPERTS
    assert up.saved.matmul == n * HIDDEN and down.saved.matmul == n * FFN
    assert found["product"].saved.low == n * 2 * FFN and found["product"].fwd[0].low == 3 * n * FFN


@pytest.mark.parametrize("permuted", [1.0, 2.0])
def test_what_is_sorted_and_combined(permuted: float) -> None:
    found, n = layer(permuted=permuted), ROWS * permuted
    assert found["dispatch"].fwd[1].low == 2 * n * HIDDEN
    assert found["dispatch"].saved.raw_bytes == 16 * n
    # each row read and written, and the tokens once
    assert found["combine"].fwd[1].low == 3 * n * HIDDEN + SEQ * HIDDEN
    assert found["combine"].saved.low == n * HIDDEN


def test_the_router_sees_tokens_whatever_experts_compute() -> None:
    even, more = layer(), layer(2.0, 2.0)
    for name in ("router", "route", "experts.forks"):
        assert even[name] == more[name]


@pytest.mark.parametrize("lora_rank", [0, 4])
def test_model_flop_leave_out_what_balanced_routing_has_not(lora_rank: int) -> None:
    even, more = (build(**SMALL, lora_rank=lora_rank, expert_rows=r) for r in (1.0, 2.0))
    routed = 3 * 2 * ROWS * HIDDEN * 3 * FFN  # layers; gate, up and down
    assert more.forward_flop - even.forward_flop == pytest.approx(routed)
    assert more.uneven_flop == pytest.approx(routed)
    assert more.model_flop == pytest.approx(even.model_flop)


def test_every_expert_may_compute_every_token() -> None:
    """Llama 4 in transformers: a FLOP count by torch of Llama4TextMoe at these sizes.

    4 experts of 8 tokens each; the model needs half of that, which is what MFU counts.
    """
    torch = pytest.importorskip("torch")
    from torch.utils.flop_counter import FlopCounterMode

    x, scores = torch.rand(SEQ, HIDDEN), torch.rand(EXPERTS, SEQ)
    up, down = torch.rand(EXPERTS, HIDDEN, 2 * FFN), torch.rand(EXPERTS, FFN, HIDDEN)
    with FlopCounterMode(display=False) as counted:
        rows = (x.repeat(EXPERTS, 1) * scores.reshape(-1, 1)).view(EXPERTS, SEQ, HIDDEN)
        gate, right = torch.bmm(rows, up).chunk(2, dim=-1)
        torch.bmm(torch.nn.functional.silu(gate) * right, down).sum(dim=0)
    chosen, every = (build(**SMALL, expert_tokens=t) for t in ("chosen", "all"))
    products = [op for b in every.blocks for op in b.ops if op.name.startswith("experts.")]
    found = sum(k.flop for op in products for k in op.fwd if op.gemm_weight)
    assert found == counted.get_total_flops()
    assert every.model_flop == pytest.approx(chosen.model_flop)
    weighed = build(**SMALL, expert_tokens="chosen_weighed")
    assert weighed.forward_flop == chosen.forward_flop


def test_rows_below_the_mean_are_refused() -> None:
    with pytest.raises(ValueError, match="expert_rows"):
        build(**SMALL, expert_rows=0.5)


def test_experts_of_a_latent_width() -> None:
    """Nemotron 3 Super (transformers, NemotronHMoE): narrow rows go out, two products narrow."""
    plain, latent = build(**SMALL), build(**SMALL, expert_latent=2)
    found = {op.name: op for op in latent.blocks[1].ops}
    assert (
        found["latent.down"].fwd[0].flop == found["latent.up"].fwd[0].flop == 2 * SEQ * HIDDEN * 2
    )
    assert found["experts.gate_up"].fwd[0].flop == 2 * ROWS * 2 * 2 * FFN
    assert found["experts.down"].fwd[0].flop == 2 * ROWS * FFN * 2
    assert found["router"].fwd[0].flop == 2 * SEQ * HIDDEN * EXPERTS
    # of three matrices an expert each loses half its rows; two more bring rows down and up
    less = 3 * (EXPERTS * 3 * FFN * 2 - 2 * HIDDEN * 2)
    assert plain.trainable_numel - latent.trainable_numel == less


def test_experts_that_return_their_input() -> None:
    """Of EXPERTS computing and as many empty ones a token's choices are half computed."""
    plain, half = build(**SMALL), build(**SMALL, zero_experts=EXPERTS)
    before, after = ({op.name: op for op in w.blocks[1].ops} for w in (plain, half))
    assert after["router"].fwd[0].flop == 2 * before["router"].fwd[0].flop
    for product in ("experts.gate_up", "experts.down"):
        assert after[product].fwd[0].flop == before[product].fwd[0].flop / 2
    assert half.trainable_numel - plain.trainable_numel == 3 * HIDDEN * EXPERTS  # rows of routers
    with pytest.raises(ValueError, match="top_k"):
        build(**SMALL | {"top_k": 2 * EXPERTS + 1}, zero_experts=EXPERTS)


def _launches(implementation: str, kinds: tuple[str, ...]) -> int:
    """Calls of some of torch's operators in a forward of transformers' mixture of these sizes."""
    torch, transformers = (pytest.importorskip(m) for m in ("torch", "transformers"))
    from torch.utils._python_dispatch import TorchDispatchMode

    try:
        from transformers.models.qwen3_moe import modeling_qwen3_moe as modules
    except (ModuleNotFoundError, RuntimeError):  # a torchvision of another torch
        pytest.skip("transformers' models cannot be imported")
    config = transformers.Qwen3MoeConfig(
        hidden_size=16, moe_intermediate_size=8, num_experts=EXPERTS, num_experts_per_tok=EXPERTS
    )
    config._experts_implementation = implementation
    found: list[str] = []

    class Calls(TorchDispatchMode):  # type: ignore[misc]
        def __torch_dispatch__(
            self, func: object, types: object, args: tuple[object, ...] = (),
            kwargs: dict[str, object] | None = None,
        ) -> object:  # fmt: skip
            found.append(str(func))
            return func(*args, **(kwargs or {}))  # type: ignore[operator]

    block = modules.Qwen3MoeSparseMoeBlock(config).bfloat16()
    for p in block.parameters():
        torch.nn.init.normal_(p)
    with Calls():
        block(torch.rand(1, SEQ, 16).bfloat16())
    return sum(name.split(".")[1] in kinds for name in found)


def test_experts_run_jointly_or_in_turn() -> None:
    """Products, activations and sums into tokens; the router has one product of its own."""
    joint, turns, apart = (
        build(**SMALL, **how)
        for how in ({"joint_experts": "products"}, {"experts_in_turn": True}, {})
    )  # fmt: skip

    def times(model: object, *names: str) -> float:
        layer = next(b for b in model.blocks if b.recomputable)  # type: ignore[attr-defined]
        return sum(k.launches for op in layer.ops if op.name in names for k in op.fwd)

    products = ("experts.gate_up", "experts.down")
    assert times(joint, *products) == _launches("grouped_mm", ("_grouped_mm",)) == 2
    assert times(turns, *products) == _launches("eager", ("mm",)) - 1 == 2 * EXPERTS
    assert times(turns, "silu") == _launches("eager", ("silu",)) == EXPERTS
    assert times(joint, "silu") == _launches("grouped_mm", ("silu",)) == 1
    # without either: products of GroupedLinear's kind, and activations of all rows
    assert times(apart, *products) == 2 * EXPERTS and times(apart, "silu") == 1
    assert joint.forward_flop == turns.forward_flop == apart.forward_flop
