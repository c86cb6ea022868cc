"""Bucket sizes against those that torch's DistributedDataParallel reports of itself."""

from __future__ import annotations

import itertools

import pytest
import torch
from strategies import block, workload
from torch import nn
from torch.nn.parallel import DistributedDataParallel

from simcore.base.units import MIB
from simcore.step.program import gradient_buckets
from simcore.workload.graph import Workload


def mlp() -> nn.Module:
    sizes = (64, 700, 900, 1100, 300, 10)
    layers: list[nn.Module] = []
    for a, b in itertools.pairwise(sizes):
        layers += [nn.Linear(a, b), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def wide() -> nn.Module:
    """Single tensors above both caps, and many small ones."""
    layers: list[nn.Module] = [nn.Linear(64, 2600, bias=False), nn.Linear(2600, 2600, bias=False)]
    layers += [nn.Linear(2600, 256)]
    layers += [nn.Sequential(nn.LayerNorm(256), nn.Linear(256, 256)) for _ in range(30)]
    return nn.Sequential(*layers)


def norms() -> nn.Module:
    """Everything in one bucket."""
    return nn.Sequential(nn.Linear(64, 32), nn.LayerNorm(32), nn.Linear(32, 4, bias=False))


def as_workload(module: nn.Module) -> Workload:
    """One block a leaf module, in definition order, which these nets also run in."""
    leaves = [m for m in module.modules() if not list(m.children())]
    return workload(
        [
            block(f"b{i}", [p.numel() for p in m.parameters()])
            for i, m in enumerate(leaves)
            if list(m.parameters())
        ]
    )


@pytest.mark.parametrize("build", [mlp, wide, norms])
@pytest.mark.parametrize("cap_mib", [None, 4])
def test_buckets_are_those_of_torch(process_group: None, build: type, cap_mib: int | None) -> None:
    """Default: a first bucket of 1 MiB, then 25 MiB. An explicit cap is the first one too."""
    torch.manual_seed(0)
    net = build()
    caps = {} if cap_mib is None else {"bucket_cap_mb": cap_mib}
    ddp = DistributedDataParallel(net, **caps)
    for _ in range(3):  # rebuilt in the second, logged in the third
        ddp(torch.randn(3, 64)).sum().backward()
    reported = ddp._get_ddp_logging_data()
    assert reported["has_rebuilt_buckets"]
    sizes = [int(s) for s in reported["rebuilt_bucket_sizes"].split(",")]
    cap = (cap_mib or 25) * MIB
    ours = gradient_buckets(as_workload(net), 4, cap, MIB if cap_mib is None else cap)
    assert [int(b.n_bytes) for b in ours] == sizes
    groups = reported["rebuilt_per_bucket_param_indices"].strip().split(",")
    assert [b.n_tensors for b in ours] == [len(g.split()) for g in groups]
