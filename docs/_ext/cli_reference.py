"""The ``simcore-cli`` directive: every command and option, read from the command line itself."""

from __future__ import annotations

from typing import Any

import typer
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from simcore.cli.main import app


def _cell(text: str | None) -> str:
    return " ".join((text or "").split()).replace("|", "\\|")


def _commands(name: str, group: Any) -> list[tuple[str, Any]]:
    """Leaves of the tree of commands, named as they are typed."""
    if not hasattr(group, "commands"):
        return [(name, group)]
    return [
        leaf
        for sub, command in group.commands.items()
        if not command.hidden
        for leaf in _commands(f"{name} {sub}", command)
    ]


def markdown() -> str:
    """The reference as markdown: a section, a sentence and a table of options a command."""
    out: list[str] = []
    for name, command in _commands("simcore", typer.main.get_command(app)):
        context = typer.Context(command, info_name=name)
        usage = " ".join(command.collect_usage_pieces(context))
        out += [f"## {name}", "", "```text", f"{name} {usage}", "```", ""]
        paragraphs = (command.help or "").replace("\b", "").split("\n\n")
        out += [line for p in paragraphs for line in (" ".join(p.split()), "")]
        records = [p.get_help_record(context) for p in command.params]
        out += ["| word | meaning |", "|---|---|"]
        out += [f"| `{_cell(r[0])}` | {_cell(r[1])} |" for r in records if r]
        out.append("")
    return "\n".join(out)


class CliReference(SphinxDirective):
    """Sections of ``markdown()`` in place of the directive."""

    has_content = False

    def run(self) -> list[nodes.Node]:
        return self.parse_text_to_nodes(markdown(), allow_section_headings=True)


def setup(app: Sphinx) -> dict[str, bool]:
    """Register the directive."""
    app.add_directive("simcore-cli", CliReference)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
