"""YAML databases: their folders, the file of a name, and the line of an error.

The first folder that has a name wins, in this order: ``./<folder>``, ``$SIMCORE_DB/<folder>``, the
user data folder, the folder shipped with the package.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from pathlib import Path
from typing import Any, Generic, TypeVar

from simcore.base.errors import LISTED, DataError, UnknownName, UsageError
from simcore.base.figures import Record, packed, unpacked
from simcore.base.lookup import (
    cached_parse,
    checked_entry,
    once_a_question,
    read_entry,
    write_entry,
)
from simcore.base.names import family, path_of

#: Names are read without parsing the file: a look-up touches one file, not sixty. A list of them
#: may go on over lines that are indented or begin with a dash. Aliases of a part of a record, such
#: as a release, are an indented list in brackets.
_NAMES = re.compile(
    r"^(?:(?:name|aliases):(.*(?:\n(?:-[ \t]|[ \t]+\S).*)*)|[ \t]+aliases:[ \t]*(\[[^\]]*\]))",
    re.MULTILINE,
)
_COMMENT = re.compile(r"(?:^|\s)#.*")


R = TypeVar("R", bound=Record)


def shipped_root() -> Path:
    """The folder that holds the shipped databases: in the wheel or the checkout."""
    package = Path(__file__).resolve().parents[1]
    data = package / "_data"
    return data if data.is_dir() else package.parent


def shipped_folder(in_checkout: str) -> Path:
    """A shipped folder that is no database; in the wheel its name is joined by underscores."""
    packed = shipped_root() / in_checkout.replace("/", "_")
    return packed if packed.is_dir() else shipped_root() / in_checkout


def search_roots() -> tuple[Path, ...]:
    """Folders that may hold databases, most important first.

    Raises UsageError where ``$SIMCORE_DB`` names no folder.
    """
    try:
        here = os.getcwd()  # noqa: PTH109 (a tenth of the cost)
    except OSError:
        here = ""  # it was deleted
    return _roots(here, os.environ.get("SIMCORE_DB"), os.environ.get("XDG_DATA_HOME"))


@lru_cache(maxsize=8)
def _roots(cwd: str, extra: str | None, _data_home: str | None) -> tuple[Path, ...]:
    import platformdirs

    roots = [Path(cwd)] if cwd else []
    if extra:
        roots.append(path_of(extra))
        if not roots[-1].is_dir():
            raise UsageError(f"$SIMCORE_DB names {extra!r}, which is no folder")
    roots.append(Path(platformdirs.user_data_dir("simcore")))
    roots.append(shipped_root())
    seen: dict[Path, None] = {}
    for root in roots:
        seen.setdefault(root.resolve(), None)
    return tuple(seen)


@lru_cache(maxsize=4096)
def fold_name(name: str) -> str:
    """A name as databases compare it: lower case, without blanks, hyphens, underscores and slashes.

    Dots are dropped too, except between digits: ``eth-2.5`` is not ``eth-25``.
    """
    return re.sub(r"[\s_\-/]|(?<!\d)\.|\.(?!\d)", "", name).lower()


def parse_shipped(text: str) -> Any:
    """Plain data of YAML 1.2 text that ships with the package; libyaml parses it, and it is cached.

    libyaml takes a quarter of the pure parser's time. It must not parse other text, whose nesting
    could overflow the C stack.
    """
    return cached_parse(text, _by_libyaml)


def _by_libyaml(text: str) -> Any:
    from ruamel.yaml import YAML

    return YAML(typ="safe").load(text)


def read_yaml(path: Path) -> Any:
    """Plain data of a YAML 1.2 file. Raises DataError with the line of a syntax error."""
    return _plain(_text_of(path), path)


def _plain(text: str, path: Path) -> Any:
    """Plain data of a file's text, by the fast parser where the file ships with the package."""
    if shipped_root() in path.parents:
        try:
            return parse_shipped(text)
        except Exception as err:  # parse it with the pure parser, whose message is better
            if not type(err).__module__.startswith("ruamel."):
                raise
    return parse_yaml(text, path)


