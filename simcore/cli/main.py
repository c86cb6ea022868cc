"""Entry point of the ``simcore`` command; turns errors into messages and exit codes.

Nothing heavy is imported here, so that ``--help`` and completion answer at once.
"""

from __future__ import annotations

import gc
import os
import re
import shlex
import sys
from collections.abc import Sequence
from functools import lru_cache
from itertools import takewhile
from typing import Annotated, Any

import typer

# A prediction multiplies small arrays, for which the threads of a matrix library cost more than
# they gain.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Looking for pydantic plugins would read every installed package, and the records use none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")

from simcore import __version__
from simcore.base.errors import SimcoreError, UsageError
from simcore.cli.commands import CommandGroup
from simcore.cli.output import PIPE_CLOSED, PipeClosedError, complain, write

USAGE, INTERNAL, INTERRUPTED = 2, 70, 130
#: Base of every error of the command line parser (click, or typer's own copy of it).
_PARSER_ERROR: Any = typer.BadParameter.__mro__[2]

WELCOME = """\
simcore predicts time, memory and scaling of a GPU training job before it starts.

  simcore predict --model latte-xl --gpus 4x8xA6000ada
  simcore predict --model gpt2-xl --gpus 8xH100 --strategy zero2 --micro-batch max
  simcore predict --model bert-base --gpus 1x2xA100+1x3xT4 --explain comm

Runs offline, needs no GPU. Every default is marked, every figure has a source.
  simcore list models      simcore list gpus      simcore show gpu A6000ada
  simcore validate FILE    errors on your measured runs
  simcore predict --help   every option; simcore --help every command
"""

#: Commands of which the words after ``--`` are the line that starts a job.
_OF_A_LINE = (["predict"], ["plan"], ["sweep"], ["compare"], ["report"])
_HELP_FLAGS = {"-h", "--help", "--help-all"}
#: The parser's message about an unknown command.
_NO_COMMAND = re.compile(r"No such command '(.+?)'")
#: The parser's message about words that belong to no option.
_STRAY = re.compile(r"Got unexpected extra argument(?:s|\(s\))? \((.+)\)")
_HELP = """Predict time, memory and scaling of a GPU training job before it starts.

\b
  simcore predict --model latte-xl --gpus 4x8xA6000ada
  simcore predict --model gpt2-xl --gpus 8xH100 --micro-batch max
  simcore list models          simcore list gpus
  simcore show gpu A6000ada    figures with their sources

Exit codes: 0 it fits, 1 it does not, 2 the command or a file is wrong.
"""

