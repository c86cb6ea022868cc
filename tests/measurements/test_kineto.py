"""Traces whose every microsecond is known: by hand, from a prediction, from torch itself."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pytest
from kineto_traces import COLLECTIVES, KINDS, PARTS, STEP_US, gpu_trace

from simcore import api
from simcore.base.errors import DataError, InvalidConfig
from simcore.measurements.kineto import stream
from simcore.measurements.kineto.breakdown import Breakdown, breakdown, windows_of
from simcore.measurements.kineto.kinds import collective_of, is_optimizer_kernel, kind_of
from simcore.measurements.kineto.trace import read_trace

MICRO = 1e-6


def saved(folder: Path, data: Any, name: str = "trace.json") -> Path:
    path = folder / name
    text = json.dumps(data)
    if name.endswith(".gz"):
        path.write_bytes(gzip.compress(text.encode()))
    else:
        path.write_text(text, encoding="utf-8")
    return path


def taken_apart(path: Path, **words: Any) -> Breakdown:
    trace = read_trace(path)
    windows, how = windows_of(trace, **words)
    return breakdown(trace, windows, how)


@pytest.mark.parametrize("name", ["trace.json", "trace.json.gz"])
def test_every_microsecond_of_a_step(name: str, tmp_path: Path) -> None:
    found = taken_apart(saved(tmp_path, gpu_trace(), name))
    assert found.step_s == pytest.approx(STEP_US * MICRO)
    assert found.n_steps == 2 and found.how == "mean of ProfilerStep#5 to 6"
    assert found.parts == pytest.approx({k: v * MICRO for k, v in PARTS.items()}, abs=1e-9)
    assert found.kinds == pytest.approx({k: v * MICRO for k, v in KINDS.items()}, abs=1e-9)
    assert sum(found.parts.values()) == pytest.approx(found.step_s)
    for op, (whole, exposed) in COLLECTIVES.items():
        assert found.collectives[op] == pytest.approx((whole * MICRO, exposed * MICRO), abs=1e-9)


def test_the_first_of_several_devices_counts(tmp_path: Path) -> None:
    data = gpu_trace()
    other = [{**e, "pid": 1, "args": {**e["args"], "device": 1}} for e in data["traceEvents"]
             if e.get("cat") == "kernel"]  # fmt: skip
    for event in other:
        event["ts"] += 300.0
    data["traceEvents"] += other
    found = taken_apart(saved(tmp_path, data))
    assert found.parts == pytest.approx({k: v * MICRO for k, v in PARTS.items()}, abs=1e-9)


def test_steps_by_updates_by_number_and_by_a_window(tmp_path: Path) -> None:
    unmarked = taken_apart(saved(tmp_path, gpu_trace(marked=False)))
    assert unmarked.how == "from optimizer step to optimizer step"
    assert unmarked.step_s == pytest.approx(STEP_US * MICRO)
    assert unmarked.parts["backward"] == pytest.approx(PARTS["backward"] * MICRO)
    path = saved(tmp_path, gpu_trace())
    assert taken_apart(path, step=6).n_steps == 1
    part = taken_apart(path, window_s=(120 * MICRO, 250 * MICRO))
    assert part.parts["forward"] == pytest.approx(130 * MICRO)
    with pytest.raises(InvalidConfig, match="has ProfilerStep#5, ProfilerStep#6"):
        taken_apart(path, step=9)
    alone = taken_apart(saved(tmp_path, gpu_trace(1, marked=False)))
    assert alone.how.startswith("the whole trace")


@pytest.mark.parametrize(
    ("name", "op", "kind"),
    [
        ("void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_32x3_nn_align4>", "", "gemm"),
        ("void cublasLt::splitKreduce_kernel<32, 16, int, float>", "aten::mm", "gemm"),
        ("Cijk_Ailk_Bljk_BBS_BH_MT256x128x64_MI16x16x1", "", "gemm"),
        ("triton_tem_fused_addmm_1", "", "gemm"),
        ("fmha_cutlassB_bf16_aligned_64x64_k64_sm80", "", "attention"),
        ("cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16", "", "attention"),
        ("sm80_xmma_fprop_implicit_gemm_indexed_tf32f32", "", "conv"),
        ("ampere_sgemm_128x64_nn", "aten::cudnn_convolution", "conv"),
        ("void at::native::vectorized_elementwise_kernel<4, AddFunctor>", "aten::addmm",
         "memory_bound"),
        ("void at::native::reduce_kernel<512, 1, ReduceOp<float>>", "aten::sum", "memory_bound"),
        ("void (anonymous namespace)::softmax_warp_forward<float>", "", "memory_bound"),
        ("triton_poi_fused_gelu_0", "", "memory_bound"),
        ("triton_red_fused_mm_native_layer_norm_3", "", "memory_bound"),
        ("void at::native::elementwise_kernel<128, 4, gpu_kernel_impl<lambda(float)>>",
         "aten::mul", "memory_bound"),
        ("aten::_convert_indices_from_coo_to_csr", "", "memory_bound"),
        ("void cudnn::bn_fw_tr_1C11_kernel_NCHW<float>", "aten::cudnn_batch_norm", "memory_bound"),
        ("void cudnn::ops::nchwToNhwcKernel<float>", "aten::cudnn_convolution", "memory_bound"),
        ("ncclKernel_ReduceScatter_RING_LL_Sum___nv_bfloat16(ncclDevComm*)", "", "collective"),
        ("Memcpy DtoD (Device -> Device)", "aten::copy_", "memory_bound"),
        ("Memcpy DtoH (Device -> Pageable)", "aten::item", "copy"),
        ("Memset (Device)", "aten::zero_", "memory_bound"),
    ],
)  # fmt: skip
def test_kinds_of_kernels(name: str, op: str, kind: str) -> None:
    assert kind_of(name, op) == kind


def test_a_lambda_is_no_optimizer() -> None:
    elementwise = "void at::native::vectorized_elementwise_kernel<4, {lambda()#1}>"
    assert not is_optimizer_kernel(elementwise)
    assert is_optimizer_kernel("void at::native::multi_tensor_apply_kernel<TensorListMetadata<4>>")


@pytest.mark.parametrize(
    ("name", "told", "op"),
    [
        ("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "", "all_gather"),
        ("ncclDevKernel_Generic(ncclDevComm*, channelMasks)", "_reduce_scatter_base",
         "reduce_scatter"),
        ("ncclDevKernel_SendRecv", "alltoall_base", "all_to_all"),
        ("ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t", "", "send_recv"),
        ("ncclDevKernel_Broadcast_RING_LL", "", "broadcast"),
        ("ncclDevKernel_Generic", "", "other"),
    ],
)  # fmt: skip
def test_kinds_of_collectives(name: str, told: str, op: str) -> None:
    assert collective_of(name, told) == op


@pytest.mark.parametrize(
    ("model", "gpus", "options"),
    [
        ("gpt2-xl", "8xH100", {}),
        ("gpt2-xl", "2x8xA100", {"strategy": "zero3", "micro_batch": 4}),
        ("latte-l", "1x4xA6000ada", {"strategy": "manual"}),
    ],
)
def test_a_prediction_reads_its_own_trace_back(
    model: str, gpus: str, options: dict[str, Any], tmp_path: Path
) -> None:
    """Every term, the waits for the host between kernels too; its files leave loading out."""
    from simcore.report.trace import write_rank_traces

    p = api.predict(model, gpus, keep_timeline=True, **options)
    write_rank_traces(p, tmp_path)
    found = api.explain_trace(tmp_path, model, gpus, **options)
    step = p.step_time_s.value - p.time_s["loader"]
    assert found["step"]["measured_s"] == pytest.approx(step, rel=2e-3)
    for term, pair in found["terms"].items():
        if term != "loader":
            assert pair["measured_s"] == pytest.approx(pair["predicted_s"], abs=2e-3 * step), term
    for op, pair in found["collectives"].items():
        assert pair["measured_s"] == pytest.approx(pair["predicted_s"], rel=1e-3), op
    predicted = sum(t["predicted_s"] for t in found["terms"].values())
    assert predicted == pytest.approx(p.step_time_s.value, rel=1e-6)


def test_a_step_of_torch_on_the_processor(tmp_path: Path) -> None:
    """Times of products and of the optimizer are those of torch's own table of the same run."""
    import torch
    from torch.profiler import ProfilerActivity, profile, record_function, schedule

    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Linear(64, 256), torch.nn.GELU(), torch.nn.LayerNorm(256),
                              torch.nn.Linear(256, 8))  # fmt: skip
    update = torch.optim.AdamW(net.parameters(), foreach=False)
    data = torch.utils.data.DataLoader(torch.utils.data.TensorDataset(torch.randn(96, 64)), 32)
    once = schedule(wait=0, warmup=1, active=2, repeat=1)
    with profile(activities=[ProfilerActivity.CPU], schedule=once, acc_events=True) as recorded:
        for (x,) in data:
            with record_function("forward and backward"):
                net(x).square().mean().backward()
            update.step()
            update.zero_grad()
            recorded.step()
    path = tmp_path / "cpu.json"
    recorded.export_chrome_trace(str(path))
    rows = {e.key: e.self_cpu_time_total * MICRO for e in recorded.key_averages()}
    found = taken_apart(path)
    assert found.how.startswith("mean of ProfilerStep") and found.n_steps == 2
    products = sum(rows[k] for k in ("aten::mm", "aten::addmm")) + rows.get("aten::linear", 0.0)
    assert found.kinds["gemm"] * 2 == pytest.approx(products, rel=0.02, abs=20 * MICRO)
    assert min(found.parts[k] for k in ("forward", "backward", "optimizer", "loader")) > 0
    updating = sum(rows.get(f"aten::{k}_", 0.0) for k in ("lerp", "addcmul", "addcdiv"))
    assert found.parts["optimizer"] * 2 >= 0.98 * updating > 0
    work = sum(v for k, v in rows.items() if k.startswith("aten::"))  # the loader's too
    mine = sum(found.parts[k] for k in ("forward", "backward", "optimizer"))
    assert products + updating < mine * 2 <= 1.02 * work + 20 * MICRO


