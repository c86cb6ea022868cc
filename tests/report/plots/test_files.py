"""Pictures as files and as elements of a page."""

from __future__ import annotations

import re
import struct
import warnings
from pathlib import Path
from xml.etree import ElementTree

import pytest

from simcore import api
from simcore.base.errors import UnknownName, UsageError
from simcore.report.plots import KINDS, draw, svg_element, svg_file, write

LARGEST_BYTES = 130_000


@pytest.fixture(scope="module")
def answer() -> api.Prediction:
    return api.predict("latte-xl", "4x8xA6000ada")


def test_written_without_a_display_and_alike(answer: api.Prediction, tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for name in ("a.svg", "b.svg", "c.PNG", "d.pdf", "e.pdf"):
            write(answer.plot("memory-over-step"), tmp_path / name)
    ElementTree.parse(tmp_path / "a.svg")
    assert (tmp_path / "a.svg").read_bytes() == (tmp_path / "b.svg").read_bytes()
    assert (tmp_path / "d.pdf").read_bytes().startswith(b"%PDF-")
    assert (tmp_path / "d.pdf").read_bytes() == (tmp_path / "e.pdf").read_bytes()
    head = (tmp_path / "c.PNG").read_bytes()[:24]
    assert head[1:4] == b"PNG"
    assert struct.unpack(">II", head[16:24]) == (1200, 675)
    with pytest.raises(UsageError, match=r"\.svg, \.pdf or \.png"):
        write(answer.plot(), tmp_path / "f.gif")


@pytest.mark.parametrize("kind", api.Prediction.plots)
def test_every_kind_is_a_small_element_of_its_own(answer: api.Prediction, kind: str) -> None:
    figure = answer.plot(kind)
    text = svg_element(figure, 'a <title> & "more"', "p1")
    root = ElementTree.fromstring(text)
    assert root.get("role") == "img"
    assert root.get("aria-label") == 'a <title> & "more"'
    assert len(text) < LARGEST_BYTES
    ids = re.findall(r' id="([^"]+)"', text)
    assert len(ids) == len(set(ids))
    assert all(i.startswith("p1-") for i in ids)
    used = set(re.findall(r'(?:href="#|url\(#)([^")]+)', text))
    assert used and used <= set(ids)
    assert "http" not in text and "<script" not in text
    assert "<text" in text, "words stay words"


def test_rounding_of_coordinates_moves_nothing_visible(answer: api.Prediction) -> None:
    import io

    figure = answer.plot("scaling")
    plain = io.StringIO()
    figure.savefig(plain, format="svg")
    number = re.compile(r"-?\d+\.?\d*")

    def coordinates(text: str) -> list[float]:
        paths = re.findall(r' d="([^"]*)"', text)
        return [float(n) for path in paths for n in number.findall(path)]

    import matplotlib

    with matplotlib.rc_context({"svg.fonttype": "none"}):
        plain = io.StringIO()
        figure.savefig(plain, format="svg")
    assert coordinates(svg_file(figure)) == pytest.approx(coordinates(plain.getvalue()), abs=0.006)


def test_writing_leaves_the_figure_as_it_was(answer: api.Prediction) -> None:
    figure = answer.plot("time")
    before = figure.dpi, figure.canvas, tuple(figure.get_size_inches())
    svg_file(figure)
    assert (figure.dpi, figure.canvas, tuple(figure.get_size_inches())) == before


def test_kinds_have_a_file_and_a_result_that_draws_them() -> None:
    from simcore.api import many, result, results

    shown = {
        kind
        for cls in (*vars(results).values(), *vars(many).values())
        if isinstance(cls, type) and issubclass(cls, result.Result)
        for kind in cls.plots
    }
    assert shown | {"measured", "errors", "calibration", "fabric"} == set(KINDS)
    with pytest.raises(UnknownName, match="did you mean 'roofline'"):
        draw("rofline", None)


def test_without_matplotlib_one_sentence_says_so(
    answer: api.Prediction, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    with pytest.raises(UsageError, match=r"\.\[plot\]"):
        answer.plot()
