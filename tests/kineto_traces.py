"""A GPU's trace written by hand: two equal steps, every time chosen.

The structure (categories, correlation, External id, sequence numbers, threads) is that of the
public schema: facebookresearch/HolisticTraceAnalysis, tests/data, and pytorch/kineto. Times in us.
"""

from __future__ import annotations

from typing import Any

MAIN, AUTOGRAD, COMPUTE, NCCL = 100, 200, 7, 20
STEP_US = 1000.0
#: Of one step: name, operator, thread, launched at, stream, start, end, category, collective.
KERNELS: list[tuple[str, str, int, float, int, float, float, str, str]] = [
    ("Memcpy HtoD (Pinned -> Device)", "aten::copy_", MAIN, 60, COMPUTE, 100, 120, "gpu_memcpy",
     ""),
    ("ampere_bf16_s16816gemm_bf16_128x128_ldg8_f2f_stages_32x5_tn", "aten::addmm", MAIN, 70,
     COMPUTE, 120, 220, "kernel", ""),
    ("void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<float, float>",
     "aten::native_layer_norm", MAIN, 80, COMPUTE, 220, 250, "kernel", ""),
    ("void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<64, 128>>",
     "aten::_flash_attention_forward", MAIN, 90, COMPUTE, 250, 300, "kernel", ""),
    # the host is late: 300 to 350 nothing runs
    ("sm90_xmma_dgrad_implicit_gemm_bf16", "aten::convolution_backward", AUTOGRAD, 340, COMPUTE,
     350, 400, "kernel", ""),
    ("nvjet_tst_128x256_64x4_1x2_h_bz_coopA_NNT", "aten::mm", AUTOGRAD, 345, COMPUTE, 400, 550,
     "kernel", ""),
    ("ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)", "", AUTOGRAD,
     348, NCCL, 500, 650, "kernel", "allreduce"),
    ("ncclDevKernel_SendRecv(ncclDevKernelArgsStorage<4096ul>)", "", MAIN, 352, NCCL, 650, 660,
     "kernel", ""),
    ("void at::native::(anonymous namespace)::multi_tensor_apply_kernel<FusedAdamMathFunctor>",
     "aten::_fused_adamw_", MAIN, 670, COMPUTE, 700, 800, "kernel", ""),
]  # fmt: skip
#: Host: thread, name, category, start, end; a stretch of backward stands around its kernels.
HOST = [
    (MAIN, "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__", "cpu_op", 0, 40),
    (MAIN, "aten::copy_", "cpu_op", 55, 65), (MAIN, "aten::linear", "cpu_op", 66, 78),
    (MAIN, "aten::addmm", "cpu_op", 68, 76), (MAIN, "aten::native_layer_norm", "cpu_op", 79, 85),
    (MAIN, "aten::_flash_attention_forward", "cpu_op", 88, 95),
    (AUTOGRAD, "autograd::engine::evaluate_function: ConvolutionBackward0", "cpu_op", 330, 343),
    (AUTOGRAD, "aten::convolution_backward", "cpu_op", 335, 342),
    (AUTOGRAD, "autograd::engine::evaluate_function: MmBackward0", "cpu_op", 344, 349),
    (AUTOGRAD, "aten::mm", "cpu_op", 344.5, 346),
    (MAIN, "Optimizer.step#AdamW.step", "user_annotation", 665, 690),
    (MAIN, "aten::_fused_adamw_", "cpu_op", 668, 680),
]  # fmt: skip
#: What a step of it is, by the rule "compute, else collective, else copy, else loading, else host",
#: from the first work of a step (100) to that of the next (1100); in us.
PARTS = {
    "forward": 180.0,  # 120 to 300
    "backward": 200.0,  # 350 to 550
    "optimizer": 100.0,
    "communication_exposed": 110.0,  # 550 to 650 of the all-reduce, 10 of the exchange
    "input_copy": 20.0,
    "loader": 40.0,  # 1000 to 1040
    "host": 350.0,  # 300-350, 660-700, 800-1000, 1040-1100 but for the 40 of loading
    "untold": 0.0,
}
KINDS = {"gemm": 250.0, "memory_bound": 30.0, "attention": 50.0, "conv": 50.0, "optimizer": 100.0}
COLLECTIVES = {"all_reduce": (150.0, 100.0), "send_recv": (10.0, 10.0)}


def gpu_trace(
    steps: int = 3,
    *,
    marked: bool = True,
    base: float = 1.7e15,
    world: int = 2,
    rank: int = 0,
    scale: float = 1.0,
) -> dict[str, Any]:
    """``steps`` equal steps after another; the last ends with its optimizer.

    ``scale``: how much longer everything takes; ``base``: the clock's first microsecond, as large
    as those of real traces.
    """
    events: list[dict[str, Any]] = [
        {"ph": "M", "name": "process_name", "pid": 9, "tid": 0, "ts": base, "args": {}}
    ]  # fmt: skip
    number = 0
    for s in range(steps):
        at = base + s * STEP_US * scale

        def event(cat: str, name: str, tid: int, start: float, end: float, pid: int = 9,
                  origin: float = at, **args: Any) -> dict[str, Any]:  # fmt: skip
            return {"ph": "X", "cat": cat, "name": name, "pid": pid, "tid": tid,
                    "ts": origin + scale * start, "dur": scale * (end - start),
                    "args": args}  # fmt: skip

        if marked:
            events.append(event("user_annotation", f"ProfilerStep#{s + 5}", MAIN, 0, STEP_US - 1))
        events += [event(cat, name, tid, a, b) for tid, name, cat, a, b in HOST]
        for name, _, thread, launched, stream, start, end, cat, collective in KERNELS:
            number += 1
            told = {"Collective name": collective, "Group size": world} if collective else {}
            launch = "cudaMemcpyAsync" if cat == "gpu_memcpy" else "cudaLaunchKernel"
            events.append(event("cuda_runtime", launch, thread, launched, launched + 2,
                                correlation=number))  # fmt: skip
            events.append(event(cat, name, stream, start, end, 0, correlation=number,
                                stream=stream, device=0, **told))  # fmt: skip
    return {
        "schemaVersion": 1,
        "deviceProperties": [{"id": 0, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 85e9}],
        "distributedInfo": {"backend": "nccl", "rank": rank, "world_size": world},
        "traceEvents": events,
        "traceName": "hand-written",
    }
