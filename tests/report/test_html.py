"""The page and the cards: their structure, that they stand alone, and that they escape."""

from __future__ import annotations

import re
import sys
from dataclasses import replace
from html.parser import HTMLParser
from itertools import pairwise

import pytest

from simcore import api
from simcore.base.errors import UsageError
from simcore.report import html
from simcore.report.html import fragment, page
from simcore.report.html.parts import Card, Table

ASK = ("latte-xl", "4x8xA6000ada")
MEGABYTE = 1_000_000
VOID = {"meta", "br", "link", "img", "hr"}


class Tree(HTMLParser):
    """Tags, attributes and texts; complains where tags do not close as they open."""

    def __init__(self, text: str) -> None:
        super().__init__(convert_charrefs=True)
        self.open: list[str] = []
        self.tags: list[tuple[str, dict[str, str]]] = []
        self.texts: dict[str, list[str]] = {}
        self.feed(text)
        self.close()
        assert not self.open, self.open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {k: v or "" for k, v in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append((tag, {k: v or "" for k, v in attrs}))

    def handle_endtag(self, tag: str) -> None:
        assert self.open and self.open[-1] == tag, (tag, self.open[-3:])
        self.open.pop()

    def handle_data(self, data: str) -> None:
        for tag in set(self.open):
            self.texts.setdefault(tag, []).append(data)

    def of(self, tag: str) -> list[dict[str, str]]:
        return [attrs for name, attrs in self.tags if name == tag]

    def text(self, tag: str) -> str:
        return " ".join(" ".join(self.texts.get(tag, [])).split())


@pytest.fixture(scope="module")
def single() -> str:
    return api.report(*ASK)


@pytest.fixture(scope="module")
def several() -> str:
    return api.report("latte-xl", [ASK[1], "2x8xH100", "4x8xL40S", "4x8xRTX4090"])


@pytest.fixture(params=["single", "several"])
def text(request: pytest.FixtureRequest) -> str:
    found: str = request.getfixturevalue(request.param)
    return found


def test_one_file_without_script_or_address(text: str) -> None:
    assert len(text.encode()) < MEGABYTE
    tree = Tree(text)
    assert not tree.of("script") and not tree.of("link") and not tree.of("img")
    assert not tree.of("iframe") and not tree.of("object")
    for tag, attrs in tree.tags:
        for name, value in attrs.items():
            assert not name.startswith("on"), (tag, name)
            if name in ("href", "src", "xlink:href", "action", "data"):
                assert value.startswith("#"), (tag, value)
    assert "@import" not in text and not re.search(r"url\((?!#)", text)


def test_headings_step_down_and_links_lead_somewhere(text: str) -> None:
    tree = Tree(text)
    levels = [int(tag[1]) for tag, _ in tree.tags if re.fullmatch(r"h[1-6]", tag)]
    assert levels[0] == 1 and levels.count(1) == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    ids = [attrs["id"] for _, attrs in tree.tags if "id" in attrs]
    assert len(ids) == len(set(ids))
    assert {a["href"].removeprefix("#") for a in tree.of("a")} <= set(ids)
    labelled = [s["aria-labelledby"] for s in tree.of("section") if "aria-labelledby" in s]
    assert set(labelled) <= set(ids)
    assert tree.of("html")[0]["lang"] == "en"
    assert "viewport" in {m.get("name") for m in tree.of("meta")}


def test_a_part_shows_one_picture_or_short_table_and_folds_the_rest(text: str) -> None:
    parts = re.findall(r"<section aria-labelledby.*?</section>", text, re.DOTALL)
    assert len(parts) >= 8
    for part in parts:
        shown = re.sub(r"<details>.*?</details>", "", part, flags=re.DOTALL)
        assert shown.count("<figure>") <= 1
        tables = shown.count("<table>")
        assert tables <= (0 if "<figure>" in shown else 1)
        assert shown.count("<tr>") <= 17 and shown.count("<li>") <= 6
        assert part.count("<details>") == part.count("<summary>")


def test_pictures_and_tables_have_names(text: str) -> None:
    tree = Tree(text)
    pictures = tree.of("svg")
    assert len(pictures) >= 6
    assert all(svg["role"] == "img" and svg["aria-label"] for svg in pictures)
    assert len(tree.of("figcaption")) == len(pictures)
    assert len(tree.of("caption")) == len(tree.of("table"))
    assert all(th["scope"] in ("row", "col") for th in tree.of("th"))


def test_the_page_says_everything(single: str) -> None:
    tree = Tree(single)
    heads = tree.text("h2")
    for heading in ("Inputs and defaults", "Assumptions", "Where the time goes", "What if",
                    "Where the memory goes", "Scaling", "The model's ops",
                    "Compared with measurements", "Sources of the hardware's figures"):  # fmt: skip
        assert heading in heads, heading
    cells = tree.text("table")
    p = api.predict(*ASK)
    for what in (
        "activations",
        "comm. exposed",
        "latte-19",
        "mlp.fc1",
        "network between nodes",
        "23.4 GB",
    ):
        assert what in cells, what
    assert api.explain(*ASK, "memory.activations").formula in cells
    assert all(a in tree.text("ul") for a in p.assumptions)
    assert "simcore report --model latte-xl --gpus 4x8xA6000ada" in tree.text("code")
    assert "Fits: 38.1 of 51.0 GB" in tree.text("p")
    whitepaper = "NVIDIA Ada GPU Architecture"
    assert whitepaper in cells, "hardware figures have their sources"


def test_default_and_given_are_told_apart() -> None:
    tree = Tree(api.report("gpt2", "1x1xA100", micro_batch=2, network="ib-hdr"))
    rows = " ".join(tree.texts["table"])
    assert re.search(r"micro-batch\s+2\s+given", rows)
    assert re.search(r"precision\s+\S+\s+default", rows)
    assert re.search(r"network\s+ib-hdr\s+given", rows)


def test_several_clusters_stand_side_by_side(several: str) -> None:
    tree = Tree(several)
    table = several[several.index("side by side</caption>") :]
    head = re.search(r"<thead>(.*?)</thead>", table, re.DOTALL)
    assert head is not None
    assert head[1].count("<th") == 5
    assert "Does not fit" in tree.text("p") and "makes it fit" in tree.text("dd")


def test_what_a_job_does_not_have_is_told() -> None:
    tree = Tree(api.report("llama-3-8b", "1x8xH100", tp=2))
    assert "What is not in this report" in tree.text("h2")
    assert "data parallelism only" in tree.text("li")


def test_names_are_escaped() -> None:
    from simcore.api.document import facts_of

    facts = facts_of("gpt2", "1x1xA100")
    bad = '<script>alert("x")</script>'
    named = replace(
        facts.clusters[0].prediction, model_full_name=bad, model=bad, assumptions=(bad,)
    )
    text = page(
        replace(facts, clusters=(replace(facts.clusters[0], prediction=named),), command=bad)
    )
    assert "<script" not in text
    assert "&lt;script&gt;" in text
    assert not Tree(text).of("script")


def results() -> list[object]:
    answer = api.predict(*ASK)
    return [answer, answer.memory, api.memory_timeline("gpt2", "8xA100"), api.timeline(*ASK),
            api.scaling(*ASK), api.sweep("gpt2", ["8xA100", "2x8xA100"], strategy=("ddp", "dp")),
            api.compare("latte-xl", ("8xA100", "8xH100")), api.goodput("gpt2", "8xA100"),
            api.plan("gpt2", "A100:1..2x8", samples=1e6, deadline="30d")]  # fmt: skip


@pytest.mark.parametrize("result", results(), ids=lambda r: type(r).__name__)
def test_every_result_is_a_card_with_picture_and_words(result: api.Prediction) -> None:
    text = result._repr_html_()
    tree = Tree(text)
    assert tree.of("svg") and tree.of("h3") and not tree.of("script")
    assert tree.of("table") or tree.of("dl")
    assert len(text) < MEGABYTE / 8


def test_a_card_has_the_words_of_the_command_line() -> None:
    answer = api.predict("latte-xl", "4x8xRTX4090")
    told = Tree(answer._repr_html_())
    said = str(answer)
    for word in (f"{answer.speedup_vs_1gpu:.1f}", answer.bound_by, "recompute full"):
        assert word in said and word in told.text("dd"), word


def test_without_matplotlib_a_card_has_its_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = api.predict(*ASK)
    monkeypatch.setitem(__import__("sys").modules, "matplotlib.figure", None)
    tree = Tree(answer._repr_html_())
    assert tree.of("table") and not tree.of("svg")
    with pytest.raises(UsageError, match="matplotlib"):
        api.report(*ASK)


def test_without_jinja_a_card_is_the_text(monkeypatch: pytest.MonkeyPatch) -> None:
    answer = api.predict(*ASK)
    html._environment.cache_clear()
    monkeypatch.setitem(sys.modules, "jinja2", None)
    assert "<pre>" in fragment(answer) and "FITS" in fragment(answer)
    with pytest.raises(UsageError, match=r"\.\[report\]"):
        page(None)  # type: ignore[arg-type]


def test_parts_are_plain_values() -> None:
    card = Card("a", tables=(Table("t", ("x",), (("1",),)),))
    assert card.tables[0].rows == (("1",),)


def _contrast(a: str, b: str) -> float:
    """WCAG 2.1, relative luminance."""

    def luminance(colour: str) -> float:
        digits = colour.lstrip("#")
        digits = "".join(c * 2 for c in digits) if len(digits) == 3 else digits
        parts = [int(digits[i : i + 2], 16) / 255 for i in (0, 2, 4)]
        linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
        return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]

    high, low = sorted((luminance(a), luminance(b)), reverse=True)
    return (high + 0.05) / (low + 0.05)


def test_words_stand_out_in_light_and_dark(single: str) -> None:
    sets = re.findall(r"--ink: (#\w+); --soft: (#\w+); --line: #\w+; --paper: (#\w+); "
                      r"--good: (#\w+); --bad: (#\w+)", single)  # fmt: skip
    assert len(sets) == 3, "light, dark, print"
    for ink, soft, paper, good, bad in sets:
        for colour in (ink, soft, good, bad):
            assert _contrast(colour, paper) >= 4.5, (colour, paper)


@pytest.mark.parametrize("package", ["matplotlib.figure", "jinja2"])
def test_without_its_packages_a_report_asks_for_its_extra(
    package: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    html._environment.cache_clear()
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(UsageError, match=r"a report needs .* '\.\[report\]'"):
        page(None)  # type: ignore[arg-type]
