"""Launches by kind: every chain runs, and the tiny network has the kernels that are counted."""

from __future__ import annotations

from typing import Any, cast

import pytest

torch = pytest.importorskip("torch")

from torch.utils._python_dispatch import TorchDispatchMode  # noqa: E402

from simcore.calibrate.bench import launch  # noqa: E402
from simcore.calibrate.bench.case import Device, World  # noqa: E402
from tests.bench_fakes import FakeClock, FakeDevice  # noqa: E402

CPU = cast(Device, FakeDevice(FakeClock()))
#: Operators that launch no kernel.
NO_KERNEL = ("aten.t", "aten.view", "aten.detach")


class Counted(TorchDispatchMode):  # type: ignore[misc]
    """Counts operators that launch a kernel."""

    n = 0

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        self.n += not str(func).startswith(tuple(f"{name}." for name in NO_KERNEL))
        return func(*args, **(kwargs or {}))


def test_the_tiny_network_has_257_kernels_once_gradients_exist() -> None:
    run = launch.eager(CPU)
    run()
    with Counted() as counted:
        run()
    assert counted.n == launch.EAGER_KERNELS == 257


@pytest.mark.parametrize("kind", launch.KINDS)
def test_every_chain_runs_forward_and_backward(
    kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:  # fmt: skip
    monkeypatch.setattr(launch, "UNITS", 3)
    assert launch.chain(kind, False, CPU)() > 0.0
    if kind not in launch.NO_BACKWARD:
        assert launch.chain(kind, True, CPU)() > 0.0


def test_cases_name_kind_phase_and_number_of_units() -> None:
    cases = {c.columns["op"]: c for c in launch.launch_cases(CPU, World())}
    assert cases["eager-linear-module-backward"].columns["count"] == launch.UNITS
    assert cases["eager"].columns["count"] == 257 and "eager-view-backward" not in cases
    assert "graph" not in cases  # of CUDA alone
