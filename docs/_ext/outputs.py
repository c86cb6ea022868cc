"""Outputs shown in the documentation are real ones: this writes them, a test compares them.

    python docs/_ext/outputs.py            # write every output again
    python docs/_ext/outputs.py --check    # say which differ; exit code 1 if any

In a markdown file, the block of code after one of these comments is an output, under its command:

    <!-- output of: simcore predict --model gpt2 --gpus T4 -->        the command's
    <!-- output of: simcore validate FILE | head -9 -->               its first lines
    <!-- output of the code above -->                                 of the last python block

and a table between two of these is made from the validation report:

    <!-- errors from: validate/REPORT.md -->  ...  <!-- end of table -->
    <!-- step errors from: …  -->    of step time alone
    <!-- nearest and farthest step of: validate/tables/latte.csv -->    two rows of a table
    <!-- worst sources from: … -->   of published steps; <!-- sources a, b from: … --> of these
    <!-- never measured from: … -->  GPUs of which no step was compared

Commands run in the repository, python blocks of a page one after the other, as a reader would.
"""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import sys
from collections.abc import Iterable, Iterator
from functools import cache, partial
from pathlib import Path
from typing import Any

import regimes

ROOT = Path(__file__).resolve().parents[2]
PAGES = ("README.md", "docs/*.md")

_COMMAND = re.compile(
    r"<!-- output of: (?P<command>simcore .+?)(?: \| head -(?P<lines>\d+))? -->\n\n```text\n"
)
_CODE = re.compile(r"<!-- output of the code above -->\n\n```text\n")
_TABLE = re.compile(
    r"<!-- (?P<kind>errors|step errors|worst sources|never measured|nearest and farthest step"
    r"|sources (?P<names>[\w, -]+)) (?:from|of): (?P<report>\S+) -->\n\n"
)
NO_BREAK = "\N{NO-BREAK SPACE}"
QUANTITIES = ("step time", "run time", "speedup", "peak memory", "resident memory")
_PYTHON = re.compile(r"^```python\n(.*?)^```$", re.DOTALL | re.MULTILINE)
_FENCE = re.compile(r"^```$", re.MULTILINE)


def pages() -> list[Path]:
    """Files that may show outputs."""
    return sorted(p for pattern in PAGES for p in ROOT.glob(pattern))


def renewed(text: str) -> str:
    """A page with every output made anew."""
    names: dict[str, Any] = {}
    done = 0
    out: list[str] = []
    for start, end, body in _blocks(text, names):
        out += [text[done:start], body]
        done = end
    return "".join([*out, text[done:]])


def _blocks(text: str, names: dict[str, Any]) -> Iterator[tuple[int, int, str]]:
    """(start, end, new body) of each output, in order."""
    ran = 0
    found = sorted(
        (m for p in (_COMMAND, _CODE, _TABLE) for m in p.finditer(text)), key=lambda m: m.start()
    )
    for match in found:
        start = match.end()
        if match.re is _TABLE:
            end = text.index("<!-- end of table -->", start)
            report = (ROOT / match["report"]).read_text(encoding="utf-8")
            make = TABLES.get(match["kind"]) or partial(chosen_sources, names=match["names"])
            if match["kind"].startswith("nearest"):
                report = command_output(f"simcore validate {match['report']}")
            yield start, end, make(report) + "\n"
            continue
        fence = _FENCE.search(text, start)
        if fence is None:
            raise ValueError(f"no end of the block after {match[0]!r}")
        if match.re is _COMMAND:
            lines = command_output(match["command"]).splitlines(keepends=True)
            shown = lines[: int(match["lines"])] if match["lines"] else lines
            body = f"$ {match['command']}\n" + "".join(shown)
            body += "...\n" if len(shown) < len(lines) else ""
        else:
            code = [m[1] for m in _PYTHON.finditer(text, ran, match.start())]
            ran = match.start()
            body = python_output(code, names)
        yield start, fence.start(), body


@cache
def command_output(command: str) -> str:
    """What ``simcore …`` prints, remarks included, run in the repository."""
    from simcore.cli.main import run

    with _captured() as stream, contextlib.chdir(ROOT):
        run(shlex.split(command)[1:])
    return _tidy(stream.getvalue())


def python_output(blocks: list[str], names: dict[str, Any]) -> str:
    """What blocks of code print; ``names`` keeps what they define."""
    with _captured() as stream, contextlib.chdir(ROOT):
        for block in blocks:
            exec(compile(block, "page", "exec"), names)
    return _tidy(stream.getvalue())


@contextlib.contextmanager
def _captured() -> Iterator[io.StringIO]:
    """Output and remarks in one stream of 80 columns without colour or a user's defaults."""
    stream = io.StringIO()
    plain = {"COLUMNS": "80", "NO_COLOR": "1", "SIMCORE_CONFIG": "off"}
    before = {k: os.environ.get(k) for k in plain}
    os.environ.update(plain)
    try:
        with contextlib.redirect_stdout(stream), contextlib.redirect_stderr(stream):
            yield stream
    finally:
        for key, value in before.items():
            if value is None:
                del os.environ[key]
            else:
                os.environ[key] = value


