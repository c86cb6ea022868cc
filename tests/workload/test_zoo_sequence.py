"""WaveGlow, GNMT, Transformer-XL, MPT and scripted BERT against published counts and torch."""

from __future__ import annotations

import math
import warnings
import weakref
from collections import Counter
from itertools import pairwise

import pytest
import torch
from reference import measure
from reference.meter import KernelMeter
from reference.sequence import GNMT, TransformerXL, WaveGlow
from torch.nn import functional as F
from torch.utils._python_dispatch import TorchDispatchMode

from simcore.workload.archs.body_layers import BodyList
from simcore.workload.archs.layers import LayerList
from simcore.workload.models import MODELS

transformer_xl = BodyList("transformer_xl")

bert = BodyList("bert")

gnmt, waveglow = LayerList("gnmt"), LayerList("waveglow")

_META = {"device": "meta"}


def test_waveglow_is_nvidias_268_million_and_522_7_gflop() -> None:
    workload = waveglow(name="x")
    assert workload.trainable_numel == 268_294_760
    assert measure.built_param_sizes(workload) == measure.param_sizes(WaveGlow)
    mel, audio = torch.empty(1, 80, 32, **_META), torch.empty(1, 8000, **_META)
    truth = measure.forward_flop(WaveGlow, mel, audio)
    assert workload.forward_flop == pytest.approx(truth, rel=1e-6)


def test_waveglow_saved_storages() -> None:
    workload = waveglow(name="x", segment=1024, layers=3, channels=64, flows=5)
    model = WaveGlow(flows=5, layers=3, channels=64)
    mel, audio = torch.randn(2, 80, 5), torch.randn(2, 1024)
    truth = measure.saved_bytes(model, lambda: model(mel, audio))
    weights = 4 * workload.buffers_numel  # made anew from g and v: of a batch, whatever its size
    norms = 4 * sum(
        p.numel for b in workload.instances() for p in b.params if p.name.endswith(".g")
    )
    assert 2 * measure.built_saved_bytes(workload) == pytest.approx(
        truth - weights - norms, rel=0.02
    )


def test_waveglow_layers_keep_their_copies_of_the_spectrogram() -> None:
    """80 mels in groups of 8 at 128 steps, once a layer of five flows but for the shared one."""
    size = {"segment": 1024, "layers": 3, "channels": 64, "flows": 5}
    shared, own = (waveglow(name="x", conditioning_copies=c, **size) for c in (False, True))
    assert own.saved.low - shared.saved.low == (5 * 3 - 1) * 640 * 128
    assert own.trainable_numel == shared.trainable_numel
    assert own.forward_flop == shared.forward_flop


def test_waveglow_layers_after_the_first_are_dilated() -> None:
    """By 1, 2, 4 ...: with cuDNN 7 all but the first leave matrix units, in all three passes."""
    size = {"segment": 1024, "layers": 3, "channels": 64, "flows": 5}
    for old in (False, True):
        units = "vector_units" if old else "matrix_units"
        found = {
            (op.name, len(kernels))
            for block in waveglow(name="x", dilated_convolutions=units, **size).blocks
            for op in block.ops
            if (kernels := [k for k in (*op.fwd, *op.bwd) if k.unaligned])
        }
        assert {name for name, _ in found} == ({"in1.conv", "in2.conv"} if old else set())
        assert {count for _, count in found} == ({3} if old else set())


def test_the_device_waits_for_magmas_inverse_of_each_flows_matrix() -> None:
    """8.8 ms a flow, in host launches of 10 us, once a step and in backward alone."""
    size: dict[str, int] = {"segment": 1024, "layers": 2, "channels": 64, "flows": 5}
    for inverse, waited_s in (("launched", 0.0), ("by_magma", 5 * 8.8e-3)):
        built = waveglow(name="x", inverse=inverse, **size)
        waits = [sum(k.awaited.fixed for k in kernels) for block in built.instances()
                 for op in block.ops for kernels in (op.fwd, op.bwd)]  # fmt: skip
        assert sum(waits[::2]) == 0.0
        assert sum(waits[1::2]) * 10e-6 == pytest.approx(waited_s)


