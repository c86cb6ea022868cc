"""Keys that programs publish: each is read, warned of, refused, or listed without effect.

``published/DIALECT.txt`` lists them, with the files and the commit of the program's source.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from simcore.strategy.dialects import DIALECTS
from simcore.strategy.dialects.reading import Reading, Table
from simcore.strategy.dialects.source import Source

LISTS = sorted((Path(__file__).parent / "published").glob("*.txt"))


@pytest.mark.parametrize("path", LISTS, ids=lambda p: p.stem)
def test_every_published_key_is_known(path: Path) -> None:
    names = [n for n in path.read_text(encoding="utf-8").split("\n") if n and n[0] != "#"]
    dialect = DIALECTS[path.stem]
    reading = Reading(dialect.name, Source("", path.name))
    launch = dialect.read_table(reading, Table(dict.fromkeys(names)))
    assert len(names) > 50 and launch.unknown == ()
    wrong = dialect.read_table(
        Reading(dialect.name, Source("", path.name)), Table({f"{names[0]}x": None})
    )
    assert wrong.unknown != ()
