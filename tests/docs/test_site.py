"""The site builds without a warning, every notebook runs in time, no page asks another site."""

from __future__ import annotations

import importlib.util
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
NEEDED = ("sphinx", "furo", "myst_nb", "sphinx_copybutton", "ipywidgets")
missing = [name for name in NEEDED if importlib.util.find_spec(name) is None]

#: What a browser fetches by itself; a link (``a href``) is followed by people only.
_FETCHED = {
    "script": "src", "img": "src", "iframe": "src", "source": "src", "video": "src",
    "audio": "src", "embed": "src", "object": "data", "link": "href",
}  # fmt: skip
_LINKS_THAT_FETCH = {"stylesheet", "icon", "preload", "prefetch", "modulepreload", "manifest"}
_OFF_SITE = re.compile(r"^(https?:)?//")


class _Fetched(HTMLParser):
    """Addresses that a page loads."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []
        self._in = ""

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self._in = tag
        values = dict(attrs)
        kinds = set((values.get("rel") or "").split())
        if tag in _FETCHED and (tag != "link" or kinds & _LINKS_THAT_FETCH):
            self.found.append(values.get(_FETCHED[tag]) or "")
        self.found += _addresses(values.get("style") or "")

    def handle_data(self, data: str) -> None:
        if self._in == "style":
            self.found += _addresses(data)
        if self._in == "script":
            self.found += re.findall(
                r"\b(?:import|from|src)\b[\s(=:]*[\"'](https?://[^\"']+)", data
            )

    def handle_endtag(self, tag: str) -> None:
        self._in = ""


def _addresses(css: str) -> list[str]:
    return re.findall(r"(?:url\(|@import)\s*[\"']?([^\"')\s]+)", css)


def off_site(page: str) -> list[str]:
    """What an HTML page would fetch from elsewhere."""
    reader = _Fetched()
    reader.feed(page)
    return [address for address in reader.found if _OFF_SITE.match(address)]


def test_llms_txt_lists_every_page_and_no_other() -> None:
    text = (ROOT / "docs/_root/llms.txt").read_text(encoding="utf-8")
    assert text.startswith("# simcore\n\n> ")
    listed = re.findall(r"\]\((\S+?)\)", text)
    pages = {p.relative_to(ROOT).as_posix() for p in ROOT.glob("docs/*.md")} - {"docs/index.md"}
    assert set(listed) == pages and len(listed) == len(pages)


def test_fetches_are_seen() -> None:
    assert off_site('<script src="https://a.example/x.js"></script>')
    assert off_site('<link rel="stylesheet" href="//a.example/x.css">')
    assert off_site("<style>@import 'https://a.example/x.css';</style>")
    assert off_site('<p style="background: url(http://a.example/x.png)">')
    assert off_site('<script>import("https://a.example/x.js")</script>')
    assert not off_site('<a href="https://a.example">x</a><img src="data:image/png;base64,">')
    assert not off_site('<link rel="stylesheet" href="_static/x.css"><p>url(https://a)</p>')


@pytest.mark.long
@pytest.mark.timeout(600)  # half a minute of processor time, on a machine with other work
@pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)} (extra docs)")
def test_site_builds_and_stays_at_home(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "-q", "-W", "--keep-going", "-c", "docs", ".",
         str(tmp_path / "site"), "-d", str(tmp_path / "trees")],
        cwd=ROOT, env={**os.environ, "JUPYTER_PLATFORM_DIRS": "1"},
        capture_output=True, text=True, check=False, timeout=580,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    pages = sorted((tmp_path / "site").rglob("*.html"))
    written = {p.relative_to(tmp_path / "site").with_suffix("").as_posix() for p in pages}
    sources = [*ROOT.glob("docs/*.md"), *ROOT.glob("notebooks/[0-9]*.md")]
    assert len(sources) >= 18
    assert {p.relative_to(ROOT).with_suffix("").as_posix() for p in sources} <= written
    assert (tmp_path / "site/llms.txt").is_file()
    fetched = {p.name: found for p in pages if (found := off_site(p.read_text(encoding="utf-8")))}
    assert not fetched
    for sheet in (tmp_path / "site").rglob("*.css"):
        found = _addresses(sheet.read_text(encoding="utf-8"))
        assert not [a for a in found if _OFF_SITE.match(a)], sheet
