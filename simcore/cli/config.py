"""Defaults from files: ``./simcore.toml`` and ``config.toml`` in the user's configuration folder.

    [defaults]
    gpus = "4x8xA6000ada"
    network = "25 Gbit/s"
    calibration = "mine.yaml"        # in the folder of this file

The command line overrides ``./simcore.toml``, which overrides the user's file, which overrides the
model's defaults. The answer states what was taken from files. Python calls do not read them.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from simcore.base.errors import DataError, Problems, UsageError, did_you_mean
from simcore.base.names import path_of
from simcore.base.record import dataclass
from simcore.cli.options import job_words, repeated_words
from simcore.cli.output import write_result
from simcore.strategy.options import OPTIONS, NameList, Number, Pairs, Switch, shown

LOCAL = "simcore.toml"
TABLE = "defaults"
#: The only defaults that apply to a job with a launch file: model, cluster and calibration.
_BESIDE_LAUNCH = ("model", "gpus", "network", "node", "fabric", "calibration")
#: Options that, when given, disable the defaults of other options.
_RIVALS = {
    "global_batch": ("grad_accum",), "grad_accum": ("global_batch",),
    "zero": ("strategy",), "strategy": ("zero",),
}  # fmt: skip
#: Options whose value may be a file, which is looked up in the folder of the configuration file.
_FILES = ("model", "calibration", "fabric", "launch")


def keys() -> tuple[str, ...]:
    """Keys of the table: the options with which ``predict`` describes a job."""
    return ("model", "gpus", *job_words())


@dataclass(frozen=True)
class Setting:
    """A default and the file that states it."""

    value: Any
    file: Path


def user_file() -> Path | None:
    """The user's file; ``$SIMCORE_CONFIG`` names another one, or ``off`` for none.

    Raises UsageError where it names no file.
    """
    named = os.environ.get("SIMCORE_CONFIG")
    if named == "off":
        return None
    if named:
        path = path_of(named)
        if not path.is_file():
            raise UsageError(f"$SIMCORE_CONFIG names {named!r}, which is no file (off: none)")
        return path
    import platformdirs

    return Path(platformdirs.user_config_dir("simcore")) / "config.toml"


def files() -> list[Path]:
    """The files that may state defaults, in order of precedence."""
    user = user_file()
    return [Path(LOCAL), *([user] if user is not None else [])]


def settings() -> dict[str, Setting]:
    """Every default with its file. Raises InvalidConfig that lists all mistakes in the files."""
    found: dict[str, Setting] = {}
    problems = Problems()
    for path in files():
        if path.is_file():
            read = problems.attempt(_read, path, problems) or {}
            found = {**{key: Setting(value, path) for key, value in read.items()}, **found}
    problems.stop()
    return found


def _read(path: Path, problems: Problems) -> dict[str, Any]:
    """The defaults in one file; error messages are added to ``problems``."""
    import tomllib

    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as err:
        raise DataError(f"not valid TOML: {err}", file=path) from None
    except OSError as err:
        raise DataError(f"cannot be read: {err.strerror}", file=path) from None
    table = data.pop(TABLE, {})
    for key in data:
        hint = f": settings stand under [{TABLE}]" if _word(key) in keys() else _near(key, (TABLE,))
        problems.append(f"{_place(path, text, key)}: unknown key {key!r}{hint}")
    if not isinstance(table, dict):
        problems.append(f"{_place(path, text, TABLE)}: {TABLE!r} must be a table")
        return {}
    found = {}
    for key, value in table.items():
        word = _word(key)
        if word not in keys():
            known = tuple(k.replace("_", "-") for k in keys())
            problems.append(f"{_place(path, text, key)}: unknown key {key!r}{_near(key, known)}")
        elif (plain := _plain(word, value, path)) is None:
            problems.append(
                f"{_place(path, text, key)}: {key!r} must be text or a whole number, not {value!r}"
            )
        else:
            found[word] = plain
    return found


def _word(key: str) -> str:
    by_flag = {o.flag.lstrip("-"): o.name for o in OPTIONS if o.flag}
    return by_flag.get(key, key.replace("-", "_"))


def _near(key: str, known: tuple[str, ...]) -> str:
    return did_you_mean(key, known, f": known are {', '.join(known)}")


def _place(path: Path, text: str, key: str) -> str:
    """File and line of a key, as text."""
    pattern = re.compile(rf"^\s*\[?\s*[\"']?{re.escape(key)}[\"']?\s*(?:=|\])")
    for number, line in enumerate(text.splitlines(), 1):
        if pattern.match(line):
            return f"{path}:{number}"
    return str(path)


def _plain(word: str, value: Any, path: Path) -> Any:
    """A default as the command line would pass it; None where it has a wrong type.

    Switches may be true or false, numbers have a fraction, names be a list, pairs be a table.
    """
    kind = OPTIONS[word].kind if word in OPTIONS else None
    if isinstance(kind, Pairs) and isinstance(value, dict):
        return [shown({k: v}) for k, v in value.items()]
    if word in repeated_words():
        texts = [value] if isinstance(value, str) else value
        return texts if isinstance(texts, list) and all(isinstance(t, str) for t in texts) else None
    if isinstance(kind, NameList) and isinstance(value, list):
        return ",".join(value) if all(isinstance(v, str) for v in value) else None
    if isinstance(kind, Switch) and isinstance(value, bool):
        return shown(value)
    if isinstance(kind, Number) and isinstance(value, float):
        return str(value)
    if isinstance(value, bool) or not isinstance(value, (str, int)):
        return None
    file = path.parent / str(value)
    if word in _FILES and Path(str(value)).suffix and file.is_file():
        return str(file)
    return str(value)


def with_defaults(
    words: Mapping[str, Any], lists: Sequence[str] = (), *, allow_code: bool = False
) -> tuple[dict[str, Any], str]:
    """``words`` completed with defaults from files, and text about the defaults that were used.

    An option that is None or an empty list is not given. ``lists``: options that this command
    accepts repeatedly, besides those of a job. A model on the command line may be Python code; one
    that a file names may be only with ``allow_code``. Raises InvalidConfig, CodeRefused.
    """
    from simcore.workload.settings import TrustedName, name_in_file

    lists = (*repeated_words(), *lists)
    result = dict(words)
    if isinstance(model := result.get("model"), str):
        result["model"] = TrustedName(model)
    taken: dict[Path, list[str]] = {}
    given = {k for k, v in words.items() if v not in (None, [], ())}
    for key, setting in settings().items():
        void = key in given or any(key in _RIVALS.get(word, ()) for word in given)
        if void or key not in words or ("launch" in given and key not in _BESIDE_LAUNCH):
            continue
        value = setting.value
        if key == "model":
            value = name_in_file(value, str(setting.file), allow_code=allow_code)
        result[key] = [value] if key in lists and not isinstance(value, list) else value
        taken.setdefault(setting.file, []).append(f"{key.replace('_', '-')} {value}")
    used = "; ".join(f"from {path}: {', '.join(parts)}" for path, parts in taken.items())
    return result, used


def subject(words: Mapping[str, Any], problems: list[str], clusters: str) -> tuple[Any, Any]:
    """Model and clusters among the words of a job, or messages that they are missing.

    A model that is not given is that of the launch file, if it names one. ``clusters``: what to
    write for clusters, for the message.
    """
    model, gpus, launched = words.get("model"), words.get("gpus"), words.get("launch")
    if model is None and launched:
        from simcore.cli.launch import model_in

        model = model_in(launched, problems)
    elif model is None:
        problems.append("--model is missing: name one of `simcore list models`")
    if not gpus and model is not None:
        gpus = _captured_on(str(model)) or gpus
    if gpus is None or gpus == []:
        hint = ", or only the type where the launch file has the numbers" if launched else ""
        problems.append(f"--gpus is missing: {clusters}{hint}")
    return model, gpus


def _captured_on(model: str) -> str:
    """The cluster on which a model file's script was captured; empty for all other models."""
    if not model.endswith((".yaml", ".yml")) or not Path(model).is_file():
        return ""
    from simcore.base.database import load_record
    from simcore.workload.models import ModelRecord

    captured = load_record(Path(model), ModelRecord).captured
    return captured.gpus if captured else ""


def config(
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show the files that defaults come from, and every default that is set.

    \b
    ./simcore.toml has precedence over the user's config.toml
    ($SIMCORE_CONFIG names another file; off: none). Example:
      [defaults]
      gpus = "4x8xA6000ada"
      network = "ib-hdr"
    Keys are the options of `simcore predict` without their dashes.
    """
    found = settings()
    data = {
        "files": [{"path": str(f), "exists": f.is_file()} for f in files()],
        "defaults": {k: {"value": s.value, "file": str(s.file)} for k, s in found.items()},
        "keys": list(keys()),
    }
    write_result(as_json, lambda: data, lambda: _text(found))


def _text(found: Mapping[str, Setting]) -> str:
    from simcore.report.tables import table

    lines = [f"{f}: {'read' if f.is_file() else 'does not exist'}" for f in files()]
    rows = [[k.replace("_", "-"), str(s.value), str(s.file)] for k, s in found.items()]
    shown = table(["default", "value", "from"], rows) if rows else (
        "no defaults are set: write them into one of these under [defaults]"
    )  # fmt: skip
    return "\n".join([*lines, "", shown]) + "\n"
