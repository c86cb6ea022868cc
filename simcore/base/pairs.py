"""``KEY=VALUE`` texts: read as a mapping, and written again."""

from __future__ import annotations

from collections.abc import Iterable, Mapping


def read_pairs(flag: str, texts: Iterable[str], such_as: str) -> tuple[dict[str, str], list[str]]:
    """The pairs in texts of ``KEY=VALUE`` words separated by blanks, and what is wrong with others.

    Hyphens of a key become underscores; values stay text. ``flag``: what error messages call the
    option; ``such_as``: an example of a pair.
    """
    found: dict[str, str] = {}
    problems: list[str] = []
    for word in (word for text in texts for word in text.split()):
        key, equals, value = (part.strip() for part in word.partition("="))
        key = key.replace("-", "_")
        if not key or not equals or not value:
            problems.append(f"{flag} {word!r} is not KEY=VALUE, such as {such_as}")
        elif key in found:
            problems.append(f"{flag} gives {key} twice")
        else:
            found[key] = value
    return found, problems


def pair_texts(pairs: Mapping[str, object]) -> tuple[str, ...]:
    """``key=value`` texts that ``read_pairs`` reads as these pairs; switches are true or false."""
    return tuple(
        f"{key}={str(value).lower() if isinstance(value, bool) else value}"
        for key, value in pairs.items()
    )
