"""The commands: one line each; a command's module is imported when it runs or shows its options."""

from __future__ import annotations

from collections.abc import Callable, Iterator, MutableMapping
from dataclasses import dataclass
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand, TyperGroup, TyperOption

from simcore.strategy.options import OPTIONS


@dataclass(frozen=True, slots=True)
class Entry:
    """Where a command is written, and its line in the list of commands."""

    home: str  # "module:function" below ``simcore.cli``
    short_help: str

    def function(self) -> Callable[..., Any]:
        """The function that declares the command; imports its module."""
        module, _, name = self.home.partition(":")
        found: Callable[..., Any] = getattr(import_module(f"simcore.cli.{module}"), name)
        return found


#: In the order of ``simcore --help``.
COMMANDS = {
    "predict": Entry("predict:predict", "Does a job fit, how fast is it, what limits it."),
    "compare": Entry("compare:compare", "Clusters side by side: fit, speed, what binds, cost."),
    "sweep": Entry("sweep:sweep", "Every combination of clusters and strategies, ranked."),
    "plan": Entry("plan:plan", "The best way to do a training run under limits."),
    "goodput": Entry("goodput:goodput", "What failures and checkpoints leave of the time."),
    "fleet": Entry("fleet:fleet", "Many jobs on one cluster: waiting and utilisation."),
    "report": Entry("report:report", "A prediction as one HTML file, clusters side by side."),
    "validate": Entry("validate:validate", "Predictions beside measured runs."),
    "trace-model": Entry("trace_model:trace_model", "An nn.Module as a model file."),
    "calibrate": Entry(
        "calibrate:calibrate", "Benchmark this machine, or fit your own measured steps."
    ),
    "explain-trace": Entry(
        "explain_trace:explain_trace", "A measured step in a prediction's terms, beside it."
    ),
    "node-from-topo": Entry(
        "node_from_topo:node_from_topo", "A node description from nvidia-smi topo -m."
    ),
    "selftest": Entry("selftest:selftest", "Calibrate, predict, train for real, compare."),
    "serve": Entry("serve:serve", "A local web page and JSON API."),
    "list": Entry("catalog:list_", "Names: gpus, models, nodes, links, strategies..."),
    "config": Entry("show_config:config", "Defaults from files: where they are, what they say."),
    "show": Entry("catalog:show", "Every figure of a gpu, model, node or link, with its source."),
}


class _Option(TyperOption):
    """An option that nobody gave is not checked: each check builds a validator of its own."""

    def process_value(self, ctx: Any, value: Any) -> Any:
        """The value that the command gets."""
        plain = self.nargs == 1 and not (self.multiple or self.required or self.callback)
        return None if value is None and plain else super().process_value(ctx, value)


class _Command(TyperCommand):
    """One command."""

    def __init__(self, name: str | None, **words: Any) -> None:
        super().__init__(name, **words)
        for param in self.params:
            if type(param) is TyperOption:
                param.__class__ = _Option  # typer names the class of its options itself

    def format_options(self, ctx: Any, formatter: Any) -> None:
        """The options in ``--help``: many stand under headings."""
        from simcore.cli.headings import under_headings  # only help shows them

        every = self.get_params(ctx)
        arguments = [p for p in every if p.param_type_name == "argument"]
        options = [p for p in every if p.param_type_name == "option"]
        for heading, params in (("Arguments", arguments), *under_headings(options)):
            if lines := [line for p in params if (line := p.get_help_record(ctx)) is not None]:
                with formatter.section(heading):
                    formatter.write_dl(lines)


class _Commands(MutableMapping[str, Any]):
    """The parser's commands by name, each built when it is first looked up."""

    def __init__(self) -> None:
        self._built: dict[str, Any] = {}
        self._version = OPTIONS.version

    def __getitem__(self, name: str) -> Any:
        if self._version != OPTIONS.version:  # an option was registered since
            self._built.clear()
            self._version = OPTIONS.version
        if name not in self._built:
            entry = COMMANDS[name]
            alone = typer.Typer(
                add_completion=False, rich_markup_mode=None, pretty_exceptions_enable=False
            )
            alone.command(name, cls=_Command, short_help=entry.short_help)(entry.function())
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
    """The group of all commands; their list names them without importing one."""

    def __init__(self, **words: Any) -> None:
        super().__init__(**words)
        self.commands = _Commands()

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The list of commands in ``simcore --help``."""
        with formatter.section("Commands"):
            formatter.write_dl([(name, entry.short_help) for name, entry in COMMANDS.items()])
