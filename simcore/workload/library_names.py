"""Names of the models of vision libraries, read from their files: nothing is imported.

timm and torchvision mark each function that builds a model (``@register_model``); a wrong name
given to simcore is looked up among these, which takes tens of milliseconds and no torch.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

#: Folder of each library's models.
_FOLDERS = {"timm": "models", "torchvision": "models"}
_MARKED = re.compile(r"^@register_model(?:\(\))?\s*\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)
#: Letters and digits that stand together: what people leave out or write with other signs.
_WORD = re.compile(r"[a-z0-9]+")
#: Names proposed at most.
_PROPOSED = 3


@lru_cache(maxsize=4)
def library_names(library: str) -> frozenset[str]:
    """The classifiers that an installed library registers; none where it is not installed."""
    spec = find_spec(library)
    if spec is None or spec.origin is None:
        return frozenset()
    folder = Path(spec.origin).parent / _FOLDERS[library]
    files = sorted(folder.glob("*.py"))  # folders within are of detection, segmentation, video
    return frozenset(
        name for file in files for name in _MARKED.findall(file.read_text(encoding="utf-8"))
    )


def named_alike(text: str) -> list[str]:
    """``timm:NAME`` and ``torchvision:NAME`` that ``text`` may mean, best first.

    A name is meant where each word of the text begins one of its own (``deit-s``:
    ``deit_small_patch16_224``); first come those that begin with them (``swin-tiny``:
    ``swin_tiny_patch4_window7_224`` before ``swin_s3_tiny_224``).
    """
    words = _WORD.findall(text.lower())
    found = []
    for library in _FOLDERS:
        for name in library_names(library):
            own = _WORD.findall(name.replace("_", " "))
            if words and all(any(o.startswith(w) for o in own) for w in words):
                ahead = own[: len(words)] == words
                exact = sum(w in own for w in words)
                found.append((own != words, not ahead, -exact, len(name), library, name))
    return [f"{library}:{name}" for *_, library, name in sorted(found)[:_PROPOSED]]