def test_gnmt_has_the_published_parameters() -> None:
    workload = gnmt(name="x", hidden=1024)
    assert workload.trainable_numel == 159_593_523  # as NVIDIA's and MLPerf's logs print it
    assert measure.built_param_sizes(workload) == measure.param_sizes(
        lambda: GNMT(31794, 1024, 4, 0.2)
    )


@pytest.mark.parametrize("layers", [3, 5])
def test_gnmt_flop(layers: int) -> None:
    tokens = torch.zeros(2, 7, dtype=torch.int64, **_META)
    truth = measure.forward_flop(lambda: GNMT(100, 64, layers, 0.0), tokens, tokens)
    ours = gnmt(name="x", layers=layers, hidden=64, vocab=100, seq_len=7, dropout=0.0)
    assert 2 * ours.forward_flop == pytest.approx(truth, rel=0.01)


@pytest.mark.parametrize(
    ("padded", "vocab", "loaded"),
    [(True, 31794, 8), (False, 31794, 2), (False, 31800, 8), (False, 31793, 1)],
)
def test_rows_of_gnmts_logits_begin_where_its_vocabulary_lets_them(
    padded: bool, vocab: int, loaded: int
) -> None:
    """31,794 words are what NVIDIA's program prints without padding, 31,800 with it."""
    head = gnmt(name="x", hidden=1024, vocab=vocab, padded_vocab=padded).blocks[-1]
    (classifier,) = (op for op in head.ops if op.name == "classifier")
    products = [k for k in (*classifier.fwd, *classifier.bwd) if k.kind == "gemm"]
    assert len(products) == 3 and {k.load_elems for k in products} == {loaded}


def test_gnmt_saved_storages() -> None:
    batch, steps, hidden, vocab = 2, 24, 64, 300
    model = GNMT(vocab, hidden, 4, 0.2)
    tokens = torch.zeros(batch, steps, dtype=torch.int64)

    def step() -> torch.Tensor:
        nonlocal logits
        logits = model(tokens, tokens)
        return F.cross_entropy(logits.flatten(0, 1), tokens.flatten())

    logits = torch.empty(0)
    with torch.backends.mkldnn.flags(enabled=False):
        step()
        truth = measure.saved_bytes(model, step, held=())
    # The CPU keeps each step's state apart and stacks them into a copy, where cuDNN has one output;
    # the attention's query layer keeps the only such copy that no dropout replaces.
    copies = 4 * batch * steps * hidden
    ours = batch * measure.built_saved_bytes(
        gnmt(name="x", hidden=hidden, vocab=vocab, seq_len=steps)
    )
    assert ours == pytest.approx(truth - copies + logits.nbytes, rel=0.02)


_XL = {"layers": 3, "hidden": 64, "heads": 4, "head_dim": 16, "ffn": 128, "vocab": 500}


def _xl_module(drop: float) -> TransformerXL:
    return TransformerXL(3, 64, 4, 16, 128, 500, drop)


def test_transformer_xl_parameters() -> None:
    assert measure.built_param_sizes(
        transformer_xl(name="x", adaptive=False, **_XL)
    ) == measure.param_sizes(lambda: _xl_module(0.1))
    # as published runs print them, in millions
    full = {"layers": 18, "hidden": 1024, "heads": 16, "ffn": 4096}
    assert transformer_xl(name="x", adaptive=False, **full).trainable_numel == 519_963_095
    assert transformer_xl(name="x", div=4, **full).trainable_numel == 285_167_482


def test_transformer_xl_flop() -> None:
    def truth(batch: int) -> float:
        tokens = torch.zeros(batch, 12, dtype=torch.int64, **_META)
        memory = torch.empty(batch, 3, 20, 64, **_META)
        return measure.forward_flop(lambda: _xl_module(0.0), tokens, memory)

    ours = transformer_xl(name="x", adaptive=False, seq_len=12, memory=20, dropout=0.0, **_XL)
    # positions are projected once, whatever the batch
    assert ours.forward_flop == pytest.approx(truth(3) - truth(2), rel=1e-9)


