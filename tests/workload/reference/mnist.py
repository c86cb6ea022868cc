"""The convolutional net of the PyTorch MNIST example (two convolutions, two linear layers)."""

from __future__ import annotations

import torch
from reference.measure import Dropout
from torch import Tensor, nn
from torch.nn import functional as F


class MnistNet(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = nn.Conv2d(1, 32, 3), nn.Conv2d(32, 64, 3)
        self.drop1, self.drop2 = Dropout(0.25), Dropout(0.5)
        self.fc1, self.fc2 = nn.Linear(9216, 128), nn.Linear(128, 10)

    def forward(self, x: Tensor) -> Tensor:
        x = F.relu(self.conv2(F.relu(self.conv1(x))))
        x = torch.flatten(self.drop1(F.max_pool2d(x, 2)), 1)
        return F.log_softmax(self.fc2(self.drop2(F.relu(self.fc1(x)))), dim=1)
