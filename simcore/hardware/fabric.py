"""Switches between nodes: nodes per leaf switch, oversubscribed uplinks, rails, SHARP."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from simcore.base.errors import InvalidConfig

#: Ports assumed for a leaf switch where its number of nodes is not stated: NVIDIA Quantum-2 QM9700,
#: 64 x 400 Gbit/s.
LEAF_PORTS = 64
_RATIO = re.compile(r"^(\d+(?:\.\d+)?):1$")
_LEAF = re.compile(r"^leaf=?(\d+)$")
WORDS = ("rails", "sharp")


@dataclass(frozen=True, slots=True)
class Fabric:
    """A fat tree: ``leaf_nodes`` nodes per leaf switch (0: as many as a switch has ports for).

    ``oversubscription``: bandwidth from the nodes into a leaf over that of its uplinks. ``rails``:
    each leaf joins the NICs of equal index of its nodes. ``sharp``: whether switches reduce.
    """

    oversubscription: float = 1.0
    leaf_nodes: int = 0
    rails: bool = False
    sharp: bool = False

    def nodes_of_leaf(self, nics: int) -> float:
        """Nodes of ``nics`` ports each per leaf switch; infinite where uplinks never bind."""
        if self.oversubscription <= 1.0:
            return float("inf")
        if self.leaf_nodes:
            return float(self.leaf_nodes)
        down = int(LEAF_PORTS * self.oversubscription / (1.0 + self.oversubscription))
        return float(max(1, down if self.rails else down // max(1, nics)))

    def __str__(self) -> str:
        """Text that ``parse_fabric`` accepts; empty for the default fabric."""
        words = [f"{self.oversubscription:g}:1"] if self.oversubscription > 1 else []
        words += [f"leaf={self.leaf_nodes}"] if self.leaf_nodes else []
        words += [w for w in WORDS if getattr(self, w)]
        return " ".join(words)


#: The default fabric: every node reaches every other at the full rate of its NICs.
FLAT = Fabric()


def parse_fabric(words: Sequence[str]) -> Fabric:
    """The fabric that ``4:1``, ``leaf=16``, ``rails`` and ``sharp`` state. Raises InvalidConfig."""
    ratio, leaf, flags, problems = 1.0, 0, set(), []
    for word in (w.strip().lower() for w in words):
        if match := _RATIO.match(word):
            ratio = float(match[1])
            if not 1.0 <= ratio <= 64.0:
                problems.append(f"oversubscription {word!r}: 1:1 to 64:1")
        elif match := _LEAF.match(word):
            leaf = int(match[1])
            if not 1 <= leaf <= 100_000:
                problems.append(f"{word!r}: 1 to 100,000 nodes a leaf switch")
        elif word in WORDS:
            flags.add(word)
        else:
            problems.append(f"{word!r} of a network is none of 4:1, leaf=16, {', '.join(WORDS)}")
    if problems:
        raise InvalidConfig(problems)
    return Fabric(ratio, leaf, "rails" in flags, "sharp" in flags)


def is_fabric_word(word: str) -> bool:
    """Whether a word of ``--network`` describes the fabric, and not the links."""
    low = word.strip().lower()
    return bool(_RATIO.match(low) or "=" in low or low in WORDS)
