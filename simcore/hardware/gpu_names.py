"""Names of GPUs as people and published tables write them: which records they may mean.

A name may have words that its record's names lack: the host in parentheses, the maker, the memory,
the form factor, the power (``P100-SXM2-16GB(DGX-1)``, ``H200-NVL-PCIe-141GB``). Such a word may be
left out where what it states agrees with the record.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import product
from typing import Any

from simcore.base.record import dataclass
from simcore.base.units import GIB, GIGA

#: Words that say nothing which tells two records apart.
_MAKERS = (
    "nvidia", "amd", "intel", "google", "huawei", "aws", "amazon", "geforce", "tesla", "instinct",
    "radeon", "cloud", "edition", "generation", "gpu",
)  # fmt: skip
_MEMORY_KINDS = re.compile(r"hbm\d?e?|gddr\d?x?|lpddr\d?x?", re.IGNORECASE)
_SIZE = re.compile(r"(\d+(?:\.\d+)?)g(?:i?b)?", re.IGNORECASE)
_POWER = re.compile(r"(\d+)w", re.IGNORECASE)
_FORM = re.compile(r"(sxm|pcie?|oam)\d?", re.IGNORECASE)
_RACK = re.compile(r"nvl(?:36|72|144)", re.IGNORECASE)
#: The host, a remark, or one of two sizes in parentheses or joined by a stroke.
_REMARK = re.compile(r"\([^()]*\)")
_EITHER_SIZE = re.compile(r"\b\d+\s*/\s*\d+\s*g(?:i?b)?\b", re.IGNORECASE)
#: A size at the end of another word or after a blank.
_SIZE_APART = re.compile(r"(?<=[a-z])(\d+g(?:i?b)?)$|(\d+)\s+(?=g(?:i?b)?\b)", re.IGNORECASE)
_MOST_WORDS = 10
#: Largest difference of a stated memory or power from the record's, as a ratio: 192 GB are printed
#: for B200, of which 180 are offered.
STATED_RATIO = 1.12


@dataclass(frozen=True)
class Meant:
    """One reading of a name: the ``name`` to look up, and what the words left out of it state."""

    name: str
    memory_gb: float | None = None
    power_w: float | None = None
    form: str = ""
    rack: bool = False

    def agrees(self, memory_bytes: tuple[float, ...], tdp_w: float, form: str) -> bool:
        """Whether a record of these sizes, power and form factor is what the name states."""
        sizes = [m for b in memory_bytes for m in (b / GIGA, b / GIB)]
        return (
            (self.memory_gb is None or any(_near(self.memory_gb, size) for size in sizes))
            and (self.power_w is None or _near(self.power_w, tdp_w))
            and (not self.form or self.form == form)
            and (not self.rack or form == "module")
        )


def _near(stated: float, known: float) -> bool:
    return 1.0 / STATED_RATIO <= stated / known <= STATED_RATIO


def readings(text: str) -> Iterator[Meant]:
    """What a name may mean, those first that leave out fewest words; the name itself is not one."""
    plain = _EITHER_SIZE.sub(" ", _REMARK.sub(" ", text))
    plain = _SIZE_APART.sub(lambda m: f"-{m[1]}" if m[1] else m[2], plain)
    words = [w for w in re.split(r"[\s\-_,]+", plain) if w]
    if not words or len(words) > _MOST_WORDS:
        return
    choices = [_forms_of(word) for word in words]
    found = sorted(product(*choices), key=lambda way: sum(cost for _, _, cost in way))
    for way in found:
        kept = "-".join(word for word, _, _ in way if word)
        if kept:
            stated = {key: value for _, pairs, _ in way for key, value in pairs}
            yield Meant(kept, **stated)


def _forms_of(word: str) -> list[tuple[str, tuple[tuple[str, Any], ...], int]]:
    """(the word as looked up, what it states if it is left out, how much is changed), each way."""
    kept: list[tuple[str, tuple[tuple[str, Any], ...], int]] = [(word, (), 0)]
    if match := _SIZE.fullmatch(word):
        return [*kept, ("", (("memory_gb", float(match[1])),), 2)]
    if match := _POWER.fullmatch(word):
        return [*kept, ("", (("power_w", float(match[1])),), 2)]
    if match := _FORM.fullmatch(word):
        form = "pcie" if match[1].lower().startswith("pci") else match[1].lower()
        return [*kept, (form, (), 1), ("", (("form", form),), 2)]
    if _RACK.fullmatch(word):
        return [*kept, ("", (("rack", True),), 2)]
    if word.lower() in _MAKERS or _MEMORY_KINDS.fullmatch(word):
        return [*kept, ("", (), 1)]
    return kept
