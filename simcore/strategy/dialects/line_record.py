"""The record of a program's own arguments (``programs_db/dialects/lines``).

It says which scripts, modules and commands start the program, in which form its arguments are
(flags, overrides, a file that the line names) and, as any dialect's record, what each means.
Names of keys are compared with dashes for underscores.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from functools import lru_cache
from pathlib import PurePath
from typing import Any, Literal

from simcore.base.database import Database
from simcore.base.figures import Part, entry
from simcore.strategy.dialects.record import DialectRecord, Meaning, Word


def fold_key(name: str) -> str:
    """A key as records of lines compare it: ``--lora_r``, ``lora-r`` and ``lora_r`` are one."""
    return name.lstrip("-").replace("_", "-")


class Started(Part):
    """What starts the program; names are separated by blanks.

    scripts   names of script files, or ends of their paths; * stands for any letters
    modules   what follows ``python -m``, in which * stands for any letters too
    commands  first words of commands: ``llamafactory-cli train``
    launchers launchers that start nothing else as a rule (``composer train.py``)
    configs   names of files that a line of this program alone gives its script: ends of their
              paths, in which * stands for any letters (``config/train_gpt2.py``)
    """

    scripts: str = ""
    modules: str = ""
    commands: tuple[str, ...] = ()
    launchers: str = ""
    configs: str = ""

    @property
    def any(self) -> bool:
        """Whether anything starts the program; else its record is a part of others."""
        return bool(self.scripts or self.modules or self.commands or self.launchers)

    def fits(self, script: str) -> str:
        """The longest name that a script or module has; "" where it has none."""
        found = [p for p in self.scripts.split() if _ends_in(script, p)]
        found += [m for m in self.modules.split() if fnmatchcase(script, m)]
        return max(found, key=len, default="")

    def given(self, words: Sequence[str]) -> bool:
        """Whether one of the words of a line is a file that only this program is given."""
        patterns = self.configs.split()
        return bool(patterns) and any(_ends_in(w, p) for w in set(words) for p in patterns)


@lru_cache(maxsize=10_000)
def _ends_in(script: str, pattern: str) -> bool:
    """Whether a script's path ends in the parts of a pattern."""
    parts, wanted = PurePath(script).parts, PurePath(pattern).parts
    last = parts[len(parts) - len(wanted) :] if len(parts) >= len(wanted) else ()
    return bool(last) and all(map(fnmatchcase, last, wanted))


class NamedFile(Part):
    """The file of arguments that a line names; arguments of the line override it.

    flags   flags whose value is its name
    first   whether the first word that is no flag is its name
    every   whether each word that is no flag names one, of which later ones count; those behind
            the flag are in the folder that is the first of them (``-d configs a.yml b.yml``)
    form    its form where its ending does not say it
    shipped whether it may be one that comes with the program, which is not at hand
    recipes those that come with the program, by name (``programs_db/recipes``)
    marks   keys of which a file given alone has at least one if it is this program's
    dialect the dialect that reads it, and the line's arguments as if they stood in it
    form    how a file without a known ending is read (python: the values that it gives to names)
    """

    flags: str = ""
    first: bool = False
    every: bool = False
    shipped: bool = False
    recipes: str = ""
    marks: tuple[str, ...] = ()
    dialect: str = ""
    form: Literal["yaml", "json", "toml", "python"] = "yaml"


class NamedRecipe(Part):
    """The configuration of the program by name, of which a line overrides keys.

    table    the recipes by name (``programs_db/recipes``)
    flags    flags whose value is its name; a call (``name(x=1)``) is read as its name
    joined   its name from values of other flags: ``{model}_{mode}_config``
    spelt    values of those flags that stand for others
    """

    table: str
    flags: str = ""
    joined: str = ""
    spelt: dict[str, str] = entry(default_factory=dict)


