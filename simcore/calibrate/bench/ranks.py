"""Ranks joined by torch.distributed: gloo for control messages, NCCL for what is measured."""

from __future__ import annotations

import os
from typing import Any

from simcore.base.errors import UsageError
from simcore.base.record import dataclass
from simcore.calibrate.bench.case import T, World


@dataclass(frozen=True)
class Ranks(World):
    """The ranks that torchrun started (RANK, WORLD_SIZE, LOCAL_RANK in the environment)."""

    rank: int
    size: int
    _control: Any = None

    @staticmethod
    def join(backend: str) -> Ranks:
        """Join the process group; control messages use gloo, which waits without using a core.

        Raises UsageError where the launcher's variables name no group.
        """
        import torch.distributed as dist

        try:
            dist.init_process_group(backend)
        except ValueError as err:
            first = str(err).splitlines()[0]
            raise UsageError(
                f"cannot join the other ranks ({first}): start with torchrun"
            ) from None
        return Ranks(dist.get_rank(), dist.get_world_size(), dist.new_group(backend="gloo"))

    @staticmethod
    def leave() -> None:
        """Destroy the process group."""
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

        values: list[Any] = [None] * self.size
        dist.all_gather_object(values, value, group=self._control)
        return values

    def barrier(self) -> None:
        """Wait until every rank is here."""
        import torch.distributed as dist

        dist.barrier(group=self._control)


def world_size() -> int:
    """Number of ranks that a launcher such as torchrun has started. Raises UsageError."""
    return _number("WORLD_SIZE", "1") if "RANK" in os.environ else 1


def local_rank() -> int:
    """The number of this process on its node. Raises UsageError."""
    return _number("LOCAL_RANK", os.environ.get("RANK", "0"))


def _number(variable: str, default: str) -> int:
    text = os.environ.get(variable, default)
    if not text.isdecimal():
        raise UsageError(f"${variable} is {text!r:.40}, not the number that torchrun sets")
    return int(text)
