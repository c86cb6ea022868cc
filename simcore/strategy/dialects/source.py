"""The text of a launch file, and its data. Size and depth are limited; nothing is executed."""

from __future__ import annotations

import json
import re
import tomllib
from itertools import pairwise
from pathlib import Path, PurePath
from typing import Any

from simcore.base.database import parse_yaml
from simcore.base.errors import DataError, UsageError
from simcore.base.names import path_of
from simcore.base.record import dataclass
from simcore.base.units import MIB
from simcore.base.untrusted import decode

MAX_BYTES = 1 * MIB
#: Most values, with those that YAML aliases repeat; a launch file has some hundred keys.
MAX_NODES = 20_000
MAX_DEPTH = 24

_LINE = re.compile(r"\(at line (\d+)")
#: The start of a here-document, and the file that it goes to.
_HERE = re.compile(r"<<(-?)\s*(['\"]?)(\w+)\2(?=\s|$)")
_HERE_FILE = re.compile(r"(?:>|\btee)\s*[\"']?([\w./-]+\.(?:json|ya?ml|toml|py))\b")
#: A line that runs or submits a script, and the script.
_RUNS = re.compile(r"^\s*(?:bash|sh|zsh|source|sbatch|\.)\s+(?:-\w+\s+)*([^\s-]\S*)(?=\s|$)")
#: An argument of a script: $1, ${1}, ${1:-8}.
_ARGUMENT = re.compile(r"\$(?:(\d)|\{(\d)(?::?-[^}]*)?\})")
#: A branch of a script's loop over its options: the names of an option, and the variable it sets.
_OPTION = re.compile(
    r"^[ \t]*(-[\w-]+(?:[ \t]*\|[ \t]*-[\w-]+)*)[ \t]*\)\s*(?:shift\s*;?\s*)?"
    r"(\w+)=[\"']?\$\{?[12]\}?[\"']?",
    re.MULTILINE,
)


@dataclass(frozen=True)
class Source:
    """A text and its origin. ``path`` is None for flags typed on the command line."""

    text: str
    where: str
    path: Path | None = None

    @property
    def suffix(self) -> str:
        """``.json``, ``.toml`` and so on; "" for typed flags."""
        return self.path.suffix.lower() if self.path is not None else ""


def read_source(text: str) -> Source:
    """The file that ``text`` names, or ``text`` itself if it is a line of flags.

    Raises DataError for a file that is missing, too large or not text.
    """
    if not text.strip():
        raise UsageError("--launch is empty: name a file or quote a launch line")
    if "\n" not in text:
        path = path_of(text)
        try:
            if path.is_file():
                return _read(path, text)
            if path.exists():
                raise DataError("is no file that can be read: name a launch file", file=text)
        except (OSError, ValueError):  # a line of flags may be an impossible file name, or too long
            pass
    if len(text.encode("utf-8", "replace")) > MAX_BYTES:
        raise UsageError(f"--launch is longer than {MAX_BYTES // MIB} MiB")
    if not re.search(r"\s", text.strip()) and not text.startswith("-"):
        raise DataError("no such launch file", file=text)
    return Source(text, "launch line")


def script_run(source: Source) -> Source:
    """The script that a line runs or submits (``bash train.sh 8``, ``sbatch job.sh``), with the
    line's words for its arguments, or for the options that a loop of it reads; else the line.

    Raises DataError for a script that is missing.
    """
    found = _RUNS.match(source.text) if source.path is None else None
    if found is None:
        return source
    script, words = read_source(found[1]), source.text[found.end() :].split()

    if options := {n: m for m in _OPTION.finditer(script.text) for n in re.split(r"[|\s]+", m[1])}:
        text = script.text
        for name, value in pairwise(words):
            if found := options.get(name):
                text = text.replace(found[0], f"{found[1]})\n{found[2]}={value}")
        return Source(text, script.where, script.path)

    def of_argument(match: re.Match[str]) -> str:
        number = int(match[1] or match[2])
        return words[number - 1] if 0 < number <= len(words) else match[0]

    return Source(_ARGUMENT.sub(of_argument, script.text), script.where, script.path)


def without_files(text: str) -> tuple[str, dict[str, str]]:
    """A script with blank lines for the configuration files that it writes, and their texts.

    Those are here-documents of ``cat`` or ``tee`` into a file with a literal name, in whose text
    the shell replaces nothing.
    """
    lines, files = text.split("\n"), dict[str, str]()
    for start, line in enumerate(lines):
        opened, named = _HERE.search(line), _HERE_FILE.search(line)
        if opened is None or named is None:
            continue
        body: list[str] = []
        for at, inside in enumerate(lines[start + 1 :], start + 1):
            stripped = inside.lstrip("\t") if opened[1] else inside
            if stripped.rstrip() == opened[3]:
                whole = "\n".join(body)
                if opened[2] or "$" not in whole:
                    files[PurePath(named[1]).name] = whole + "\n"
                    lines[start : at + 1] = [""] * (at + 1 - start)
                break
            body.append(stripped)
    return "\n".join(lines), files