def _text_of(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except UnicodeDecodeError as err:
        raise DataError(f"not valid YAML: {err}", file=path) from None
    except OSError as err:
        raise DataError(f"cannot be read: {err.strerror}", file=path) from None


def parse_yaml(text: str, file: object) -> Any:
    """Plain data of YAML 1.2 text; error messages call it ``file``. Raises DataError."""
    from ruamel.yaml import YAML
    from ruamel.yaml.error import MarkedYAMLError, YAMLError

    if len(text) > MOST_YAML:
        raise DataError(f"is larger than {MOST_YAML // 10**6} MB", file=file)
    try:
        if "*" in text and "&" in text:
            refuse_bomb(text, file)
        return YAML(typ="safe", pure=True).load(text)
    except MarkedYAMLError as err:
        mark = err.problem_mark or err.context_mark
        line = mark.line + 1 if mark is not None else None
        problem = " ".join((err.problem or str(err)).split())
        raise DataError(f"not valid YAML: {problem}", file=file, line=line) from None
    except (YAMLError, RecursionError) as err:
        first = (str(err).splitlines() or [type(err).__name__])[0]
        raise DataError(f"not valid YAML: {first}", file=file) from None


#: Largest YAML file [characters], and most values that its aliases stand for.
MOST_YAML, _MOST_VALUES = 2_000_000, 200_000


def refuse_bomb(
    text: str, file: object, most_values: int = _MOST_VALUES, most_depth: int | None = None
) -> None:
    """Raises DataError, with the line, where the YAML holds more values than ``most_values``.

    An alias counts as many values as it stands for: ten lines can stand for a billion ("billion
    laughs"). With ``most_depth``, deeper nesting, anchors, aliases and tags are refused too.
    """
    from ruamel.yaml import YAML

    plain = most_depth is not None
    sizes: dict[str, int] = {}
    open_ones: list[tuple[str | None, int]] = []
    total = 0
    for event in YAML(typ="safe", pure=True).parse(text):
        kind, anchor, wrong = type(event).__name__, getattr(event, "anchor", None), ""
        if kind == "AliasEvent":
            total += sizes.get(anchor or "", 1)
        elif kind in ("MappingStartEvent", "SequenceStartEvent"):
            total += 1
            open_ones.append((anchor, total))
        elif kind in ("MappingEndEvent", "SequenceEndEvent"):
            name, before = open_ones.pop()
            if name is not None:
                sizes[name] = total - before + 1
        elif kind == "ScalarEvent":
            total += 1
        if plain and (anchor or kind == "AliasEvent"):
            wrong = "anchors (&) and aliases (*) are refused"
        elif plain and getattr(event, "tag", None):
            wrong = "tags (!) are refused"
        elif most_depth is not None and len(open_ones) > most_depth:
            wrong = "is nested too deeply"
        elif total > most_values:
            what = "has" if plain else "aliases (*) stand for"
            wrong = f"{what} more than {most_values:,} values"
        if wrong:
            raise DataError(wrong, file=file, line=event.start_mark.line + 1)


def load_record(path: Path, model: type[R]) -> R:
    """Read and check one database file. Raises DataError with file, line and key."""
    text = _text_of(path)
    entry = checked_entry(f"{model.__module__}.{model.__qualname__}", text)
    found = None if entry is None else _restored(entry, model)
    if found is None:
        from simcore.base.figures import check_record

        found = check_record(_plain(text, path), model, text, path)
        with suppress(ValueError):
            if entry is not None:
                write_entry(entry, packed(found))
    return found


def _restored(entry: Path, model: type[R]) -> R | None:
    """The record of a cache's entry; None where there is none."""
    try:
        found = unpacked(read_entry(entry))
        if not isinstance(found, model):
            return None
        if model.looks_elsewhere:
            found.check()
    except (LookupError, ValueError):
        return None
    return found


class Database(Generic[R]):
    """One folder of YAML records, found by name or alias in every search root."""

    def __init__(self, kind: str, folder: str, model: type[R]) -> None:
        self.kind, self.folder, self.model = kind, folder, model

    def folders(self) -> Folders:
        """Existing folders in search order, each with its modification time [ns]."""
        return _existing(self.folder)

    def files(self) -> dict[str, Path]:
        """Record name -> file; a file hides those of the same name in later folders."""
        return dict(_files(self.folders()))

    def index(self) -> Mapping[str, Path]:
        """Folded name or alias -> file, from the lines of names only, without parsing YAML."""
        index: dict[str, Path] = {}
        for names in _indices(self.folders()):
            for folded, path in names.items():
                index.setdefault(folded, path)
        return index

    def path(self, name: str) -> Path | None:
        """The file of a name or alias, or None; aliases are read only where no name matches."""
        folded = fold_name(name)
        if not folded:
            return None
        found = (names.get(folded) for names in _indices(self.folders()))
        return next((path for path in found if path is not None), None)

    @once_a_question
    def __getitem__(self, name: str) -> R:
        path = self.path(name)
        if path is None:
            names = self.names()
            # For a family too large for the message, propose the command that lists all of it.
            part = f" {name}" if len(family(name, names)) > LISTED and name.isprintable() else ""
            hint = f"(`simcore list {self.kind}s{part}`)"
            raise UnknownName(self.kind, name, names, hint, self.aliases())
        return self._read(path)

    def _read(self, path: Path) -> R:
        """The record of a file. Raises DataError, for a link to nothing too."""
        model: Any = self.model
        return _load(path, model, _changed_ns(path))

    def names(self) -> list[str]:
        """Canonical names of every record, sorted."""
        return sorted(self.files(), key=str.lower)

    def aliases(self) -> dict[str, str]:
        """Alias as written in the file -> name of its record."""
        return dict(_records_by_alias(self.folders()))

    def all(self) -> list[R]:
        """Every record, parsed and checked."""
        return [self._read(path) for _, path in sorted(self.files().items())]


Folders = tuple[tuple[Path, int], ...]


@once_a_question
def _existing(folder: str) -> Folders:
    """The folders of this name in every root, each with its modification time [ns]."""
    existing = []
    for path, name in _folders(search_roots(), folder):
        try:
            existing.append((path, os.stat(name).st_mtime_ns))  # noqa: PTH116 (half the cost)
        except OSError:
            continue
    return tuple(existing)


@once_a_question
def _changed_ns(path: Path) -> int:
    """The modification time of a file [ns]. Raises DataError."""
    try:
        return path.stat().st_mtime_ns
    except OSError as err:
        raise DataError(f"cannot be read: {err.strerror}", file=path) from None


@lru_cache(maxsize=64)
def _folders(roots: tuple[Path, ...], folder: str) -> tuple[tuple[Path, str], ...]:
    return tuple((root / folder, str(root / folder)) for root in roots)


@lru_cache(maxsize=64)
def _files(folders: Folders) -> Mapping[str, Path]:
    found: dict[str, Path] = {}
    for folder, _ in folders:
        for file in _listed(folder):
            found.setdefault(file.removesuffix(".yaml"), folder / file)
    return found


def _listed(folder: Path) -> list[str]:
    try:
        names = os.listdir(folder)  # noqa: PTH208 (paths are slow to sort)
    except OSError:
        return []
    return sorted(n for n in names if n.endswith(".yaml") and not n.startswith("."))


def _indices(folders: Folders) -> Iterator[Mapping[str, Path]]:
    """For each folder in search order, its map of names and then its map of aliases."""
    for folder, _ in folders:
        yield _names(folders, folder)
        yield _aliases(folders, folder)


@lru_cache(maxsize=64)
def _names(folders: Folders, folder: Path) -> Mapping[str, Path]:
    found: dict[str, Path] = {}
    for stem, path in _files(folders).items():
        if path.parent == folder:
            found.setdefault(fold_name(stem), path)
    return found


@lru_cache(maxsize=64)
def _aliases(folders: Folders, folder: Path) -> Mapping[str, Path]:
    found: dict[str, Path] = {}
    for path in _names(folders, folder).values():
        for name in _written_aliases(path):
            if folded := fold_name(name):
                found.setdefault(folded, path)
    return found


@lru_cache(maxsize=64)
def _records_by_alias(folders: Folders) -> Mapping[str, str]:
    found: dict[str, str] = {}
    for name, path in _files(folders).items():
        for alias in _written_aliases(path):
            found.setdefault(alias, name)
    return found


def _written_aliases(path: Path) -> list[str]:
    """Name and aliases in a file, read from its lines of names without parsing the rest."""
    try:
        found = _NAMES.findall(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError):
        return []
    texts = (text for pair in found for text in pair)
    lines = (_COMMENT.sub("", line).strip() for value in texts for line in value.splitlines())
    items = (i for line in lines for i in line.removeprefix("- ").strip("[]").split(","))
    return [n for i in items if (n := i.strip().strip("'\""))]


@lru_cache(maxsize=2048)
def _load(path: Path, model: type[R], mtime_ns: int) -> R:
    record = load_record(path, model)
    if fold_name(record.name) != fold_name(path.stem):
        from simcore.base.figures import line_of

        raise DataError(
            f"is {record.name!r} but the file is {path.name!r}: they must agree",
            file=path, line=line_of(_text_of(path), ("name",)), key="name",
        )  # fmt: skip
    return record
