"""Pictures of results, one file a kind; matplotlib's Figure, never pyplot.

A file named in ``KINDS`` has ``draw(data) -> Figure``. Its modules import matplotlib, so nothing
imports them but ``draw`` here. To add a kind: one file, one name.
"""

from __future__ import annotations

import io
import re
from importlib import import_module
from pathlib import Path
from threading import Lock
from typing import TYPE_CHECKING, Any

from simcore.base.errors import UnknownName, UsageError

if TYPE_CHECKING:
    from matplotlib.figure import Figure

#: Kind -> what it shows. The module is the kind with underscores.
KINDS = {
    "overview": "where the time of a step and the memory of a GPU go",
    "time": "step time, stacked by term, of one prediction or several",
    "memory": "memory of the fullest GPU at its peak, stacked by term, with the device limit",
    "memory-over-step": "memory after every allocation of one step, with the device limit",
    "scaling": "speed-up and efficiency against GPUs, with intervals and measured points",
    "roofline": "the model's ops against peak and bandwidth",
    "timeline": "when each stream works in one step",
    "pareto": "samples a second against GPUs or memory, with the front of what fits",
    "trade-off": "a plan's options: time to train against cost, with their front",
    "goodput": "share of the time that counts against the time between checkpoints",
    "sensitivity": "step time with half and twice of each resource",
    "measured": "predicted against measured rows",
    "errors": "errors of predicted step times, and how many measurements lie inside 80 %",
    "calibration": "a machine's fits against its own measurements",
}
FORMATS = ("svg", "png")
_DPI = 150
_PATH, _LONG = re.compile(r' d="[^"]*"'), re.compile(r"-?\d+\.\d{3,}")
#: The same picture gives the same file; text stays text, so that pages can select and scale it.
_SETTINGS = Lock()  # matplotlib's settings are the process's: one thread at a time
_SVG = {"svg.hashsalt": "simcore", "svg.fonttype": "none"}
#: Fonts of a page: DejaVu Sans, which the picture was laid out with, is wider than all of these.
_FONTS = "DejaVu Sans, Verdana, system-ui, sans-serif"


def draw(kind: str, data: Any) -> Figure:
    """Draw ``data`` as ``kind``. Raises UnknownName, or UsageError without matplotlib."""
    if kind not in KINDS:
        raise UnknownName("plot", kind, KINDS)
    require_matplotlib()
    figure: Figure = import_module(f"{__name__}.{kind.replace('-', '_')}").draw(data)
    return figure


def require_matplotlib(what: str = "a plot", extra: str = "plot") -> None:
    """Raises UsageError where matplotlib is not installed; ``extra`` brings what ``what`` needs."""
    try:
        import matplotlib.figure  # noqa: F401
    except ImportError:
        raise UsageError(f"{what} needs matplotlib: pip install 'simcore[{extra}]'") from None


def write(figure: Figure, path: Path) -> None:
    """Write as SVG or PNG, by the file's ending. Raises UsageError or OSError."""
    kind = path.suffix.lstrip(".").lower()
    if kind not in FORMATS:
        raise UsageError(f"{str(path)!r} must end in .svg or .png")
    if kind == "svg":
        path.write_text(svg_file(figure), encoding="utf-8")
        return
    figure.savefig(path, format=kind, dpi=_DPI)


def svg_file(figure: Figure) -> str:
    """The picture as an SVG file's text; the same picture gives the same text."""
    import matplotlib
    from matplotlib.backends.backend_svg import FigureCanvasSVG

    text, canvas, dpi = io.StringIO(), figure.canvas, figure.dpi
    with _SETTINGS, matplotlib.rc_context(_SVG):
        try:  # savefig draws everything once more beforehand, for a layout that drawing makes too
            FigureCanvasSVG(figure).print_svg(text, metadata={"Date": None})
        finally:
            figure.set_canvas(canvas)
            figure.dpi = dpi
    return _PATH.sub(lambda m: _LONG.sub(_shorter, m[0]), text.getvalue())


def _shorter(number: re.Match[str]) -> str:
    """A coordinate to a hundredth of a point: what nobody sees is half of the file."""
    return f"{float(number[0]):.2f}".rstrip("0").rstrip(".")


def svg_element(figure: Figure, title: str, prefix: str) -> str:
    """The picture as an element for a page: named for a screen reader, its ids its own.

    It scales with the page; ``prefix`` keeps ids of several pictures apart.
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