class LineRecord(DialectRecord):
    """The arguments of one program.

    form          flags: of the line itself, whatever the file's is
    started       what starts the program
    inherits      records of lines whose keys it has too
    file          the file that the line may name; None: none
    recipe        the configuration that the line may name; None: none
    overrides     whether arguments may be ``key=value``, ``+key=value`` and ``~key``
    pairs         whether words after the flags may be ``SECTION.KEY value``, in capitals
    launcher      the launcher whose flags stand before the script (``tune run``) or among the
                  program's own (``trl sft``)
    positional    keys of the words that belong to no flag, in their order
    calls         functions whose keyword arguments in a Python script or notebook are its keys,
                  and what stands before these; the first one, and those of its method's name, only
                  this program has
    environment   variables of the environment, and the option that each states
    before        function of ``lines.ODD`` that does what no key can say before keys are read, also
                  of records that inherit this one
    after         the same once they are read
    notes         sentences that are always told: what of such a run is predicted, and what is not
    marks         keys of which the line of another script has at least one if its arguments are
                  this program's (``a+b``: both); without marks only ``started`` counts
    """

    form: Literal["flags"] = "flags"
    started: Started = Started()
    inherits: tuple[str, ...] = ()
    file: NamedFile | None = None
    recipe: NamedRecipe | None = None
    overrides: bool = False
    pairs: bool = False
    launcher: str = ""
    positional: str = ""
    calls: dict[str, str] = entry(default_factory=dict)
    environment: dict[str, str] = entry(default_factory=dict)
    before: str = ""
    after: str = ""
    notes: tuple[str, ...] = ()

    @classmethod
    def as_written(cls, raw: Any) -> Any:
        """Names of keys with dashes for underscores, wherever they stand."""
        if not isinstance(raw, dict):
            return raw
        data = {**raw}
        for name in ("keys", "implied", "refused", "written"):
            data[name] = _fold_beside(data[name], keys=name == "keys") if name in data else None
        data = {k: v for k, v in data.items() if v is not None}
        if isinstance(listed := data.get("no_effect"), dict):
            data["no_effect"] = {k: _words(v) for k, v in listed.items()}
        if isinstance(data.get("bare"), str):
            data["bare"] = _words(data["bare"])
        if isinstance(data.get("marks"), tuple | list):
            data["marks"] = tuple(fold_key(str(m)) for m in data["marks"])
        return super().as_written(data)

    def own_calls(self) -> dict[str, str]:
        """The calls that only this program has: of several classes, the method that loads."""
        method = next(iter(self.calls), "").rpartition(".")[2]
        return {call: before for call, before in self.calls.items() if call.endswith(method)}

    def marked(self, keys: Collection[str]) -> bool:
        """Whether a line with these keys has one of the marks."""
        return any(set(mark.split("+")) <= set(keys) for mark in self.marks)

    def switches(self) -> frozenset[str]:
        """Names of keys that are true or false, and flags that take no value."""
        found = (
            name
            for names, meanings in self.table().items()
            if all(
                m.read == "flag" or {"true"} <= {*m.values} <= {"true", "false"} for m in meanings
            )
            for name in names
        )
        return frozenset((*self.bare.split(), *found))

    def plain(self, given: Collection[str], words: Sequence[str]) -> dict[str, str]:
        """Words that belong to no flag, by the positional keys that are not ``given``.

        Where the first of these is a number that the line leaves out, the others follow at once.
        """
        names = [n for n in map(fold_key, self.positional.split()) if n not in given]
        counts = {n for of, means in self.table().items() for n in of if means[0].read == "whole"}
        if words and counts & {*names[:1]} and not words[0].isdecimal():
            names = names[1:]
        return dict(zip(names, words, strict=False))

    def names(self) -> frozenset[str]:
        """Names of all keys, with and without effect; not those of sections."""
        return frozenset((*self.without_effect()[0], *self.stated()))

    def stated(self) -> frozenset[str]:
        """Names of the keys that mean something."""
        return frozenset(name for names in self.table() for name in names)

    def beside(self, other: LineRecord) -> LineRecord:
        """The record with those keys of another that it does not have; not what that inherits."""
        return _joined(self, other)

    def complete(self) -> LineRecord:
        """The record with all that it inherits; its own keys replace inherited ones."""
        return _complete(self) if self.inherits else self


def _words(text: Any) -> Any:
    return " ".join(map(fold_key, text.split())) if isinstance(text, str) else text


def _fold_beside(value: Any, *, keys: bool) -> Any:
    """A part of a record with its conditions on other keys folded; ``keys``: and its own keys."""
    if isinstance(value, tuple | list):
        return tuple(_fold_beside(v, keys=False) for v in value)
    if not isinstance(value, dict):
        return value
    if keys:
        return {_words(k): _fold_beside(v, keys=False) for k, v in value.items()}
    beside = value.get("beside")
    if isinstance(beside, dict):
        return {**value, "beside": {fold_key(k): v for k, v in beside.items()}}
    return value


LINES: Database[LineRecord] = Database("launch line", "programs_db/dialects/lines", LineRecord)


@lru_cache(maxsize=128)
def _complete(record: LineRecord) -> LineRecord:
    found = record
    for name in record.inherits:
        found = _joined(found, LINES[name].complete())
    return found


def _joined(own: LineRecord, base: LineRecord) -> LineRecord:
    """A record with those keys of another that it does not have."""
    stated = own.stated()
    inherited: dict[str, tuple[Meaning, ...]] = {}
    for names, meanings in base.table().items():
        if left := [n for n in names if n not in stated]:
            inherited[" ".join(left)] = meanings
    known = {*stated, *(n for names in inherited for n in names.split())}
    no_effect = {k: _without(v, known) for k, v in own.no_effect.items()}
    listed = {w for v in no_effect.values() for w in v.split()}
    for reason, words in base.no_effect.items():
        more = _without(words, known | listed)
        no_effect[reason] = f"{no_effect.get(reason, '')} {more}".strip()
    absent: Mapping[str, tuple[Word, str]] = {**base.absent, **own.absent}
    return own.model_copy(
        update={
            "inherits": (),
            "keys": {**inherited, **own.keys},
            "program": {**base.program, **own.program},
            "absent": dict(absent),
            "implied": (*own.implied, *base.implied),
            "refused": (*own.refused, *base.refused),
            "exclusive": tuple(dict.fromkeys((*own.exclusive, *base.exclusive))),
            "no_effect": {k: v for k, v in no_effect.items() if v},
            "bare": f"{own.bare} {base.bare}".strip(),
            "file": own.file or base.file,
            "positional": own.positional or base.positional,
            "environment": {**base.environment, **own.environment},
            "notes": tuple(dict.fromkeys((*own.notes, *base.notes))),
        }
    )


def _without(words: str, known: set[str]) -> str:
    return " ".join(w for w in words.split() if w not in known)
