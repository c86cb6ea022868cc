"""Parallel strategies, one file each: what they send, when, and what each rank keeps."""

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
