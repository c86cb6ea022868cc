"""A compact twin of U-ViT (Bao et al. 2023), in the order of baofff/U-ViT's libs/uvit.py."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from .diffusion import flash


class Attention(nn.Module):
    def __init__(self, d: int, heads: int, mode: str) -> None:
        super().__init__()
        self.heads, self.mode = heads, mode
        self.qkv, self.proj = nn.Linear(d, 3 * d, bias=False), nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        packed = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads)
        if self.mode == "flash":
            qkv = packed.permute(2, 0, 1, 3, 4)
            return self.proj(flash(qkv[0], qkv[1], qkv[2])[0].reshape(b, n, d))
        qkv = packed.permute(2, 0, 3, 1, 4)
        q, k, v = qkv[0], qkv[1], qkv[2]
        weights = ((q @ k.transpose(-2, -1)) * (d // self.heads) ** -0.5).softmax(dim=-1)
        return self.proj((weights @ v).transpose(1, 2).reshape(b, n, d))


class Mlp(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.fc1, self.act, self.fc2 = nn.Linear(d, 4 * d), nn.GELU(), nn.Linear(4 * d, d)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Block(nn.Module):
    def __init__(self, d: int, heads: int, mode: str, skip: bool) -> None:
        super().__init__()
        self.norm1, self.attn = nn.LayerNorm(d), Attention(d, heads, mode)
        self.norm2, self.mlp = nn.LayerNorm(d), Mlp(d)
        self.skip_linear = nn.Linear(2 * d, d) if skip else None

    def forward(self, x: Tensor, skip: Tensor | None = None) -> Tensor:
        if self.skip_linear is not None:
            x = self.skip_linear(torch.cat([x, skip], dim=-1))
        x = x + self.attn(self.norm1(x))
        return x + self.mlp(self.norm2(x))


class UViT(nn.Module):
    def __init__(
        self, depth: int, d: int, heads: int, latent: int = 32, mode: str = "math",
        classes: int = 1001,
    ) -> None:  # fmt: skip
        super().__init__()
        self.d, self.patches = d, (latent // 2) ** 2
        self.proj = nn.Conv2d(4, d, 2, 2)
        self.label_emb = nn.Embedding(classes, d)
        self.pos_embed = nn.Parameter(torch.zeros(1, 2 + self.patches, d))
        half = depth // 2
        self.ins = nn.ModuleList(Block(d, heads, mode, False) for _ in range(half))
        self.mid = Block(d, heads, mode, False)
        self.outs = nn.ModuleList(Block(d, heads, mode, True) for _ in range(half))
        self.norm, self.decoder_pred = nn.LayerNorm(d), nn.Linear(d, 16)

    def _time(self, t: Tensor) -> Tensor:
        half = self.d // 2
        freqs = torch.exp(-math.log(10000) * torch.arange(half, dtype=torch.float32) / half)
        args = t[:, None].float() * freqs[None]
        return torch.cat([torch.cos(args), torch.sin(args)], dim=-1).unsqueeze(1)

    def forward(self, x: Tensor, t: Tensor, y: Tensor) -> Tensor:
        x = self.proj(x).flatten(2).transpose(1, 2)
        x = torch.cat((self._time(t), x), dim=1)
        x = torch.cat((self.label_emb(y).unsqueeze(1), x), dim=1) + self.pos_embed
        skips = []
        for block in self.ins:
            x = block(x)
            skips.append(x)
        x = self.mid(x)
        for block in self.outs:
            x = block(x, skips.pop())
        x = self.decoder_pred(self.norm(x))[:, 2:]
        b, side = x.shape[0], math.isqrt(self.patches)
        x = x.reshape(b, side, side, 2, 2, 4).permute(0, 5, 1, 3, 2, 4)
        return x.reshape(b, 4, 2 * side, 2 * side)
