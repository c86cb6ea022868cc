"""Checks the names of files that a command will read or write, before any work is done."""

from __future__ import annotations

from pathlib import Path

PLOT_ENDINGS = (".svg", ".png")


def missing_problems(*paths: Path) -> list[str]:
    """Error messages about files to read that do not exist or are folders."""
    return [
        f"{str(path)!r} is a folder: name a file in it" if path.is_dir()
        else f"no such file: {str(path)!r}"
        for path in paths if not path.is_file()
    ]  # fmt: skip


def folder_problems(flag: str, path: Path) -> list[str]:
    """Error messages about a file to write that is a folder, or whose folder does not exist."""
    if path.is_dir():
        return [f"{flag} {str(path)!r} is a folder: name a file"]
    if not path.parent.is_dir():
        return [f"{flag}: folder {str(path.parent)!r} does not exist"]
    return []


def plot_problems(flag: str, path: Path) -> list[str]:
    """Error messages about a plot to write, whose ending must name its format."""
    found = folder_problems(flag, path)
    if path.suffix.lower() not in PLOT_ENDINGS:
        found.append(f"{flag} {str(path)!r} must end in .svg or .png")
    return found
