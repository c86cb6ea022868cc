"""U-Net for segmentation, and neural collaborative filtering."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional as F


class UNet(nn.Module):
    def __init__(self, width: int = 64, depth: int = 4, classes: int = 2) -> None:
        super().__init__()
        self.down, self.up, self.join, cin = nn.ModuleList(), nn.ModuleList(), nn.ModuleList(), 1

        def double(a: int, b: int) -> nn.Sequential:
            return nn.Sequential(
                nn.Conv2d(a, b, 3), nn.ReLU(True), nn.Conv2d(b, b, 3), nn.ReLU(True)
            )

        for level in range(depth + 1):
            self.down.append(double(cin, width << level))
            cin = width << level
        for level in reversed(range(depth)):
            self.up.append(nn.ConvTranspose2d(cin, width << level, 2, 2))
            self.join.append(double(cin, width << level))
            cin = width << level
        self.head = nn.Conv2d(cin, classes, 1)

    def forward(self, x: Tensor) -> Tensor:
        skips = []
        for i, block in enumerate(self.down):
            x = block(x if not i else F.max_pool2d(x, 2, 2))
            skips.append(x)
        skips.pop()
        for up, join in zip(self.up, self.join, strict=True):
            x, skip = up(x), skips.pop()
            at = (skip.shape[-1] - x.shape[-1]) // 2
            crop = skip[:, :, at : at + x.shape[-2], at : at + x.shape[-1]]
            x = join(torch.cat([crop, x], 1))
        return self.head(x)


class NeuMF(nn.Module):
    def __init__(self, users: int, items: int) -> None:
        super().__init__()
        self.tables = nn.ModuleList(
            nn.Embedding(n, d) for n, d in ((users, 64), (items, 64), (users, 128), (items, 128))
        )
        pairs = ((256, 256), (256, 128), (128, 64))
        self.mlp = nn.ModuleList(nn.Linear(a, b) for a, b in pairs)
        self.score = nn.Linear(128, 1)

    def forward(self, user: Tensor, item: Tensor) -> Tensor:
        a, b, c, d = (t(i) for t, i in zip(self.tables, (user, item) * 2, strict=True))
        x = torch.cat([c, d], 1)
        for layer in self.mlp:
            x = torch.native_dropout(F.relu(layer(x)), 0.5, True)[0]
        return self.score(torch.cat([a * b, x], 1))
