"""Ranks that torch.distributed joins: gloo for what they agree on, NCCL for what is measured."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import Any, TypeVar

T = TypeVar("T")


@dataclass(frozen=True)
class Ranks:
    """A world of torchrun's making (RANK, WORLD_SIZE, LOCAL_RANK in the environment)."""

    rank: int
    size: int
    _control: Any

    @staticmethod
    def join(backend: str) -> Ranks:
        """Join the ranks; control messages go over gloo, which waits without computing."""
        import torch.distributed as dist

        dist.init_process_group(backend)
        return Ranks(dist.get_rank(), dist.get_world_size(), dist.new_group(backend="gloo"))

    @staticmethod
    def leave() -> None:
        """Take the process group down."""
        import torch.distributed as dist

        if dist.is_initialized():
            dist.destroy_process_group()

    def share(self, value: T) -> T:
        """Rank 0's value, on every rank."""
        import torch.distributed as dist

        box = [value]
        dist.broadcast_object_list(box, src=0, group=self._control)
        return box[0]

    def gather(self, value: T) -> list[T]:
        """Every rank's value, on every rank."""
        import torch.distributed as dist

        found: list[Any] = [None] * self.size
        dist.all_gather_object(found, value, group=self._control)
        return found

    def barrier(self) -> None:
        """Wait for all."""
        import torch.distributed as dist

        dist.barrier(group=self._control)


def launched_by_torchrun() -> bool:
    """Whether a launcher has set the ranks."""
    return "RANK" in os.environ and "WORLD_SIZE" in os.environ


def local_rank() -> int:
    """This process's place on its node."""
    return int(os.environ.get("LOCAL_RANK", os.environ.get("RANK", "0")))
