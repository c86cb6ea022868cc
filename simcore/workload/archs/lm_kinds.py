"""What layers of one language model differ in, and the patterns that say so."""

from __future__ import annotations

from dataclasses import dataclass

#: Letters of a mixer's pattern, and what a layer with it is called.
MIXERS = {
    "a": "attention", "m": "mamba", "s": "mamba1", "g": "delta", "k": "delta by channel",
    "l": "lightning", "h": "attention beside mamba", "n": "",
}  # fmt: skip
#: Of what follows the mixer: experts, a dense layer, nothing.
FED = "edn"
#: Mixers whose state runs through the sequence.
RECURRENT = frozenset("msghkl")
#: Mixers that attend: what sees a window, and turns positions.
ATTENDING = frozenset("ah")


@dataclass(frozen=True, slots=True)
class Kind:
    """What layers differ in: their sight, their feed-forward part, whether positions are turned.

    ``mixer``: a letter of ``MIXERS``; ``fed``: whether there is a feed-forward part at all.
    """

    windowed: bool
    routed: bool
    turned: bool
    mixer: str = "a"
    fed: bool = True

    @property
    def attends(self) -> bool:
        """Whether there is attention, alone or beside another mixer."""
        return self.mixer in ATTENDING

    @property
    def halves(self) -> int:
        """How many of mixer and feed-forward part it has."""
        return (self.mixer != "n") + self.fed


def kind_of(window: str, fed: str, turned: str, mixer: str) -> Kind:
    """A layer by its letters; what a layer without attention cannot see is no difference."""
    attends = mixer in ATTENDING
    return Kind(
        windowed=attends and window == "w", routed=fed == "e",
        turned=not attends or turned == "r", mixer=mixer, fed=fed != "n",
    )  # fmt: skip


def pattern_of(key: str, pattern: str, letters: str, layers: int) -> str:
    """``pattern`` repeated over the layers. Raises ValueError for other letters."""
    if not pattern or set(pattern) - set(letters):
        raise ValueError(f"{key} {pattern!r} must consist of the letters {', '.join(letters)}")
    return (pattern * layers)[:layers]


def last_products(mixers: str, fed: str, layers: int) -> float:
    """How many parts of a layer end in a product of their own, on average over the patterns.

    Mixer and feed-forward part; mixers side by side are two.
    """
    both = zip((mixers * layers)[:layers], (fed * layers)[:layers], strict=True)
    return sum((m != "n") + (m == "h") + (f != "n") for m, f in both) / layers


def name_of(kind: Kind, kinds: list[Kind]) -> str:
    """What a layer is called: by what tells it from others."""
    words = ["layer"]
    if len({k.mixer for k in kinds}) > 1:
        words += filter(None, [MIXERS[kind.mixer]])
    attending = [k for k in kinds if k.attends]
    if kind.attends and len({k.windowed for k in attending}) > 1:
        words.append("windowed" if kind.windowed else "full")
    if kind.fed and len({(k.fed, k.routed) for k in kinds}) > 1:
        words.append("experts" if kind.routed else "dense")
    # where the rest tells them apart already, positions go without saying
    told = {(k.windowed, k.routed, k.fed) for k in attending}
    if kind.attends and len(told) < len(attending):
        words.append("turned" if kind.turned else "unturned")
    return " ".join(words)
