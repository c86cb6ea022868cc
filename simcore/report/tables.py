"""Plain text tables: aligned columns, no escape codes."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


def table(
    header: Sequence[str], rows: Iterable[Sequence[str]], *, right: Sequence[int] = ()
) -> str:
    """Columns as wide as their widest cell, two blanks apart; ``right`` aligns to the right."""
    cells = [list(header), *(list(r) for r in rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]
    lines = []
    for row in cells:
        parts = [
            cell.rjust(w) if i in right else cell.ljust(w)
            for i, (cell, w) in enumerate(zip(row, widths, strict=True))
        ]
        lines.append("  ".join(parts).rstrip())
    return "\n".join(lines)


def side_by_side(left: Sequence[str], right: Sequence[str], *, column: int) -> list[str]:
    """Two blocks of lines next to each other; the second starts at ``column``."""
    height = max(len(left), len(right))
    padded = [*left, *[""] * (height - len(left))]
    other = [*right, *[""] * (height - len(right))]
    return [f"{a:<{column}}{b}".rstrip() for a, b in zip(padded, other, strict=True)]
