"""Names and meanings of the terms of time and memory, for the text, the JSON and its schema."""

from __future__ import annotations

from typing import NamedTuple


class Term(NamedTuple):
    """A term's name in texts (``label``) and its description in the schema (``meaning``)."""

    label: str
    meaning: str


#: Parts of ``time_s["compute"]``.
COMPUTE_PARTS = ("forward", "backward", "frozen_networks", "accumulation")
#: Overlapped communication, which is not part of the step time.
HIDDEN = "communication_hidden"
#: A term only of jobs with pipeline stages.
BUBBLE = "pipeline_bubble"

TIME: dict[str, Term] = {
    "compute": Term("compute", "forward + backward + frozen_networks + accumulation"),
    "forward": Term("forward", "forward passes of all micro-steps"),
    "backward": Term("backward", "backward passes of all micro-steps, with recompute"),
    "frozen_networks": Term("frozen networks", "networks that only run forward (VAE, encoders)"),
    "accumulation": Term("gradient sums", "casts and sums of gradients over micro-steps"),
    "optimizer": Term("optimizer", "gradient norm and parameter update"),
    "ema": Term("EMA update", "moving average of the parameters"),
    "input_copy": Term("input copy", "batch from host to device"),
    "offload": Term("offload", "optimizer on the host or NVMe and its copies, the exposed part"),
    BUBBLE: Term("pipeline bubble", "waiting for other stages; with pipeline stages only"),
    "communication_exposed": Term("comm. exposed", "collectives that the step waits for"),
    "host": Term("host", "waiting for the host to launch kernels"),
    "loader": Term("data loading", "waiting for the next batch"),
    HIDDEN: Term("comm. hidden", "collectives overlapped by compute; not part of the step time"),
}

MEMORY: dict[str, Term] = {
    "parameters": Term("parameters", "trained parameters of this rank"),
    "gradients": Term("gradients", "gradients held at the peak"),
    "optimizer_state": Term("optimizer state", "this rank's momentum, variance and master copy"),
    "ema": Term("EMA copy", "moving average of the parameters"),
    "gradient_buckets": Term("gradient buckets", "flat buffers that gradients are sent from"),
    "gathered_parameters": Term("gathered blocks", "sharded parameters gathered for a pass"),
    "replicas": Term("replica gradients", "DataParallel: a replica's gradients on the master"),
    "frozen_models": Term("frozen networks", "parameters of frozen networks and buffers"),
    "activations": Term("activations", "tensors that forward saves for backward"),
    "autocast_weights": Term("autocast weights", "copies of weights in the products' format"),
    "working_set": Term("working set", "temporaries of the kernel at the peak"),
    "gradient_stubs": Term("gradient stubs", "placeholders of fused gradient accumulation"),
    "gradient_copies": Term("gradient copies", "fp32 copies that the update makes"),
    "workspace": Term("cuBLAS workspace", "workspace of the matrix library"),
    "allocator_rounding": Term("allocator rounding", "large blocks rounded up to 2 MiB"),
    "allocator_holes": Term("allocator holes", "free blocks that PyTorch's allocator keeps"),
    "nccl_buffers": Term("NCCL buffers", "communicator buffers, outside the allocator"),
    "cuda_context": Term("CUDA context", "driver, kernels and libraries of the process"),
}


def time_label(key: str) -> str:
    """The name of a term of time; for an unknown key the key with blanks for underscores."""
    return TIME[key].label if key in TIME else key.replace("_", " ")


def memory_label(key: str) -> str:
    """The name of a term of memory; for an unknown key the key with blanks for underscores."""
    return MEMORY[key].label if key in MEMORY else key.replace("_", " ")
