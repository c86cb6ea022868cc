"""Configs of whisper."""

from __future__ import annotations

from simcore.workload.huggingface.decoder import PLAIN
from simcore.workload.huggingface.fields import Fields
from simcore.workload.huggingface.registry import ADAPTERS, Translated


@ADAPTERS.register("whisper")
def whisper(f: Fields) -> Translated:
    """Whisper on 30 s of audio with ``seq_len`` output tokens."""
    hidden = f.count("d_model")
    return Translated(
        arch="whisper", sample_unit="clip",
        positions=f.count("max_target_positions", default=448),
        config={
            "layers": f.layers("encoder_layers"),
            "decoder_layers": f.layers("decoder_layers"),
            "hidden": hidden,
            "heads": f.heads(hidden, "encoder_attention_heads"),
            "decoder_heads": f.heads(hidden, "decoder_attention_heads"),
            "ffn": f.count("encoder_ffn_dim"),
            "decoder_ffn": f.count("decoder_ffn_dim"),
            "vocab": f.count("vocab_size"),
            "mel_bins": f.count("num_mel_bins", default=80),
            "frames": f.count("max_source_positions", default=1500),
            "max_positions": f.count("max_target_positions", default=448),
            "mlp": f.word("activation_function", default="gelu", among=PLAIN),
        },
        notes=("fused attention, without dropout", "every clip fills the encoder's window"),
    )  # fmt: skip
