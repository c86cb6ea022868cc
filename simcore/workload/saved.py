"""Activations that forward saves for backward."""

from __future__ import annotations

from simcore.base.record import dataclass


@dataclass(frozen=True, kw_only=True)
class Saved:
    """Activations per sample that forward saves for backward; each storage counts once.

    - ``low``, ``high``: elements, by class of width (``workload.graph``).
    - ``raw_bytes``: bytes of tensors whose width is fixed.
    - ``matmul``: elements that only matrix products read, saved in the format in which products
      compute (fp8 where they do).
    - ``matmul_copy``: elements that a 16-bit storage already holds and that matrix products save a
      second time where they compute in another format.
    - ``autocast``: elements of an fp32 tensor that autocast alone saves a second time, in 16 bit:
      for one more product of it, or next to an operator that saves it in fp32.
    - ``narrowed``: elements of a tensor that is fp32 in any precision, saved a second time where
      activations are 16 bit.
    """

    low: float = 0.0
    high: float = 0.0
    raw_bytes: float = 0.0
    matmul: float = 0.0
    matmul_copy: float = 0.0
    autocast: float = 0.0
    narrowed: float = 0.0

    @property
    def widest(self) -> float:
        """Elements of the largest tensor; plain bytes are taken to be fp32."""
        return max(self.low, self.high, self.raw_bytes / 4.0)

    def __add__(self, other: Saved) -> Saved:
        return Saved(
            low=self.low + other.low,
            high=self.high + other.high,
            raw_bytes=self.raw_bytes + other.raw_bytes,
            matmul=self.matmul + other.matmul,
            matmul_copy=self.matmul_copy + other.matmul_copy,
            autocast=self.autocast + other.autocast,
            narrowed=self.narrowed + other.narrowed,
        )

    def __sub__(self, other: Saved) -> Saved:
        """The remainder of each class, at least zero."""
        return Saved(
            low=max(self.low - other.low, 0.0),
            high=max(self.high - other.high, 0.0),
            raw_bytes=max(self.raw_bytes - other.raw_bytes, 0.0),
            matmul=max(self.matmul - other.matmul, 0.0),
            matmul_copy=max(self.matmul_copy - other.matmul_copy, 0.0),
            autocast=max(self.autocast - other.autocast, 0.0),
            narrowed=max(self.narrowed - other.narrowed, 0.0),
        )

    def __mul__(self, share: float) -> Saved:
        return Saved(
            low=self.low * share,
            high=self.high * share,
            raw_bytes=self.raw_bytes * share,
            matmul=self.matmul * share,
            matmul_copy=self.matmul_copy * share,
            autocast=self.autocast * share,
            narrowed=self.narrowed * share,
        )


NOTHING = Saved()
