"""FLOP and saved activations of small configs against transformers on the CPU, in fp32.

FLOP with attention written out and the experts one by one, which torch's counter sees; saved
storages with the experts' products grouped, as transformers runs them on a GPU.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from huggingface import cases
from reference import measure
from torch import Tensor, nn
from torch.utils.flop_counter import FlopCounterMode

from simcore.workload.graph import Workload
from simcore.workload.huggingface import read_config

_BATCH, _SEQ = 2, 24
#: Dropout on the CPU is other kernels than on a GPU: off.
_DROPOUTS = (
    "resid_pdrop", "embd_pdrop", "attn_pdrop", "dropout", "dropout_rate", "hidden_dropout_prob",
    "activation_dropout", "attention_probs_dropout_prob", "attention_dropout",
    "seq_classif_dropout", "classifier_dropout_prob",
)  # fmt: skip
#: What transformers' own fused attention runs; the others are compared written out.
_DINO = ("dinov2", "dinov2_with_registers")
_FUSED = ("vit", *_DINO, "whisper", "clip", "siglip")
#: transformers 5 weighs and adds up each expert's rows; the switch layers here are those before it.
#: The sinks of Granite's windows, written out, scale results by a sigmoid of each row's sum, which
#: is left out: fused kernels take them as gpt_oss's.
#: Streams are cast to fp32 for their weights, here to what they are: the copy counts for 16 bits.
_OTHER_STORAGES = ("switch_transformers", "granite_swa", "granitemoe_swa", "deepseek_v4")
#: Parts of a step are one for the whole batch: a sample's own are in ``test_encoders.py``.
_PER_BATCH = ("deberta-v2", "wav2vec2", "hubert")
#: Counted as the kernels that a GPU has: on the CPU transformers runs other tensor operations
#: (``tests/workload/test_ssd.py`` and ``test_delta.py`` count these).
_SCANS = ("mamba2", "nemotron_h", "qwen3_next", "qwen3_5_text", "qwen3_5_moe_text",
          "minimax", "kimi_linear", "zamba2", "jamba", "falcon_h1", "bamba",
          "granitemoehybrid", "mamba", "falcon_mamba", "olmo_hybrid",
          "bailing_hybrid")  # fmt: skip
#: The taps of their depthwise convolutions are left out (``ops.causal_conv``).
_SHORT_CONVOLUTIONS = ("lfm2", "lfm2_moe", "lfm3")
#: Indexers compute the causal half of their scores; transformers computes all of them.
_INDEXERS = ("deepseek_v32", "glm_moe_dsa", "minimax_m3_vl_text", "deepseek_v4")
#: An indexer whose tensors transformers saves and at once releases, since nothing needs them.
_RELEASED = ("minimax_m3_vl_text",)


def _config(case: str, attention: str) -> Any:
    config = cases.config_of(case)
    off = {key: 0.0 for key in _DROPOUTS if hasattr(config, key)}
    config = cases.config_of(case, **off)
    config._attn_implementation = attention
    return config


def _inputs(config: Any) -> dict[str, Any]:
    torch.manual_seed(0)
    ids = torch.randint(3, 100, (_BATCH, _SEQ))
    kind = config.model_type
    if kind in ("clip", "siglip"):
        pixels = torch.randn(_BATCH, 3, 32, 32)
        return {"input_ids": ids, "pixel_values": pixels, "return_loss": True}
    if kind in ("vit", *_DINO):
        pixels = torch.randn(_BATCH, config.num_channels, 32, 32)
        return {"pixel_values": pixels, "labels": torch.tensor([0, 1])}
    if kind == "whisper":
        return {"input_features": torch.randn(_BATCH, 16, 100), "labels": ids}
    if "Sequence" in config.architectures[0]:
        return {"input_ids": ids, "labels": torch.tensor([0, 1])}
    return {"input_ids": ids, "labels": ids}


def _workload(config: Any, folder: Path) -> Workload:
    record = read_config(cases.written(config, folder))
    images = record.arch in ("vit", "vit_rotary")
    overrides: dict[str, Any] = {} if images else {"seq_len": _SEQ}
    if record.arch in ("transformer", "bert", "albert", "modernbert", "bart"):
        overrides["attention"] = "math" if record.arch == "transformer" else "eager"
    return record.build(**overrides)


def _model(config: Any, experts: str) -> nn.Module:
    torch.manual_seed(0)
    model = cases.model_of(config, "cpu").train()
    # (dbrx loops over its experts and llama4 multiplies them all, whatever is asked for)
    if any("experts" in n for n, _ in model.named_modules()) and (
        model._can_set_experts_implementation()
    ):
        model.set_experts_implementation(experts)
    return model


_UNCOUNTED = (*_FUSED, *_PER_BATCH, *_SCANS, *_SHORT_CONVOLUTIONS, *_INDEXERS)


@pytest.mark.parametrize("case", [c for c in cases.CASES if c.split()[0] not in _UNCOUNTED])
def test_flop_match_the_counter(case: str, tmp_path: Path) -> None:
    config = _config(case, "eager")
    model, inputs = _model(config, "eager"), _inputs(config)
    with FlopCounterMode(display=False) as counter:
        model(**inputs)
    truth = counter.get_total_flops() / _BATCH
    assert _workload(config, tmp_path).forward_flop == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize(
    ("case", "indexers", "heads", "weighted"),
    [
        ("deepseek_v32", 3, 3, True),
        ("glm_moe_dsa", 2, 3, True),
        ("minimax_m3_vl_text", 2, 2, False),
    ],
)
def test_flop_of_indexers_match_but_for_the_causal_half(
    case: str, indexers: int, heads: int, weighted: bool, tmp_path: Path
) -> None:
    config = _config(case, "eager")
    with FlopCounterMode(display=False) as counter:
        _model(config, "eager")(**_inputs(config))
    # half of the pairs, and the product of scores and weights, which a kernel adds up as it goes
    skipped = indexers * _SEQ**2 * heads * (config.index_head_dim + 2 * weighted)
    truth = counter.get_total_flops() / _BATCH - skipped
    assert _workload(config, tmp_path).forward_flop == pytest.approx(truth, rel=1e-9)


def test_flop_of_compressed_attention_match_but_for_the_causal_half(tmp_path: Path) -> None:
    config = _config("deepseek_v4", "eager")
    with FlopCounterMode(display=False) as counter:
        _model(config, "eager")(**_inputs(config))
    entries = _SEQ // config.compress_rates["compressed_sparse_attention"]
    selecting = config.layer_types.count("compressed_sparse_attention")
    skipped = selecting * _SEQ * entries * config.index_n_heads * config.index_head_dim
    truth = counter.get_total_flops() / _BATCH - skipped
    assert _workload(config, tmp_path).forward_flop == pytest.approx(truth, rel=1e-9)


def test_storages_of_compressed_attention_and_streams(tmp_path: Path) -> None:
    config = _config("deepseek_v4", "eager")
    model, inputs = _model(config, "grouped_mm"), _inputs(config)

    def step() -> Tensor:
        return model(**inputs).loss  # type: ignore[no-any-return]

    step()
    truth = measure.saved_bytes(model, step)
    # the copies of the streams in fp32, which are the streams here: one for each half of a layer
    # and one for the head
    parts = 2 * config.num_hidden_layers + 1
    copies = 4.0 * parts * config.hc_mult * _BATCH * _SEQ * config.hidden_size
    ours = measure.built_saved_bytes(_workload(config, tmp_path)) * _BATCH - copies
    assert ours == pytest.approx(truth, rel=0.05)


@pytest.mark.parametrize("case", _SHORT_CONVOLUTIONS)
def test_flop_of_short_convolutions_match_but_for_their_taps(case: str, tmp_path: Path) -> None:
    config = _config(case, "eager")
    with FlopCounterMode(display=False) as counter:
        _model(config, "eager")(**_inputs(config))
    taps, hidden = config.conv_L_cache, config.hidden_size
    left_out = 2 * 2 * (_SEQ + taps - 1) * hidden * taps  # of two layers
    truth = counter.get_total_flops() / _BATCH - left_out
    assert _workload(config, tmp_path).forward_flop == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("case", ["vit", "dinov2", "dinov2 gated", "dinov2_with_registers"])
def test_flop_of_image_models_match_the_counter(case: str, tmp_path: Path) -> None:
    config = _config(case, "eager")
    with FlopCounterMode(display=False) as counter:
        _model(config, "eager")(**_inputs(config))
    truth = counter.get_total_flops() / _BATCH
    assert _workload(config, tmp_path).forward_flop == pytest.approx(truth, rel=1e-9)


def test_flop_of_siglip_match_the_counter(tmp_path: Path) -> None:
    config = _config("siglip", "eager")
    with FlopCounterMode(display=False) as counter:
        _model(config, "eager")(**_inputs(config))
    # the loss multiplies all texts with all images: 2 B² width, left out
    truth = (counter.get_total_flops() - 2 * _BATCH**2 * 48) / _BATCH
    assert _workload(config, tmp_path).forward_flop == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize("case", ["whisper", "clip"])
def test_flop_match_the_counter_but_for_the_causal_half(case: str, tmp_path: Path) -> None:
    config = _config(case, "eager")
    with FlopCounterMode(display=False) as counter:
        _model(config, "eager")(**_inputs(config))
    layers = 3 if case == "clip" else 2  # of the tower whose attention is causal
    # CLIP's loss multiplies all texts with all images: 2 B² projection, left out
    pairs = 2 * _BATCH**2 * 24 if case == "clip" else 0
    skipped = layers * 2 * _SEQ**2 * 48
    truth = (counter.get_total_flops() - pairs) / _BATCH - skipped
    assert _workload(config, tmp_path).forward_flop == pytest.approx(truth, rel=1e-9)


@pytest.mark.parametrize(
    "case",
    [
        c
        for c in cases.CASES
        if c.split()[0] not in (*_OTHER_STORAGES, *_PER_BATCH, *_SCANS, *_RELEASED)
    ],
)
def test_saved_storages_match_a_real_forward(case: str, tmp_path: Path) -> None:
    config = _config(case, "sdpa" if case.split()[0] in _FUSED else "eager")
    model, inputs = _model(config, "grouped_mm"), _inputs(config)
    held: list[Tensor] = []

    def step() -> Tensor:
        out = model(**inputs)
        held[:] = [] if getattr(out, "logits", None) is None else [out.logits]
        return out.loss  # type: ignore[no-any-return]

    step()
    truth = measure.saved_bytes(model, step)
    workload = _workload(config, tmp_path)
    if read_config(cases.written(config, tmp_path)).arch != "transformer":
        # a decoder's step lets go of its logits before backward; of other models it holds them
        truth += sum(t.untyped_storage().nbytes() for t in held)
    if case == "dbrx":
        # its loop over experts adds rows up by index_add_, which keeps the weighted ones as well
        rows = _BATCH * _SEQ * config.ffn_config.moe_top_k
        truth -= 4 * config.n_layers * rows * config.d_model
    if case == "longcat_flash":
        # so does this one, of computed rows and of those of experts that return their input, which
        # it also copies
        chosen, zero = config.moe_topk, config.zero_expert_num
        rows = _BATCH * _SEQ * config.num_layers
        truth -= 4 * rows * (chosen + zero) * config.hidden_size
    ours = measure.built_saved_bytes(workload) * _BATCH
    # these are tiny: the cosines, masks and labels that a step makes once weigh up to 1 %
    assert ours == pytest.approx(truth, rel=0.02)


@pytest.mark.parametrize("width", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize(
    "case",
    ["llama", "qwen2", "qwen3", "gemma", "gemma3_text", "gpt_neox", "gpt2", "phi3", "opt", "phi",
     "nemotron", "olmo2", "granite", "smollm3", "glm", "stablelm"],
)  # fmt: skip
def test_fused_attention_and_16_bit_save_what_transformers_saves(
    case: str, width: torch.dtype, tmp_path: Path
) -> None:
    # pure 16-bit training keeps some storages in fp32: norms' inputs, the log-probabilities
    config = _config(case, "sdpa")
    model = _model(config, "eager").to(width)
    inputs = {**_inputs(config), "use_cache": False}

    def step() -> Tensor:  # the logits are let go of before backward
        return model(**inputs).loss  # type: ignore[no-any-return]

    step()
    truth = measure.saved_bytes(model, step)
    saved = read_config(cases.written(config, tmp_path)).build(seq_len=_SEQ).saved
    ours = width.itemsize * (saved.low + saved.high + saved.matmul) + saved.raw_bytes
    assert ours * _BATCH == pytest.approx(truth, rel=0.02)
