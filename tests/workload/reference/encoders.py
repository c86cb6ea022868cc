"""Compact torch twins of the frozen encoders: AutoencoderKL's encoder and T5 v1.1's.

Local variables live as long as in the originals (diffusers, transformers), since that sets how
much memory an inference pass holds at its peak.
"""

from __future__ import annotations

import math

import torch
import torch.nn.functional as F
from torch import Tensor, nn


class Resnet(nn.Module):
    def __init__(self, cin: int, cout: int) -> None:
        super().__init__()
        self.norm1 = nn.GroupNorm(32, cin, eps=1e-6)
        self.conv1 = nn.Conv2d(cin, cout, 3, padding=1)
        self.norm2 = nn.GroupNorm(32, cout, eps=1e-6)
        self.conv2 = nn.Conv2d(cout, cout, 3, padding=1)
        self.conv_shortcut = nn.Conv2d(cin, cout, 1) if cin != cout else None

    def forward(self, input_tensor: Tensor) -> Tensor:
        h = input_tensor
        h = self.norm1(h)
        h = F.silu(h)
        h = self.conv1(h)
        h = self.norm2(h)
        h = F.silu(h)
        h = self.conv2(h)
        if self.conv_shortcut is not None:
            input_tensor = self.conv_shortcut(input_tensor)
        return (input_tensor + h) / 1.0


class SpatialAttention(nn.Module):
    def __init__(self, channels: int) -> None:
        super().__init__()
        self.group_norm = nn.GroupNorm(32, channels, eps=1e-6)
        self.to_q, self.to_k, self.to_v, self.to_out = (
            nn.Linear(channels, channels) for _ in range(4)
        )

    def forward(self, x: Tensor) -> Tensor:
        residual = x
        b, c, height, width = x.shape
        h = self.group_norm(x.view(b, c, -1)).transpose(1, 2)
        q, k, v = (f(h).unsqueeze(1) for f in (self.to_q, self.to_k, self.to_v))
        h = self.to_out(F.scaled_dot_product_attention(q, k, v).squeeze(1))
        h = h.transpose(-1, -2).reshape(b, c, height, width)
        return (h + residual) / 1.0


class Level(nn.Module):
    def __init__(self, cin: int, cout: int, resnets: int, down: bool) -> None:
        super().__init__()
        self.resnets = nn.ModuleList(Resnet(cin if i == 0 else cout, cout) for i in range(resnets))
        self.down = nn.Conv2d(cout, cout, 3, stride=2) if down else None

    def forward(self, h: Tensor) -> Tensor:
        for resnet in self.resnets:
            h = resnet(h)
        if self.down is not None:
            h = self.down(F.pad(h, (0, 1, 0, 1)))
        return h


class Encoder(nn.Module):
    """Images [B, 3, H, W] to latents [B, 4, H/8, W/8]."""

    def __init__(self, base: int = 128, resnets: int = 2) -> None:
        super().__init__()
        widths = [base, 2 * base, 4 * base, 4 * base]
        self.conv_in = nn.Conv2d(3, base, 3, padding=1)
        self.levels = nn.ModuleList(
            Level(widths[max(i - 1, 0)], w, resnets, down=i < 3) for i, w in enumerate(widths)
        )
        self.mid1, self.mid2 = Resnet(widths[-1], widths[-1]), Resnet(widths[-1], widths[-1])
        self.attn = SpatialAttention(widths[-1])
        self.norm_out = nn.GroupNorm(32, widths[-1], eps=1e-6)
        self.conv_out = nn.Conv2d(widths[-1], 8, 3, padding=1)
        self.quant_conv = nn.Conv2d(8, 8, 1)

    def forward(self, x: Tensor) -> Tensor:
        sample = self.conv_in(x)
        for level in self.levels:
            sample = level(sample)
        sample = self.mid2(self.attn(self.mid1(sample)))
        sample = self.conv_out(F.silu(self.norm_out(sample)))
        mean, log_var = self.quant_conv(sample).chunk(2, dim=1)
        log_var = log_var.clamp(-30.0, 20.0)
        std, _ = torch.exp(0.5 * log_var), torch.exp(log_var)
        return (mean + std * torch.randn_like(mean)).mul_(0.18215)