@pytest.mark.parametrize("drop", [0.0, 0.1])
def test_transformer_xl_saved_storages(drop: float) -> None:
    t, m, vocab = 24, 24, 500
    model = _xl_module(drop)
    ours = transformer_xl(name="x", adaptive=False, seq_len=t, memory=m, dropout=drop, **_XL)

    def truth(batch: int) -> int:
        tokens, memory = torch.zeros(batch, t, dtype=torch.int64), torch.randn(batch, 3, m, 64)
        kept: list[torch.Tensor] = []

        def step() -> torch.Tensor:
            kept[:] = [model(tokens, memory)]
            return F.cross_entropy(kept[0].flatten(0, 1), tokens.flatten())

        return measure.saved_bytes(model, step) + batch * 4 * t * vocab  # the logits are held

    held = 4 * m * 64 * 4  # the new memory is kept outside autograd
    assert measure.built_saved_bytes(ours) - held == pytest.approx(truth(3) - truth(2), rel=0.02)


@pytest.mark.parametrize(
    ("name", "published_m"),
    [("mpt-125m", 125.311), ("mpt-350m", 355.985), ("mpt-760m", 760.471), ("mpt-1b", 1315.95)],
)
def test_mpt_has_the_parameters_that_its_benchmarks_print(name: str, published_m: float) -> None:
    assert MODELS[name].build().trainable_numel / 10**6 == pytest.approx(published_m, abs=0.005)


def test_mpt_positions_follow_the_length() -> None:
    longer = MODELS["mpt-125m"].build(seq_len=16384)
    assert longer.trainable_numel / 10**6 == pytest.approx(136.322, abs=0.001)


def test_scripted_gelu_keeps_its_three_factors() -> None:
    size = {"layers": 1, "hidden": 64, "heads": 4, "seq_len": 32}
    ours = [bert(name="x", gelu=g, **size) for g in ("fused", "scripted")]
    x = torch.randn(32, 256, requires_grad=True)
    y = x * 1.0
    found = {}
    with torch.autograd.graph.saved_tensors_hooks(
        lambda t: found.setdefault(t.untyped_storage().data_ptr(), t), lambda t: t
    ):
        y = y * 0.5 * (1.0 + torch.erf(y / math.sqrt(2)))
    truth = sum(t.untyped_storage().nbytes() for t in found.values())
    fused = 4 * 32 * 256
    saved = [measure.built_saved_bytes(w) for w in ours]
    assert saved[1] - saved[0] == truth - fused == 2 * fused
    with pytest.raises(ValueError, match="gelu 'exact'"):
        bert(name="x", gelu="exact", **size)


class _Scripted(torch.autograd.Function):
    """A function that keeps its results as PyTorch before 1.7 kept those of scripted ones.

    Not by ``save_for_backward``, which is released when backward has run, but with the node.
    """

    @staticmethod
    def forward(ctx, x):  # type: ignore[no-untyped-def]
        ctx.kept = torch.tanh(x)
        _ALIVE.add(ctx.kept)
        return ctx.kept * 2.0

    @staticmethod
    def backward(ctx, grad):  # type: ignore[no-untyped-def]
        return grad * 2.0 * (1.0 - ctx.kept**2)


_ALIVE: weakref.WeakSet[torch.Tensor] = weakref.WeakSet()


def test_what_a_node_keeps_is_there_twice_when_the_next_forward_is_through() -> None:
    """The loop of NVIDIA's examples: the last loss is named until the next one is there."""
    weight = torch.ones(8, requires_grad=True)
    for step in range(3):
        new = _Scripted.apply(weight * 1.0).sum()
        assert len(_ALIVE) == (1 if step == 0 else 2)
        loss = new
        del new
        loss.backward()
    assert len(_ALIVE) == 1  # beside those of the next forward, as the next test has it


