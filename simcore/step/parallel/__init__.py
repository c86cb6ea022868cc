"""Data-parallel strategies, one file each: their communication and the state each rank holds."""

from simcore.step.parallel.base import PARALLELISMS, PLACES, Holdings, ParallelStrategy

__all__ = ["PARALLELISMS", "PLACES", "Holdings", "ParallelStrategy"]