class Decoder(nn.Module):
    """Only its parameters matter: sd-vae-ft-ema's decoder, which training holds and never runs."""

    def __init__(self, base: int = 128) -> None:
        super().__init__()
        widths = [4 * base, 4 * base, 2 * base, base]
        self.post_quant_conv = nn.Conv2d(4, 4, 1)
        self.conv_in = nn.Conv2d(4, widths[0], 3, padding=1)
        self.mid = nn.ModuleList(
            [
                Resnet(widths[0], widths[0]),
                SpatialAttention(widths[0]),
                Resnet(widths[0], widths[0]),
            ]
        )
        self.levels = nn.ModuleList()
        for i, w in enumerate(widths):
            before = widths[max(i - 1, 0)]
            self.levels.append(nn.ModuleList(Resnet(before if j == 0 else w, w) for j in range(3)))
            if i < 3:
                self.levels.append(nn.Conv2d(w, w, 3, padding=1))
        self.norm_out = nn.GroupNorm(32, base)
        self.conv_out = nn.Conv2d(base, 3, 3, padding=1)


class RmsNorm(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(d))

    def forward(self, x: Tensor) -> Tensor:
        variance = x.to(torch.float32).pow(2).mean(-1, keepdim=True)
        x = x * torch.rsqrt(variance + 1e-6)
        return self.weight * x.to(self.weight.dtype)


def gelu_new(x: Tensor) -> Tensor:
    return (
        0.5 * x * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3.0))))
    )


class T5Layer(nn.Module):
    def __init__(self, d: int, inner: int, heads: int, head_dim: int) -> None:
        super().__init__()
        self.heads = heads
        self.norm1, self.norm2 = RmsNorm(d), RmsNorm(d)
        self.q, self.k, self.v = (nn.Linear(d, heads * head_dim, bias=False) for _ in range(3))
        self.o = nn.Linear(heads * head_dim, d, bias=False)
        self.wi_0, self.wi_1 = (nn.Linear(d, inner, bias=False) for _ in range(2))
        self.wo = nn.Linear(inner, d, bias=False)

    def attend(self, h: Tensor, bias: Tensor) -> Tensor:
        b, n, _ = h.shape
        q, k, v = (
            f(h).view(b, n, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        scores = q @ k.transpose(3, 2)
        scores += bias
        weights = F.softmax(scores.float(), dim=-1).type_as(scores)
        return self.o((weights @ v).transpose(1, 2).contiguous().view(b, n, -1))

    def feed_forward(self, h: Tensor) -> Tensor:
        gelu = gelu_new(self.wi_0(h))
        linear = self.wi_1(h)
        h = gelu * linear
        return self.wo(h)

    def forward(self, x: Tensor, bias: Tensor) -> Tensor:
        x = x + self.attend(self.norm1(x), bias)
        return x + self.feed_forward(self.norm2(x))


class T5Encoder(nn.Module):
    """Token ids [B, N] to [B, N, d]."""

    def __init__(
        self, layers: int = 24, d: int = 4096, inner: int = 10240, heads: int = 64,
        head_dim: int = 64, vocab: int = 32128,
    ) -> None:  # fmt: skip
        super().__init__()
        self.shared = nn.Embedding(vocab, d)
        self.relative_attention_bias = nn.Embedding(32, heads)
        self.layers = nn.ModuleList(T5Layer(d, inner, heads, head_dim) for _ in range(layers))
        self.final_norm = RmsNorm(d)

    def forward(self, ids: Tensor) -> Tensor:
        n = ids.shape[1]
        x = self.shared(ids)
        distance = (torch.arange(n)[None] - torch.arange(n)[:, None]).clamp(0, 31).to(ids.device)
        bias = self.relative_attention_bias(distance).permute(2, 0, 1)[None]
        for layer in self.layers:
            x = layer(x, bias)
        return self.final_norm(x)
