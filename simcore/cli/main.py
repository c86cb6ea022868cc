"""The ``simcore`` command: the table of commands, and errors as messages and exit codes.

Nothing heavy is imported here, so that ``--help`` and completion answer at once: the module of a
command is imported when it runs or prints its help.
"""

from __future__ import annotations

import gc
import os
import re
import shlex
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from functools import lru_cache
from importlib import import_module
from itertools import takewhile, zip_longest
from pathlib import Path
from typing import Annotated, Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from simcore import __version__
from simcore.base.errors import SimcoreError, UsageError
from simcore.base.record import dataclass
from simcore.cli.output import PIPE_CLOSED, PipeClosedError, complain, write
from simcore.strategy.options import OPTIONS, Switch, spelt
from simcore.strategy.options.option import HEADINGS

# A prediction multiplies small arrays, for which the threads of a matrix library cost more than
# they gain.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
# Looking for pydantic plugins would read every installed package, and the records use none.
os.environ.setdefault("PYDANTIC_DISABLE_PLUGINS", "__all__")


@dataclass(frozen=True)
class Entry:
    """A command: its "module:function" below ``simcore.cli``, its line in ``simcore --help``.

    ``runs_script``: words after its first argument belong to the script that this names.
    """

    home: str
    short_help: str
    runs_script: bool = False

    def function(self) -> Callable[..., Any]:
        """The function that declares the command; imports its module."""
        module, _, name = self.home.partition(":")
        return getattr(import_module(f"simcore.cli.{module}"), name)


#: The commands, in the order of ``simcore --help``.
COMMANDS = {
    "predict": Entry("predict:predict", "Predict memory, step time and bottleneck of a job."),
    "compare": Entry("compare:compare", "Compare clusters: fit, speed, bottleneck, cost."),
    "sweep": Entry("sweep:sweep", "Rank all combinations of clusters and strategies."),
    "plan": Entry("plan:plan", "Find the best way to do a training run under limits."),
    "goodput": Entry("goodput:goodput", "Predict time lost to failures and checkpoints."),
    "fleet": Entry("fleet:fleet", "Simulate a queue of jobs: waiting and utilisation."),
    "report": Entry("report:report", "Write a prediction as one HTML file."),
    "validate": Entry("validate:validate", "Compare predictions with measured runs."),
    "trace-model": Entry("trace_model:trace_model", "Write an nn.Module as a model file."),
    "capture": Entry("capture:capture", "Run a training script dry and make it a job.", True),
    "calibrate": Entry(
        "calibrate:calibrate", "Benchmark this machine, or fit your own measured steps."
    ),
    "explain-trace": Entry(
        "explain_trace:explain_trace", "Break a profiler trace into a prediction's terms."
    ),
    "node-from-topo": Entry(
        "node_from_topo:node_from_topo", "Make a node description from nvidia-smi topo -m."
    ),
    "selftest": Entry("selftest:selftest", "Calibrate, predict, train for real, compare."),
    "serve": Entry("serve:serve", "Start a local web page and JSON API."),
    "list": Entry("catalog:list_", "List gpus, models, nodes, links, strategies..."),
    "config": Entry("config:config", "Show the files with defaults and their content."),
    "show": Entry("catalog:show", "Show figures of a gpu, model, node or link, with sources."),
}


#: Commands with fewer options list them without headings.
FEW = 25
#: The flag that prints the help of all options.
HELP_ALL = "--help-all"
#: Options that are not of a job and that the short help lists.
COMMON = (
    "explain", "scaling", "as_json", "plot", "emit", "save_dir", "by", "top", "output", "objective",
    "confidence", "budget", "samples", "batch", "max_gpus", "price", "help", "measured_step",
    "inference",
)  # fmt: skip
#: The heading of options that do not describe the job.
OWN = "Options"


def headings() -> tuple[str, ...]:
    """All headings, in the order of the help."""
    return (HEADINGS[0], OWN, *HEADINGS[1:])


def heading_of(name: str) -> str:
    """The heading of a parameter of a command."""
    option = OPTIONS.get(name)
    return OWN if option is None or option.part in ("length", "run") else option.heading


def _is_common(name: str) -> bool:
    """Whether the short help of a command lists this parameter."""
    option = OPTIONS.get(name)
    return name in COMMON if option is None else option.common or name in COMMON


def under_headings(params: Iterable[Any], *, many: bool = False) -> Iterator[tuple[str, list[Any]]]:
    """(heading, its parameters) for the parameters of a command; one heading for few parameters,
    unless they are some of ``many``.
    """
    params = list(params)
    if len(params) < FEW and not many:
        yield OWN, params
        return
    place = {option.name: i for i, option in enumerate(OPTIONS)}
    for heading in headings():
        found = [p for p in params if heading_of(p.name) == heading]
        yield heading, sorted(found, key=lambda p: place.get(p.name, -1))


