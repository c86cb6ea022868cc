"""Records of ``programs_db``: facts about training programs with their sources, and releases.

A record is a list of facts. Each gives values to fields of some subjects (``mechanisms``, and
``runs``) and says where that is from: ``source``, or ``origin: inferred, to verify``. It may
inherit another record's facts; a release changes some of those of its record, or of another that
it inherits. A fact with ``when`` holds for some kinds of job only (``kinds``) and sets options,
settings and precisions of ``runs``. A value of null means the default again; ``runs: null`` a
library that is put around a user's own model and loop.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import field, fields, is_dataclass
from functools import lru_cache
from types import UnionType
from typing import Any, Literal, NamedTuple, Union, cast, get_args, get_origin, get_type_hints

from simcore.base.database import Database, Folders, fold_name
from simcore.base.errors import DataError, UnknownName, did_you_mean
from simcore.base.figures import KeyedError, Part, Record, entry
from simcore.base.lookup import once_a_question
from simcore.base.record import dataclass
from simcore.strategy.layout import CUT_RULES
from simcore.strategy.programs.mechanisms import MAPPINGS, PLAIN, OfKind, Program, Runs
from simcore.workload.models import setting_kinds

#: Subjects of facts and their dataclasses: the fields of a program but its name.
SUBJECTS: Mapping[str, type] = {
    f.name: Runs if f.name == "runs" else cast("type", f.default_factory)
    for f in fields(Program)
    if f.name not in ("name", "meaning", "kinds")
}
#: What a fact says of itself.
_OF_FACT = ("source", "origin", "note")
#: The condition of a fact that holds for some jobs only, and what such a fact may set.
_WHEN = "when"
_OF_KIND = ("options", "settings", "precisions")
_INFERRED = "inferred, to verify"
#: Separates a program's name from its release.
_AT = "@"

Facts = tuple[dict[str, Any], ...]


class Release(Part):
    """What was, or is, different in one release of a program, or in one way that it is run."""

    aliases: tuple[str, ...] = ()
    meaning: str
    inherits: str | tuple[str, ...] = entry(
        default=(), description="NAME or NAME@RELEASE, or several; else the record itself"
    )
    facts: Facts = ()


class ProgramRecord(Record):
    """One program: facts with sources, and its releases."""

    meaning: str = entry(description="what it is, in a line that answers show")
    inherits: str | tuple[str, ...] = entry(
        default=(), description="NAME or NAME@RELEASE whose facts hold too, or several"
    )
    read_as: dict[str, str] = entry(
        default_factory=dict,
        description="aliases that are programs around this one, and what makes them so",
    )
    facts: Facts = ()
    releases: dict[str, Release] = entry(default_factory=dict)

    def check(self) -> None:
        super().check()
        _check_facts(self.facts, ("facts",))
        for name, release in self.releases.items():
            _check_facts(release.facts, ("releases", name, "facts"))
        for alias in self.read_as:
            if alias not in self.aliases:
                raise KeyedError(("read_as", alias), f"{alias!r} is no alias of {self.name}")

    def release_of(self, alias: str) -> str:
        """The release that an alias names; empty where it names the program itself."""
        folded = fold_name(alias)
        return next(
            (r for r, v in self.releases.items() if folded in map(fold_name, v.aliases)), ""
        )


def _check_facts(facts: Facts, at: tuple[int | str, ...]) -> None:
    for i, fact in enumerate(facts):
        here = (*at, i)
        told = [k for k in ("source", "origin") if fact.get(k)]
        if len(told) != 1:
            raise KeyedError(here, f"a fact needs its source, or origin: {_INFERRED}")
        if fact.get("origin", _INFERRED) != _INFERRED:
            raise KeyedError((*here, "origin"), f"must be {_INFERRED!r}")
        for subject, values in fact.items():
            if subject in _OF_FACT:
                checked(values, str, (*here, subject))
                continue
            if subject == _WHEN:
                checked(values, Mapping[str, Any], (*here, subject))
                continue
            known_subjects = {"runs": Runs} if _WHEN in fact else SUBJECTS
            check_key(subject, {**known_subjects, **dict.fromkeys((*_OF_FACT, _WHEN))}, here)
            if subject == "runs" and values is None:
                continue
            checked(values, Mapping[str, Any], (*here, subject))
            known = hints(SUBJECTS[subject])
            if _WHEN in fact:
                known = {key: known[key] for key in _OF_KIND}
            for key, value in values.items():
                check_key(str(key), known, (*here, subject))
                if value is not None:
                    of_kind = checked(value, known[key], (*here, subject, key))
                    if not (_WHEN in fact and key in _SETTINGS):  # of other architectures
                        check_meaning(subject, key, of_kind, (*here, subject, key))


PROGRAMS: Database[ProgramRecord] = Database("program", "programs_db", ProgramRecord)


@dataclass(frozen=True)
class StatedFact:
    """A fact as a record has it, and the name of the program or release that it stands in."""

    of: str
    fact: Mapping[str, Any] = field(hash=False)

    @property
    def source(self) -> str:
        """Where it is from."""
        return str(self.fact.get("source") or f"{self.fact['origin']}")

    @property
    def when(self) -> Mapping[str, Any]:
        """The condition on jobs for which it holds; none for all jobs."""
        return cast("Mapping[str, Any]", self.fact.get(_WHEN, {}))

    def values(self) -> Iterator[tuple[str, str, Any]]:
        """Each subject, key and value."""
        for subject, values in self.fact.items():
            if subject in (*_OF_FACT, _WHEN):
                continue
            if values is None:
                yield subject, "", None
            else:
                yield from ((subject, k, v) for k, v in values.items())


#: A record and one of its releases, or none of them.
OneRelease = tuple[ProgramRecord, str]


def _part(name: str) -> OneRelease:
    """The record and release of a name or alias. Raises UnknownName."""
    base, at, release = name.strip().partition(_AT)
    if PROGRAMS.path(base) is None:
        raise UnknownName("software", base, program_names(), "(`simcore list software`)", aliases())
    record = PROGRAMS[base]
    if not at:
        return record, record.release_of(base)
    found = next((r for r in record.releases if fold_name(r) == fold_name(release)), None)
    if found is None:
        raise UnknownName(f"release of {record.name}", release, record.releases)
    return record, found


def _parts(part: OneRelease, before: tuple[OneRelease, ...] = ()) -> tuple[OneRelease, ...]:
    """What a program inherits, the farthest first, and the program itself."""
    record, release = part
    if part in before:
        raise DataError(f"{full_name(part)} inherits itself", file=PROGRAMS.path(record.name))
    told = record.releases[release].inherits if release else record.inherits
    names = (told,) if isinstance(told, str) else told
    parents = [_parent(name, record) for name in names if fold_name(name) != PLAIN.name]
    if release and not names:
        parents = [(record, "")]
    found = [p for parent in parents for p in _parts(parent, (*before, part))]
    return (*found, part)


def _parent(name: str, record: ProgramRecord) -> OneRelease:
    try:
        return _part(name)
    except UnknownName as err:
        raise DataError(str(err), file=PROGRAMS.path(record.name), key="inherits") from None


def full_name(part: OneRelease) -> str:
    """``NAME`` or ``NAME@RELEASE``."""
    record, release = part
    return record.name + (_AT + release if release else "")


def facts_of(name: str) -> tuple[StatedFact, ...]:
    """Every fact of a program, inherited ones first; later ones win. Raises UnknownName."""
    return _facts(_parts(_part(name))) if fold_name(name) != PLAIN.name else ()


def _facts(parts: tuple[OneRelease, ...]) -> tuple[StatedFact, ...]:
    return tuple(
        StatedFact(full_name((record, release)), fact)
        for record, release in parts
        for fact in (record.releases[release] if release else record).facts
    )


@once_a_question
def program_named(name: str) -> Program:
    """The program of a name, alias, or NAME@RELEASE. Raises UnknownName, DataError."""
    if fold_name(name) == PLAIN.name:
        return PLAIN
    folders, seen = PROGRAMS.folders(), _SEEN.get(name)
    if (
        seen is not None
        and seen.folders == folders
        and all(
            os.stat(file).st_mtime_ns == changed  # noqa: PTH116 (half the cost)
            for file, changed in seen.files
        )
    ):
        return seen.program
    parts = _parts(_part(name))
    files = {str(PROGRAMS.path(record.name)) for record, _ in parts}
    changes = tuple((f, os.stat(f).st_mtime_ns) for f in files)  # noqa: PTH116
    found = _built(parts)
    _SEEN[name] = _Seen(folders, changes, found)
    return found


class _Seen(NamedTuple):
    """A program with the folders it was looked for in, and the times of its files' last changes."""

    folders: Folders
    files: tuple[tuple[str, int], ...]
    program: Program


