"""Shipped YAML as JSON in the user's cache folder: parsing is a sixth of a prediction's start.

An entry is named by the hash of the text it was parsed from, so an edited file is another entry,
and one that cannot be read or written costs a parse and nothing else. ``SIMCORE_CACHE`` names
another folder; ``off`` keeps nothing.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

#: Of how texts become data; another figure makes old entries unknown.
_FORMAT = b"1"


def kept(text: str, parse: Callable[[str], Any]) -> Any:
    """``parse(text)``, from the cache where that is possible.

    ``parse`` is the same for all texts. What JSON does not give back as it was is never kept.
    """
    folder = _folder(os.environ.get("SIMCORE_CACHE"), os.environ.get("XDG_CACHE_HOME"))
    if folder is None:
        return parse(text)
    entry = folder / f"{blake2b(text.encode(), digest_size=20, person=_FORMAT).hexdigest()}.json"
    try:
        return json.loads(entry.read_bytes())
    except (OSError, ValueError):
        data = parse(text)
        _store(entry, data)
        return data


@lru_cache(maxsize=4)
def _folder(chosen: str | None, _cache_home: str | None) -> Path | None:
    if chosen and chosen.lower() in ("off", "0", "no"):
        return None
    if chosen:
        return Path(chosen).expanduser() / "yaml"
    import platformdirs

    return Path(platformdirs.user_cache_dir("simcore")) / "yaml"


def _store(entry: Path, data: Any) -> None:
    """Write an entry in one piece; a folder that cannot be written is no error."""
    try:
        text = json.dumps(data)
        if json.loads(text) != data:
            return
        entry.parent.mkdir(parents=True, exist_ok=True)
        part = entry.with_suffix(f".{os.getpid()}.part")
        part.write_text(text, encoding="utf-8")
        part.replace(entry)
    except (OSError, TypeError, ValueError):
        return
