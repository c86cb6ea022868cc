"""Cache of parsed YAML as JSON in the user's cache folder.

Parsing shipped YAML would take a sixth of a prediction's start. The file name of an entry is the
hash of the parsed text, so that an edited text gets a new entry. An entry that cannot be read or
written costs one parse and is no error. ``SIMCORE_CACHE`` names another folder; ``off`` disables
the cache.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from functools import lru_cache
from hashlib import blake2b
from pathlib import Path
from typing import Any

#: Version of the entries' format; a new version makes old entries unreachable.
_FORMAT = b"1"


def cached_parse(text: str, parse: Callable[[str], Any]) -> Any:
    """``parse(text)``, from the cache where it has an entry for ``text``.

    All calls must pass the same ``parse``. Data that JSON does not restore exactly is not cached.
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
    """Write an entry atomically; does nothing where the folder cannot be written."""
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
