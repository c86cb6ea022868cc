"""One rank's part: what all parts have together is the whole model."""

import pytest

from simcore.base.errors import InvalidConfig
from simcore.base.record import replace
from simcore.step.transients import output_bytes
from simcore.strategy.precision import PRECISIONS
from simcore.workload.graph import Workload
from simcore.workload.models import MODELS
from simcore.workload.sharding import (
    layer_counts,
    opposite_joined,
    pipeline_stages,
    sequence_parallel,
    stretch,
    tensor_overrides,
    tied_numel,
)

GPT = MODELS["gpt2-medium"]  # 24 layers of 1024, 16 heads, vocabulary 50257


def part(tp: int) -> Workload:
    return GPT.build(**tensor_overrides(GPT, tp, 1))


def matrix_flop(workload: Workload) -> float:
    return sum(k.flop for b in workload.instances() for op in b.ops for k in op.fwd)


@pytest.mark.parametrize("tp", [2, 4, 8, 16])
def test_tensor_ranks_divide_products_evenly(tp: int) -> None:
    """Heads, MLP columns and vocabulary divide; the vocabulary is padded to a whole number."""
    whole = matrix_flop(GPT.build())
    assert tp * matrix_flop(part(tp)) == pytest.approx(whole, rel=2e-4)


def test_tensor_ranks_keep_norms_and_divide_matrices() -> None:
    """Of a layer 12 d^2 are matrices; norms and the biases of rows stay whole on every rank."""
    layer = next(b for b in part(4).blocks if b.recomputable)
    d = 1024
    assert layer.numel == pytest.approx(12 * d * d / 4, rel=0.005)
    assert layer.numel > 12 * d * d / 4


def test_sequence_parallelism_divides_the_residual_stream() -> None:
    plain, cut = part(4), sequence_parallel(part(4), 4)
    whole = GPT.build()
    saved = [sum(2 * (s.low + s.matmul) + 4 * s.high + s.raw_bytes for s in [w.saved]) for w in
             (whole, plain, cut)]  # fmt: skip
    assert saved[1] > saved[0] / 4 * 1.3, "without it norms and inputs stay whole"
    assert saved[2] == pytest.approx(saved[0] / 4, rel=0.03)
    assert matrix_flop(cut) == matrix_flop(plain)
    assert cut.trainable_numel == plain.trainable_numel
    assert sequence_parallel(plain, 1) is plain


def test_sequence_parallelism_leaves_the_rows_of_experts_whole() -> None:
    """What experts read are rows sent to their rank, not rows of its part of the sequence."""
    made = MODELS["mixtral-8x7b"].build(local_experts=4, routed_share=0.5)
    before, after = (
        {op.name: op for b in w.blocks for op in b.ops}["experts.gate_up"].saved.matmul
        for w in (made, sequence_parallel(made, 2))
    )
    assert after == before > 0


def test_sequence_parallelism_leaves_scores_as_tensor_ranks_divide_them() -> None:
    """Each rank has its heads' scores of all tokens; dropout of the output is of its rows."""
    settings = {"attention": "math", "dropout": 0.1, "fused_pointwise": False, "layers": 1}
    made = GPT.build(**settings, **tensor_overrides(GPT, 4, 1))
    before, after = (
        {op.name: op for b in w.blocks for op in b.ops} for w in (made, sequence_parallel(made, 4))
    )
    scores = 4 * 1024**2  # of 4 heads, 1,024 tokens
    for name in ("attention.scores_scale", "attention.softmax", "attention.scores_dropout"):
        assert after[name] == before[name]
    assert after["attention.scores_dropout"].saved.raw_bytes == scores
    assert after["attention.dropout"].saved == before["attention.dropout"].saved * 0.25


def test_sequence_parallelism_divides_what_norms_and_sums_write() -> None:
    """Tokens x width of 16 bits, of a quarter of the tokens."""
    p = PRECISIONS["bf16"]
    layer = next(b for b in sequence_parallel(part(4), 4).blocks if b.recomputable)
    written = {op.name: output_bytes(op, p) for op in layer.ops}
    sums = [n for name, n in written.items() if "residual" in name]
    assert sums == [1024 * 1024 * 2 / 4] * 2


@pytest.mark.parametrize("pp", [1, 2, 3, 5, 8, 24])
def test_stages_together_are_the_model(pp: int) -> None:
    workload = GPT.build()
    stages = pipeline_stages(workload, pp)
    assert sum(s.n_layers for s in stages) == layer_counts(workload) == 24
    # the table of 50257 x 1024 is the embedding's and the head's: a stage without one has its own
    copies = (pp > 1) * 50257 * 1024
    assert sum(s.workload.trainable_numel for s in stages) == workload.trainable_numel + copies
    assert tied_numel(workload) == 50257 * 1024
    assert sum(s.workload.forward_flop for s in stages) == pytest.approx(workload.forward_flop)
    sizes = [s.n_layers for s in stages]
    assert max(sizes) - min(sizes) <= 1
    assert sizes[-1] == min(sizes), "the last stage has the head already"


