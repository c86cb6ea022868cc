"""The table of commands; the module of a command is imported when it runs or prints its help."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, MutableMapping, Sequence
from importlib import import_module
from itertools import zip_longest
from pathlib import Path
from typing import Any

import typer
from typer.core import TyperArgument, TyperCommand, TyperGroup, TyperOption

from simcore.base.record import dataclass
from simcore.strategy.options import OPTIONS, Switch, spelt
from simcore.strategy.options.option import HEADINGS


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
