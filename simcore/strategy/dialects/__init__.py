"""Launch files of other programs: read into simcore's options, and written from them.

``read_launch("ds_config.json")`` finds the dialect from the text; ``emit`` writes a job as a file.
A new dialect is a record in ``programs_db/dialects``; if a record cannot express all of it, also a
module here, whose name is added to ``MODULES``.
"""

from __future__ import annotations

from importlib import import_module

from simcore.base.errors import DataError, SimcoreError, UsageError, nearest
from simcore.base.lookup import one_question
from simcore.strategy.dialects.base import Emitted, Job, Launch, Unsupported
from simcore.strategy.dialects.calls import PYTHON
from simcore.strategy.dialects.keyed import DIALECTS, TableDialect
from simcore.strategy.dialects.line_choice import commands, line_programs
from simcore.strategy.dialects.line_record import LINES
from simcore.strategy.dialects.lines import FILES, LineDialect
from simcore.strategy.dialects.record import RECORDS, DialectRecord
from simcore.strategy.dialects.source import Source, read_source, script_run

#: Dialects that need a module, which registers them.
MODULES = ("accelerate", "slurm", "torchtitan", "megatron", "torchrun")
#: Modules that read what records of programs' arguments cannot express.
LINE_MODULES = ("trainer", "axolotl", "torchtune", "sums", "primus", "megatron_sections")
#: First words of launchers' lines.
LAUNCHER_WORDS = (
    "accelerate", "composer", "deepspeed", "fabric", "lightning", "python", "torchrun",
)  # fmt: skip
#: Dialects of the package, in the order in which they are tried on a text.
SHIPPED = ("accelerate", "deepspeed", *MODULES[1:])

for _name in (*MODULES, *LINE_MODULES):
    import_module(f"simcore.strategy.dialects.{_name}")
for _name in RECORDS.names():
    if _name not in DIALECTS:
        DIALECTS.register(_name)(TableDialect(_name))


def dialects() -> tuple[str, ...]:
    """Names of all dialects, in the order in which they are tried on a text."""
    return (*(name for name in DIALECTS if name not in SHIPPED), *SHIPPED)


@one_question()
def find_dialect(source: Source) -> TableDialect:
    """The dialect that claims the text; of several, the one that knows most keys of the file.

    Raises UsageError with the known formats, or with the dialects between which nothing decides.
    """
    claiming = [d for name in dialects() if (d := DIALECTS[name]).claims(source)]
    if source.suffix in (*FILES, *PYTHON):
        claiming = [] if source.suffix == ".ipynb" else claiming
        claiming += [d for d in map(LineDialect, line_programs()) if d.claims(source)]
        if len(claiming) > 1:
            known = {d.name: d.knows(source) for d in claiming}
            claiming = [d for d in claiming if known[d.name] == max(known.values())]
        if len(claiming) > 1:
            names = " or ".join(f"--launch {d.name}:{source.where}" for d in claiming)
            raise UsageError(f"{source.where} may be of several programs: write {names}")
    if claiming:
        return claiming[0]
    if not source.text.strip():
        raise UsageError(f"{source.where} is empty: no launch file")
    if source.path is None:
        raise UsageError(_not_started(source.text.split()[0]))
    known_names = ", ".join(sorted(DIALECTS))
    raise UsageError(
        f"{source.where} is no launch file of a known format ({known_names}), nor a file of "
        "arguments of a known program (docs/dialects.md lists both)"
    )


def _not_started(word: str) -> str:
    """The message for a line whose first word starts nothing known."""
    known = {*LAUNCHER_WORDS, *(words[0] for words in commands())}
    if word in known:
        return f"launch line: {word!r} starts no script or module here (docs/dialects.md)"
    near = nearest(word, sorted(known), 1)
    hint = f": did you mean {near[0]!r}?" if near else ""
    return (
        f"launch line: {word!r} is neither a launcher nor a program whose arguments are known"
        f"{hint} (docs/dialects.md lists them; options such as --model and --strategy say the same)"
    )


def dialect_named(name: str) -> TableDialect:
    """A dialect, or a program whose arguments are read, by name. Raises UnknownName."""
    return LineDialect(name) if name in line_programs() else DIALECTS[name]


def title_of(launch: Launch) -> str:
    """The usual name of the program that a launch file is of."""
    return dialect_named(launch.dialect).title


@one_question()
def read_launch(text: str) -> Launch:
    """A launch file, or a quoted line of flags, as simcore's options.

    ``DIALECT:FILE`` names the dialect where the text alone does not show it. Raises DataError for a
    file that is missing, too large or malformed. Keys that cannot be used are listed in the result.
    """
    name, colon, rest = text.partition(":")
    if colon and (name in DIALECTS or name in line_programs()):
        return _read(dialect_named(name), read_source(rest))
    source = read_source(text)
    try:
        dialect = find_dialect(source)
    except UsageError:
        source = script_run(source)
        dialect = find_dialect(source)
    return _read(dialect, source)


def _read(dialect: TableDialect, source: Source) -> Launch:
    """What a dialect reads of a source. Raises DataError, also for values of an unusual form.

    A key may hold anything: a list where a text is usual, a table where a number is.
    """
    try:
        return dialect.read(source)
    except SimcoreError:
        raise
    except (TypeError, AttributeError, KeyError, IndexError, ValueError):
        raise DataError(
            f"has a value of another form than {dialect.title} takes", file=source.where
        ) from None


@one_question()
def emit(dialect: str, job: Job) -> Emitted:
    """The job as a launch file. Raises UnknownName, or InvalidConfig with all it cannot express."""
    return DIALECTS[dialect].emit(job)


__all__ = [
    "DIALECTS", "LINES", "LINE_MODULES", "MODULES", "SHIPPED", "DialectRecord", "Emitted", "Job",
    "Launch", "Source", "TableDialect", "Unsupported", "dialects", "emit", "find_dialect",
    "line_programs", "read_launch", "read_source", "title_of",
]  # fmt: skip