#: Values of options that are written without one; a switch is on.
ALONE = {"--explain": "terms", "--lora-rank": "16"}


#: How a value of these types is made of what was typed; typer would import pydantic for it.
_MADE: Mapping[Any, Callable[[Any], Any]] = {
    str: str,
    Path: Path,
    list[str]: list,
    list[Path]: lambda texts: list(map(Path, texts)),
}


def _value(param: Any, ctx: Any, typed: Any, checked: Callable[[Any, Any], Any]) -> Any:
    """The value of a parameter; ``checked`` is typer's way, for values of other types."""
    make = _MADE.get(param.type_descriptor.annotation)
    if param.required if typed is None else make is None:
        return checked(ctx, typed)
    value = make(typed) if make and typed is not None else None
    return param.callback(ctx, param, value) if param.callback else value


class _Option(TyperOption):
    """An option of a command."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """The value that the command receives."""
        return _value(self, ctx, value, super().process_value)


class _Argument(TyperArgument):
    """An argument of a command."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """The value that the command receives."""
        return _value(self, ctx, value, super().process_value)


def _ours(param: Any) -> Any:
    """A parameter of typer with our class, for which typer has no argument."""
    if type(param) is TyperOption:
        param.__class__ = _Option
    elif type(param) is TyperArgument:
        param.__class__ = _Argument
    return param


class _Command(TyperCommand):
    """One command."""

    def get_params(self, ctx: Any) -> list[Any]:
        """Options and arguments, ``--help`` too."""
        return list(map(_ours, super().get_params(ctx)))

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Parse the words of a command line; flags may be spelt either way (quantized, -ised)."""
        if not ctx.allow_interspersed_args:  # they may be a script's own
            return super().parse_args(ctx, args)
        if HELP_ALL in args:
            ctx.meta[HELP_ALL] = True
            args = [word if word != HELP_ALL else "--help" for word in args]
        known = {flag for param in self.params for flag in param.opts}
        words = (word.partition("=") for word in with_values(args))
        both = [f"{spelt(flag, known)}{eq}{value}" for flag, eq, value in words]
        return super().parse_args(ctx, both)

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """Write the options in ``--help``, under headings where there are many."""
        every = self.get_params(ctx)
        arguments = [p for p in every if p.param_type_name == "argument"]
        options = [p for p in every if p.param_type_name == "option"]
        short = len(options) >= FEW and HELP_ALL not in ctx.meta
        shown = [p for p in options if _is_common(p.name)] if short else options
        parts = under_headings(shown, many=len(options) >= FEW)
        for heading, params in (("Arguments", arguments), *parts):
            if lines := [line for p in params if (line := p.get_help_record(ctx)) is not None]:
                with formatter.section(heading):
                    formatter.write_dl(lines)
        if short:
            others = len(options) - len(shown)
            formatter.write(f"\n{others} more options: {ctx.command_path} {HELP_ALL}\n")


def with_values(words: Sequence[str]) -> list[str]:
    """The words of a command line with the values that flags have alone: ``--compile`` is on."""
    alone = {o.typed: "on" for o in OPTIONS if isinstance(o.kind, Switch)} | ALONE
    found: list[str] = []
    for word, after in zip_longest(words, words[1:], fillvalue=""):
        found.append(word)
        if word in alone and (not after or after.startswith("-")):
            found.append(alone[word])
    return found


class _Commands(MutableMapping[str, Any]):
    """The parser's commands by name; each is built when it is first looked up."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}
        self._version = OPTIONS.version

    def __getitem__(self, name: str) -> Any:
        if self._version != OPTIONS.version:  # an option was registered in between
            self._built.clear()
            self._version = OPTIONS.version
        if name not in self._built:
            entry = COMMANDS[name]
            alone = typer.Typer(
                add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
            )
            settings = {"allow_interspersed_args": False} if entry.runs_script else None
            alone.command(
                name, cls=_Command, short_help=entry.short_help, context_settings=settings
            )(entry.function())
            self._built[name] = typer.main.get_command(alone)
        return self._built[name]

    def __contains__(self, name: object) -> bool:
        return name in COMMANDS

    def __iter__(self) -> Iterator[str]:
        return iter(COMMANDS)

    def __len__(self) -> int:
        return len(COMMANDS)

    def __setitem__(self, name: str, command: Any) -> None:
        raise TypeError(f"command {name!r} belongs into COMMANDS")

    def __delitem__(self, name: str) -> None:
        raise TypeError(f"command {name!r} stands in COMMANDS")


class CommandGroup(TyperGroup):
    """The group of all commands; listing them imports none of their modules."""

    def __init__(self, **words: Any) -> None:
        super().__init__(**words)
        self.commands = _Commands()

    def get_params(self, ctx: Any) -> list[Any]:
        """Options, ``--help`` too."""
        return list(map(_ours, super().get_params(ctx)))

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """Write the list of commands in ``simcore --help``."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.short_help) for name, entry in COMMANDS.items()])


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