def beside(source: Source, name: str) -> Source:
    """The file that another one names: written by it, in its folder, or in the working folder."""
    if "<<" in source.text:
        plain = PurePath(name).name
        text = without_files(source.text)[1].get(plain)
        if text is not None:
            return Source(text, f"{plain} in {source.where}", Path(plain))
    near = source.path.parent / name if source.path is not None else None
    return read_source(str(near) if near is not None and near.is_file() else name)


def _read(path: Path, shown: str) -> Source:
    try:
        with path.open("rb") as stream:
            raw = stream.read(MAX_BYTES + 1)
    except OSError as err:
        raise DataError(f"cannot be read: {err.strerror}", file=shown) from None
    return Source(decode(raw, shown, MAX_BYTES), shown, path)


def json_table(source: Source) -> dict[str, Any]:
    """A JSON object.

    Raises DataError with the line of a comment, trailing comma, double key etc.
    """

    def unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found: dict[str, Any] = {}
        for key, value in pairs:
            if key in found:
                raise DataError("occurs twice", file=source.where, key=key)
            found[key] = value
        return found

    try:
        data = json.loads(source.text, object_pairs_hook=unique)
    except json.JSONDecodeError as err:
        line, sentence = _json_sentence(source.text, err)
        raise DataError(f"not valid JSON: {sentence}", file=source.where, line=line) from None
    except RecursionError:
        raise DataError("is nested too deeply", file=source.where) from None
    except ValueError as err:  # an integer of thousands of digits
        raise DataError(f"not valid JSON: {err}", file=source.where) from None
    return _table(data, source, "JSON")


def _json_sentence(text: str, err: json.JSONDecodeError) -> tuple[int, str]:
    """(line, reason). Python 3.13 reports a trailing comma at the comma, 3.11 at the bracket."""
    before, rest = text[: err.pos].rstrip(), text[err.pos :].lstrip()
    if rest.startswith(("//", "/*", "#")):
        return err.lineno, "JSON has no comments"
    if before.endswith(",") and rest[:1] in ("}", "]"):
        return before.count("\n") + 1, "a comma before the closing bracket"
    if err.msg.startswith("Illegal trailing comma"):
        return err.lineno, "a comma before the closing bracket"
    return err.lineno, err.msg[:1].lower() + err.msg[1:]


def toml_table(source: Source) -> dict[str, Any]:
    """A TOML document. Raises DataError with the line."""
    try:
        data = tomllib.loads(source.text)
    except tomllib.TOMLDecodeError as err:
        line = _LINE.search(str(err))
        text = str(err).split(" (at ")[0]
        raise DataError(
            f"not valid TOML: {text}", file=source.where, line=int(line[1]) if line else None
        ) from None
    except RecursionError:
        raise DataError("is nested too deeply", file=source.where) from None
    except ValueError as err:
        raise DataError(f"not valid TOML: {err}", file=source.where) from None
    return _table(data, source, "TOML")


def yaml_table(source: Source) -> dict[str, Any]:
    """A YAML mapping. Raises DataError with the line."""
    if source.path is None:
        raise DataError("YAML is read from a file", file=source.where)
    try:
        data = parse_yaml(source.text, source.where)
    except (RecursionError, ValueError) as err:
        text = "is nested too deeply" if isinstance(err, RecursionError) else f"not valid: {err}"
        raise DataError(text, file=source.where) from None
    return _table(data, source, "YAML")


def _table(data: object, source: Source, kind: str) -> dict[str, Any]:
    if not isinstance(data, dict):
        raise DataError(f"must hold one {kind} table of keys and values", file=source.where)
    left = MAX_NODES
    stack: list[tuple[object, int]] = [(data, 1)]
    while stack:
        value, depth = stack.pop()
        left -= 1
        if left < 0:
            raise DataError(f"has more than {MAX_NODES} values: no launch file", file=source.where)
        if depth > MAX_DEPTH:
            raise DataError("is nested too deeply", file=source.where)
        if isinstance(value, dict):
            if odd := [k for k in value if not isinstance(k, str)]:
                raise DataError(f"key {odd[0]!r:.40} is no text", file=source.where)
            stack += [(v, depth + 1) for v in value.values()]
        elif isinstance(value, (list, tuple, set)):
            stack += [(v, depth + 1) for v in value]
    return data