#: Programs that were looked up before, by name.
_SEEN: dict[str, _Seen] = {}


@lru_cache(maxsize=256)
def _built(parts: tuple[OneRelease, ...]) -> Program:
    record, release = parts[-1]
    values: dict[str, dict[str, Any]] = {}
    runs = False
    kinds: list[OfKind] = []
    for told in _facts(parts):
        if told.when:
            kinds.append(OfKind(when=told.when, **told.fact["runs"]))
            continue
        for subject, key, value in told.values():
            if subject == "runs":
                runs = bool(key)
            if not key:
                values.pop(subject, None)
            elif key in MAPPINGS and value is not None:
                values.setdefault(subject, {})[key] = _changed(
                    values.get(subject, {}).get(key, {}), value
                )
            else:
                values.setdefault(subject, {})[key] = value
    return Program(
        name=full_name(parts[-1]),
        meaning=record.releases[release].meaning if release else record.meaning,
        kinds=tuple(kinds),
        **{
            subject: _subject(kind, values.get(subject, {}))
            for subject, kind in SUBJECTS.items()
            if subject in values or (subject == "runs" and (runs or kinds))
        },
    )


def _changed(before: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in {**before, **changes}.items() if v is not None}


def _subject(kind: type, values: Mapping[str, Any]) -> Any:
    known = hints(kind)
    return kind(**{k: checked(v, known[k], ()) for k, v in values.items() if v is not None})


