"""Values of the options of a prediction, with what makes each of them meaningful.

A setting belongs to a style of job (``jobs.STYLES``) and may need other words, certain GPUs or a
number of GPUs a node. Names come from ``simcore.api.choices``, so that a new name is sampled too.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from simcore import api
from simcore.hardware.spec import NODES

HOPPER_ON = ("H100-SXM-80GB", "H200-SXM", "H800-SXM-80GB", "B200-SXM")
BLACKWELL = ("B200-SXM", "GB200", "B300-SXM")
#: GPUs with enough memory for every option, on which jobs with model parallelism run.
LARGE = ("A100-SXM-80GB", "H100-SXM-80GB", "H200-SXM", "B200-SXM", "H800-SXM-80GB", "MI300X")
MIXED = ("1x4xA100+1x4xV100", "2x8xA6000ada+1x8xRTX4090", "1x2xA100+1x3xT4", "1x8xH100+1x8xA100")

ALL = ("any", "text", "image", "cut", "moe")
LANGUAGE = ("text", "cut", "moe")
CUT = ("cut", "moe")


@dataclass(frozen=True)
class Setting:
    """One value of an option; ``words`` are other options that it needs."""

    option: str
    value: Any
    styles: tuple[str, ...] = ALL
    words: Mapping[str, Any] = field(default_factory=dict)
    gpus: tuple[str, ...] = ()
    per_node: int | None = None

    @property
    def key(self) -> str:
        """The option and its value as one text; coverage is counted by it."""
        return f"{self.option}={self.value}"


#: Option -> (values, styles, words they need), besides those of ``choices``.
_WRITTEN: dict[str, tuple[tuple[Any, ...], tuple[str, ...], dict[str, Any]]] = {
    "micro_batch": ((1, 2, 4, 8, "max"), ALL, {}),
    "grad_accum": ((1, 2, 4, 8, 16), ALL, {}),
    "steps": ((1000,), ALL, {}),
    "epochs": ((3,), ("dataset",), {}),
    "seq_len": ((512, 1024, 2048, 4096, 8192), LANGUAGE, {}),
    "resolution": (("128", "256", "512"), ("image", "video"), {}),
    "frames": ((8, 17, 33), ("video",), {}),
    "lora_rank": ((8, 16, 64), ("text",), {}),
    "lora_targets": (("q_proj,v_proj", "all-linear"), ("text",), {"lora_rank": 16}),
    "recompute_modules": (
        ("core_attn", "layernorm", "mlp", "core_attn,mlp", "operators"), LANGUAGE,
        {"recompute": "selective"},
    ),
    "recompute_layers": ((2, 8), LANGUAGE, {"recompute": "full"}),
    "offload_layers": ((1, 4), ("text",), {}),
    "bucket_numel": ((10_000_000, 200_000_000), ("any", "text", "image"), {}),
    "eager_kernels": ((True,), ALL, {}),
    "prefetch_blocks": ((0, 2), ("text", "any"), {"strategy": "zero3"}),
    "reuse_numel": ((10_000_000,), ("text",), {"strategy": "zero3", "software": "deepspeed"}),
    "gather_tensors": ((True,), ("text",), {"strategy": "zero3"}),
    "shard_ranks": ((2, 4, 8), ("text", "any"), {"strategy": "zero3"}),
    "overlap": (
        ("none", "grads", "grads,params", "grads,tensor", "tensor,dgrad", "grads,dgrad,params"),
        CUT, {},
    ),
    "tp": ((1, 2, 4, 8), CUT, {}),
    "pp": ((1, 2, 4, 8), CUT, {}),
    "vpp": ((2, 4), CUT, {"pp": 2}),
    "cp": ((2, 4), CUT, {}),
    "stages": (("even", "auto"), CUT, {"pp": 4}),
    "ep": ((1, 2, 4, 8), ("moe",), {}),
    "expert_tp": ((1, 2), ("moe",), {"tp": 2, "ep": 2}),
    "expert_imbalance": ((1.3, 2.0), ("moe",), {}),
    "expert_capacity": ((1.0, 1.25), ("moe",), {}),
    "nccl_algo": (
        ("Ring", "Tree", "^NVLS", "Ring,Tree", "allreduce:tree;allgather:ring"), ALL, {},
    ),
    "nccl_proto": (("LL", "LL128", "Simple", "^LL"), ALL, {}),
    "node": (("no-p2p",), ("any", "text"), {}),
    "network": (
        ("8xib-ndr", "25 Gbit/s", "8xib-ndr 4:1 leaf=16", "4xib-hdr rails", "8xib-ndr sharp"),
        ALL, {},
    ),
}  # fmt: skip
#: Names of ``choices`` -> styles and words they need; an option that is not here is of all jobs.
_NAMED: dict[str, tuple[tuple[str, ...], dict[str, Any]]] = {
    "layout": (("image",), {}),
    "attention": (LANGUAGE, {}),
    "compile": (("text",), {}),
    "schedule": (CUT, {"pp": 4}),
    "sequence_parallel": (CUT, {"tp": 2}),
    "cp_comm": (CUT, {"cp": 2}),
    "dispatcher": (("moe",), {"ep": 4}),
    "expert_padding": (("moe",), {"expert_capacity": 1.25}),
    "quantised_base": (("text",), {"lora_rank": 16}),
    "fp8_params": (LANGUAGE, {"precision": "fp8"}),
    "recompute": (("text", "any", "cut", "moe"), {}),
    "strategy": (("any", "text", "image"), {}),
    "offload": (("text", "any"), {}),
    "main_grads": (LANGUAGE, {}),
    "software": (("text", "cut", "moe", "any"), {}),
}
#: Kernels that need a GPU of one make; precisions that need one.
_NEED_GPU = {
    "fp8": HOPPER_ON, "fp8-dynamic": HOPPER_ON, "fp8-rowwise": HOPPER_ON, "mxfp8": BLACKWELL,
    "nvfp4": BLACKWELL, "flash3": HOPPER_ON[:3], "cudnn": HOPPER_ON, "cudnn_first": HOPPER_ON,
    "cudnn_fp8": BLACKWELL,
    "fp8_params": HOPPER_ON, "deepep": LARGE[1:3], "hybridep": LARGE[1:3],
}  # fmt: skip
#: Names of ``choices`` that are not options themselves, or that are sampled in another way.
_NOT_HERE = ("model", "gpu", "emit", "node")


def all_settings() -> tuple[Setting, ...]:
    """All sampled values of all options, in a fixed order."""
    return (*_of_choices(), *_of_nodes(), *_written())


def _of_choices() -> Iterator[Setting]:
    for option, names in sorted(api.choices().items()):
        if option in _NOT_HERE:
            continue
        styles, words = _NAMED.get(option, (ALL, {}))
        for name in names:
            gpus = _NEED_GPU.get(name) or _NEED_GPU.get(option) or ()
            more = {"precision": "fp8"} if name == "cudnn_fp8" else {}
            yield Setting(option, name, styles, {**words, **more}, gpus)


def _of_nodes() -> Iterator[Setting]:
    for node in sorted(NODES.all(), key=lambda n: n.name):
        types = node.gpu_types or ("A100-PCIE-80GB",)
        per_node = node.tray_gpus or node.max_gpus
        yield Setting("node", node.name, ("any", "text"), {}, tuple(types), per_node)


def _written() -> Iterator[Setting]:
    for option, (values, styles, words) in _WRITTEN.items():
        for value in values:
            yield Setting(option, value, styles, words)
    yield Setting("resolution", "480x832", ("video",), {}, LARGE)
    for mixed in MIXED:
        for shares in ("equal", "auto"):
            yield Setting("shares", shares, ("any",), {"gpus": mixed})
    yield Setting("shares", "3:1", ("any",), {"gpus": "1x4xA100+1x4xV100"})
    yield Setting("nnodes", 2, ("any",), {"gpus": "A100-SXM-80GB", "nproc_per_node": 4})
    yield Setting("nproc_per_node", 8, ("any",), {"gpus": "H100-SXM-80GB", "nnodes": 1})
