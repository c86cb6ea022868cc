"""The memory of a job: plain values with units in their names."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryResult:
    """Memory of the fullest GPU at its peak; terms add up to ``device_bytes``.

    ``cached_bytes``: memory that the allocator is expected to have reserved, fragmentation
    included; ``holes_sd_bytes``: standard deviation of the fragmentation, ``tensors_sd_bytes``: of
    the allocated bytes. ``needed_bytes``: ``device_bytes`` plus the fragmentation that the
    allocator cannot return, which decides whether the job fits. ``low_bytes`` and ``high_bytes``
    bound 80 % of ``device_bytes``. ``host_bytes``: host memory of one GPU's process;
    ``host_lack_bytes``: how far the GPUs of a node exceed ``host_capacity_bytes``, the node's host
    memory.
    """

    terms: dict[str, float]
    allocated_bytes: float
    reserved_bytes: float
    cached_bytes: float
    device_bytes: float
    capacity_bytes: float
    host_bytes: float
    nvme_bytes: float
    moment: str
    low_bytes: float
    high_bytes: float
    holes_sd_bytes: float = 0.0
    tensors_sd_bytes: float = 0.0
    needed_bytes: float = 0.0
    host_lack_bytes: float = 0.0
    host_capacity_bytes: float = 0.0

    @property
    def shown_bytes(self) -> float:
        """Memory that nvidia-smi shows: reserved by the allocator, and outside of it."""
        return self.cached_bytes + self.device_bytes - self.reserved_bytes

    @property
    def least_bytes(self) -> float:
        """The least device memory with which the job runs."""
        return max(self.needed_bytes, self.device_bytes)

    @property
    def fits(self) -> bool:
        """Whether the peak, with the fragmentation that cannot be returned, fits the device."""
        return self.least_bytes <= self.capacity_bytes

    @property
    def margin_frac(self) -> float:
        """Share of the capacity that is left; negative where the job does not fit."""
        return 1.0 - self.least_bytes / self.capacity_bytes
