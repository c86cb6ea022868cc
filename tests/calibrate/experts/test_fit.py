"""Measured expert layers: rows that the formula made come back, and what benchmarks computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from simcore import api
from simcore.calibrate.experts.fit import (
    expert_section,
    figures_of,
    rates_of,
    shipped_experts,
    time_s,
)
from simcore.calibrate.experts.rows import ExpertBatch, expert_rows, kept_bytes
from simcore.calibrate.tables import read_table

HEAD = ("gpu,dtype,op,num_tokens,hidden,inter,topk,experts,moe_tp,moe_ep,distribution,time_us,"
        "timing,kernel,framework,version,source")  # fmt: skip


def row(gpu: str, tokens: int, inter: int, ep: int, us: float, kernel: str, library: str) -> str:
    version = "0.5.10" if library == "SGLang" else "1"
    return (f"{gpu},bfloat16,moe_forward,{tokens},4096,{inter},8,128,1,{ep},balanced,{us},"
            f"graph_burst,{kernel},{library},{version},AIC/x")  # fmt: skip


def read(path: Path, rows: list[str]) -> list[ExpertBatch]:
    path.write_text("\n".join([HEAD, *rows, ""]), encoding="utf-8")
    return list(expert_rows(read_table(path)).items)


def test_a_rank_computes_its_part_of_the_choices(tmp_path: Path) -> None:
    cutlass = read(tmp_path / "a.csv", [
        row("H100-SXM-80GB", 4096, 1536, ep, 100.0, "moe_torch_flow_cutlass", "TRTLLM")
        for ep in (1, 8)
    ])[0]  # fmt: skip
    assert list(cutlass.work.rows) == [4096 * 8, 4096]
    assert list(cutlass.work.hit) == [128, 16]
    assert cutlass.work.flop[0] == 2 * 4096 * 8 * 3 * 4096 * 1536
    # SGLang 0.5.10 timed all eight choices of the tokens that have one of them on the rank
    triton = read(tmp_path / "b.csv", [
        row("H100-SXM-80GB", 4096, 1536, 64, 100.0, "sglang_fused_moe_triton", "SGLang")
    ])[0]  # fmt: skip
    assert triton.work.rows[0] == (4096 * 8 / 64) * 8
    # 256 with each of two experts, and all 3,584 of other ranks with the first: full tiles
    assert list(triton.work.tiles[:, 0]) == [256, 128, 64, 32, 16]
    lines = [row("H100-SXM-80GB", 4096, 1536, 64, 100.0, "sglang_fused_moe_triton", "SGLang")]
    layer = read(tmp_path / "c.csv", [lines[0].replace("0.5.10", "0.5.14")])[0]
    assert layer.work.rows[0] == 4096 * 8 / 64
    assert layer.work.choices[0] == 4096 * 8


def test_groups_of_experts_make_a_balanced_routing_uneven(tmp_path: Path) -> None:
    """Each of eight groups has one choice: four are taken, and four of the first experts of all.

    Of 64 ranks with four experts each, the first computes four rows of every token.
    """
    line = row("H100-SXM-80GB", 4096, 2048, 64, 100.0, "sglang_fused_moe_triton", "SGLang")
    line = line.replace(",4096,4096,2048,8,128,", ",4096,7168,2048,8,256,")
    for version, rows in (("0.5.10", 8 * 512), ("0.5.14", 4 * 4096)):
        path = tmp_path / f"{version}.csv"
        assert read(path, [line.replace("0.5.10", version)])[0].work.rows[0] == rows
    whole = line.replace("0.5.10", "0.5.14").replace(",1,64,balanced", ",1,1,balanced")
    assert read(tmp_path / "whole.csv", [whole])[0].work.rows[0] == 8 * 4096


def test_rows_are_handled_once_by_each_kernel_besides_the_products(tmp_path: Path) -> None:
    """4,096 rows of a rank are sorted and activated, where the products do neither.

    Triton's activation takes all choices of all tokens, also those of other ranks.
    """
    kernels = {
        ("moe_torch_flow_cutlass", "TRTLLM"): 2 * 4096,
        ("vllm_unquantizedfusedmoe_flashinfer_trtllm_trtllmbf16experts", "VLLM"): 0,
        ("vllm_unquantizedfusedmoe_triton_tritonexperts", "VLLM"): 8 * 4096,
    }
    for (kernel, library), handled in kernels.items():
        line = row("H200-SXM", 4096, 1536, 8, 100.0, kernel, library)
        assert read(tmp_path / f"{kernel}.csv", [line])[0].work.handled[0] == handled


def test_models_without_a_gate_have_one_product_less(tmp_path: Path) -> None:
    lines = [row("GB200", 4096, 2688, 1, 100.0, "vllm_fused_moe", "VLLM").replace(
        ",4096,2688,8,128,", ",4096,2688,22,512,").replace("VLLM,1,", f"VLLM,{version},")
        for version in ("0.22.0", "0.24.0")]  # fmt: skip
    assert list(read(tmp_path / "a.csv", lines)[0].work.halves) == [2.0, 1.0]


def test_figures_of_made_rows_come_back_and_a_family_left_out_is_not_used(tmp_path: Path) -> None:
    shapes = [("H100-SXM-80GB", n, i, e, 100.0, "moe_torch_flow_cutlass", "TRTLLM")
              for n in (512, 1024, 2048, 4096, 8192) for i in (512, 1024, 2048)
              for e in (1, 4)]  # fmt: skip
    blank = read(tmp_path / "a.csv", [row(*s) for s in shapes])[0]
    figures = {"value": 1.1, "memory": 0.8, "start_us": 30.0, "loaded": 0.7, "wave": 0.2,
               "moved_ps": 0.3, "token_ps": 0.2, "choice_ps": 100.0, "row_ps": 400.0}  # fmt: skip
    made = time_s(blank, figures) * 1e6
    rows = [row(*(*s[:4], us, *s[5:])) for s, us in zip(shapes, made, strict=True)]
    again = read(tmp_path / "b.csv", rows)
    section = expert_section(again)
    own = section["cutlass_trtllm_bfloat16"]["by_gpu"]["H100-SXM-80GB"]
    assert np.abs(time_s(again[0], own) / again[0].time_s - 1).max() < 0.03
    assert expert_section(again, {"Hopper"}) == {}


FIGURES = {"value": 1.1, "memory": 0.8, "start_us": 30.0, "loaded": 0.7, "wave": 0.2,
           "moved_ps": 0.3, "token_ps": 0.2, "choice_ps": 100.0, "row_ps": 400.0}  # fmt: skip


def test_a_class_takes_what_its_rows_do_not_determine_from_kernels_like_it(tmp_path: Path) -> None:
    """One class was timed with many shapes, another with one width and one number of ranks."""
    wide = [(n, i, e) for n in (512, 2048, 8192) for i in (512, 2048) for e in (1, 2, 4, 8, 16)]
    few = [(n, 1024, 1) for n in range(512, 512 * 27, 512)]
    flashinfer = "vllm_unquantizedfusedmoe_flashinfer_trtllm_trtllmbf16experts"

    def made(kernel: str, library: str, shapes: list[tuple[int, int, int]]) -> list[ExpertBatch]:
        def read_with(times: list[float]) -> list[ExpertBatch]:
            return read(tmp_path / "a.csv", [
                row("B200-SXM", *shape, us, kernel, library)
                for shape, us in zip(shapes, times, strict=True)
            ])  # fmt: skip

        blank = read_with([1.0] * len(shapes))[0]
        return read_with(list(time_s(blank, FIGURES) * 1e6))

    known = made("moe_torch_flow_cutlass", "TRTLLM", wide)
    narrow, asked = (made(flashinfer, "VLLM", shapes) for shapes in (few, wide))
    alone, beside = (
        np.abs(time_s(asked[0], expert_section(batches)["trtllm_vllm_bfloat16"]["pooled"])
               / asked[0].time_s - 1.0).mean()
        for batches in (narrow, narrow + known)
    )  # fmt: skip
    assert beside < 0.7 * alone


def test_a_byte_passes_memory_and_then_the_port_of_an_sm(tmp_path: Path) -> None:
    """H200: 4.8 TB/s of memory, 64 bytes a clock of 132 SMs at 1.98 GHz; clusters of 2 x 2."""
    line = row("H200-SXM", 4096, 1536, 8, 100.0, "moe_torch_flow_cutlass", "TRTLLM")
    batch = read(tmp_path / "a.csv", [line])[0]
    port = 64 * 132 * 1.98e9
    rates = rates_of(FIGURES, batch)
    assert rates.bytes_per_s == pytest.approx(0.8 / (1 / 4.8e12 + 1 / port))
    assert rates.loaded_bytes_per_s == pytest.approx(0.7 * 2 * port)


def test_weights_stay_in_l2_or_in_a_half_of_it() -> None:
    assert kept_bytes("H200-SXM") == 25 * 2**20
    assert kept_bytes("RTX-PRO-6000") == 128 * 2**20


def test_four_bit_weights_beside_eight_bit_rows_are_padded(tmp_path: Path) -> None:
    line = row("GB200", 4096, 1536, 1, 100.0, "moe_torch_flow", "TRTLLM")
    narrow = line.replace(",bfloat16,", ",w4a8_mxfp4_mxfp8,")
    work = read(tmp_path / "a.csv", [narrow])[0].work
    assert (work.weight_bytes[0], work.loaded_bytes[0]) == (0.5 + 1 / 32, 1 + 1 / 32)


def test_validate_ops_compares_expert_layers(tmp_path: Path) -> None:
    line = row("H100-SXM-80GB", 8192, 2048, 1, 100.0, "moe_torch_flow_cutlass", "TRTLLM")
    batch = read(tmp_path / "a.csv", [line])[0]
    figures, level = figures_of(shipped_experts(), batch)
    assert level == "own"
    us = time_s(batch, figures)[0] * 1e6
    path = tmp_path / "b.csv"
    path.write_text(f"{HEAD}\n{line.replace(',100.0,', f',{us / 1.25},')}\n", encoding="utf-8")
    found = api.validate_ops([path])
    assert found["kinds"]["experts"]["large"]["mape_frac"] == pytest.approx(0.25)
    assert found["summary"][0]["class"] == "expert layers of 20 GFLOP and more"
