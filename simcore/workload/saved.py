"""What forward pins until backward."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class Saved:
    """What forward pins until backward, per sample: storages, each counted once.

    ``matmul``: elements that only matrix products read, kept in the format that these compute in
    (fp8 where they do); ``again``: elements that a 16-bit storage holds already, which products of
    another format keep once more; ``autocast``: elements of an fp32 tensor that autocast alone
    keeps once more in 16 bit, for one more product of it or beside an operator that keeps it in
    fp32; ``narrowed``: of what is fp32 in any precision, kept once more where activations have 16
    bit.
    """

    low: float = 0.0
    high: float = 0.0
    raw_bytes: float = 0.0
    matmul: float = 0.0
    again: float = 0.0
    autocast: float = 0.0
    narrowed: float = 0.0

    def __add__(self, other: Saved) -> Saved:
        return Saved(
            low=self.low + other.low,
            high=self.high + other.high,
            raw_bytes=self.raw_bytes + other.raw_bytes,
            matmul=self.matmul + other.matmul,
            again=self.again + other.again,
            autocast=self.autocast + other.autocast,
            narrowed=self.narrowed + other.narrowed,
        )

    def __sub__(self, other: Saved) -> Saved:
        """What is left of each class; none below zero."""
        return Saved(
            low=max(self.low - other.low, 0.0),
            high=max(self.high - other.high, 0.0),
            raw_bytes=max(self.raw_bytes - other.raw_bytes, 0.0),
            matmul=max(self.matmul - other.matmul, 0.0),
            again=max(self.again - other.again, 0.0),
            autocast=max(self.autocast - other.autocast, 0.0),
            narrowed=max(self.narrowed - other.narrowed, 0.0),
        )

    def __mul__(self, share: float) -> Saved:
        return Saved(
            low=self.low * share,
            high=self.high * share,
            raw_bytes=self.raw_bytes * share,
            matmul=self.matmul * share,
            again=self.again * share,
            autocast=self.autocast * share,
            narrowed=self.narrowed * share,
        )


NOTHING = Saved()