def test_arguments_of_an_event_that_are_no_table_are_none(tmp_path: Path) -> None:
    path, data = tmp_path / "odd.json", gpu_trace()
    path.write_text(json.dumps(data))
    before = read_trace(path)
    launch = {"ph": "X", "cat": "cuda_runtime", "name": "cudaLaunchKernel", "ts": 1, "dur": 2}
    data["traceEvents"].append({**launch, "args": 3})
    path.write_text(json.dumps(data))
    assert len(read_trace(path).work) == len(before.work)


def test_a_cut_trace_is_refused_or_read_as_far_as_it_goes(tmp_path: Path) -> None:
    text = json.dumps(gpu_trace())
    path = tmp_path / "cut.json"
    path.write_text(text[: len(text) - 2000], encoding="utf-8")
    with pytest.raises(DataError, match=r"cut.json: is cut short (in|after) event \d+"):
        read_trace(path)
    trace = read_trace(path, "skip")
    assert len(trace.problems) == 1 and len(trace.work) > 18
    packed = tmp_path / "cut.json.gz"
    packed.write_bytes(gzip.compress(text.encode())[:-900])
    with pytest.raises(DataError, match="is cut short"):
        read_trace(packed)


@pytest.mark.parametrize("value", ["NaN", "-5", '"late"', "9" * 400])
def test_an_event_without_a_time_is_named(value: str, tmp_path: Path) -> None:
    text = json.dumps(gpu_trace())
    path = tmp_path / "bad.json"
    path.write_text(text.replace('"dur": 100.0,', f'"dur": {value},', 1), encoding="utf-8")
    with pytest.raises(DataError, match=r"event \d+ \('ampere_bf16.*is no time"):
        read_trace(path)
    assert len(read_trace(path, "skip").problems) == 1


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("id,model\n", "it is not JSON"),
        ('{"a": 1}', "it has no traceEvents"),
        ('{"traceEvents": []}', "nothing ran"),
        ('{"traceEvents": 3}', "is no list"),
    ],
)
def test_other_files(text: str, said: str, tmp_path: Path) -> None:
    path = tmp_path / "x.json"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(DataError, match=said):
        read_trace(path)


def test_what_crosses_the_border_of_two_chunks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The file is read in pieces; where they are cut changes nothing."""
    path = saved(tmp_path, gpu_trace())
    whole = read_trace(path).work
    for size in (61, 1000):
        monkeypatch.setattr(stream, "_CHUNK", size)
        assert read_trace(path).work == whole
