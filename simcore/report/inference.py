"""A model that generates text on one node, as text."""

from __future__ import annotations

from simcore.answer.inference import Inference
from simcore.base.units import KILO, format_seconds
from simcore.report.formatting import counted, figure, gigabytes, labelled, percent


def render_inference(i: Inference) -> str:
    """Memory, room of the cache, and the rates of prefill and decode."""
    over = f", tensor-parallel over {i.n_gpus} GPUs" if i.n_gpus > 1 else ""
    lines = [f"{i.model} generating text on {i.cluster}{over}", f"weights in {i.precision}", ""]
    used = (
        f"{gigabytes(i.weight_bytes)} GB of weights + {gigabytes(i.kv_bytes)} GB of keys and "
        f"values ({counted(i.sequences, 'sequence')} of {i.context_tokens:,} tokens) + "
        f"{gigabytes(i.context_bytes)} GB of CUDA context = {gigabytes(i.needed_bytes)} of "
        f"{gigabytes(i.capacity_bytes)} GB a GPU"
    )
    lines += labelled("FITS" if i.fits else "NO", used)
    lines += labelled(
        "KV CACHE",
        f"{figure(i.kv_bytes_per_token / KILO)} kB a token and GPU (16 bit); room for "
        f"{i.most_tokens:,} tokens: {i.most_tokens // i.context_tokens:,} sequences of "
        f"{i.context_tokens:,}",
    )
    lines += labelled(
        "PREFILL",
        f"at best {format_seconds(i.prefill_s)} for a prompt of {i.context_tokens:,} tokens, "
        f"{figure(i.context_tokens / i.prefill_s)} tokens/s",
    )
    if i.decode_s is not None:
        cached = i.kv_bytes / i.needed_bytes if i.needed_bytes else 0.0
        lines += labelled(
            "DECODE",
            f"at best {format_seconds(i.decode_s)} a token: {figure(1.0 / i.decode_s)} tokens/s a "
            f"sequence, {figure(i.sequences / i.decode_s)} in all (keys and values are "
            f"{percent(cached)} of the memory)",
        )
    for note in i.notes:
        lines += labelled("NOTE", note)
    return "\n".join(lines) + "\n"
