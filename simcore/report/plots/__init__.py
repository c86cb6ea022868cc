"""Plots of results. They use matplotlib's Figure, never pyplot.

Each kind in ``KINDS`` has a function ``draw(data) -> Figure``. Its module imports matplotlib, so
only ``draw`` below imports it. A new kind needs one module and one entry in ``KINDS``.
"""

from __future__ import annotations

import io
import re
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from simcore.base.errors import UnknownName, UsageError
from simcore.base.names import printable

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Kind -> what it shows.
KINDS = {
    "overview": "where the time of a step and the memory of a GPU go",
    "time": "step time, stacked by term, of one prediction or several",
    "memory": "memory of the fullest GPU at its peak, stacked by term, with the device limit",
    "memory-over-step": "memory after every allocation of one step, with the device limit",
    "scaling": "speed-up and efficiency against GPUs, with intervals and measured points",
    "roofline": "the model's ops against peak and bandwidth",
    "timeline": "when each stream works in one step",
    "pareto": "samples a second against GPUs or memory, with the Pareto front of what fits",
    "trade-off": "a plan's options: time to train against cost, with their Pareto front",
    "goodput": "share of the time that is useful against the time between checkpoints",
    "sensitivity": "step time with half and twice of each resource",
    "measured": "predicted against measured rows",
    "errors": "errors of predicted step times, and how many measurements lie inside 80 %",
    "fabric": "switches and links of a fabric, and the share of its rate that each group gets",
    "calibration": "a machine's fits against its own measurements",
}
#: Kinds that several share a module: ``module:function``. Else the module's name is the kind with
#: underscores for hyphens, and the function is ``draw``.
_SHARED = {
    **{kind: f"bars:draw_{kind}" for kind in ("overview", "time", "memory")},
    **{kind: f"validation:draw_{kind}" for kind in ("measured", "errors")},
}
FORMATS = ("svg", "pdf", "png")
_DPI = 150
#: The paths of an SVG, and their coordinates with more than two decimals.
_PATH, _LONG = re.compile(r' d="[^"]*"'), re.compile(r"-?\d+\.\d{3,}")
#: matplotlib's settings belong to the whole process, so one thread changes them at a time.
_SETTINGS = Lock()
#: A fixed salt makes equal plots equal files; text is written as text, so that readers can select
#: it.
_SVG = {"svg.hashsalt": "simcore", "svg.fonttype": "none"}
#: A name is text: a dollar in it begins no formula.
_TEXT = {"text.parse_math": False}
#: Fonts for a page. DejaVu Sans, with which matplotlib lays text out, is the widest of them.
_FONTS = "DejaVu Sans, Verdana, system-ui, sans-serif"


def draw(kind: str, data: Any) -> Figure:
    """The plot of ``data`` of a kind in ``KINDS``.

    Raises UnknownName for another kind, UsageError if matplotlib is not installed.
    """
    if kind not in KINDS:
        raise UnknownName("plot", kind, KINDS)
    require_matplotlib()
    module, _, name = _SHARED.get(kind, f"{kind.replace('-', '_')}:draw").partition(":")
    import matplotlib
    from matplotlib.text import Text

    with _SETTINGS, matplotlib.rc_context(_TEXT):
        figure: Figure = getattr(import_module(f"{__name__}.{module}"), name)(data)
    for text in figure.findobj(Text):
        if (plain := printable(text.get_text())) != text.get_text():
            text.set_text(plain)
    return figure


def require_matplotlib(what: str = "a plot", extra: str = "plot") -> None:
    """Raises UsageError if matplotlib is not installed.

    The message says that ``what`` needs it and that simcore's ``extra`` installs it.
    """
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise UsageError(f"{what} needs matplotlib: pip install '.[{extra}]'") from None


def write(figure: Figure, path: Path) -> None:
    """Write a figure as SVG, PDF or PNG, by the suffix of ``path``.

    Raises UsageError for another suffix, OSError if the file cannot be written.
    """
    kind = path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise UsageError(f"{str(path)!r} must end in .svg, .pdf or .png")
    if kind == "svg":
        path.write_text(svg_file(figure), encoding="utf-8")
        return
    undated = {"CreationDate": None} if kind == "pdf" else None
    figure.savefig(path, format=kind, dpi=_DPI, metadata=undated)


def svg_file(figure: Figure) -> str:
    """The text of an SVG file of the figure; equal figures give equal texts."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    text, canvas, dpi = io.StringIO(), figure.canvas, figure.dpi
    with _SETTINGS, matplotlib.rc_context(_SVG):
        try:  # Figure.savefig would first draw everything once more, only for the layout
            FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None})
        finally:
            figure.set_canvas(canvas)
            figure.dpi = dpi
    return _PATH.sub(lambda m: _LONG.sub(_shorter, m[0]), text.getvalue())


def _shorter(number: re.Match[str]) -> str:
    """A coordinate rounded to a hundredth of a point, which about halves the file."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def svg_element(figure: Figure, title: str, prefix: str) -> str:
    """The figure as an SVG element for an HTML page; it scales with the page's width.

    ``title`` is its name for screen readers. ``prefix`` is put before every id, so that the ids of
    several figures on a page differ.
    """
    from html import escape

    text = svg_file(figure)
    text = text[text.index("<svg") :]
    text = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->|<defs>\s*<style.*?</defs>", "", text,
                  flags=re.DOTALL)  # fmt: skip
    text = re.sub(r"\s*\n\s*", " ", text)
    text = text.replace("> <", "><")
    text = re.sub(r'\bid="', f'id="{prefix}-', text)
    text = re.sub(r'(xlink:href="#|url\(#)', rf"\g<1>{prefix}-", text)
    text = re.sub(r"\s+xmlns(:xlink)?=\"[^\"]*\"", "", text, count=2).replace("xlink:href", "href")
    text = text.replace("'DejaVu Sans'", _FONTS).replace('"DejaVu Sans"', _FONTS)
    width = re.search(r'width="([\d.]+)pt"', text)
    label = escape(title, quote=True)
    size = f'style="width:100%;height:auto;max-width:{width[1]}pt"' if width else ""
    text = re.sub(r'<svg ([^>]*?)height="[\d.]+pt"', r"<svg \1", text, count=1)
    text = re.sub(r'(<svg [^>]*?)width="[\d.]+pt"', r"\1", text, count=1)
    return text.replace("<svg ", f'<svg role="img" aria-label="{label}" {size} ', 1).strip()