def _tidy(text: str) -> str:
    lines = [line.rstrip() for line in text.strip("\n").splitlines()]
    return "\n".join(lines) + "\n"


def _sections(report: str) -> Iterator[tuple[str, list[list[str]]]]:
    """(title, rows of its tables as cells) of each section of a validation report."""
    for section in re.split(r"^## ", report, flags=re.MULTILINE)[1:]:
        lines = section.splitlines()
        rows = [[c.strip() for c in x.strip("|").split("|")] for x in lines if x.startswith("|")]
        yield lines[0], rows


def error_table(report: str, wanted: tuple[str, ...] = QUANTITIES) -> str:
    """The errors of each table of measured runs."""
    out = ["| measured runs | quantity | rows | mean error | bias | in the 80 % interval |",
           "|---|---|---|---|---|---|"]  # fmt: skip
    for title, rows in _sections(report):
        shown = title
        for cells in rows:
            if len(cells) != 7 or cells[0].partition(",")[0] not in wanted:
                continue
            quantity, n, mape, _median, bias, _p90, inside = cells
            quantity = quantity if "," in quantity else f"{quantity}, blind"
            figures = " | ".join(c.replace(" %", f"{NO_BREAK}%") for c in (n, mape, bias, inside))
            out.append(f"| {shown} | {quantity} | {figures} |")
            shown = ""
    return "\n".join(out) + "\n"


def _sources(report: str) -> list[tuple[str, str, str, str]]:
    """(source, rows, mean error, bias) of the steps that are published by source."""
    return [
        (source, n, mape, bias)
        for _, rows in _sections(report)
        for source, n, mape, _median, bias, memory_n, _memory in (r for r in rows if len(r) == 7)
        if n.isdigit() and memory_n.isdigit() and int(n)
    ]


def _source_table(found: Iterable[tuple[str, str, str, str]]) -> str:
    head = ["| source of the steps | rows | mean error | bias |", "|---|---|---|---|"]
    return "\n".join([*head, *(f"| {' | '.join(row)} |" for row in found)]) + "\n"


def worst_sources(report: str) -> str:
    """Sources of published steps whose mean error is above a quarter, furthest off first."""
    limit_percent = 25.0
    errors = [(float(row[2].split()[0]), row) for row in _sources(report)]
    return _source_table(row for error, row in sorted(errors)[::-1] if error > limit_percent)


def chosen_sources(report: str, names: str) -> str:
    """Some sources, in the order asked. Raises KeyError for one that the report does not have."""
    found = {row[0]: row for row in _sources(report)}
    return _source_table(found[name.strip()] for name in names.split(","))


def nearest_and_farthest(printed: str) -> str:
    """The steps of a validated table that were predicted best and worst, flagged ones left out."""
    step = re.compile(
        r"^(\S+) +step time +(\S+ \S+) +(\S+ \S+) +(\S+ \S+) +(\S+ \S+) +([+-]\S+) %$", re.M
    )
    found = sorted(step.findall(printed), key=lambda row: abs(float(row[-1])))
    head = ["| row | predicted | 80 % interval | measured | error |", "|---|---|---|---|---|"]
    rows = [
        f"| {row} | {said} | {low} to {high} | {measured} | {error} % |"
        for row, said, low, high, measured, error in (found[0], found[-1])
    ]
    return "\n".join([*head, *rows]) + "\n"


def never_measured(_record: str) -> str:
    """GPUs of the database of which no measured step was compared with a prediction, by vendor."""
    from simcore.hardware.profile import load_profile
    from simcore.hardware.spec import GPUS

    compared = load_profile().runtime["steps_measured_on"]
    by_vendor: dict[str, list[str]] = {}
    for name in sorted(set(GPUS.names()) - set(compared)):
        by_vendor.setdefault(GPUS[name].vendor, []).append(name)
    rows = [f"| {vendor} | {', '.join(names)} |" for vendor, names in sorted(by_vendor.items())]
    return "\n".join(["| vendor | GPUs |", "|---|---|", *rows]) + "\n"


TABLES = {
    "errors": error_table,
    "never measured": never_measured,
    "nearest and farthest step": nearest_and_farthest,
    "step errors": lambda report: error_table(report, ("step time",)),
    "worst sources": worst_sources,
}


def main(words: list[str]) -> int:
    """Write, or with ``--check`` only compare; the exit code."""
    stale = []
    for page in pages():
        text = page.read_text(encoding="utf-8")
        if (new := renewed(text)) != text:
            stale.append(page.relative_to(ROOT).as_posix())
            if "--check" not in words:
                page.write_text(new, encoding="utf-8")
    if regimes.stale():
        stale.append("regimes in docs/accuracy.md")
        if "--check" not in words:
            regimes.main()
    done = "differ" if "--check" in words else "written"
    sys.stdout.write(f"{done}: {', '.join(stale) or 'none'}\n")
    return 1 if stale and "--check" in words else 0


if __name__ == "__main__":
    sys.path.insert(0, str(ROOT))
    sys.exit(main(sys.argv[1:]))
