"""Which model names may run Python code: names that a person typed, never names read from data.

``package.module:function`` imports and calls the function that it names. The type of the name
carries the permission to do so, and ``permitted`` checks it where the import happens:

    TrustedName    typed on a command line or in a Python call
    UntrustedName  read from a file; public functions refuse it too, although they trust plain text
    str            of unknown origin: refused

A name that is cut, joined or read once more becomes plain text, so code that loses the permission
on the way is refused. Only ``split`` and ``strip`` preserve the type, because they take lists of
models apart.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from pathlib import Path
from typing import Any, ParamSpec, Self, SupportsIndex, TypeVar

from simcore.base.errors import UsageError, nearest
from simcore.workload.models import ZOO_LISTS
from simcore.workload.settings import PREFIX as ARCHITECTURE

P = ParamSpec("P")
R = TypeVar("R")

#: Suffixes of data files.
_FILES = (".yaml", ".yml", ".json")


class CodeRefused(UsageError):
    """A file names Python code, and nobody has permitted that the code runs."""


class _Name(str):
    """Text whose parts have the type of the whole."""

    __slots__ = ()

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Self]:  # type: ignore[override]
        """As ``str.split``; the parts are as trusted as the whole."""
        return [type(self)(part) for part in super().split(sep, maxsplit)]

    def strip(self, chars: str | None = None, /) -> Self:
        """As ``str.strip``; the result is as trusted as the whole."""
        return type(self)(super().strip(chars))


class TrustedName(_Name):
    """A model name that a person typed: the code that it names may run."""

    __slots__ = ()


class UntrustedName(_Name):
    """A model name read from a file: the code that it names may not run."""

    __slots__ = ()


def names_code(text: str) -> bool:
    """Whether a model name has the form ``package.module:function``.

    A file, a library's model (``timm:NAME``) and an architecture (``arch:NAME``) do not.
    """
    path = Path(text)
    library, colon, _ = text.partition(":")
    if not colon or library in ZOO_LISTS or text.startswith(ARCHITECTURE):
        return False
    try:
        return path.suffix not in _FILES and not path.exists()
    except OSError:  # too long for a file's name
        return False


def permitted(text: str) -> TrustedName:
    """The name, if the code that it names may run. Raises CodeRefused otherwise."""
    if isinstance(text, TrustedName):
        return text
    raise _refusal(text)


def name_in_file(text: str, where: str, *, allow_code: bool) -> TrustedName | UntrustedName:
    """The model name ``text`` read from ``where``, a file or a line of one.

    The text may be several names separated by commas. ``allow_code``: the user trusts the code that
    the file names. Raises CodeRefused for code otherwise.
    """
    if allow_code:
        return TrustedName(text)
    for part in text.split(","):
        if names_code(part.strip()):
            raise _refusal(part.strip(), f"{where}: ")
    return UntrustedName(text)


def name_in_call(model: Any) -> Any:
    """A model as a Python caller gave it, with its text, or each text of a list, made trusted."""
    if isinstance(model, str):
        return model if isinstance(model, _Name) else TrustedName(model)
    if isinstance(model, list | tuple):
        return [name_in_call(one) for one in model]
    return model


def trusts_call(at: int = 0) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorator of a public function: a person types its argument ``model``, the ``at``-th."""

    def decorate(function: Callable[P, R]) -> Callable[P, R]:
        @wraps(function)
        def call(*args: P.args, **kwargs: P.kwargs) -> R:
            words: dict[str, Any] = kwargs
            if "model" in words:
                words = {**words, "model": name_in_call(words["model"])}
            values: tuple[Any, ...] = args
            if len(values) > at:
                values = (*values[:at], name_in_call(values[at]), *values[at + 1 :])
            return function(*values, **words)

        return call

    return decorate


def _refusal(text: str, where: str = "") -> CodeRefused:
    library, _, name = text.partition(":")
    meant = nearest(library, list(ZOO_LISTS), 1)
    hint = f": did you mean {meant[0]}:{name}?" if meant else ""
    return CodeRefused(
        f"{where}model {str(text)!r} is Python code, which runs only where its name is typed on "
        "the command line or in Python, or with --allow-code (in Python allow_code=True) if you "
        f"trust the file that names it{hint}"
    )


__all__ = [
    "CodeRefused", "TrustedName", "UntrustedName", "name_in_call", "name_in_file", "names_code",
    "permitted", "trusts_call",
]  # fmt: skip
