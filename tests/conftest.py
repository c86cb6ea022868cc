"""Shared helpers of the tests lie beside this file. Files with slow tests run first."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path

import pytest
from hypothesis import settings

# Before torch loads: threads of tiny products wait for each other, and workers' for workers'.
os.environ.setdefault("OMP_NUM_THREADS", "1")
sys.path.insert(0, str(Path(__file__).parent))
# An example of a property may take as long as it takes: no test asserts an absolute time.
settings.register_profile("simcore", deadline=None)
settings.load_profile("simcore")
# Modules and tests are many objects that stay: looked through seldom, they cost next to nothing.
gc.set_threshold(50_000)


class _BeforeTorchvision(MetaPathFinder):
    """Makes torchvision importable for whoever asks first, as simcore does for itself.

    PyPI's is built for CUDA; transformers imports it wherever it is installed.
    """

    def find_spec(self, name: str, path: object, target: object = None) -> None:
        if name == "torchvision" and self in sys.meta_path:
            sys.meta_path.remove(self)
            from simcore.workload.trace.zoos import ready_torchvision

            ready_torchvision()


sys.meta_path.insert(0, _BeforeTorchvision())

from evil import Evil, evil_folder  # noqa: E402 (lies beside this file)


@pytest.fixture
def evil(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Evil]:
    """A current folder with a module that leaves a mark when it is imported."""
    with evil_folder(tmp_path, monkeypatch) as found:
        yield found


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Start with what takes longest: it must not be what one worker is left with in the end."""
    slow = {item.path for item in items if item.get_closest_marker("slow")}
    items.sort(key=lambda item: item.path not in slow)


def pytest_collection_finish() -> None:
    """Modules and tests stay: the collector need not look through them after each test."""
    gc.collect()
    gc.freeze()


@pytest.fixture(scope="module")
def process_group(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """A gloo group of one rank over a file: no ports."""
    dist = pytest.importorskip("torch.distributed")
    store = dist.FileStore(str(tmp_path_factory.mktemp("store") / "file"), 1)
    dist.init_process_group("gloo", store=store, rank=0, world_size=1)
    yield
    dist.destroy_process_group()