def read_as(name: str) -> str:
    """What makes an alias a program around another, where it is one; else nothing."""
    base = name.strip().partition(_AT)[0]
    if PROGRAMS.path(base) is None:
        return ""
    folded = fold_name(base)
    return next((v for k, v in PROGRAMS[base].read_as.items() if fold_name(k) == folded), "")


def program_names() -> list[str]:
    """Names of every program, sorted, ``plain`` among them."""
    return sorted({PLAIN.name, *PROGRAMS.names()}, key=str.lower)


def aliases() -> dict[str, str]:
    """Every alias, and the program or release that it names."""
    return {
        alias: full_name((PROGRAMS[name], PROGRAMS[name].release_of(alias)))
        for alias, name in PROGRAMS.aliases().items()
        if fold_name(alias) != fold_name(name)
    }


Keys = tuple[int | str, ...]


@lru_cache(maxsize=64)
def hints(cls: type) -> Mapping[str, Any]:
    """The fields of a dataclass and their types."""
    found = get_type_hints(cls)
    return {f.name: found[f.name] for f in fields(cls)}


def check_key(key: str, known: Mapping[str, Any], at: Keys) -> None:
    """Raises KeyedError with the nearest known key."""
    if key not in known:
        asked = did_you_mean(key, known, f": known are {', '.join(known)}")
        raise KeyedError((*at, key), f"unknown key {key!r}{asked}")


def checked(value: Any, kind: Any, at: Keys) -> Any:
    """``value`` as ``kind``: a number, word, pair, mapping, or dataclass. Raises KeyedError."""
    origin = get_origin(kind)
    if origin in (Union, UnionType):
        of = next(a for a in get_args(kind) if a is not type(None))
        return None if value is None else checked(value, of, at)
    if is_dataclass(kind):
        assert isinstance(kind, type)
        return _instance(value, kind, at)
    if origin is Literal:
        return _told(value, value in get_args(kind), f"one of {', '.join(get_args(kind))}", at)
    if origin is tuple:
        pair = isinstance(value, tuple) and len(value) == len(get_args(kind))
        _told(value, pair, f"a list of {len(get_args(kind))} numbers", at)
        return tuple(checked(v, k, at) for v, k in zip(value, get_args(kind), strict=True))
    if origin is frozenset:
        words = isinstance(value, tuple) and all(isinstance(v, str) for v in value)
        return frozenset(_told(value, words, "a list of words", at))
    if origin is not None:
        return _told(value, isinstance(value, Mapping), "a mapping of keys to values", at)
    number = isinstance(value, int | float) and not isinstance(value, bool)
    if kind is float:
        return float(_told(value, number, "a number", at))
    if kind is int:
        return _told(value, number and isinstance(value, int), "a whole number", at)
    if kind is bool:
        return _told(value, isinstance(value, bool), "true or false", at)
    return _told(value, isinstance(value, str), "a word", at)


def _told(value: Any, right: bool, wanted: str, at: Keys) -> Any:
    if not right:
        raise KeyedError(at, f"must be {wanted} (got {value!r:.60})")
    return value


