"""BERT encoder with a pooler and a classification head (Devlin et al. 2018), post-norm."""

from __future__ import annotations

import math

import torch
from reference.measure import Dropout
from torch import Tensor, nn
from torch.nn import functional as F


class Layer(nn.Module):
    def __init__(self, hidden: int, heads: int, ffn: int, p: float, sdpa: bool) -> None:
        super().__init__()
        self.heads, self.sdpa = heads, sdpa
        self.q, self.k, self.v = (nn.Linear(hidden, hidden) for _ in range(3))
        self.out, self.up, self.down = (
            nn.Linear(hidden, hidden), nn.Linear(hidden, ffn), nn.Linear(ffn, hidden),
        )  # fmt: skip
        self.norm1, self.norm2 = nn.LayerNorm(hidden, eps=1e-12), nn.LayerNorm(hidden, eps=1e-12)
        self.drop_p, self.drop1, self.drop2 = Dropout(p), Dropout(p), Dropout(p)

    def split(self, x: Tensor) -> Tensor:
        return x.view(*x.shape[:2], self.heads, -1).permute(0, 2, 1, 3)

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = self.split(self.q(x)), self.split(self.k(x)), self.split(self.v(x))
        if self.sdpa:
            context = F.scaled_dot_product_attention(q, k, v)
            context = context.transpose(1, 2).reshape(x.shape)
        else:
            scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1]) + mask
            probs = self.drop_p(F.softmax(scores, dim=-1))
            context = torch.matmul(probs, v).permute(0, 2, 1, 3).contiguous().view(x.shape)
        x = self.norm1(self.drop1(self.out(context)) + x)
        return self.norm2(self.drop2(self.down(F.gelu(self.up(x)))) + x)


class Bert(nn.Module):
    def __init__(
        self,
        layers: int,
        hidden: int,
        heads: int,
        ffn: int,
        vocab: int = 30522,
        positions: int = 512,
        classes: int = 2,
        p: float = 0.1,
        sdpa: bool = False,
    ) -> None:
        super().__init__()
        self.words = nn.Embedding(vocab, hidden, padding_idx=0)
        self.positions = nn.Embedding(positions, hidden)
        self.types = nn.Embedding(2, hidden)
        self.norm, self.drop = nn.LayerNorm(hidden, eps=1e-12), Dropout(p)
        self.layers = nn.ModuleList(Layer(hidden, heads, ffn, p, sdpa) for _ in range(layers))
        self.pooler, self.drop_head = nn.Linear(hidden, hidden), Dropout(p)
        self.classifier = nn.Linear(hidden, classes)
        self.register_buffer("position_ids", torch.arange(positions).expand(1, -1))

    def forward(self, ids: Tensor, types: Tensor, mask: Tensor) -> Tensor:
        bias = (1.0 - mask[:, None, None, :].to(self.norm.weight.dtype)) * -1e4
        x = self.words(ids) + self.types(types)
        x += self.positions(self.position_ids[:, : ids.shape[1]])
        x = self.drop(self.norm(x))
        for layer in self.layers:
            x = layer(x, bias)
        return self.classifier(self.drop_head(torch.tanh(self.pooler(x[:, 0]))))
