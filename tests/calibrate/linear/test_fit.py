"""Fits of linear attention's kernels: rows made from known figures give these back."""

from __future__ import annotations

from dataclasses import replace
from math import ceil, hypot
from pathlib import Path

import numpy as np
import pytest

from simcore.calibrate.linear.fit import linear_levels, linear_time_s
from simcore.calibrate.linear.rows import LinearBatch, linear_rows
from simcore.calibrate.tables import read_table
from simcore.hardware.linear_attention import BlockFigures, figures_in, linear_attention_tables
from simcore.hardware.profile import load_profile
from simcore.hardware.spec import GPUS

HEAD = ("gpu,dtype,op,kernel,phase,batch,seq,k_heads,head_k_dim,v_heads,head_v_dim,d_conv,"
        "time_us,framework,source\n")  # fmt: skip
GPU = GPUS["H100-SXM-80GB"]


def read(tmp_path: Path, *rows: str) -> tuple[LinearBatch, ...]:
    file = tmp_path / "linear.csv"
    file.write_text(HEAD + "\n".join(rows) + "\n")
    return linear_rows(read_table(file)).items


def test_a_convolution_by_hand(tmp_path: Path) -> None:
    """q, k and v of 16, 16 and 32 heads of 128: 8192 channels, each read and written in bf16."""
    (batch,) = read(tmp_path, "H100-SXM-80GB,bf16,gdn,causal_conv1d_fn,context,4,16384,16,128,32,"
                    "128,4,100,SGLang,AIC/x")  # fmt: skip
    elems = 4 * 16384 * 8192.0
    assert (batch.cls, batch.n_bytes.tolist(), batch.work.tolist()) == (
        "causal_conv", [[4 * elems]], [[elems]],
    )  # fmt: skip
    figures = BlockFigures(work_per_clock=3.0, start_s=3e-6)
    waves = ceil(4 * 256 * 128 / 132)
    busy_s = waves * (64 * 64 / 3.0) / 1.98e9
    moved_s = 4 * elems / (3.35e12 * load_profile().memory_efficiency("elementwise", GPU).value)
    found = linear_time_s(batch, GPU, figures)
    assert found == pytest.approx([3e-6 + hypot(busy_s, moved_s)], rel=1e-9)


def test_tensors_that_fit_the_cache_cost_no_memory_traffic(tmp_path: Path) -> None:
    row = "H100-SXM-80GB,bf16,gdn,causal_conv1d_fn,context,1,128,1,128,2,128,4,5,SGLang,AIC/x"
    (batch,) = read(tmp_path, row)
    blocks, figures = 2 * 8, BlockFigures(work_per_clock=3.0, start_s=3e-6)
    assert blocks < 132
    assert linear_time_s(batch, GPU, figures) == pytest.approx([3e-6 + 64 * 64 / 3.0 / 1.98e9])


def test_the_sweep_of_tensorrt_llm_convolves_keys_alone(tmp_path: Path) -> None:
    (batch,) = read(tmp_path, "H100-SXM-80GB,bf16,gdn,causal_conv1d_fn,context,8,2048,16,128,64,"
                    "128,4,100,TRTLLM,AIC/x")  # fmt: skip
    assert batch.n_bytes.tolist() == [[4.0 * 8 * 2048 * 2048]]
    assert batch.blocks.tolist() == [[8.0 * 2048 * 2]]  # 1024 tokens of a channel each


def test_unknown_calls_are_skipped_by_name(tmp_path: Path) -> None:
    file = tmp_path / "linear.csv"
    row = "H100-SXM-80GB,bf16,gdn,{},{},1,128,1,128,2,128,4,5,SGLang,AIC/x"
    file.write_text(HEAD + row.format("other", "context") + "\n"
                    + row.format("causal_conv1d_fn", "generation") + "\n")  # fmt: skip
    found = linear_rows(read_table(file))
    assert not found.items
    assert dict(found.skipped) == {
        "other of SGLang in phase context is not known": 1,
        "causal_conv1d_fn of SGLang in phase generation is not known": 1,
    }


def test_devices_that_were_not_measured_are_priced_by_family_or_refused_in_words(
    tmp_path: Path,
) -> None:
    row = ",bf16,gdn,causal_conv1d_fn,context,4,4096,16,128,32,128,4,150,SGLang,AIC/x"
    names = ("GB300", "A100-SXM-80GB", "TPU-v5e")
    batches = {b.gpu: b for b in read(tmp_path, *(name + row for name in names))}
    table = linear_attention_tables()["causal_conv"]
    for gpu, expected in zip(names, ("family", "pooled", ""), strict=True):
        figures, level = figures_in(table, GPUS[gpu])
        if expected:
            assert level == expected
            assert linear_time_s(batches[gpu], GPUS[gpu], figures)[0] > 0
        else:
            with pytest.raises(KeyError, match="SMs or their clock is not known"):
                linear_time_s(batches[gpu], GPUS[gpu], figures)


def test_figures_come_back_from_rows_made_with_them(tmp_path: Path) -> None:
    rows = [
        f"{gpu},bf16,gdn,chunk_gated_delta_rule,context,{batch},{seq},16,128,32,128,4,100,TRTLLM,"
        "AIC/x"
        for gpu in ("H100-SXM-80GB", "B200-SXM") for batch in (1, 2, 8, 32)
        for seq in (64, 256, 1024, 4096, 16384)
    ]  # fmt: skip
    made = {
        "H100-SXM-80GB": BlockFigures(450.0, 1600.0, start_s=3e-6),
        "B200-SXM": BlockFigures(380.0, 1500.0, start_s=2e-6),
    }
    batches = [
        replace(b, time_s=linear_time_s(b, GPUS[b.gpu], made[b.gpu])) for b in read(tmp_path, *rows)
    ]
    table = linear_levels(batches)["delta_rule"]
    for gpu, figures in made.items():
        found, level = figures_in(table, GPUS[gpu])
        assert level == "own"
        assert found.work_per_clock == pytest.approx(figures.work_per_clock, rel=0.03)
        assert found.chain_flop_per_clock == pytest.approx(figures.chain_flop_per_clock, rel=0.05)
    without = linear_levels(batches, {"Hopper"})["delta_rule"]
    assert "H100-SXM-80GB" not in without["by_gpu"] and "Hopper" not in without["by_family"]
    assert figures_in(without, GPUS["H100-SXM-80GB"])[1] == "pooled"


def test_sms_of_all_generations_do_about_the_same_a_clock() -> None:
    """The reason why figures carry over to devices that were not measured."""
    for cls, least in (("causal_conv", 0.9), ("delta_rule", 0.8)):
        of_family = linear_attention_tables()[cls]["by_family"]
        values = np.log([leaf["value"] for leaf in of_family.values()])
        assert np.exp(-np.std(values)) > least
