"""What is known of single published sources is data: no module of simcore names one."""

import re
from collections.abc import Iterator
from typing import Any

from tree import ROOT, modules

from simcore.base.database import read_yaml

FOLDER = ROOT / "validate" / "corpora"
#: Module -> why it names a source: tables of single operators have no corpora yet.
ALLOWED = {"simcore/calibrate/ops/assumed.py": "how sources of op tables measured, in one list"}


def _sources(node: Any) -> Iterator[str]:
    """Every value that a condition asks of the column ``source``, in any nesting."""
    if isinstance(node, list):
        for one in node:
            yield from _sources(one)
    if isinstance(node, dict):
        for key, value in node.items():
            if key == "when" and isinstance(value, dict):
                asked = value.get("source", [])
                yield from [asked] if isinstance(asked, str) else asked
            yield from _sources(value)


def _programs(node: Any) -> Iterator[str]:
    """The programs that rules name, without their releases: code knows programs by name."""
    if isinstance(node, list):
        for one in node:
            yield from _programs(one)
    if isinstance(node, dict):
        if isinstance(program := node.get("program"), str):
            yield program.partition("@")[0]
        for value in node.values():
            yield from _programs(value)


def named_sources() -> set[str]:
    """Names of sources in all corpora, but for those that are programs' too, and patterns."""
    files = [read_yaml(path) for path in sorted(FOLDER.rglob("*.yaml"))]
    programs = {p for data in files for p in _programs(data)}
    found = {s.strip("*/") for data in files for s in _sources(data)}
    return {s for s in found - programs if re.fullmatch(r"[\w./-]{4,}", s)}


def test_corpora_name_their_sources() -> None:
    assert {"zero-bubble", "nvidia-megatron-bridge", "mlperf-lora70b"} <= named_sources()
    assert len(named_sources()) > 30


def test_no_module_names_a_source_of_a_corpus() -> None:
    """As text in quotes: prose may cite a paper, a branch on its rows would need its name."""
    names = "|".join(map(re.escape, sorted(named_sources(), key=len, reverse=True)))
    quoted = re.compile(rf"""["']({names})["']""")
    wrong = [
        f"{module}:{number}: {found[1]}"
        for module in modules()
        if module.as_posix() not in ALLOWED
        for number, line in enumerate((ROOT / module).read_text("utf-8").splitlines(), 1)
        if (found := quoted.search(line))
    ]
    assert not wrong, wrong
