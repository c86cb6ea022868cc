"""Data-parallel strategies, one file each: their communication and the state each rank holds."""

from simcore.step.parallel.base import PARALLELISMS, Holdings, ParallelStrategy
from simcore.step.parallel.ddp import DistributedDataParallel
from simcore.step.parallel.dp import DataParallel
from simcore.step.parallel.manual import ManualAllReduce
from simcore.step.parallel.zero import Zero

__all__ = [
    "PARALLELISMS",
    "DataParallel",
    "DistributedDataParallel",
    "Holdings",
    "ManualAllReduce",
    "ParallelStrategy",
    "Zero",
]
