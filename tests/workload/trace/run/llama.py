"""A small Llama with the configuration and the parameters that transformers gives it."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

import torch
import torch.nn.functional as F
from torch import nn
from torch.utils.checkpoint import checkpoint


@dataclass(frozen=True)
class Config:
    model_type: str = "llama"
    hidden_size: int = 512
    intermediate_size: int = 1408
    num_hidden_layers: int = 4
    num_attention_heads: int = 8
    num_key_value_heads: int = 8
    vocab_size: int = 4096
    max_position_embeddings: int = 2048
    tie_word_embeddings: bool = False

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


CONFIG = Config()
HEAD = CONFIG.hidden_size // CONFIG.num_attention_heads


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        d = CONFIG.hidden_size
        self.q_proj, self.k_proj, self.v_proj, self.o_proj = (
            nn.Linear(d, d, bias=False) for _ in range(4)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (
            p(x).unflatten(-1, (-1, HEAD)).transpose(1, 2)
            for p in (self.q_proj, self.k_proj, self.v_proj)
        )
        mixed = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.o_proj(mixed.transpose(1, 2).flatten(2))


class Mlp(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        d, wide = CONFIG.hidden_size, CONFIG.intermediate_size
        self.gate_proj = nn.Linear(d, wide, bias=False)
        self.up_proj = nn.Linear(d, wide, bias=False)
        self.down_proj = nn.Linear(wide, d, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.down_proj(F.silu(self.gate_proj(x)) * self.up_proj(x))


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.config = CONFIG
        self.self_attn, self.mlp = Attention(), Mlp()
        self.norm, self.norm2 = (nn.RMSNorm(CONFIG.hidden_size) for _ in range(2))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        x = x + self.self_attn(self.norm(x))
        return x + self.mlp(self.norm2(x))


class Llama(nn.Module):
    def __init__(self, vocabulary: int = CONFIG.vocab_size, recompute: bool = False) -> None:
        super().__init__()
        self.config, self.recompute = CONFIG, recompute
        self.embed_tokens = nn.Embedding(vocabulary, CONFIG.hidden_size)
        self.layers = nn.ModuleList(Layer() for _ in range(CONFIG.num_hidden_layers))
        self.norm = nn.RMSNorm(CONFIG.hidden_size)
        self.lm_head = nn.Linear(CONFIG.hidden_size, vocabulary, bias=False)

    def forward(self, tokens: torch.Tensor) -> torch.Tensor:
        x = self.embed_tokens(tokens)
        for layer in self.layers:
            x = checkpoint(layer, x, use_reentrant=False) if self.recompute else layer(x)
        return self.lm_head(self.norm(x))
