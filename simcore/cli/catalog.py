"""``simcore list`` and ``simcore show``: print entries of the databases, with sources."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simcore.cli import names
from simcore.cli.output import terminal_width, write

#: Kinds to their other names.
_ALSO = {"software": ("program", "programs"), "program": ("software",)}
_AS_JSON = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def _kind(word: str, known: tuple[str, ...]) -> str:
    """The kind that ``word`` names in singular or plural. Raises UnknownName, and UsageError where
    ``word`` is the name of an entry.
    """
    from simcore.base.errors import UnknownName, UsageError

    folded = word.strip().lower()
    folded = next((kind for kind in known if folded in _ALSO.get(kind, ())), folded)
    for kind in known:
        singular = kind[:-3] + "y" if kind.endswith("ies") else kind.removesuffix("s")
        if folded in (kind, singular, singular + "s"):
            return kind
    if kind := _kind_of(word):
        raise UsageError(f"{word!r} is a {kind}: write `simcore show {kind} {word}`")
    raise UnknownName("kind", word, known)


def _kind_of(name: str) -> str:
    """The kind of the database that has an entry of that name; empty if there is none."""
    from simcore.report.catalog import DATABASES

    return next((kind for kind, held in DATABASES.items() if held.path(name)), "")


def list_(
    kind: Annotated[
        str, typer.Argument(metavar="KIND", help=", ".join(names.LISTS), autocompletion=names.kinds)
    ],
    only: Annotated[
        str, typer.Argument(metavar="[PART]", help="Only names that contain this text.")
    ] = "",
    as_json: _AS_JSON = False,
) -> None:
    """List gpus, models, nodes, links, strategies, precisions, optimizers, software, options."""
    kind = _kind(kind, names.LISTS)
    from simcore.report import catalog

    header, rows, data = catalog.listing(kind, only)
    if as_json:
        from simcore.report.jsonout import dumps

        write(dumps(data))
        return
    from simcore.report.tables import table, wrapped_table

    right, width = catalog.NUMERIC.get(kind, ()), terminal_width()
    # In a pipe each row is one line, however long.
    text = wrapped_table(header, rows, width, right=right) if width else table(
        header, rows, right=right
    )  # fmt: skip
    write(text + "\n")


def show(
    kind: Annotated[
        str,
        typer.Argument(
            metavar="KIND", help=", ".join(names.SHOWS), autocompletion=names.shown_kinds
        ),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]",
            autocompletion=names.show_name,
            help="Name or alias; without it, the list is printed.",
        ),
    ] = "",
    as_json: _AS_JSON = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot", metavar="FILE", help="Plot fits and data of a calibration (.png or .svg)."
        ),
    ] = None,
) -> None:
    """Show the figures of a gpu, model, node, link, program, optimizer or calibration, with
    sources.
    """
    kind = _kind(kind, names.SHOWS)
    if not name and plot is None:
        list_(kind, as_json=as_json)
        return
    if kind == "calibration":
        _show_calibration(name, as_json, plot)
        return
    if plot is not None:
        from simcore.base.errors import InvalidConfig

        raise InvalidConfig([f"--plot is for a calibration, not for a {kind}"])
    if kind in ("program", "optimizer"):
        _show_program(kind, name, as_json)
        return
    from simcore.report import catalog

    record: Any = _record(kind, name)
    if as_json:
        from simcore.report.jsonout import dumps, finite

        write(dumps(finite(catalog.record_dict(record))))
        return
    write(catalog.render_record(record))


def _record(kind: str, name: str) -> Any:
    """An entry of a database, or a model of a vision library."""
    from simcore.report import catalog

    if kind == "model" and (":" in name or _is_alias(name)):
        from simcore import api

        return api.model_named(name)
    return catalog.DATABASES[kind][name]


def _show_program(kind: str, name: str, as_json: bool) -> None:
    from simcore.report import programs

    as_data, as_text = {
        "program": (programs.program_dict, programs.render_program),
        "optimizer": (programs.optimizer_dict, programs.render_optimizer),
    }[kind]
    if as_json:
        from simcore.report.jsonout import dumps

        write(dumps(as_data(name)))
        return
    write(as_text(name))


def _is_alias(name: str) -> bool:
    """Whether a name stands for a model with options (``models_db/aliases``)."""
    from simcore.workload.model_aliases import alias_named
    from simcore.workload.models import MODELS

    return MODELS.path(name) is None and alias_named(name) is not None


def _show_calibration(name: str, as_json: bool, plot: Path | None) -> None:
    from simcore import api

    if plot is not None:
        from simcore.report import plots

        plots.write(plots.draw("calibration", api.calibration_curves(name)), plot)
    found = api.calibration(name)
    if as_json:
        from simcore.report.jsonout import dumps, finite

        write(dumps(finite(found)))
        return
    if "figures" in found:
        from simcore.calibrate.blind import render_blind

        write(render_blind(found))
        return
    from simcore.calibrate.summaries import render_calibration

    write(render_calibration(found))
