"""Decoder-only language models: GPT-2's layout, and the one with RoPE, RMSNorm, SwiGLU, GQA."""

from __future__ import annotations

import math

import torch
from reference.measure import Dropout
from torch import Tensor, nn
from torch.nn import functional as F


class NewGelu(nn.Module):
    """The tanh approximation written out in tensor operations."""

    def forward(self, x: Tensor) -> Tensor:
        inner = math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))
        return 0.5 * x * (1.0 + torch.tanh(inner))


class _FusedRms(torch.autograd.Function):
    """RMSNorm in one kernel, as CUDA runs it: keeps its input and a reciprocal a row."""

    @staticmethod
    def forward(ctx, x: Tensor, weight: Tensor) -> Tensor:  # type: ignore[no-untyped-def, override]
        reciprocal = torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6)
        ctx.save_for_backward(x, weight, reciprocal)
        return x * reciprocal * weight

    @staticmethod
    def backward(ctx, grad: Tensor) -> tuple[Tensor, Tensor]:  # type: ignore[no-untyped-def, override]
        x, weight, reciprocal = ctx.saved_tensors
        y = x * reciprocal
        scaled = grad * weight
        inner = (scaled * y).mean(-1, keepdim=True)
        return (scaled - y * inner) * reciprocal, (grad * y).flatten(0, -2).sum(0)


class RmsNorm(nn.Module):
    def __init__(self, dim: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(dim))

    def forward(self, x: Tensor) -> Tensor:
        return _FusedRms.apply(x, self.weight)


class GptLayer(nn.Module):
    def __init__(self, dim: int, heads: int, p: float, flash: bool, written_out: bool) -> None:
        super().__init__()
        self.heads, self.flash = heads, flash
        self.norm1, self.norm2 = nn.LayerNorm(dim), nn.LayerNorm(dim)
        self.qkv, self.out = nn.Linear(dim, 3 * dim), nn.Linear(dim, dim)
        self.up, self.down = nn.Linear(dim, 4 * dim), nn.Linear(4 * dim, dim)
        self.act = NewGelu() if written_out else nn.GELU(approximate="tanh")
        self.drop_p, self.drop1, self.drop2 = Dropout(p), Dropout(p), Dropout(p)

    def attention(self, x: Tensor, mask: Tensor) -> Tensor:
        q, k, v = (
            t.view(*x.shape[:2], self.heads, -1).transpose(1, 2)
            for t in self.qkv(x).split(x.shape[-1], dim=2)
        )
        if self.flash:  # dropout inside the kernel saves a seed only: left out
            y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
            return self.out(y.transpose(1, 2).reshape(x.shape))
        scores = torch.matmul(q, k.transpose(-1, -2)) / math.sqrt(q.shape[-1])
        scores = torch.where(mask, scores, torch.full([], -1e9))
        probs = self.drop_p(F.softmax(scores, dim=-1))
        return self.out(torch.matmul(probs, v).transpose(1, 2).contiguous().view(x.shape))

    def forward(self, x: Tensor, mask: Tensor) -> Tensor:
        x = x + self.drop1(self.attention(self.norm1(x), mask))
        return x + self.drop2(self.down(self.act(self.up(self.norm2(x)))))


class Gpt2(nn.Module):
    def __init__(
        self,
        layers: int,
        dim: int,
        heads: int,
        vocab: int = 50257,
        context: int = 1024,
        p: float = 0.1,
        flash: bool = True,
        written_out: bool = False,
    ) -> None:
        super().__init__()
        self.tokens, self.positions = nn.Embedding(vocab, dim), nn.Embedding(context, dim)
        self.drop = Dropout(p)
        self.register_buffer("mask", torch.ones(context, context, dtype=torch.bool).tril())
        self.layers = nn.ModuleList(
            GptLayer(dim, heads, p, flash, written_out) for _ in range(layers)
        )
        self.norm = nn.LayerNorm(dim)
        self.head = nn.Linear(dim, vocab, bias=False)
        self.head.weight = self.tokens.weight

    def forward(self, ids: Tensor) -> Tensor:
        length = ids.shape[1]
        at = torch.arange(length, device=ids.device)
        mask = self.mask[:length, :length]
        x = self.drop(self.tokens(ids) + self.positions(at[None]))
        for layer in self.layers:
            x = layer(x, mask)
        return self.head(self.norm(x))


class LlamaLayer(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int, ffn: int) -> None:
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.norm1, self.norm2 = RmsNorm(dim), RmsNorm(dim)
        self.q, self.out = nn.Linear(dim, dim, bias=False), nn.Linear(dim, dim, bias=False)
        kv = kv_heads * self.head_dim
        self.k, self.v = nn.Linear(dim, kv, bias=False), nn.Linear(dim, kv, bias=False)
        self.gate, self.up = nn.Linear(dim, ffn, bias=False), nn.Linear(dim, ffn, bias=False)
        self.down = nn.Linear(ffn, dim, bias=False)

    def rotate(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        half = x.shape[-1] // 2
        turned = torch.cat((-x[..., half:], x[..., :half]), dim=-1)
        return x * cos + turned * sin

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        y = self.norm1(x)
        q, k, v = (
            f(y).view(*x.shape[:2], -1, self.head_dim).transpose(1, 2)
            for f in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(
            self.rotate(q, cos, sin), self.rotate(k, cos, sin), v, is_causal=True, enable_gqa=True
        )
        x = x + self.out(y.transpose(1, 2).reshape(x.shape))
        y = self.norm2(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(
        self, layers: int, dim: int, heads: int, kv_heads: int, ffn: int, vocab: int
    ) -> None:
        super().__init__()
        self.tokens = nn.Embedding(vocab, dim)
        self.layers = nn.ModuleList(LlamaLayer(dim, heads, kv_heads, ffn) for _ in range(layers))
        self.norm, self.head = RmsNorm(dim), nn.Linear(dim, vocab, bias=False)
        self.head_dim = dim // heads

    def forward(self, ids: Tensor) -> Tensor:
        x = self.tokens(ids)
        at = torch.outer(
            torch.arange(ids.shape[1], device=ids.device),
            torch.arange(self.head_dim, device=ids.device) / self.head_dim,
        )
        cos, sin = at.cos(), at.sin()
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x))
