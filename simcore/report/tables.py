"""Plain-text tables with aligned columns and without escape codes."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from textwrap import wrap

from simcore.base.record import dataclass


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()
) -> str:
    """The text of a table whose columns are as wide as their widest cell, two blanks apart.

    ``right`` are the indices of the columns that are aligned to the right.
    """
    cells = [list(header), *(list(r) for r in rows)]
    widths = _widths(cells)
    return "\n".join(_line(row, widths, right) for row in cells)


def _widths(cells: Sequence[Sequence[str]]) -> list[int]:
    return [max(len(row[i]) for row in cells) for i in range(len(cells[0]))]


def _line(row: Sequence[str], widths: Sequence[int], right: Sequence[int]) -> str:
    parts = [
        cell.rjust(w) if i in right else cell.ljust(w)
        for i, (cell, w) in enumerate(zip(row, widths, strict=True))
    ]
    return "  ".join(parts).rstrip()


#: The smallest width in characters to which a column of text is wrapped.
_NARROW = 16


def wrapped_table(
    header: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int,
    *,
    right: Sequence[int] = (),
) -> str:
    """The text of ``table``, with cells wrapped over several lines if it is wider than ``width``.

    Headings of numeric columns wrap first, then the widest text columns. The first column, which
    names the row, is never wrapped. If the text columns would get too narrow, the table stays
    wider than ``width``.
    """
    cells = [list(header), *(list(r) for r in rows)]
    widths = _widths(cells)
    # A heading of a numeric column wraps if the table is too wide.
    for i in right:
        words = max(len(w) for w in header[i].split())
        if sum(widths) + 2 * (len(widths) - 1) > width:
            widths[i] = max(words, *(len(row[i]) for row in cells[1:]), 1)
    texts = [i for i in range(1, len(header)) if i not in right]
    while (over := sum(widths) + 2 * (len(widths) - 1) - width) > 0 and texts:
        widest = max(texts, key=lambda i: widths[i])
        if widths[widest] <= _NARROW:
            break
        others = max((widths[i] for i in texts if i != widest), default=_NARROW)
        least = max(_NARROW, min(others, widths[widest] - 1))
        widths[widest] = max(least, widths[widest] - over)
    lines = []
    for row in cells:
        parts = [wrap(cell, w) or [""] for cell, w in zip(row, widths, strict=True)]
        for n in range(max(map(len, parts))):
            lines.append(_line([p[n] if n < len(p) else "" for p in parts], widths, right))
    return "\n".join(lines)


#: The smallest width in characters to which a column of text is cut.
_SHORTEST = 12


def fitted(
    header: Sequence[str],
    rows: Sequence[Sequence[str]],
    width: int,
    *,
    texts: Mapping[int, int],
    spare: Sequence[int],
) -> list[str]:
    """The lines of a table that is cut to ``width`` columns.

    ``texts``: the columns of text, and the most characters of each; the others are numbers.
    Columns whose cells are empty or "-" are left out. If the table is too wide, the ``spare``
    columns go first, in this order, then the longest texts are shortened.
    """
    left_out = {i for i in range(len(header)) if all(row[i] in ("", "-") for row in rows)}
    most, spare = dict(texts), [i for i in spare if i not in left_out]
    while True:
        keep = [i for i in range(len(header)) if i not in left_out]
        right = [n for n, i in enumerate(keep) if i not in texts]
        cells = [[_cut(row[i], most.get(i, width)) for i in keep] for row in rows]
        lines = table([header[i] for i in keep], cells, right=right).splitlines()
        over = max(map(len, lines)) - width
        if over <= 0:
            return lines
        if spare:
            left_out.add(spare.pop(0))
            continue
        longest = {i: min(most[i], max(len(row[i]) for row in rows)) for i in texts}
        column = max(longest, key=lambda i: longest[i])
        if longest[column] <= _SHORTEST:
            return [line[:width] for line in lines]
        most[column] = max(_SHORTEST, longest[column] - over)


def _cut(text: str, width: int) -> str:
    return text if len(text) <= width else text[: width - 3] + "..."


@dataclass(frozen=True)
class Table:
    """A table for the terminal and for a page; the first cell of a row names the row.

    ``right`` are the indices of the columns of numbers, which are aligned to the right.
    """

    caption: str
    head: Sequence[str]
    rows: Sequence[Sequence[str]]
    right: Sequence[int] = ()

    def text(self, width: int = 0) -> str:
        """The table as text, wrapped to ``width`` columns; 0: each row is one line."""
        if width:
            return wrapped_table(self.head, self.rows, width, right=self.right)
        return table(self.head, self.rows, right=self.right)


def cut_table(
    header: Sequence[str], rows: Iterable[Sequence[str]], width: int, *, right: Sequence[int] = ()
) -> str:
    """The text of ``table`` with one line a row, whose widest texts are cut to fit ``width``.

    The first column, which names the row, is never cut, so that a long name is wider.
    """
    cells = [list(header), *(list(r) for r in rows)]
    texts = [i for i in range(1, len(header)) if i not in right]
    most = _widths(cells)
    while sum(most) + 2 * (len(most) - 1) > width and texts:
        widest = max(texts, key=lambda i: most[i])
        if most[widest] <= _SHORTEST:
            break
        most[widest] -= 1
    cut = [[_cut(cell, most[i]) if i in texts else cell for i, cell in enumerate(c)] for c in cells]
    return table(cut[0], cut[1:], right=right)


def side_by_side(left: Sequence[str], right: Sequence[str], *, column: int) -> list[str]:
    """Lines with two blocks next to each other; the right block starts at ``column``."""
    height = max(len(left), len(right))
    padded = [*left, *[""] * (height - len(left))]
    other = [*right, *[""] * (height - len(right))]
    return [f"{a:<{column}}{b}".rstrip() for a, b in zip(padded, other, strict=True)]