def test_scripts_of_old_torch_hold_the_last_step_s() -> None:
    size = {"layers": 3, "hidden": 64, "heads": 4, "seq_len": 32}
    new, old = (
        bert(name="x", gelu="scripted", scripted_activations=h, **size)
        for h in ("released", "held")
    )
    assert old.saved.low - new.saved.low == 3 * (3 * 32 * 256)  # layers, factors
    flows = {"segment": 1024, "layers": 3, "channels": 64, "flows": 5}
    new, old = (waveglow(name="x", scripted_activations=h, **flows) for h in ("released", "held"))
    assert old.saved.low - new.saved.low == 5 * 3 * (2 * 64 * 128)  # both halves of each gate


def test_gelu_behind_a_bias_is_one_kernel_more_and_keeps_its_input_alone() -> None:
    size = {"layers": 1, "hidden": 64, "heads": 4, "seq_len": 32}
    fused, biased = (bert(name="x", gelu=g, **size) for g in ("fused", "separate_bias"))
    assert biased.saved == fused.saved
    launches = [
        sum(k.launches for b in w.instances() for op in b.ops for k in op.fwd)
        for w in (fused, biased)
    ]
    assert launches[1] - launches[0] == 1


class _Made(TorchDispatchMode):
    """How often an operator made or changed a tensor of so many elements."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: Counter[tuple[str, int]] = Counter()

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
        out = func(*args, **(kwargs or {}))
        if isinstance(out, torch.Tensor) and not func.is_view:
            self.seen[func._overloadpacket.__name__, out.numel()] += 1
        return out


def _adaptive_backward(rows: int, width: int, cutoffs: list[int]) -> Counter[tuple[str, int]]:
    """Backward of NVIDIA's proj_adaptive_softmax.py, tied to the embedding, ``div_val`` 1."""
    table = torch.randn(cutoffs[-1], width, requires_grad=True)
    clusters = torch.randn(len(cutoffs) - 1, width, requires_grad=True)
    target = torch.arange(rows) % cutoffs[-1]
    hidden = F.embedding(target.flip(0), table)
    weight = torch.cat([table[: cutoffs[0]], clusters])
    head = F.log_softmax(F.linear(hidden, weight), dim=1)
    found, begins = [], [0, *cutoffs]
    for i, (low, high) in enumerate(pairwise(begins)):
        chosen = ((target >= low) & (target < high)).nonzero().squeeze()
        words, mine = target.index_select(0, chosen) - low, head.index_select(0, chosen)
        if i:
            tail = F.log_softmax(F.linear(hidden.index_select(0, chosen), table[low:high]), dim=1)
            found.append(mine[:, -i] + tail.gather(1, words[:, None]).squeeze(1))
        else:
            found.append(mine.gather(1, words[:, None]).squeeze(1))
    loss = -torch.cat(found).sum()
    with _Made() as made:
        loss.backward()
    return made.seen


def test_adaptive_softmax_gradients_of_all_rows_and_of_the_whole_table() -> None:
    """Each cluster's as large as all, and summed: counted in torch's own backward."""
    rows, width, cutoffs = 60, 8, [10, 30, 50, 59]
    made = _adaptive_backward(rows, width, cutoffs)
    full, table = rows * (cutoffs[0] + 3), cutoffs[-1] * width
    zeros = made["new_zeros", full] + made["zeros", full]
    assert (zeros, made["index_add", full], made["add", full]) == (4, 4, 3)
    slices = made["slice_backward", table]
    assert (slices, made["embedding_dense_backward", table], made["add", table]) == (4, 1, 4)

    workload = transformer_xl(name="x", layers=1, hidden=8, heads=1, ffn=8, seq_len=60)
    ops = {op.name: op for b in workload.blocks if b.name == "head" for op in b.ops}
    short = 60 * (19997 + 3)
    moved = sum(k.high for k in ops["short.rows"].bwd) / short
    # zeros written, rows read and added to what is there, sums of four; and gather's own zeros
    assert moved == 4 + 3 + 3 * 3 + 1
    tied = sum(k.weight for k in ops["tie"].bwd) / (267735 * 8)
    assert tied == 4 + 2 + 3 * 4  # zeros, slices read and written, sums of five
    own = transformer_xl(name="x", layers=1, hidden=64, heads=1, ffn=8, seq_len=60, div=4)
    tie = next(op for b in own.blocks for op in b.ops if op.name == "tie")
    tables = sum(p.numel for b in own.blocks for p in b.params if p.name.startswith("tokens"))
    assert sum(k.weight for k in tie.bwd) == 3 * tables


