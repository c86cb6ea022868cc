"""Which names of models may run Python code: those that a person typed, never those of data.

``package.module:function`` imports and calls what it names. The permission to do so travels with
the name itself, as its type, and is asked for where the import happens (``permitted``):

TrustedName    typed on a command line or in a Python call
UntrustedName  read from a file: refused by the public functions too, which trust plain text
str            nobody said where it is from: refused

A name that is cut, joined or read anew is plain text again, so that what forgets the permission
refuses. ``split`` and ``strip`` alone keep it, as lists of models are taken apart by them.
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

#: Names that end so are files of data.
_FILES = (".yaml", ".yml", ".json")


class CodeRefused(UsageError):
    """A file names Python code, and nobody permitted that it runs."""


class _Name(str):
    """A name whose parts have its own type."""

    __slots__ = ()

    def split(self, sep: str | None = None, maxsplit: SupportsIndex = -1) -> list[Self]:  # type: ignore[override]
        """As of text; the parts are as trusted as the whole."""
        return [type(self)(part) for part in super().split(sep, maxsplit)]

    def strip(self, chars: str | None = None, /) -> Self:
        """As of text; the rest is as trusted as the whole."""
        return type(self)(super().strip(chars))


class TrustedName(_Name):
    """A model's name that a person typed: code that it names may run."""

    __slots__ = ()


class UntrustedName(_Name):
    """A model's name that stands in a file: code that it names may not run."""

    __slots__ = ()


def names_code(text: str) -> bool:
    """Whether a model's name is ``package.module:function``.

    A file, a library's model (``timm:NAME``) and an architecture (``arch:NAME``) are not.
    """
    path = Path(text)
    library, colon, _ = text.partition(":")
    if not colon or library in ZOO_LISTS or text.startswith(ARCHITECTURE):
        return False
    return path.suffix not in _FILES and not path.exists()


def permitted(text: str) -> TrustedName:
    """The name, where code that it names may run. Raises CodeRefused."""
    if isinstance(text, TrustedName):
        return text
    raise _refusal(text)


def name_in_file(text: str, where: str, *, allow_code: bool) -> TrustedName | UntrustedName:
    """A model's name that ``where``, a file or a line of one, has; several are parted by commas.

    ``allow_code``: the user trusts what the file names. Raises CodeRefused for code otherwise.
    """
    if allow_code:
        return TrustedName(text)
    for part in text.split(","):
        if names_code(part.strip()):
            raise _refusal(part.strip(), f"{where}: ")
    return UntrustedName(text)


def name_in_call(model: Any) -> Any:
    """A model as a Python caller gave it: its text, or each text of a list, is trusted."""
    if isinstance(model, str):
        return model if isinstance(model, _Name) else TrustedName(model)
    if isinstance(model, list | tuple):
        return [name_in_call(one) for one in model]
    return model


def trusts_call(at: int = 0) -> Callable[[Callable[P, R]], Callable[P, R]]:
    """Decorate a public function whose argument ``model``, the ``at``-th, is typed by a person."""

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
