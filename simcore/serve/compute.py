"""What the server's processes compute: answers to set-ups, with the uploads that these name.

The arguments and results of these functions pass between processes.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from simcore import api
from simcore.base.lookup import one_question
from simcore.base.names import printable
from simcore.serve import downloads
from simcore.serve.downloads import Download
from simcore.serve.query import SetUp, arguments, predicted, set_up
from simcore.serve.scaling import scaling as curve
from simcore.serve.sweep import sweep as heat_map
from simcore.serve.sweep import sweep_query
from simcore.serve.uploads import Kind, Uploads, parsed
from simcore.serve.view import Fact, counted_memory
from simcore.serve.view import answer as view

#: Set-up that the page opens with; it is predicted once at start, to fill the caches.
OPENING = SetUp(model="latte-xl", gpus="4x8xA6000ada")
Words = dict[str, Any]
_FILES: dict[str, Callable[..., Download]] = {
    "predict": downloads.as_json, "trace": downloads.as_trace, "report": downloads.as_html,
    "launch": downloads.as_launch,
}  # fmt: skip


@one_question()
def answer(words: Words, uploads: Uploads) -> bytes:
    """The ``Answer`` that the page shows, as JSON. Raises SimcoreError."""
    asked = set_up().model_validate(words)
    return view(predicted(**arguments(asked, uploads)), asked).model_dump_json().encode()


def memory(words: Words, uploads: Uploads) -> list[Fact]:
    """The peak of memory as PyTorch and nvidia-smi count it. Raises SimcoreError."""
    return counted_memory(predicted(**arguments(set_up().model_validate(words), uploads)))


def scaling(words: Words, uploads: Uploads) -> bytes:
    """The ``Scaling`` over nodes, as JSON. Raises SimcoreError."""
    return curve(arguments(set_up().model_validate(words), uploads)).model_dump_json().encode()


def sweep(words: Words, uploads: Uploads) -> bytes:
    """The ``Map`` over two options, as JSON. Raises SimcoreError."""
    return heat_map(sweep_query().model_validate(words), uploads).model_dump_json().encode()


def file(kind: str, words: Words, uploads: Uploads, *more: str) -> Download:
    """A file to download: ``predict``, ``trace``, ``report`` or ``launch``. Raises SimcoreError."""
    return _FILES[kind](arguments(set_up().model_validate(words), uploads), *more)


def shown_name(kind: Kind, raw: bytes) -> str:
    """The name of an uploaded model or calibration in its file. Raises DataError with the line."""
    found = parsed(kind, raw)
    shown: str = found.full_name if kind == "model" else found.name
    return printable(shown)


def choices() -> dict[str, tuple[str, ...]]:
    """Names that options accept."""
    return api.choices()


def warm_up() -> None:
    """Fill the caches that every request needs."""
    choices()
    answer(OPENING.words(), Uploads())
