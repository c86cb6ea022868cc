"""How the layers of one language model differ, and the patterns of letters that describe it."""

from __future__ import annotations

from functools import lru_cache

from simcore.base.record import dataclass

#: Letters of a mixer pattern, and the words that name a layer with that mixer.
MIXERS = {
    "a": "attention", "m": "mamba", "s": "mamba1", "g": "delta", "k": "delta by channel",
    "l": "lightning", "h": "attention beside mamba", "c": "convolution", "n": "",
}  # fmt: skip
#: Letters for the part after the mixer: experts, a dense layer, none.
FED = "edn"
#: Mixers with a state, or a few tokens, that are passed along the sequence.
RECURRENT = frozenset("msghklc")
#: Mixers with attention: only these have windows and rotary positions.
ATTENDING = frozenset("ah")
#: Letters of sparse attention: an indexer, the selection of an earlier layer, full attention.
INDEXED = "isf"


@dataclass(frozen=True)
class Kind:
    """What layers of one model can differ in.

    ``windowed``: attention has a window; ``routed``: the feed-forward part has experts; ``turned``:
    positions are rotary; ``mixer``: a letter of ``MIXERS``; ``fed``: whether there is a
    feed-forward part; ``index``: a letter of ``INDEXED``; ``ffn``: width of the dense feed-forward
    part, 0 for the model's.
    """

    windowed: bool
    routed: bool
    turned: bool
    mixer: str = "a"
    fed: bool = True
    index: str = "f"
    ffn: int = 0

    @property
    def attends(self) -> bool:
        """Whether there is attention, alone or in parallel with another mixer."""
        return self.mixer in ATTENDING

    @property
    def halves(self) -> int:
        """Number of parts of the layer: mixer, feed-forward part."""
        return (self.mixer != "n") + self.fed


@lru_cache(maxsize=1000)
def kind_of(window: str, fed: str, turned: str, mixer: str, index: str = "f", ffn: int = 0) -> Kind:
    """The kind of a layer from its letters.

    A layer without attention has no window and no positions, so these do not make it different.
    """
    attends = mixer in ATTENDING
    return Kind(
        windowed=attends and window == "w", routed=fed == "e",
        turned=not attends or turned == "r", mixer=mixer, fed=fed != "n",
        index=index if attends else "f", ffn=ffn if fed == "d" else 0,
    )  # fmt: skip


def pattern_of(key: str, pattern: str, letters: str, layers: int) -> str:
    """``pattern`` repeated over the layers. Raises ValueError for other letters."""
    if not pattern or set(pattern) - set(letters):
        raise ValueError(f"{key} {pattern!r} must consist of the letters {', '.join(letters)}")
    return (pattern * layers)[:layers]


def last_products(mixers: str, fed: str, layers: int) -> float:
    """Number of parts of a layer that end in their own product, on average over the patterns.

    The parts are mixer and feed-forward part; two mixers in parallel count as two.
    """
    both = zip((mixers * layers)[:layers], (fed * layers)[:layers], strict=True)
    return sum((m != "n") + (m == "h") + (f != "n") for m, f in both) / layers


def name_of(kind: Kind, kinds: list[Kind]) -> str:
    """The name of a layer, made of the words that distinguish it from the model's other layers."""
    words = ["layer"]
    if len({k.mixer for k in kinds}) > 1:
        words += filter(None, [MIXERS[kind.mixer]])
    attending = [k for k in kinds if k.attends]
    if kind.attends and len({k.windowed for k in attending}) > 1:
        words.append("windowed" if kind.windowed else "full")
    if kind.fed and len({(k.fed, k.routed) for k in kinds}) > 1:
        words.append("experts" if kind.routed else "dense")
    if kind.attends and len({k.index for k in attending}) > 1:
        words.append({"i": "indexing", "s": "selecting", "f": "attending"}[kind.index])
    if len({k.ffn for k in kinds if k.fed and not k.routed}) > 1 and kind.ffn:
        words.append(str(kind.ffn))
    # Positions are named only where other words do not distinguish the layers.
    without_positions = {(k.windowed, k.routed, k.fed) for k in attending}
    if kind.attends and len(without_positions) < len(attending):
        words.append("turned" if kind.turned else "unturned")
    return " ".join(words)
