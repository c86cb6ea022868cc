"""Rows of ``llm.csv`` that train diffusion transformers: which model, in whose modules.

What the rows do not say is in the sources' programs: MLPerf Training v5.1's FLUX.1 (NVIDIA/
benchmarks/flux1: conf/flux1_schnell.yaml, conf/model/schnell.yaml, config_common.sh) on NeMo, and
Wan2.1 on Megatron-Bridge and DFM.
"""

from __future__ import annotations

import math

from simcore.engine.options import Options
from simcore.validate.formats import Row, whole
from simcore.workload.models import MODELS, ModelRecord, Scalar

#: Sources whose modules are Megatron-Core's with Transformer Engine.
_MEGATRON = ("mlperf-flux1", "nemo-bridge-wan")
#: NeMo normalises queries and keys by a class of its own, in tensor operations
#: (nemo/collections/diffusion/models/dit/dit_layer_spec.py, RMSNorm, in each version that has CUDA
#: graphs); DFM and Megatron-Bridge, which followed it, by Transformer Engine's.
MLPERF = "mlperf-flux1"
#: A rack's GPUs in MLPerf's larger jobs: SEGMENT=16 nodes of 4, and one instance of the distributed
#: optimizer a segment (flux1_schnell.yaml, num_distributed_optimizer_instances); on HGX nodes
#: SEGMENT is all nodes (config_B200_02x08x32.sh, config_DGXB200_scale.sh).
_SEGMENT_GPUS = 64


def words_of(row: Row) -> Options | str:
    """Settings of the row's model for samples of its length, or why there is none."""
    name = row["model"]
    record = None if MODELS.path(name) is None else MODELS[name]
    if record is None or record.arch not in ("mmdit", "wan"):
        return f"diffusion transformer {name!r} is not described in models_db"
    changes: dict[str, Scalar] = {}
    if row["source"] in _MEGATRON:
        changes |= {"modules": "megatron", "attention": "cudnn"}
    if row["source"] == MLPERF:
        changes["qk_norm"] = "rmsnorm_eager"
    sized = _video(record, row) if record.arch == "wan" else _image(record, row)
    if isinstance(sized, str):
        return sized
    changes |= sized
    return {"settings": changes}


def _video(record: ModelRecord, row: Row) -> dict[str, Scalar] | str:
    """A row's tokens are the video's alone: the caption is cross-attended to."""
    config = record.settings({})
    cell = int(config["vae_factor"]) * int(config["patch"])
    frame = (int(config["height"]) // cell) * (int(config["width"]) // cell)
    seen, rest = divmod(whole(row, "seq_len"), frame)
    if rest:
        return f"diffusion: {row['seq_len']} tokens are no whole frames of {frame}"
    return {"frames": (seen - 1) * int(config["vae_frames"]) + 1}


def _image(record: ModelRecord, row: Row) -> dict[str, Scalar] | str:
    """A row's tokens are the caption's, as many as the model's, and those of a square image."""
    config = record.settings({})
    tokens = whole(row, "seq_len") - int(config["text_tokens"])
    side = math.isqrt(max(tokens, 0))
    if side < 1 or side**2 != tokens:
        return f"diffusion: {row['seq_len']} tokens are no caption and square image"
    return {"image": side * int(config["vae_factor"]) * int(config["patch"])}


def options_of(row: Row) -> Options:
    """What the source's program sets beside the row's columns."""
    if row["source"] != MLPERF:
        return {}
    options: Options = {
        "issuer": "graph",  # cuda_graph_scope: full_iteration
        "overlap": "grads,params",  # overlap_grad_reduce, overlap_param_gather
        "growing_segments": True,  # PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True
        "main_grads": "fused",  # grad_reduce_in_fp32 False: one buffer of the weights' width
    }
    gpus, tp = whole(row, "gpus"), whole(row, "tp", 1)
    if "NVL72" in row["gpu_type"] and gpus > 72:
        options["shard_ranks"] = _SEGMENT_GPUS // tp
    return options
