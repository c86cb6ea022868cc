"""Rail-optimised fat trees: each leaf switch joins the NICs of equal index of its nodes."""

from __future__ import annotations

from typing import ClassVar, Literal

from simcore.base.figures import entry
from simcore.hardware.fabrics.fat_tree import FatTree
from simcore.hardware.fabrics.record import KINDS


@KINDS.register("rail-optimised")
class RailOptimised(FatTree):
    """A fat tree with one leaf switch a rail: NIC i of each of ``members`` nodes is on leaf i.

    Traffic between GPUs of equal index stays on its rail. ``rails``: NICs of a node.
    """

    word: ClassVar[str] = "rail-optimised fat tree"

    kind: Literal["rail-optimised"] = "rail-optimised"
    rails: int = entry(default=8, ge=1, le=72)

    @property
    def by_rails(self) -> bool:
        return True

    def in_words(self) -> str:
        return f"{super().in_words()}, {self.rails} rails"
