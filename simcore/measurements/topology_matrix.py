"""Parser of the matrix of GPUs and NICs that ``nvidia-smi topo -m`` (or ``-mp``) prints.

Drivers differ in the columns after the matrix (CPU affinity, NUMA affinity, GPU NUMA ID), in the
names of NICs (``mlx5_0`` or ``NIC0`` with a legend) and in blanks or tabs. All forms are accepted.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Final, NamedTuple

from simcore.base.errors import DataError
from simcore.base.record import dataclass

#: Kinds of PCIe path in the legend, from near to far; drivers before 2017 write SOC for SYS.
PCIE_PATHS: Final = ("PIX", "PXB", "PHB", "NODE", "SYS")
_OLD: Final = {"SOC": "SYS"}
_NVLINK: Final = re.compile(r"^NV(\d+)$")
_GPU: Final = re.compile(r"^GPU\d+$")
_ESCAPES: Final = re.compile(r"\x1b\[[0-9;]*m")
_MARGIN: Final = re.compile(r"^[\s#*>|]+")
#: A line of ``nvidia-smi -L``, which people often put into the same file.
_LISTED: Final = re.compile(r"^\s*GPU \d+: (\S.*?)(?:\s+\(UUID.*)?$")
_RANGES: Final = re.compile(r"^\d+(?:-\d+)?(?:,\d+(?:-\d+)?)*$")


@dataclass(frozen=True)
class TopologyMatrix:
    """The matrix: ``paths`` of each pair of different devices, as NVLinks (``NV12``) or PCIe path.

    ``cpus``, ``numa``: affinities of the GPUs as ranges ("0-47,96-143"), where printed.
    ``listed``: names of the devices, where the same text has the output of ``nvidia-smi -L``.
    """

    gpus: tuple[str, ...]
    nics: tuple[str, ...]
    paths: dict[tuple[str, str], str]
    cpus: dict[str, str]
    numa: dict[str, str]
    listed: tuple[str, ...]

    def nvlinks(self, a: str, b: str) -> int:
        """Number of NVLinks between two devices."""
        match = _NVLINK.match(self.paths.get((a, b), ""))
        return int(match[1]) if match else 0

    def near(self, a: str, b: str) -> bool:
        """Whether PCIe switches alone join two devices, without the host in between."""
        return self.paths.get((a, b)) in ("PIX", "PXB")


def n_cpus(ranges: str) -> int:
    """Number of processors in ranges such as "0-47,96-143"."""
    total = 0
    for part in ranges.split(","):
        low, _, high = part.partition("-")
        total += int(high or low) - int(low) + 1
    return total


def read_topology(path: Path, text: str) -> TopologyMatrix:
    """The first matrix in a text. Raises DataError, with the line, for an invalid one."""
    lines = [_MARGIN.sub("", _ESCAPES.sub("", raw)) for raw in text.splitlines()]
    start = next((i for i, x in enumerate(lines) if re.match(r"GPU0\s+(?:GPU1|CPU|NIC|mlx)", x)),
                 None)  # fmt: skip
    if start is None:
        raise DataError("has no matrix of `nvidia-smi topo -m` (GPU0 GPU1 ...)", file=path)
    names = tuple(lines[start].partition("CPU Affinity")[0].split())
    gpus = tuple(n for n in names if _GPU.match(n))
    rows = _rows(path, lines, start, names)
    if missing := [n for n in gpus if n not in rows]:
        raise DataError(
            f"has no row for {', '.join(missing)}: is the output cut off?",
            file=path,
            line=start + 1,
        )
    paths = {(a, b): joint for a, row in rows.items() for b, joint in row.paths.items()}
    for (a, b), joint in paths.items():
        if paths.get((b, a), joint) != joint:
            raise DataError(
                f"{a} to {b} is {joint}, but {b} to {a} is {paths[b, a]}",
                file=path,
                line=rows[a].line,
            )
    ranges = {g: [w for w in rows[g].affinities if _RANGES.match(w)] for g in gpus}
    return TopologyMatrix(
        gpus=gpus,
        nics=tuple(n for n in names if not _GPU.match(n)),
        paths={pair: joint for pair, joint in paths.items() if joint},
        cpus={g: r[0] for g, r in ranges.items() if r},
        numa={g: r[1] for g, r in ranges.items() if len(r) > 1},
        listed=tuple(m[1] for x in lines if (m := _LISTED.match(x)) is not None),
    )


class _Row(NamedTuple):
    """One device's line: its path to every device, and the words after the matrix."""

    line: int
    paths: dict[str, str]
    affinities: list[str]


def _rows(path: Path, lines: list[str], start: int, names: tuple[str, ...]) -> dict[str, _Row]:
    """Device name -> row, from the line after ``start``, the header, to the legend."""
    rows: dict[str, _Row] = {}
    for number, line in enumerate(lines[start + 1 :], start=start + 2):
        words = line.split()
        if not words or words[0] not in names:
            if rows and (not words or words[0].rstrip(":") in ("Legend", "NIC")):
                break
            continue
        if words[0] in rows:
            raise DataError(
                f"{words[0]} is in line {rows[words[0]].line} already", file=path, line=number
            )
        cells = [w for w in words[1 : 1 + len(names)] if not _RANGES.match(w)]
        if len(cells) < len(names):
            raise DataError(
                f"{words[0]} has {len(cells)} of {len(names)} columns: cut short?",
                file=path, line=number,
            )  # fmt: skip
        paths = {
            other: _path(cell, words[0] == other, path, number)
            for other, cell in zip(names, cells, strict=True)
        }
        rows[words[0]] = _Row(number, paths, words[1 + len(names) :])
    return rows


def _path(cell: str, same: bool, path: Path, line: int) -> str:
    """How two devices are joined according to one cell of the matrix, such as ``NV12`` or ``PIX``.

    ``same``: whether the cell is on the diagonal; the result is "" there. Raises DataError if the
    cell is no known kind of link, or if it is ``X`` anywhere but on the diagonal.
    """
    if same != (cell == "X"):
        raise DataError(f"{cell!r} on {'' if same else 'other than '}the diagonal", file=path,
                        line=line)  # fmt: skip
    if same:
        return ""
    cell = _OLD.get(cell, cell)
    if cell not in PCIE_PATHS and not _NVLINK.match(cell):
        known = ", ".join(PCIE_PATHS)
        raise DataError(f"{cell!r} is not a kind of link: write NV# or {known}", file=path,
                        line=line)  # fmt: skip
    return cell
