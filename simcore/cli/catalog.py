"""``simcore list`` and ``simcore show``: print entries of the databases, with sources."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Annotated, Any

import typer

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.cli.options import completion
from simcore.cli.output import terminal_width, write_result

#: Kinds that ``list`` and ``show`` know; the singular is accepted too.
LISTS = (
    "gpus", "models", "architectures", "configs", "nodes", "links", "strategies", "precisions",
    "optimizers", "collectives", "software", "dialects", "options", "calibrations", "fabrics",
    "instances", "prices",
)  # fmt: skip
SHOWS = ("gpu", "model", "node", "link", "program", "optimizer", "calibration", "fabric")
#: Kinds to their other names.
_ALSO = {
    "software": ("program", "programs"),
    "program": ("software",),
    "architectures": ("arch", "archs"),
}
_AS_JSON = Annotated[bool, typer.Option("--json", help="Print everything as JSON.")]


def _kind(word: str, known: tuple[str, ...]) -> str:
    """The kind that ``word`` names in singular or plural. Raises UnknownName, and UsageError where
    ``word`` is the name of an entry.
    """
    if kind := _kind_or_none(word, known):
        return kind
    if kind := _kind_of(word):
        raise UsageError(f"{word!r} is a {kind}: write `simcore show {word}`")
    raise UnknownName("kind", word, known)


def _kind_of(name: str) -> str:
    """The kind of the entry of that name; empty where there is none."""
    from simcore.hardware.calibrations import CALIBRATIONS
    from simcore.hardware.fabrics.record import FABRICS
    from simcore.report.catalog import DATABASES
    from simcore.strategy.programs import PROGRAMS

    others: dict[str, Any] = {"program": PROGRAMS, "calibration": CALIBRATIONS, "fabric": FABRICS}
    found = (kind for kind, held in {**DATABASES, **others}.items() if held.path(name))
    return next(found, "")


def _kind_or_none(word: str, known: tuple[str, ...]) -> str:
    """The kind that ``word`` names in singular or plural; empty where it is no kind."""
    folded = word.strip().lower()
    folded = next((kind for kind in known if folded in _ALSO.get(kind, ())), folded)
    for kind in known:
        singular = kind[:-3] + "y" if kind.endswith("ies") else kind.removesuffix("s")
        if folded in (kind, singular, singular + "s"):
            return kind
    return ""


def list_(
    kind: Annotated[
        str,
        typer.Argument(metavar="KIND", help=", ".join(LISTS), autocompletion=completion("list")),
    ],
    only: Annotated[
        str, typer.Argument(metavar="[PART]", help="Only names that contain this text.")
    ] = "",
    as_json: _AS_JSON = False,
) -> None:
    """List gpus, models, nodes, links, strategies, precisions, optimizers, software, options."""
    kind = _kind(kind, LISTS)
    from simcore.report import catalog
    from simcore.report.formatting import WIDTH

    found = catalog.listing(kind, only)
    write_result(
        as_json, lambda: found.data, lambda: found.fitted(terminal_width() or WIDTH) + "\n"
    )


def show(
    kind: Annotated[
        str,
        typer.Argument(metavar="[KIND]", help=", ".join(SHOWS), autocompletion=completion("show")),
    ],
    name: Annotated[
        str,
        typer.Argument(
            metavar="[NAME]",
            autocompletion=completion("shown"),
            help="Name or alias; without it, the list is printed.",
        ),
    ] = "",
    as_json: _AS_JSON = False,
    plot: Annotated[
        Path | None,
        typer.Option(
            "--plot",
            metavar="FILE",
            help="Draw a calibration's fits and data, or a fabric (.svg, .pdf or .png).",
        ),
    ] = None,
    job: Annotated[
        str,
        typer.Option(
            "--job",
            metavar="TEXT",
            help='The job whose groups share a fabric: "64x8xH100 tp8 pp4" (also cp, ep).',
        ),
    ] = "",
    network: Annotated[
        str | None,
        typer.Option("--network", metavar="LINK", help="Network of that job, as of predict."),
    ] = None,
) -> None:
    """Show the figures of a gpu, model, node, link, program, optimizer, calibration or fabric,
    with sources: `simcore show H100`.
    """
    if not name and not _kind_or_none(kind, SHOWS) and (found := _kind_of(kind)):
        kind, name = found, kind
    kind = _kind(kind, SHOWS)
    if kind != "fabric" and (job or network):
        raise InvalidConfig([f"--job and --network are for a fabric, not for a {kind}"])
    if not name and plot is None:
        list_(kind, as_json=as_json)
        return
    if plot is not None and kind not in ("calibration", "fabric"):
        raise InvalidConfig([f"--plot is for a calibration or a fabric, not for a {kind}"])
    if kind == "fabric":
        write_result(as_json, *_fabric(name, job, network, plot))
        return
    write_result(as_json, *_SHOWN.get(kind, _record)(kind, name, plot))


#: The content of one entry: as data for JSON, and as text.
Content = tuple[Callable[[], Any], Callable[[], str]]


def _record(kind: str, name: str, _plot: Path | None) -> Content:
    """An entry of a database, or a model of a vision library."""
    from simcore import api
    from simcore.report import catalog

    database = catalog.DATABASES[kind]
    other = kind == "model" and database.path(name) is None
    record = api.model_named(name) if other else database[name]
    return lambda: catalog.record_dict(record), lambda: catalog.render_record(record)


def _program(_kind: str, name: str, _plot: Path | None) -> Content:
    from simcore.report import programs

    return lambda: programs.program_dict(name), lambda: programs.render_program(name)


def _optimizer(_kind: str, name: str, _plot: Path | None) -> Content:
    from simcore.report import programs

    return lambda: programs.optimizer_dict(name), lambda: programs.render_optimizer(name)


def _calibration(_kind: str, name: str, plot: Path | None) -> Content:
    from simcore import api
    from simcore.calibrate.summaries import render_blind, render_calibration

    if plot is not None:
        from simcore.report import plots

        plots.write(plots.draw("calibration", api.calibration_curves(name)), plot)
    found = api.calibration(name)
    render = render_blind if "figures" in found else render_calibration
    return lambda: found, lambda: render(found)


def _fabric(name: str, job: str, network: str | None, plot: Path | None) -> Content:
    from simcore.answer.fabric_groups import fabric_view, view_dict
    from simcore.hardware.fabrics.record import fabric_named
    from simcore.report.links import render_fabric

    view = fabric_view(fabric_named(name), job, network)
    if plot is not None:
        from simcore.report import plots

        plots.write(plots.draw("fabric", view), plot)
    return lambda: view_dict(view), lambda: render_fabric(view)


_SHOWN = {"program": _program, "optimizer": _optimizer, "calibration": _calibration}
