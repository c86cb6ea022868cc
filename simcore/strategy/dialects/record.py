"""The record of a dialect (``programs_db/dialects``): what each key of a launch file means.

One table serves both directions. To read a file, each key that it has is looked up, and what the
key means is stated; to write one, the keys are looked up whose meaning is the job's. Conditions
are equalities of values, so that a record needs no code. What they cannot express is a function
of the dialect's module (``keyed.TableDialect``).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any, Literal

from simcore.base.database import Database
from simcore.base.figures import Part, Record, entry
from simcore.strategy.layout import DEGREES
from simcore.strategy.options import OPTIONS
from simcore.workload.archs.formulas import formula

Word = str | int | float | bool
#: Values with which a condition holds. ``any``: any value; null: no value; ``on``: true.
Wanted = Word | tuple[Word | None, ...] | None
Conditions = dict[str, Wanted]
#: Texts of true and of false.
TRUE = ("true", "yes", "on", "1")
FALSE = ("false", "no", "off", "0")


def fold(value: object) -> str:
    """A value of a launch file as it is compared: its text in lower case."""
    return str(value).strip().lower()


def _met(conditions: Conditions, facts: Mapping[str, Any]) -> bool:
    for name, wanted in conditions.items():
        value = facts.get(name)
        allowed = wanted if isinstance(wanted, tuple) else (wanted,)
        anything = value is not None and "any" in allowed
        if not (value in allowed or anything or ("on" in allowed and value in TRUE)):
            return False
    return True


class Clause(Part):
    """Something that holds for jobs or files with these values.

    when      conditions on options (or parts of them: ``offload.params``), all of which hold
    unless    conditions on options that must not hold together
    beside    conditions on other keys of the file, whose values are compared in lower case
    """

    when: Conditions = entry(default_factory=dict)
    unless: Conditions = entry(default_factory=dict)
    beside: Conditions = entry(default_factory=dict)

    def holds(self, facts: Mapping[str, Any], keys: Mapping[str, Any]) -> bool:
        """``facts``: options and their values; ``keys``: keys of the file and their values."""
        folded = {k: fold(keys[k]) for k in self.beside if keys.get(k) is not None}
        excepted = bool(self.unless) and _met(self.unless, facts)
        return _met(self.when, facts) and _met(self.beside, folded) and not excepted


class Meaning(Clause):
    """What a key means.

    option        what it states: an option (or a part of one: ``offload.params``), ``model``,
                  ``global_batch``, ``n_gpus``, a setting of the model (``set.loss``), or another
                  fact of the job on which conditions may depend (``other.fsdp_version``)
    read          how its value is read, where not as the option's kind. whole: a whole number;
                  degree: one of which 1 and less state nothing; count: the same of 0 and less;
                  positive: whether a number is above zero; flag: true or false; free: a value that
                  is not in ``values`` is the option's own
    values        its values, and the value of the option that each means (null: none that can be
                  predicted); of several values with one meaning, the first one is written
    absent        the program's value where the key is absent
    assumed       what is predicted where the key is absent, if the program's value is not known
    implies       values of further options that it states by being present
    refused       why the key cannot be predicted; ``instead``: the option that can replace it
    approximated  what is predicted instead of following the key (if it states an option: instead
                  of values that are no names of the option)
    partly        value to what is predicted instead of following that value
    harmless      values with which a refused or approximated key changes nothing
    unsupported   why a value of ``values`` without meaning cannot be predicted
    missing       why the file cannot be predicted without the key
    otherwise     what is wrong with a value that is not in ``values``
    automatic     whether another program may fill in the key, so that ``auto`` means nothing
    names_file    dialect of the file that its value names, which is read too
    section       whether the key is a whole section, which counts by being there
    written       whether the key is written; old names are only read
    """

    option: str = ""
    read: Literal["", "whole", "degree", "count", "positive", "flag", "free"] = ""
    values: dict[str, Word | None] = entry(default_factory=dict)
    absent: Word | None = None
    assumed: str = ""
    implies: dict[str, Word] = entry(default_factory=dict)
    refused: str = ""
    instead: str | None = None
    approximated: str = ""
    partly: dict[str, str] = entry(default_factory=dict)
    harmless: tuple[Word, ...] = ()
    unsupported: str = ""
    missing: str = ""
    otherwise: str = ""
    automatic: bool = False
    names_file: str = ""
    section: bool = False
    written: bool = True


class Implied(Clause):
    """Options that the program sets by itself.

    options   values, or formulas of what is stated (``=4 * n_embd`` of ``other.n_embd``)
    because   the key that says so, or the fact that a key states
    """

    options: dict[str, Word]
    because: str


def value_of(word: Word, facts: Mapping[str, Any]) -> Word | None:
    """A value of ``Implied.options``; None for a formula of what is not stated."""
    if not (isinstance(word, str) and word.startswith("=")):
        return word
    named: defaultdict[str, Any] = defaultdict(lambda: None)
    for name, value in facts.items():
        whole = isinstance(value, float) and value.is_integer()
        named[name.removeprefix("other.")] = int(value) if whole else value
    try:
        found: Word | None = formula(word[1:])(named)
    except (TypeError, ZeroDivisionError):
        return None
    return found


class Written(Clause):
    """Keys that are written as they are."""

    keys: dict[str, Word | tuple[str, ...]]


class Refused(Clause):
    """A combination that the program does not have, by its value of ``option``."""

    option: str
    why: str = ""


class DialectRecord(Record):
    """One launch format.

    form          of its files
    marks         texts of which a file of this program has at least one; none: the form suffices
    expected      keys of which a file states at least one if it changes the prediction at all
    sections      sections in which keys of the option table may be
    program       software, issuer and overlap of the program that reads the file
    keys          key (or several names of one key, separated by blanks) to its meaning, or to
                  several with conditions, of which the first one holds that can
    absent        option to its value where no key states it, and why
    implied       what follows from what the keys state
    exclusive     options that only one key of a file may state
    automatic     value that another program replaces by its own, and what an error says about it
    no_effect     why keys do not change the prediction -> the keys; ``SECTION.*``: all of a section
    written       keys that a written file has besides those of options
    refused       combinations that can neither be read nor written
    bare          flags of its launch line that take no value
    unsettable    options that neither the file nor the training script can set
    """

    title: str
    summary: str
    source: str = ""
    form: Literal["json", "toml", "yaml", "flags"]
    marks: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    sections: tuple[str, ...] = ()
    program: dict[str, str] = entry(default_factory=dict)
    keys: dict[str, tuple[Meaning, ...]] = entry(default_factory=dict)
    absent: dict[str, tuple[Word, str]] = entry(default_factory=dict)
    implied: tuple[Implied, ...] = ()
    exclusive: tuple[str, ...] = ()
    automatic: tuple[str, str] | None = None
    no_effect: dict[str, str] = entry(default_factory=dict)
    written: tuple[Written, ...] = ()
    refused: tuple[Refused, ...] = ()
    bare: str = ""
    unsettable: tuple[str, ...] = ()

    @classmethod
    def as_written(cls, raw: Any) -> Any:
        """One meaning of a key is several."""
        if not isinstance(raw, dict) or not isinstance(keys := raw.get("keys"), dict):
            return raw
        return {**raw, "keys": {k: (m,) if isinstance(m, dict) else m for k, m in keys.items()}}

    def table(self) -> dict[tuple[str, ...], tuple[Meaning, ...]]:
        """Names of each key and its meanings, with the keys that the option table has."""
        found = {tuple(names.split()): meanings for names, meanings in self.keys.items()}
        stated = {name for names in found for name in names}
        own: dict[str, list[str]] = {}
        for key, option in OPTIONS.launch_keys(self.name).items():
            names = [f"{s}.{key}" for s in self.sections] or [key]
            if not stated & set(names):
                own.setdefault(option, []).extend(names)
        direct = {
            tuple(keys): (Meaning(option=option, read="degree" if option in DEGREES else ""),)
            for option, keys in own.items()
        }
        return {**direct, **found}

    def without_effect(self) -> tuple[frozenset[str], tuple[str, ...]]:
        """Keys, and sections, that do not change the prediction."""
        words = [word for keys in self.no_effect.values() for word in keys.split()]
        sections = tuple(w.removesuffix(".*") for w in words if w.endswith(".*"))
        return frozenset(w for w in words if not w.endswith(".*")), sections


RECORDS: Database[DialectRecord] = Database("dialect", "programs_db/dialects", DialectRecord)
