"""Other people's launch files: read into simcore's words, and written from them.

``read_launch("ds_config.json")`` finds the dialect by the text; ``emit`` writes a job down. A new
dialect is one entry of ``DIALECTS``: a ``KeyedDialect``, where each of its keys means an option, or
a file with a class of its own, whose name stands in ``FILES``.
"""

from __future__ import annotations

from importlib import import_module

from simcore.base.errors import UsageError
from simcore.strategy.dialects.base import DIALECTS, Dialect, Emitted, Job, Launch, Unsupported
from simcore.strategy.dialects.keyed import KeyedDialect
from simcore.strategy.dialects.source import Source, read_source

#: In the order in which they are asked whether a text is theirs.
FILES = ("accelerate", "deepspeed", "torchtitan", "slurm", "megatron", "torchrun")

for _name in FILES:
    import_module(f"simcore.strategy.dialects.{_name}")


def dialects() -> tuple[str, ...]:
    """Names of all dialects, in the order in which they are asked whether a text is theirs."""
    return (*(name for name in DIALECTS if name not in FILES), *FILES)


def find_dialect(source: Source) -> Dialect:
    """The first dialect that claims the text. Raises UsageError that names what is known."""
    for name in dialects():
        if DIALECTS[name].claims(source):
            return DIALECTS[name]
    if not source.text.strip():
        raise UsageError(f"{source.where} is empty: no launch file")
    known = "; ".join(f"{d}: {DIALECTS[d].summary}" for d in sorted(DIALECTS))
    raise UsageError(f"{source.where} is no launch file that is known ({known})")


def read_launch(text: str) -> Launch:
    """A launch file, or a quoted line of flags, in simcore's words.

    ``DIALECT:FILE`` names the dialect where the text alone does not tell. Raises DataError for a
    file that is missing, too large or malformed; what cannot be used is listed in the result.
    """
    name, colon, rest = text.partition(":")
    if colon and name in DIALECTS:
        return DIALECTS[name].read(read_source(rest))
    source = read_source(text)
    return find_dialect(source).read(source)


def emit(dialect: str, job: Job) -> Emitted:
    """The job as a launch file. Raises UnknownName, or InvalidConfig with all it cannot say."""
    return DIALECTS[dialect].emit(job)


__all__ = [
    "DIALECTS", "FILES", "Dialect", "Emitted", "Job", "KeyedDialect", "Launch", "Source",
    "Unsupported", "dialects", "emit", "find_dialect", "read_launch", "read_source",
]  # fmt: skip
