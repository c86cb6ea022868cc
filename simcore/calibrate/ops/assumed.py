"""Figures of the blind profile that no op table gives: assumptions and published rates."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from simcore.base.units import MICRO

#: Public collections behind the op tables, by key. A figure whose source is several keys joined by
#: ``+`` is pooled over these collections.
SOURCES: Final[Mapping[str, str]] = {
    "aic": "aiconfigurator (Apache-2.0) systems/data: gemm, attention, comm, moe, gdn, mamba2; "
    "CUDA graph, burst",
    "vidur": "vidur (MIT) data/profiling; kernel times by profiler, 1 us resolution",
    "neusight": "NeuSight (MIT) scripts/asplos/data; fp32 with TF32 off, eager, mean of 5 best",
    "simumax": "SimuMax (Apache-2.0) configs/system; times derived from its efficiency factors",
    "llmcompass": "LLMCompass (BSD-3) ae/figure5 real_hardware; square-ish fp16 products",
    "vtrain": "vTrain (MIT) trace/*/AR_GPU*; nccl-tests, float, out of place",
    "amd": "AMD's typical attained FLOPs: ten products on MI325X; MI300X as their best compare",
    "paddle": "PaddleFleetX (Apache-2.0) docs/profiler.md: products of a step of GPT, V100 32 GB",
    "torch-mm": "zzc0721/torch-performance-test-data issue 140: torch.mm of five squares on V100",
    "tpu-products": "AI-Hypercomputer/tpu-recipes (Apache-2.0) microbenchmarks: large products",
    "gpu-benches": "gpu-benches gpu-stream and gpu-small-kernels, as published",
    "cards": "simcore calibrate on this project's cards (validate/cards), over the op tables",
    "pooled": "median over the GPUs (or families) named in by_gpu and by_family of this class",
    "power-fit": "fit of power_limited_frac to the by_gpu figures of the class",
    "sustained-fit": "products timed in loops of seconds or profiled at length against bursts",
    "mamf": "ml-engineering (CC-BY-SA-4.0, read for the figures only) compute/accelerator: the "
    "best products of mamf-finder, in loops on warm devices",
    "assumption": "no table has it: see the note",
}

#: (section, class, level, key) -> value, standard deviation of its logarithm, reason. The profile
#: states their source as "assumption".
ASSUMED: Final[Mapping[tuple[str, str, str, str], tuple[float, float, str]]] = {
    ("compute_efficiency", "gemm_tensor16", "by_gpu", "RTX4090"): (
        0.92, 0.08, "half-rate tensor cores (fp32 accumulate) feed easily, 450 W seldom binds; "
        "public torch.matmul reports known when chosen: 0.95 to 1.0"),
    ("compute_efficiency", "gemm_tensor16", "by_gpu", "RTX3090"): (
        0.92, 0.10, "half-rate tensor cores (fp32 accumulate) feed easily, 350 W seldom binds; "
        "public torch.matmul reports known when chosen: 1.06"),
    ("compute_efficiency", "gemm_tensor16", "by_gpu", "RTX2080Ti"): (
        0.90, 0.12, "half-rate tensor cores (fp32 accumulate) feed easily"),
    ("compute_efficiency", "gemm_tensor16", "by_gpu", "T4"): (
        0.50, 0.25, "70 W: its fp32 products keep 0.6 of what the median device keeps"),
    ("compute_efficiency", "gemm_tensor16", "by_family", "half-rate"): (
        0.90, 0.12, "devices whose fp16 peak with fp32 accumulate is half of that with fp16"),
    ("compute_efficiency", "gemm_tensor16", "by_family", "MUSA"): (
        0.71, 0.30, "the median of the others; another vendor's libraries"),
    ("compute_efficiency", "gemm_simt32", "by_family", "MUSA"): (
        0.65, 0.30, "another vendor's libraries"),
    ("compute_efficiency", "conv_tensor16", "pooled", ""): (
        0.45, 0.35, "no conv table in 16 bit: NCHW or NHWC alone moves a net 1.5 to 2.5 times"),
    ("compute_efficiency", "conv_tf32", "pooled", ""): (
        0.45, 0.35, "no conv table in TF32: taken as 16 bit"),
    ("memory_efficiency", "conv", "pooled", ""): (0.75, 0.15, "taken as GEMM's"),
    ("memory_efficiency", "reduction", "pooled", ""): (
        0.70, 0.25, "between elementwise and norm: reads dominate, the tail does not fill"),
    ("memory_efficiency", "gather", "pooled", ""): (
        0.44, 0.35, "Transformer Engine's kernels that sort and combine experts' rows, B200: 2.9 "
        "ps an element each way (SimuMax, permute_fwd and permute_bwd, 0.50 and 0.51 of its "
        "bytes)"),
    ("memory_efficiency", "copy", "pooled", ""): (
        0.80, 0.15, "strided on one side; a plain stream reaches 0.74 to 0.95 (gpu-benches)"),
}  # fmt: skip

#: (class, GPU) -> figures of a device whose op tables are not among those that predictions are
#: compared with, fitted with the same formulas: share of the peak, rows, further figures.
#: GB300: products of TensorRT-LLM in aiconfigurator 095f58a5 (systems/data/gb300/gemm/trtllm/
#: 1.3.0rc20), of the shapes that the tables have for B300. Those in NVFP4 are left out: they take
#: kernels tuned for GB200 (flashinfer, pull request 2303), half of whose rate is lost at 2,000
#: elements of depth on GB300 and B300 and at 210 on GB200.
FITTED_APART: Final[Mapping[tuple[str, str], tuple[float, int, Mapping[str, float]]]] = {
    ("gemm_tensor16", "GB300"): (
        0.801, 3109, {"memory": 0.754, "wave": 0.09, "depth": 1.0, "start": 2.62 * MICRO}),
    ("gemm_tensor8", "GB300"): (
        0.785, 3109, {"memory": 0.623, "wave": 0.65, "depth": 1.0, "start": 14.6 * MICRO}),
    ("gemm_block8", "GB300"): (
        0.776, 2260, {"memory": 0.696, "wave": 0.0, "depth": 180.0, "start": 6.4 * MICRO}),
}  # fmt: skip

#: Bandwidth in GB/s of a stream benchmark (mean of scale and triad, all threads resident) on
#: devices that are in no op table. On V100 and MI100 the same benchmark agrees with the bandwidth
#: of fp32 elementwise ops within 2 %, on MI210 within 5 %. H200 is left out: its rate still rises
#: with the number of threads.
STREAM_GB_PER_S: Final[Mapping[str, float]] = {
    "A40": 652.5, "L40": 769.0, "H100-PCIE-80GB": 1768.0,
}  # fmt: skip

#: Backward over forward time of memory-bound ops (NeuSight's per-op labels, fp32 eager, medians
#: over ops above 60 us): op class -> (ratio, standard deviation of its logarithm, ops covered).
BACKWARD_RATIO: Final[Mapping[str, tuple[float, float, str]]] = {
    "elementwise": (1.5, 0.20, "gelu"),
    "product": (1.8, 0.20, "mul: two gradients"),
    "dropout": (2.3, 0.30, "dropout"),
    "norm": (2.75, 0.10, "layer norm, 2.6 to 2.9, with its weight gradients"),
    "softmax": (2.7, 0.20, "softmax"),
    "gemm": (1.85, 0.05, "linear 1.9, bmm 1.8"),
}

#: Times of host and launch: name -> (value, standard deviation of its logarithm, source, note).
HOST: Final[Mapping[str, tuple[str, float, str, str]]] = {
    "host_issue": ("10 us", 0.35, "assumption",
                   "one eager PyTorch op, Python included: torch 2.13 issues a GPT layer of empty "
                   "tensors at 10 us a kernel forward and 7 backward, a launch is 2 us more"),
    "host_launch": ("4.5 us", 0.5, "gpu-benches",
                    "back to back empty kernels 1.6 to 2.6 us, times 2.24, which a whole step "
                    "takes over a loop (host_issue)"),
    "graph_launch": ("1.1 us", 0.2, "gpu-benches", "per kernel of a CUDA graph, 0.9 to 1.3 us"),
}  # fmt: skip
