"""What is looked up or made once: entries by name, answers to one question, files of a cache.

Cached on disk, in the user's cache folder, are parsed YAML, which would take a sixth of a
prediction's start, and other data that JSON restores. The file name of an entry is the hash of what
it is made of, so that an edited text gets a new entry. An entry begins with a hash of its name and
its content, and belongs to the user alone: one that is damaged, was altered, or that another user
wrote or could write is made again. That one cannot be read or written is no error.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar, copy_context
from functools import cached_property, lru_cache, partial, wraps
from hashlib import blake2b
from importlib import import_module
from pathlib import Path
from typing import Any, Generic, TypeVar, TypeVarTuple

from simcore.base.errors import UnknownName
from simcore.base.names import path_of

Ts = TypeVarTuple("Ts")
R = TypeVar("R")
T = TypeVar("T")


class Registry(Generic[T]):
    """Name -> entry. Raises ValueError for a name registered twice, UnknownName for an unknown one.

    ``kind``: what the entries are, for messages. ``files``: names of entries with the module that
    registers each, which is imported when its entry is first needed.
    """

    def __init__(self, kind: str, files: Mapping[str, str] | None = None) -> None:
        self.kind, self._files = kind, dict(files or {})
        self._entries: dict[str, T] = {}

    def register(self, name: str) -> Callable[[T], T]:
        """Decorator that registers an entry under a name: ``@ARCHS.register("dit")``."""

        def add(entry: T) -> T:
            if name in self._entries:
                raise ValueError(f"{self.kind} {name!r} is registered twice")
            self._entries[name] = entry
            return entry

        return add

    @contextmanager
    def registered(self, name: str, entry: T) -> Iterator[T]:
        """An entry that there is within a ``with`` block alone."""
        self.register(name)(entry)
        try:
            yield entry
        finally:
            del self._entries[name]

    def __getitem__(self, name: str) -> T:
        if (found := self.get(name)) is None:
            raise UnknownName(self.kind, name, self)
        return found

    def get(self, name: str) -> T | None:
        """The entry of a name, or None where there is none."""
        if name in self._files and name not in self._entries:
            import_module(self._files[name])
        return self._entries.get(name)

    def __contains__(self, name: object) -> bool:
        return name in self._entries or name in self._files

    def __iter__(self) -> Iterator[str]:
        return iter(dict.fromkeys([*self._files, *self._entries]))

    def __len__(self) -> int:
        return len({*self._files, *self._entries})


#: What was looked up for the question that is being answered, by function and arguments.
_found: ContextVar[dict[Any, Any] | None] = ContextVar("_found", default=None)


@contextmanager
def one_question() -> Iterator[None]:
    """A context in which ``once_a_question`` holds; a question within another is part of it."""
    outer = _found.get()
    token = _found.set({} if outer is None else outer)
    try:
        yield
    finally:
        _found.reset(token)


def once_a_question(function: Callable[[*Ts], R]) -> Callable[[*Ts], R]:
    """The function, called once for equal arguments while one question is answered.

    Between questions its result may change, as that of reading a file does. Arguments are hashable
    and given by position.
    """

    @wraps(function)
    def call(*args: *Ts) -> R:
        found = _found.get()
        if found is None:
            return function(*args)
        key = (function, args)
        if key not in found:
            found[key] = function(*args)
        return found[key]

    return call


class Later(Generic[T]):
    """What ``make`` returns, computed once, when ``value`` is first read.

    ``make`` runs with the context variables of the moment at which this was created, so what
    was looked up for the question at hand stays known. A copy or pickle holds the computed value.
    """

    def __init__(self, make: Callable[[], T]) -> None:
        self._make, self._context = make, copy_context()

    @cached_property
    def value(self) -> T:
        """The value. Raises whatever ``make`` raises."""
        return self._context.run(self._make)

    def __reduce__(self) -> tuple[Any, ...]:
        return Later, (partial(_same, self.value),)


def _same(value: T) -> T:
    return value


#: Version of the format of parsed YAML; a new version makes old entries unreachable.
_FORMAT = b"2"


def cached_parse(text: str, parse: Callable[[str], Any]) -> Any:
    """``parse(text)``, from the cache where it has an entry for ``text``.

    All calls must pass the same ``parse``. Data that JSON does not restore exactly is not cached.
    """
    folder = cache_folder("SIMCORE_CACHE")
    if folder is None:
        return parse(text)
    name = blake2b(text.encode(), digest_size=20, person=_FORMAT).hexdigest()
    entry = folder / "yaml" / f"{name}.json"
    found = read_entry(entry)
    if found is None:
        found = parse(text)
        write_entry(entry, found)
    return found


def checked_entry(kind: str, text: str) -> Path | None:
    """The file of the record of a ``kind`` that ``text`` states; None if nothing is cached.

    Another kind, text, or code of simcore has another file.
    """
    folder = cache_folder("SIMCORE_CACHE")
    if folder is None:
        return None
    made_of = "\0".join((code_version(), kind, text))
    name = blake2b(made_of.encode("utf-8", "replace"), digest_size=20, person=_FORMAT).hexdigest()
    return folder / "records" / f"{name}.json"


@lru_cache(maxsize=1)
def code_version() -> str:
    """A text that is another one when simcore's code is: its release and when it was installed, or,
    of a checkout, size and time of change of each module.
    """
    import simcore

    package = os.path.dirname(simcore.__file__)  # noqa: PTH120
    if os.path.isdir(os.path.join(package, "_data")):  # noqa: PTH112, PTH118 (installed)
        return f"{simcore.__version__} {os.stat(simcore.__file__).st_mtime_ns}"  # noqa: PTH116
    found = [f"{at.st_mtime_ns} {at.st_size}" for at in _modules(package)]
    return blake2b("\n".join(found).encode()).hexdigest()


def _modules(folder: str) -> Iterator[os.stat_result]:
    with os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda e: e.name):
            if entry.name.endswith(".py"):
                yield entry.stat()
            elif entry.is_dir() and entry.name != "__pycache__":
                yield from _modules(entry.path)


def cache_folder(variable: str, name: str = "") -> Path | None:
    """The folder that an environment variable names, else ``name`` in the user's cache folder.

    None if the variable is ``off``: nothing is cached.
    """
    return _folder(os.environ.get(variable, ""), name, os.environ.get("XDG_CACHE_HOME"))


@lru_cache(maxsize=8)
def _folder(chosen: str, name: str, _cache_home: str | None) -> Path | None:
    if chosen.lower() in ("off", "0", "no"):
        return None
    if chosen:
        return path_of(chosen)
    import platformdirs

    return Path(platformdirs.user_cache_dir("simcore")) / name


def read_entry(entry: Path) -> Any:
    """The data of an entry; None where there is none that can be trusted."""
    try:
        with entry.open("rb") as file:
            about = os.fstat(file.fileno())
            if os.name == "posix" and (about.st_uid != os.getuid() or about.st_mode & 0o022):
                return None  # another user wrote it, or could
            content = file.read()
        head, _, payload = content.partition(b"\n")
        return json.loads(payload) if head == _seal(entry, payload) else None
    except (OSError, ValueError):
        return None


def _seal(entry: Path, payload: bytes) -> bytes:
    """The hash with which an entry begins."""
    return blake2b(entry.name.encode() + payload, digest_size=20).hexdigest().encode()


def write_entry(entry: Path, data: Any) -> None:
    """Write an entry atomically; does nothing where that is impossible or JSON would change it."""
    try:
        text = json.dumps(data)
        if json.loads(text) != data:
            return
        entry.parent.mkdir(parents=True, exist_ok=True)
        part = entry.with_suffix(f".{os.getpid()}.part")
        payload = text.encode()
        part.write_bytes(_seal(entry, payload) + b"\n" + payload)
        part.chmod(0o600)
        part.replace(entry)
    except (OSError, TypeError, ValueError):
        return