def _instance(value: Any, kind: type, at: Keys) -> Any:
    _told(value, isinstance(value, Mapping), "a mapping of keys to values", at)
    known = hints(kind)
    for key in value:
        check_key(str(key), known, at)
    found = {k: checked(v, known[k], (*at, k)) for k, v in value.items()}
    try:
        return kind(**found)
    except TypeError as err:  # a field without a default is missing
        raise KeyedError(at, str(err).rpartition("__init__() ")[2]) from None


#: Architecture of the language models whose settings ``runs`` changes.
_ARCH = "transformer"
_SETTINGS = ("settings", "compiled_settings")
#: Fields of ``runs`` that hold the value of an option, and the option.
_VALUES_OF = {
    "overlap": "overlap",
    "recipe_overlap": "overlap",
    "main_grads": "main_grads",
    "selective_modules": "recompute_modules",
}


def check_meaning(subject: str, key: str, value: Any, at: Keys) -> None:
    """Raises KeyedError, with the nearest name, where a fact's value names nothing that exists."""
    if (subject, key) == ("pipeline", "cut") and value not in CUT_RULES:
        raise KeyedError(at, str(UnknownName("cut rule", value, list(CUT_RULES))))
    if subject != "runs":
        return
    if key in _SETTINGS:
        for setting in value:
            check_key(str(setting), setting_kinds(_ARCH), (*at, setting))
    elif key == "options":
        _check_options(value, at)
    elif key == "precisions":
        _check_names("precision", [*value, *value.values()], at)
    elif key in _VALUES_OF:
        words = value.split(",") if isinstance(value, str) else sorted(value)
        _check_names(_VALUES_OF[key], [word for word in words if word], at)
    elif key == "dropout" and not 0.0 <= value < 1.0:
        raise KeyedError(at, f"must be at least 0 and below 1, not {value:g}")


def _check_names(name: str, words: list[str], at: Keys) -> None:
    from simcore.strategy.options import OPTIONS
    from simcore.strategy.options.kinds import names_of

    option = OPTIONS[name]
    known = list(names_of(getattr(option.kind, "names")))  # noqa: B009 (kinds of names have it)
    for word in words:
        if word not in known:
            raise KeyedError(at, str(UnknownName(option.word, word, known)))


def _check_options(values: Mapping[str, Any], at: Keys) -> None:
    from simcore.strategy.options import read_options

    for name, value in values.items():
        _, problems = read_options({str(name): value})
        if problems:
            raise KeyedError((*at, name), problems[0])


class Earlier(Part):
    """The ``program`` that jobs of an earlier kind ran, for which ``when`` holds.

    Facts: the model's settings, and ``released``, the year of the job's newest GPU.
    """

    when: dict[str, Any]
    program: str
    source: str


class UsualProgram(Record):
    """``program`` of a kind of model whose layout or precision needs one.

    ``cut``: with tensor, pipeline, context or expert ranks; ``precisions``: in one of these. Not
    with ``except_strategies`` and ``except_issuers``. ``issuers``: what issues kernels where nobody
    says, by what the program would have. ``earlier``: other programs for jobs of earlier kinds, of
    which the first that holds counts. ``archs``: architectures whose jobs most likely run in a
    loop like this program's, where none is named. ``on_devices``: the program of every job on
    devices of an architecture, by architecture.
    """

    meaning: str
    program: str
    on_devices: Mapping[str, str] = entry(default_factory=dict)
    archs: tuple[str, ...] = ()
    cut: bool = False
    precisions: tuple[str, ...] = ()
    except_strategies: tuple[str, ...] = ()
    except_issuers: tuple[str, ...] = ()
    issuers: Mapping[str, str] = entry(default_factory=dict)
    earlier: tuple[Earlier, ...] = ()
    note: str = ""

    @property
    def record(self) -> Program:
        """The program itself."""
        return program_named(self.program)


USUAL: Database[UsualProgram] = Database("usual program", "programs_db/usual", UsualProgram)


def modules_program(source: str) -> Program:
    """The program whose modules a plain loop runs, by the kind of source that a model is from."""
    return USUAL[source].record


def usual_loop(arch: str) -> UsualProgram | None:
    """The rule for a job without a named program, by its model's architecture; None if unknown."""
    return next((usual for usual in USUAL.all() if arch in usual.archs), None)


def usual_of_language_models() -> UsualProgram:
    """The rule for language models that a program writes itself."""
    return USUAL["language-models"]