def test_transformer_xl_knows_dropout_of_attention_apart() -> None:
    plain, none = (
        transformer_xl(name="x", adaptive=False, attention_dropout=p, **_XL) for p in (-1.0, 0.0)
    )
    names = [{op.name for b in w.blocks for op in b.ops} for w in (plain, none)]
    assert names[0] - names[1] == {"softmax.dropout"}


def test_gnmts_loss_moves_what_smoothing_moves() -> None:
    """``LabelSmoothing`` of NVIDIA's smoothing.py in fp32, watched by the dispatcher."""
    rows, vocab = 40, 500
    x = torch.randn(rows, vocab, requires_grad=True)
    target = torch.randint(0, vocab, (rows,))
    with KernelMeter() as forward:
        logprobs = F.log_softmax(x, dim=-1, dtype=torch.float32)
        nll = -logprobs.gather(dim=-1, index=target.unsqueeze(1)).squeeze(1)
        loss = (0.9 * nll - 0.1 * logprobs.mean(dim=-1)).sum()
    with KernelMeter() as backward:
        loss.backward()
    full = rows * vocab
    # gather reads one element a row, not all; scatter writes one into zeros
    assert round(sum(forward.elems.values()) / full) - 1 == 3
    scattered = backward.elems["aten.scatter_add_"] + backward.elems["aten.scatter_add"]
    moved = round((sum(backward.elems.values()) - scattered) / full)
    built = gnmt(name="x", hidden=64, vocab=vocab, seq_len=rows, dropout=0.0)
    (ours,) = [op for b in built.blocks for op in b.ops if op.name == "loss"]
    ours_fwd, ours_bwd = (
        sum(k.low + k.raw_bytes / 4 for k in kernels) / full for kernels in (ours.fwd, ours.bwd)
    )
    assert round(ours_fwd) == 3
    assert round(ours_bwd) == moved


def _scripted_gate(a: torch.Tensor, b: torch.Tensor, n: int) -> torch.Tensor:
    x = a + b
    return torch.tanh(x[:, :n, :]) * torch.sigmoid(x[:, n:, :])


def test_waveglow_gate_goes_back_through_the_slices_that_torchscript_has() -> None:
    """Two a half and one that both share: gradients laid into zeros, and one sum of halves."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # TorchScript is deprecated
        gate = torch.jit.script(_scripted_gate)
    a, b = (torch.randn(2, 8, 16, requires_grad=True) for _ in range(2))
    for _ in range(3):  # profiled, then optimised
        gate(a, b, 4).sum().backward()
    result = gate(a, b, 4)
    given = torch.ones_like(result)
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]) as seen:
        torch.autograd.grad(result, (a, b), given)
    names = [e.name for e in seen.events()]
    slices, sums = names.count("SliceBackward0"), names.count("aten::add_")
    assert (slices, sums) == (5, 1)
    small = {"segment": 1024, "layers": 2, "channels": 64, "flows": 1}
    op = next(
        op for block in waveglow(name="x", **small).blocks for op in block.ops if op.name == "gate"
    )
    half = 64 * 128
    # the fused kernel, zeros and a copy a slice, the sum of both halves
    assert sum(k.launches for k in op.bwd) == 1 + 2 * slices + sums
    assert sum(k.low for k in op.bwd if k.kind == "copy") == 2 * (4 * half + 2 * half)
    zeros = 2 * half + 2 * 2 * half + 2 * half
    assert sum(k.low for k in op.bwd if k.kind == "elementwise") == 5 * half + zeros + 6 * half
