"""Names of the models of vision libraries, read from the libraries' files without importing them.

timm and torchvision mark each function that builds a model (``@register_model``). A wrong model
name is compared with these functions' names, which takes tens of milliseconds and no torch.
"""

from __future__ import annotations

import re
from functools import lru_cache
from importlib.util import find_spec
from pathlib import Path

#: Folder of the models within each library's package.
_FOLDERS = {"timm": "models", "torchvision": "models"}
_MARKED = re.compile(r"^@register_model(?:\(\))?\s*\n(?:@.*\n)*def (\w+)\(", re.MULTILINE)
#: A run of letters and digits; people leave out what separates runs, or write it with other signs.
_WORD = re.compile(r"[a-z0-9]+")
#: Largest number of names that are proposed.
_PROPOSED = 3


@lru_cache(maxsize=4)
def library_names(library: str) -> frozenset[str]:
    """Names of the classifiers that an installed library registers; empty if not installed."""
    spec = find_spec(library)
    if spec is None or spec.origin is None:
        return frozenset()
    folder = Path(spec.origin).parent / _FOLDERS[library]
    files = sorted(folder.glob("*.py"))  # subfolders: detection, segmentation, video
    return frozenset(
        name for file in files for name in _MARKED.findall(file.read_text(encoding="utf-8"))
    )


def named_alike(text: str) -> list[str]:
    """``timm:NAME`` and ``torchvision:NAME`` that ``text`` may mean, best match first.

    A name matches where each word of the text is the beginning of one of the name's words
    (``deit-s``: ``deit_small_patch16_224``). Names that begin with the text's words come first
    (``swin-tiny``: ``swin_tiny_patch4_window7_224`` before ``swin_s3_tiny_224``).
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
