"""Compact WaveGlow, GNMT and Transformer-XL after their papers, in plain torch."""

from __future__ import annotations

import torch
from reference.measure import Dropout
from torch import Tensor, nn
from torch.nn import functional as F


class NormedConv(nn.Module):
    """A one-dimensional convolution under weight normalisation (Salimans & Kingma 2016)."""

    def __init__(self, cin: int, cout: int, kernel: int, dilation: int = 1) -> None:
        super().__init__()
        self.g, self.v = (
            nn.Parameter(torch.ones(cout, 1, 1)),
            nn.Parameter(torch.randn(cout, cin, kernel)),
        )
        self.bias, self.dilation = nn.Parameter(torch.zeros(cout)), dilation
        self.pad = dilation * (kernel // 2)

    def forward(self, x: Tensor) -> Tensor:
        weight = torch._weight_norm(self.v, self.g, 0)
        return F.conv1d(x, weight, self.bias, padding=self.pad, dilation=self.dilation)


class WaveNet(nn.Module):
    def __init__(self, half: int, mel: int, channels: int, layers: int) -> None:
        super().__init__()
        self.channels = channels
        self.start, self.end = NormedConv(half, channels, 1), nn.Conv1d(channels, 2 * half, 1)
        self.inner = nn.ModuleList(
            NormedConv(channels, 2 * channels, 3, 2**i) for i in range(layers)
        )
        self.cond = nn.ModuleList(NormedConv(mel, 2 * channels, 1) for _ in range(layers))
        self.skip = nn.ModuleList(
            NormedConv(channels, (1 if i == layers - 1 else 2) * channels, 1) for i in range(layers)
        )

    def forward(self, x: Tensor, mel: Tensor) -> Tensor:
        x, n, out = self.start(x), self.channels, None
        for inner, cond, skip in zip(self.inner, self.cond, self.skip, strict=True):
            a = inner(x) + cond(mel)
            y = skip(torch.tanh(a[:, :n]) * torch.sigmoid(a[:, n:]))
            if y.shape[1] > n:
                x, y = x + y[:, :n], y[:, n:]
            out = y if out is None else out + y
        return self.end(out)


class WaveGlow(nn.Module):
    def __init__(
        self, flows: int = 12, layers: int = 8, channels: int = 512, mels: int = 80, group: int = 8
    ) -> None:
        super().__init__()
        self.group = group
        self.upsample = nn.ConvTranspose1d(mels, mels, 1024, 256)
        self.mixers, self.nets, left = nn.ModuleList(), nn.ModuleList(), group
        for k in range(flows):
            left -= 2 if k and k % 4 == 0 else 0
            self.mixers.append(nn.Conv1d(left, left, 1, bias=False))
            self.nets.append(WaveNet(left // 2, mels * group, channels, layers))

    def forward(self, mel: Tensor, audio: Tensor) -> Tensor:
        b, g = audio.shape[0], self.group
        up = self.upsample(mel)[:, :, : audio.shape[1]]
        up = up.unfold(2, g, g).permute(0, 2, 1, 3).reshape(b, -1, up.shape[1] * g).permute(0, 2, 1)
        x, loss = audio.unfold(1, g, g).permute(0, 2, 1), audio.new_zeros(())
        for mixer, net in zip(self.mixers, self.nets, strict=True):
            x = x[:, x.shape[1] - mixer.weight.shape[0] :]
            x = mixer(x.contiguous())
            n = x.shape[1] // 2
            out = net(x[:, :n], up)
            s, t = out[:, n:], out[:, :n]
            x = torch.cat([x[:, :n], torch.exp(s) * x[:, n:] + t], 1)
            loss = loss - s.sum()
        return loss + (x * x).sum()


class Attention(nn.Module):
    """Normalised additive attention (Bahdanau et al. 2015)."""

    def __init__(self, h: int) -> None:
        super().__init__()
        self.query, self.keys = nn.Linear(h, h, bias=False), nn.Linear(h, h, bias=False)
        self.v, self.bias = nn.Parameter(torch.randn(h)), nn.Parameter(torch.zeros(h))
        self.scale = nn.Parameter(torch.ones(1))

    def forward(self, q: Tensor, keys: Tensor) -> Tensor:
        pairs = self.query(q).unsqueeze(2) + self.keys(keys).unsqueeze(1)
        pairs = torch.tanh(pairs + self.bias)
        weights = torch.softmax(pairs @ (self.v / self.v.norm() * self.scale), -1)
        return weights @ keys


class GNMT(nn.Module):
    def __init__(self, vocab: int, h: int, layers: int, drop: float) -> None:
        super().__init__()
        self.embedding, self.drop = nn.Embedding(vocab, h), Dropout(drop)
        lstm = lambda k, **kw: nn.LSTM(k, h, batch_first=True, **kw)  # noqa: E731
        self.first, self.attended = lstm(h, bidirectional=True), lstm(h)
        self.encoder = nn.ModuleList(lstm(2 * h if not i else h) for i in range(layers - 1))
        self.decoder = nn.ModuleList(lstm(2 * h) for _ in range(layers - 1))
        self.attention, self.classifier = Attention(h), nn.Linear(h, vocab)

    def forward(self, source: Tensor, target: Tensor) -> Tensor:
        x = self.first(self.drop(self.embedding(source)))[0]
        for i, layer in enumerate(self.encoder):
            y = layer(self.drop(x))[0]
            x = y + x if i else y
        q = self.attended(self.drop(self.embedding(target)))[0]
        context, y = self.attention(q, x), q
        for i, layer in enumerate(self.decoder):
            z = layer(self.drop(torch.cat([y, context], 2)))[0]
            y = z + y if i else z
        return self.classifier(y)


class XLLayer(nn.Module):
    def __init__(self, d: int, heads: int, head_dim: int, ffn: int, drop: float) -> None:
        super().__init__()
        self.heads, self.dim, inner = heads, head_dim, heads * head_dim
        self.qkv, self.r = nn.Linear(d, 3 * inner, bias=False), nn.Linear(d, inner, bias=False)
        self.out, self.norm1, self.norm2 = (
            nn.Linear(inner, d, bias=False),
            nn.LayerNorm(d),
            nn.LayerNorm(d),
        )
        self.up, self.down, self.drop = nn.Linear(d, ffn), nn.Linear(ffn, d), Dropout(drop)

    def forward(self, x: Tensor, memory: Tensor, r: Tensor, u: Tensor, v: Tensor) -> Tensor:
        b, t, _ = x.shape
        k_len = t + memory.shape[1]
        q, k, w = self.qkv(torch.cat([memory, x], 1)).chunk(3, -1)
        shape = (b, -1, self.heads, self.dim)
        q, k, w = q[:, -t:].reshape(shape), k.reshape(shape), w.reshape(shape)
        rk = self.r(r).view(k_len, self.heads, self.dim)
        content = (q + u).transpose(1, 2) @ k.permute(0, 2, 3, 1)
        position = torch.einsum("bind,jnd->bnij", q + v, rk)
        padded = F.pad(position, (1, 0)).view(b, self.heads, k_len + 1, t)
        scores = (content + padded[:, :, 1:].view_as(position)) * self.dim**-0.5
        mask = torch.ones(t, k_len, dtype=torch.bool, device=x.device).triu(1 + k_len - t)
        p = self.drop(torch.softmax(scores.masked_fill(mask, float("-inf")), -1))
        y = (p @ w.transpose(1, 2)).transpose(1, 2).reshape(b, t, -1)
        x = self.norm1(x + self.drop(self.out(y)))
        return self.norm2(x + self.drop(self.down(self.drop(F.relu(self.up(x))))))


class TransformerXL(nn.Module):
    """With one softmax over the whole vocabulary, tied to the embedding."""

    def __init__(
        self, layers: int, d: int, heads: int, head_dim: int, ffn: int, vocab: int, drop: float
    ) -> None:
        super().__init__()
        self.embedding, self.drop, self.d = nn.Embedding(vocab, d), Dropout(drop), d
        self.layers = nn.ModuleList(XLLayer(d, heads, head_dim, ffn, drop) for _ in range(layers))
        self.u, self.v = (
            nn.Parameter(torch.zeros(heads, head_dim)),
            nn.Parameter(torch.zeros(heads, head_dim)),
        )
        self.bias = nn.Parameter(torch.zeros(vocab))

    def forward(self, tokens: Tensor, memory: Tensor) -> Tensor:
        x = self.drop(self.embedding(tokens) * self.d**0.5)
        r = torch.zeros(memory.shape[2] + tokens.shape[1], self.d, device=x.device)
        for layer, old in zip(self.layers, memory.unbind(1), strict=True):
            x = layer(x, old, r, self.u, self.v)
        return F.linear(self.drop(x), self.embedding.weight, self.bias)