@pytest.mark.parametrize("pp", [2, 4, 8])
def test_ranks_fed_from_both_ends_hold_the_model_twice_and_its_table_too(pp: int) -> None:
    """DeepSeek-V3 2024, 3.2.3: embedding and head are on one rank and share their table."""
    workload = GPT.build()
    ranks = opposite_joined(pipeline_stages(workload, pp, one_table=True))
    held = sum(r.workload.trainable_numel for r in ranks)
    assert held == 2 * workload.trainable_numel
    assert ranks[0].workload.trainable_numel == ranks[-1].workload.trainable_numel
    if pp == 2:
        assert ranks[0].workload.trainable_numel == workload.trainable_numel


def test_a_head_with_a_table_of_its_own_has_it_once() -> None:
    workload = GPT.build(tied=False)
    stages = pipeline_stages(workload, 4)
    assert sum(s.workload.trainable_numel for s in stages) == workload.trainable_numel
    assert tied_numel(workload) == 0
    # cut or not, what the head does in a tied model's last stage is what this one does
    tied = pipeline_stages(GPT.build(), 4)[-1].workload
    assert tied.trainable_numel == stages[-1].workload.trainable_numel
    assert [op.name for op in tied.blocks[-1].ops] == [
        op.name for op in stages[-1].workload.blocks[-1].ops
    ]


@pytest.mark.parametrize("tied", [True, False])
@pytest.mark.parametrize("pp", [1, 2, 8])
def test_what_predicts_a_further_token_looks_it_up_in_a_table_of_its_stage(
    pp: int, tied: bool
) -> None:
    """Megatron-LM, gpt_model.py: an embedding where mtp_process is set, kept equal to the first."""
    workload = GPT.build(tied=tied, next_tokens=1)
    plain = GPT.build(tied=tied)
    stages = pipeline_stages(workload, pp)
    copies = (pp > 1) * 50257 * 1024  # a tied head's serves both
    assert sum(s.workload.trainable_numel for s in stages) == workload.trainable_numel + copies
    assert tied_numel(workload) == 50257 * 1024
    assert tied_numel(plain) == tied * 50257 * 1024
    # without a pipeline it shares the embedding's
    module = 2 * 1024 * 1024 + 12 * 1024 * 1024  # its projection and its layer, biases aside
    assert workload.trainable_numel - plain.trainable_numel == pytest.approx(module, rel=0.005)


def test_what_cannot_be_cut_is_said() -> None:
    with pytest.raises(InvalidConfig, match=r"tp=3 does not divide heads=16; allowed here: \[1, 2"):
        tensor_overrides(GPT, 3, 1)
    with pytest.raises(InvalidConfig, match="no experts"):
        tensor_overrides(GPT, 1, 2)
    with pytest.raises(
        InvalidConfig, match="only the architectures transformer, mmdit, wan can be divided"
    ):
        tensor_overrides(MODELS["resnet-50"], 2, 1)
    with pytest.raises(InvalidConfig, match="more than its 24 layers"):
        pipeline_stages(GPT.build(), 25)


def test_equal_stretches_are_one_part() -> None:
    """Of equal layers it matters how many there are, and whether what precedes them is theirs."""
    workload = GPT.build()
    starts = workload.layer_starts
    assert len(starts) == 24 and starts[0] > 0
    part = stretch(workload, starts[3], starts[9])
    assert part is stretch(workload, starts[10], starts[16])
    assert part is not stretch(workload, starts[10], starts[17])
    assert len(part.order) == 6 and not part.input_bytes
    first = stretch(workload, 0, starts[6])
    assert first.layer_starts == starts[:6] and first.input_bytes == workload.input_bytes


def test_heads_of_attention_are_nothing_to_a_model_without_it() -> None:
    with pytest.raises(InvalidConfig) as told:
        tensor_overrides(MODELS["mamba2-2.7b"], 3, 1)
    assert [v.split(" does not divide ")[1].split("=")[0] for v in told.value.violations] == [
        "ssm_heads", "ssm_groups",
    ]  # fmt: skip


@pytest.mark.parametrize("rows", [0, 262144])
def test_every_tensor_rank_has_the_whole_table_of_layers_inputs(rows: int) -> None:
    """Zero rows mean those of the vocabulary: of the whole one, not of a rank's part."""
    model = MODELS["gemma-4-e4b"]
    model = replace(model, config={**model.config, "layer_input_vocab": rows})
    rank = model.build(**tensor_overrides(model, 4, 1))
    tables = {p.numel for b in rank.blocks for p in b.params if p.name == "layer_inputs.weight"}
    assert tables == {262144 * 42 * 256}
