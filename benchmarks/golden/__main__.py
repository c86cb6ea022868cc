"""Record golden predictions and compare with them: ``python -m benchmarks.golden --help``."""

from __future__ import annotations

import argparse
import sys
import time
from pathlib import Path
from typing import Any

from benchmarks.golden import compare, record


def main() -> int:
    """The command; 1 where a comparison finds a difference, 2 where it cannot be made."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.golden", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("record", "predict a new sample of jobs and keep the answers"),
        ("compare", "predict the jobs of a recording again and print what has changed"),
    ):
        command = commands.add_parser(name, help=text, description=text)
        text = "the recording (default: $SIMCORE_GOLDEN or %(default)s)"
        command.add_argument("--file", type=Path, default=record.default_file(), help=text)
        command.add_argument("--jobs", type=int, default=2, help="processes (default 2)")
        _own_options(name, command)
    asked = parser.parse_args()
    read = asked.command == "compare" or (asked.keep_jobs and not asked.sample_file)
    if read and not asked.file.is_file():
        sys.stderr.write(f"error: no recording {asked.file}: record one first\n")
        return 2
    began = time.perf_counter()
    code = _record(asked) if asked.command == "record" else _compare(asked)
    sys.stdout.write(f"{time.perf_counter() - began:.0f} s\n")
    return code


def _own_options(name: str, command: argparse.ArgumentParser) -> None:
    def option(flag: str, text: str, **more: Any) -> None:
        command.add_argument(flag, help=text, **more)

    many: dict[str, Any] = {"action": "append", "default": []}
    yes: dict[str, Any] = {"action": "store_true"}
    if name == "record":
        option("--keep-jobs", "the jobs that the recording has already, answered anew", **yes)
        option("--sample-file", "write the tests' small sample from the recording", **yes)
        return
    option("--only", "these kinds of jobs", default="", metavar=",".join(record.KINDS))
    option("--sample", "a fixed random part", type=int, metavar="N")
    option("--rename", "an option or value, or OPTION:OLD=OPTION:NEW[,OPTION:NEW]",
           metavar="OLD=NEW", **many)  # fmt: skip
    option("--ignore", "fields that begin so: assumptions", metavar="FIELD", **many)
    option("--list", "write all differences as JSON lines", type=Path, metavar="FILE")


def _say(text: str) -> None:
    sys.stdout.write(text + "\n")


def _record(asked: argparse.Namespace) -> int:
    if asked.sample_file and not asked.keep_jobs:
        if not asked.file.is_file():
            sys.stderr.write(f"error: no recording {asked.file}: record one first\n")
            return 2
        record.write_sample(record.read(asked.file))
        _say(f"{record.SAMPLE}: {record.told(record.read(record.SAMPLE))}")
        return 0
    path = record.SAMPLE if asked.sample_file else asked.file
    if asked.keep_jobs:
        jobs = [job for job, _ in record.read(path)]
        records = list(zip(jobs, record.answered(jobs, asked.jobs), strict=True))
    else:
        records = record.sampled(asked.jobs, _say)
    record.write(path, records, record.DIGITS if asked.sample_file else None)
    _say(f"{path}: {record.told(records)}")
    return 0


def _compare(asked: argparse.Namespace) -> int:
    only = [word.strip() for word in asked.only.split(",") if word.strip()]
    if wrong := [word for word in only if word not in record.KINDS]:
        sys.stderr.write(f"error: --only is of {', '.join(record.KINDS)}, not {wrong[0]!r}\n")
        return 2
    records = compare.chosen(record.read(asked.file), only, asked.sample)
    renames = compare.Renames(asked.rename)
    jobs = [renames.job(job) for job, _ in records]
    found = [
        compare.compared(job, renames.answer(old), new, asked.ignore)
        for job, (_, old), new in zip(jobs, records, record.answered(jobs, asked.jobs), strict=True)
    ]
    _say(compare.report(found))
    if asked.list is not None:
        compare.write_list(asked.list, found)
    return 0 if all(one.kind == "equal" for one in found) else 1


if __name__ == "__main__":
    sys.exit(main())
