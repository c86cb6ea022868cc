"""Compact torch twins of Latte, DiT and STDiT, and of the diffusion loss they train with.

Written from the published architectures: Ma et al. 2024 (Latte), Peebles & Xie 2023 (DiT),
Open-Sora 1.0. Module names and definition order are those of the originals.
"""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn


def _probabilities(q: Tensor, k: Tensor) -> tuple[Tensor, Tensor]:
    scores = torch.einsum("bnhd,bmhd->bhnm", q, k) * q.shape[-1] ** -0.5
    lse = torch.logsumexp(scores, -1)
    return (scores - lse[..., None]).exp(), lse


@torch.library.custom_op("simcore_reference::flash", mutates_args=())
def flash(q: Tensor, k: Tensor, v: Tensor) -> tuple[Tensor, Tensor]:
    """Fused attention on [B, N, H, D], one operator to the dispatcher: output, log-sum-exp."""
    weights, lse = _probabilities(q, k)
    return torch.einsum("bhnm,bmhd->bnhd", weights, v).contiguous(), lse


@torch.library.custom_op("simcore_reference::flash_backward", mutates_args=())
def flash_backward(
    grad: Tensor, q: Tensor, k: Tensor, v: Tensor, out: Tensor, lse: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    p, _ = _probabilities(q, k)
    dv = torch.einsum("bhnm,bnhd->bmhd", p, grad)
    dp = torch.einsum("bnhd,bmhd->bhnm", grad, v)
    ds = p * (dp - (dp * p).sum(-1, keepdim=True)) * q.shape[-1] ** -0.5
    dq, dk = torch.einsum("bhnm,bmhd->bnhd", ds, k), torch.einsum("bhnm,bnhd->bmhd", ds, q)
    return dq.contiguous(), dk.contiguous(), dv.contiguous()


def _save(ctx, inputs, output) -> None:  # type: ignore[no-untyped-def]
    ctx.save_for_backward(*inputs, *output)


def _grads(ctx, grad, _):  # type: ignore[no-untyped-def]
    return flash_backward(grad, *ctx.saved_tensors)


flash.register_autograd(_grads, setup_context=_save)
flash.register_fake(lambda q, k, v: (q.new_empty(q.shape), q.new_empty(*q.shape[:3])))


class Mlp(nn.Module):
    def __init__(self, d_in: int, d_hidden: int, d_out: int) -> None:
        super().__init__()
        self.fc1 = nn.Linear(d_in, d_hidden)
        self.act = nn.GELU(approximate="tanh")
        self.fc2 = nn.Linear(d_hidden, d_out)

    def forward(self, x: Tensor) -> Tensor:
        return self.fc2(self.act(self.fc1(x)))


class Attention(nn.Module):
    def __init__(self, d: int, heads: int, mode: str, packed: bool) -> None:
        super().__init__()
        self.heads, self.mode, self.packed = heads, mode, packed
        self.qkv = nn.Linear(d, 3 * d)
        self.proj = nn.Linear(d, d)

    def forward(self, x: Tensor) -> Tensor:
        b, n, d = x.shape
        qkv = self.qkv(x).reshape(b, n, 3, self.heads, d // self.heads).permute(2, 0, 3, 1, 4)
        if self.packed:  # Latte lays q, k, v out head by head
            qkv = qkv.contiguous()
        q, k, v = qkv.unbind(0)
        if self.mode == "flash":
            out, _ = flash(*(t.transpose(1, 2) for t in (q, k, v)))
            if self.packed:  # Latte reshapes [B, H, N, D] as it lies, which moves data
                out = out.transpose(1, 2)
            out = out.reshape(b, n, d)
        else:
            weights = ((q @ k.transpose(-2, -1)) * (d // self.heads) ** -0.5).softmax(dim=-1)
            out = (weights @ v).transpose(1, 2).reshape(b, n, d)
        return self.proj(out)


def modulate(x: Tensor, shift: Tensor, scale: Tensor) -> Tensor:
    return x * (1 + scale.unsqueeze(1)) + shift.unsqueeze(1)


class Block(nn.Module):
    def __init__(self, d: int, heads: int, mlp_ratio: float, mode: str, packed: bool) -> None:
        super().__init__()
        self.norm1 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.attn = Attention(d, heads, mode, packed)
        self.norm2 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.mlp = Mlp(d, int(d * mlp_ratio), d)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(d, 6 * d))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        s1, m1, g1, s2, m2, g2 = self.adaLN_modulation(c).chunk(6, dim=1)
        x = x + g1.unsqueeze(1) * self.attn(modulate(self.norm1(x), s1, m1))
        return x + g2.unsqueeze(1) * self.mlp(modulate(self.norm2(x), s2, m2))


class FinalLayer(nn.Module):
    def __init__(self, d: int, out: int) -> None:
        super().__init__()
        self.norm_final = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.linear = nn.Linear(d, out)
        self.adaLN_modulation = nn.Sequential(nn.SiLU(), nn.Linear(d, 2 * d))

    def forward(self, x: Tensor, c: Tensor) -> Tensor:
        shift, scale = self.adaLN_modulation(c).chunk(2, dim=1)
        return self.linear(modulate(self.norm_final(x), shift, scale))


class PatchEmbed(nn.Module):
    def __init__(self, patch: int, channels: int, d: int) -> None:
        super().__init__()
        self.proj = nn.Conv2d(channels, d, patch, patch)

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)


class TimestepEmbedder(nn.Module):
    def __init__(self, d: int) -> None:
        super().__init__()
        self.mlp = nn.Sequential(nn.Linear(256, d), nn.SiLU(), nn.Linear(d, d))

    def forward(self, t: Tensor) -> Tensor:
        steps = torch.arange(start=0, end=128, dtype=torch.float32)
        freqs = torch.exp(-math.log(10000) * steps / 128).to(t.device)
        args = t[:, None].float() * freqs[None]
        return self.mlp(torch.cat([torch.cos(args), torch.sin(args)], dim=-1))


class LabelEmbedder(nn.Module):
    def __init__(self, classes: int, d: int) -> None:
        super().__init__()
        self.classes = classes
        self.embedding_table = nn.Embedding(classes + 1, d)

    def forward(self, y: Tensor) -> Tensor:
        drop = torch.rand(y.shape[0], device=y.device) < 0.1
        return self.embedding_table(torch.where(drop, self.classes, y))


def unpatchify(x: Tensor, patch: int, channels: int) -> Tensor:
    n, tokens, _ = x.shape
    side = math.isqrt(tokens)
    x = torch.einsum("nhwpqc->nchpwq", x.reshape(n, side, side, patch, patch, channels))
    return x.reshape(n, channels, side * patch, side * patch)


class DiT(nn.Module):
    """Latents [B, C, H, W], steps [B], labels [B] to [B, 2C, H, W]."""

    def __init__(
        self, depth: int, hidden: int, heads: int, *, patch: int = 2, latent: int = 32,
        classes: int = 1000, mode: str = "math",
    ) -> None:  # fmt: skip
        super().__init__()
        self.patch = patch
        self.x_embedder = PatchEmbed(patch, 4, hidden)
        self.t_embedder = TimestepEmbedder(hidden)
        if classes:
            self.y_embedder = LabelEmbedder(classes, hidden)
        tokens = (latent // patch) ** 2
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, hidden), requires_grad=False)
        self.blocks = nn.ModuleList(
            Block(hidden, heads, 4.0, mode, packed=False) for _ in range(depth)
        )
        self.final_layer = FinalLayer(hidden, patch * patch * 8)

    def forward(self, x: Tensor, t: Tensor, y: Tensor | None = None) -> Tensor:
        x = self.x_embedder(x) + self.pos_embed
        c = self.t_embedder(t)
        if y is not None:
            c = c + self.y_embedder(y)
        for block in self.blocks:
            x = block(x, c)
        return unpatchify(self.final_layer(x, c), self.patch, 8)


class Latte(nn.Module):
    """Latents [B, F, C, H, W], steps [B] to [B, F, 2C, H, W]."""

    def __init__(
        self, depth: int, hidden: int, heads: int, *, patch: int = 2, latent: int = 32,
        frames: int = 16, classes: int = 0, mode: str = "math",
    ) -> None:  # fmt: skip
        super().__init__()
        self.patch = patch
        self.x_embedder = PatchEmbed(patch, 4, hidden)
        self.t_embedder = TimestepEmbedder(hidden)
        if classes:
            self.y_embedder = LabelEmbedder(classes, hidden)
        tokens = (latent // patch) ** 2
        self.pos_embed = nn.Parameter(torch.zeros(1, tokens, hidden), requires_grad=False)
        self.temp_embed = nn.Parameter(torch.zeros(1, frames, hidden), requires_grad=False)
        self.blocks = nn.ModuleList(
            Block(hidden, heads, 4.0, mode, packed=True) for _ in range(depth)
        )
        self.final_layer = FinalLayer(hidden, patch * patch * 8)

    def forward(self, x: Tensor, t: Tensor, y: Tensor | None = None) -> Tensor:
        b, f = x.shape[:2]
        x = self.x_embedder(x.flatten(0, 1)) + self.pos_embed
        n, d = x.shape[1:]
        t = self.t_embedder(t)
        t_space, t_time = (t[:, None].expand(b, k, d).reshape(b * k, d) for k in (f, n))
        if y is not None:
            y = self.y_embedder(y)
            y_space, y_time = (y[:, None].expand(b, k, d).reshape(b * k, d) for k in (f, n))
        for i in range(0, len(self.blocks), 2):
            x = self.blocks[i](x, t_space if y is None else t_space + y_space)
            x = x.reshape(b, f, n, d).transpose(1, 2).reshape(b * n, f, d)
            if i == 0:
                x = x + self.temp_embed
            x = self.blocks[i + 1](x, t_time if y is None else t_time + y_time)
            x = x.reshape(b, n, f, d).transpose(1, 2).reshape(b * f, n, d)
        c = t_space if y is None else t_space + y_space
        return unpatchify(self.final_layer(x, c), self.patch, 8).unflatten(0, (b, f))


class CrossAttention(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.heads = heads
        self.q_linear = nn.Linear(d, d)
        self.kv_linear = nn.Linear(d, 2 * d)
        self.proj = nn.Linear(d, d)

    def forward(self, x: Tensor, cond: Tensor) -> Tensor:
        b, n, d = x.shape
        q = self.q_linear(x).view(b, n, self.heads, d // self.heads)
        kv = self.kv_linear(cond).view(b, -1, 2, self.heads, d // self.heads)
        k, v = kv.unbind(2)
        return self.proj(flash(q, k, v)[0].view(b, n, d))


class STDiTBlock(nn.Module):
    def __init__(self, d: int, heads: int) -> None:
        super().__init__()
        self.scale_shift_table = nn.Parameter(torch.randn(6, d) / d**0.5)
        self.norm1 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.attn = Attention(d, heads, "flash", packed=False)
        self.cross_attn = CrossAttention(d, heads)
        self.norm2 = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.mlp = Mlp(d, 4 * d, d)
        self.attn_temp = Attention(d, heads, "flash", packed=False)

    def forward(self, x: Tensor, y: Tensor, t: Tensor, frames: int, tpe: Tensor | None) -> Tensor:
        b, n, d = x.shape
        table = self.scale_shift_table[None] + t.reshape(b, 6, d)
        s1, m1, g1, s2, m2, g2 = table.chunk(6, dim=1)
        h = self.norm1(x) * (1 + m1) + s1
        x = x + g1 * self.attn(h.reshape(b * frames, n // frames, d)).reshape(b, n, d)
        h = x.reshape(b, frames, -1, d).transpose(1, 2).reshape(-1, frames, d)
        if tpe is not None:
            h = h + tpe
        h = self.attn_temp(h).reshape(b, -1, frames, d).transpose(1, 2).reshape(b, n, d)
        x = x + g1 * h
        x = x + self.cross_attn(x, y)
        return x + g2 * self.mlp(self.norm2(x) * (1 + m2) + s2)


class CaptionEmbedder(nn.Module):
    def __init__(self, channels: int, d: int, tokens: int) -> None:
        super().__init__()
        self.y_proj = Mlp(channels, d, d)
        self.register_buffer("y_embedding", torch.randn(tokens, channels))

    def forward(self, caption: Tensor) -> Tensor:
        drop = torch.rand(caption.shape[0], device=caption.device) < 0.1
        return self.y_proj(torch.where(drop[:, None, None, None], self.y_embedding, caption))


class STDiTFinal(nn.Module):
    def __init__(self, d: int, out: int) -> None:
        super().__init__()
        self.scale_shift_table = nn.Parameter(torch.randn(2, d) / d**0.5)
        self.norm_final = nn.LayerNorm(d, elementwise_affine=False, eps=1e-6)
        self.linear = nn.Linear(d, out)

    def forward(self, x: Tensor, t: Tensor) -> Tensor:
        shift, scale = (self.scale_shift_table[None] + t[:, None]).chunk(2, dim=1)
        return self.linear(self.norm_final(x) * (1 + scale) + shift)


class PatchEmbed3D(nn.Module):
    def __init__(self, patch: int, channels: int, d: int) -> None:
        super().__init__()
        self.proj = nn.Conv3d(channels, d, (1, patch, patch), (1, patch, patch))

    def forward(self, x: Tensor) -> Tensor:
        return self.proj(x).flatten(2).transpose(1, 2)


class STDiT(nn.Module):
    """Latents [B, C, F, H, W], steps [B], captions [B, 1, L, 4096] to [B, 2C, F, H, W]."""

    def __init__(
        self, depth: int, hidden: int, heads: int, *, patch: int = 2, latent: int = 32,
        frames: int = 16, caption_channels: int = 4096, caption_tokens: int = 120,
    ) -> None:  # fmt: skip
        super().__init__()
        self.patch, self.frames, self.side = patch, frames, latent // patch
        self.register_buffer("pos_embed", torch.zeros(1, self.side**2, hidden))
        self.register_buffer("pos_embed_temporal", torch.zeros(1, frames, hidden))
        self.x_embedder = PatchEmbed3D(patch, 4, hidden)
        self.t_embedder = TimestepEmbedder(hidden)
        self.t_block = nn.Sequential(nn.SiLU(), nn.Linear(hidden, 6 * hidden))
        self.y_embedder = CaptionEmbedder(caption_channels, hidden, caption_tokens)
        self.blocks = nn.ModuleList(STDiTBlock(hidden, heads) for _ in range(depth))
        self.final_layer = STDiTFinal(hidden, patch * patch * 8)

    def forward(self, x: Tensor, t: Tensor, caption: Tensor) -> Tensor:
        b, f, p, side = x.shape[0], self.frames, self.patch, self.side
        x = self.x_embedder(x).unflatten(1, (f, side * side)) + self.pos_embed
        x = x.reshape(b, f * side * side, -1)
        t = self.t_embedder(t)
        t6 = self.t_block(t)
        y = self.y_embedder(caption).squeeze(1)
        for i, block in enumerate(self.blocks):
            x = block(x, y, t6, f, self.pos_embed_temporal if i == 0 else None)
        x = self.final_layer(x, t).reshape(b, f, side, side, 1, p, p, 8)
        x = x.permute(0, 7, 1, 4, 2, 5, 3, 6).reshape(b, 8, f, side * p, side * p)
        return x.to(torch.float32)


class DiffusionLoss:
    """Noise-prediction MSE plus the variational bound on the learned variance.

    Nichol & Dhariwal 2021, in the operator sequence of the guided-diffusion code that DiT and
    Latte carry. ``channel_dim`` is where the model's two halves lie.
    """

    def __init__(self, steps: int = 1000) -> None:
        beta = torch.linspace(1e-4, 0.02, steps, dtype=torch.float64)
        alpha_bar = torch.cumprod(1 - beta, 0)
        before = torch.cat([torch.ones(1, dtype=torch.float64), alpha_bar[:-1]])
        variance = beta * (1 - before) / (1 - alpha_bar)
        self.tables = {
            "signal": alpha_bar.sqrt(),
            "noise": (1 - alpha_bar).sqrt(),
            "recip": (1 / alpha_bar).sqrt(),
            "recipm1": (1 / alpha_bar - 1).sqrt(),
            "coef1": beta * before.sqrt() / (1 - alpha_bar),
            "coef2": (1 - before) * (1 - beta).sqrt() / (1 - alpha_bar),
            "variance": variance,
            "log_variance": torch.cat([variance[1:2], variance[1:]]).log(),
            "log_beta": beta.log(),
        }

    def at(self, key: str, t: Tensor, like: Tensor) -> Tensor:
        found = self.tables[key][t].float()
        while found.dim() < like.dim():
            found = found[..., None]
        return found + torch.zeros(like.shape)

    def noised(self, x0: Tensor, t: Tensor, noise: Tensor) -> Tensor:
        return self.at("signal", t, x0) * x0 + self.at("noise", t, x0) * noise

    def _posterior(self, x0: Tensor, xt: Tensor, t: Tensor) -> tuple[Tensor, Tensor]:
        mean = self.at("coef1", t, xt) * x0 + self.at("coef2", t, xt) * xt
        self.at("variance", t, xt)
        return mean, self.at("log_variance", t, xt)

    def __call__(
        self, out: Tensor, x0: Tensor, xt: Tensor, t: Tensor, noise: Tensor, channel_dim: int
    ) -> Tensor:
        channels = x0.shape[channel_dim]
        eps, spread = out.split(channels, dim=channel_dim)
        frozen = torch.cat([eps.detach(), spread], dim=channel_dim)
        vb = self._bound(frozen, x0, xt, t, channel_dim)
        return (((noise - eps) ** 2).mean(dim=list(range(1, x0.dim()))) + vb).mean()

    def _bound(self, out: Tensor, x0: Tensor, xt: Tensor, t: Tensor, channel_dim: int) -> Tensor:
        true_mean, true_log = self._posterior(x0, xt, t)
        eps, spread = out.split(x0.shape[channel_dim], dim=channel_dim)
        low, high = self.at("log_variance", t, xt), self.at("log_beta", t, xt)
        part = (spread + 1) / 2
        log_var = part * high + (1 - part) * low
        torch.exp(log_var)
        pred = self.at("recip", t, xt) * xt - self.at("recipm1", t, xt) * eps
        mean, _ = self._posterior(pred, xt, t)
        kl = 0.5 * (
            -1.0
            + log_var
            - true_log
            + torch.exp(true_log - log_var)
            + ((true_mean - mean) ** 2) * torch.exp(-log_var)
        )
        dims = list(range(1, x0.dim()))
        kl = kl.mean(dim=dims) / math.log(2.0)
        nll = -_discretised_log_likelihood(x0, mean, 0.5 * log_var)
        nll = nll.mean(dim=dims) / math.log(2.0)
        return torch.where(t == 0, nll, kl)


def _normal_cdf(x: Tensor) -> Tensor:
    return 0.5 * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (x + 0.044715 * torch.pow(x, 3))))


def _discretised_log_likelihood(x: Tensor, mean: Tensor, log_scale: Tensor) -> Tensor:
    centered = x - mean
    inv = torch.exp(-log_scale)
    cdf_plus = _normal_cdf(inv * (centered + 1.0 / 255.0))
    cdf_min = _normal_cdf(inv * (centered - 1.0 / 255.0))
    log_plus = torch.log(cdf_plus.clamp(min=1e-12))
    log_one_minus = torch.log((1.0 - cdf_min).clamp(min=1e-12))
    delta = cdf_plus - cdf_min
    inner = torch.where(x > 0.999, log_one_minus, torch.log(delta.clamp(min=1e-12)))
    return torch.where(x < -0.999, log_plus, inner)