app = typer.Typer(
    name="simcore",
    cls=CommandGroup,
    help=_HELP,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    invoke_without_command=True,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback()
def _root(
    ctx: typer.Context,
    version: Annotated[bool, typer.Option("--version", help="Print the version.")] = False,
    debug: Annotated[
        bool, typer.Option("--debug", help="Print tracebacks of errors; may stand anywhere.")
    ] = False,
) -> None:
    if version:
        write(f"simcore {__version__}\n")
        raise typer.Exit
    if ctx.invoked_subcommand is None:
        write(WELCOME)


@lru_cache(maxsize=1)
def _parser() -> Any:
    return typer.main.get_command(app)


def run(argv: Sequence[str]) -> int:
    """Run one command line and return the exit code. Errors are printed to standard error."""
    own = len([*takewhile("--".__ne__, argv)])  # those that follow are of another program
    if argv[:1] == ["capture"]:  # as are those after the script's name
        own = min(own, 2)
    words = [a for i, a in enumerate(argv) if a != "--debug" or i >= own]
    debugged = len(words) < len(argv)
    if words[:1] == ["help"]:  # as git and others have it
        words = [*words[1:], "--help"]
    try:
        if words[:1] in _OF_A_LINE:
            words = _with_line(words)
        if words[:1] == ["predict"] and "--watch" in words and not _HELP_FLAGS & set(words):
            from simcore.cli.watch import watch

            return watch(words)
        code = _parser().main(args=words, prog_name="simcore", standalone_mode=False)
        return code if isinstance(code, int) else 0
    except SystemExit as err:  # shell completion ends this way
        return err.code if isinstance(err.code, int) else 0
    except PipeClosedError:
        return PIPE_CLOSED
    except (KeyboardInterrupt, typer.Abort) as err:
        if isinstance(err.__cause__, EOFError):  # the parser mistakes an EOFError for an abort
            return _report(err.__cause__, words)
        return INTERRUPTED
    except Exception as err:
        if debugged:
            raise
        return _report(err, words)


def _with_line(words: Sequence[str]) -> list[str]:
    """``words`` with what follows ``--``, as the line that starts a job, under ``--launch``.

    Raises UsageError where ``--launch`` is given too.
    """
    before = [*takewhile("--".__ne__, words)]
    line = [*words[len(before) + 1 :]]
    if not line:
        return [*words]
    if any(word.partition("=")[0] == "--launch" for word in before):
        raise UsageError("--launch and a line after -- are both given: leave one of them out")
    return [*before, "--launch", line[0] if len(line) == 1 else shlex.join(line)]


def _report(err: Exception, words: Sequence[str]) -> int:
    if isinstance(err, SimcoreError):
        for sentence in err.sentences:
            complain(f"error: {sentence}")
        return err.exit_code
    if isinstance(err, _PARSER_ERROR):
        complain(f"error: {_parser_sentence(err, words)}")
        return USAGE
    if isinstance(err, OSError):  # a full disk, a folder that is gone: the system's, not ours
        place = f"{err.filename!r}: " if err.filename else ""
        complain(f"error: {place or _folder_gone()}{err.strerror or err}")
        return USAGE
    if isinstance(err, MemoryError):
        complain("error: this needs more memory than the machine gives")
        return USAGE
    what = " ".join(f"{type(err).__name__}: {err}".split())
    complain(f"internal error: {what} (run with --debug for the traceback)")
    return INTERNAL


def _folder_gone() -> str:
    """Text for an error that names no file: most often the current folder was deleted."""
    try:
        os.getcwd()  # noqa: PTH109 (pathlib would be loaded for it)
    except OSError:
        return "the current folder no longer exists: "
    return ""


def _parser_sentence(err: Any, words: Sequence[str]) -> str:
    """The parser's error as one sentence that suggests the nearest option and names the help."""
    from simcore.cli.synonyms import command_meant, option_meant

    text = " ".join(str(err.format_message()).split()).rstrip(".")
    context, option = getattr(err, "ctx", None), getattr(err, "option_name", None)
    if option and context is not None and getattr(err, "possibilities", None) is not None:
        meant = option_meant(option, [o for p in context.command.params for o in p.opts])
        text = f"unknown option {option}" + (f": did you mean {meant}?" if meant else "")
    if context is not None and (typo := _NO_COMMAND.match(text)):
        meant = command_meant(typo[1], context.command.list_commands(context))
        text = f"unknown command {typo[1]!r}" + (f": did you mean {meant!r}?" if meant else "")
    if (param := getattr(err, "param", None)) is not None and text.startswith("Missing"):
        text += f": {param.help.rstrip('.')}" if getattr(param, "help", None) else ""
    names = {p.name for p in context.command.params} if context is not None else set()
    if (stray := _STRAY.match(text)) and {"model", "gpus"} <= names:
        text = f"{stray[1]!r} belongs to no option: write --model NAME --gpus CLUSTER"
    command = "" if not words or words[0].startswith("-") else f" {words[0]}"
    path = f"simcore{command}" if context is None else context.command_path
    return f"{text[:1].lower()}{text[1:]} (`{path} --help`)"


def main(argv: Sequence[str] | None = None) -> None:
    """The console script."""
    gc.disable()  # the process ends after one answer
    for stream in (sys.stdout, sys.stderr):
        if hasattr(stream, "reconfigure"):
            stream.reconfigure(errors="replace")
    code = run(sys.argv[1:] if argv is None else argv)
    gc.freeze()  # frozen objects are skipped by the collection when the interpreter ends
    sys.exit(code)


if __name__ == "__main__":
    main()
