"""The process of one rank of a calibration or selftest: its options, and what it prints."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simcore.base.errors import SimcoreError
from simcore.calibrate.bench.case import World
from simcore.calibrate.bench.ranks import Ranks, local_rank, world_size
from simcore.calibrate.machine import (
    THIS_MACHINE,
    Calibrated,
    CalibrationOptions,
    DeviceKind,
    calibrate_rank,
    needed_torch,
)
from simcore.calibrate.progress import bar

#: Exit code after an interrupt.
INTERRUPTED = 130


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="python -m simcore.calibrate", description=__doc__)
    parser.add_argument("--minutes", type=float, default=3.0)
    parser.add_argument("-o", "--output", type=Path, default=Path(f"{THIS_MACHINE}.yaml"))
    parser.add_argument("--name", default=THIS_MACHINE)
    parser.add_argument("--device", choices=("cpu", "cuda"))
    parser.add_argument("--resume", action="store_true")
    parser.add_argument("--bad-rows", choices=("refuse", "skip"), default="refuse")
    parser.add_argument("--families")
    parser.add_argument("--selftest", action="store_true")
    parser.add_argument("--calibration", type=Path)
    parser.add_argument("--result", type=Path, help="write the answer here as JSON")
    parser.add_argument("--quiet", action="store_true")
    return parser


def _options(words: argparse.Namespace) -> CalibrationOptions:
    device: DeviceKind = words.device or ("cuda" if needed_torch().cuda.is_available() else "cpu")
    families = tuple(words.families.split(",")) if words.families else None
    return CalibrationOptions(
        words.output, device, words.name, words.minutes, words.resume, words.bad_rows, families
    )


def main(argv: Sequence[str]) -> int:
    """Run one rank and return the exit code. Only rank 0 prints the result."""
    words = _parser().parse_args(argv)
    try:
        options = _options(words)
        several = world_size() > 1
        backend = "gloo" if options.device == "cpu" else "cpu:gloo,cuda:nccl"
        if options.device == "cuda" and several:
            needed_torch().cuda.set_device(local_rank())
        world: World = Ranks.join(backend) if several else World()
        try:
            answer = _work(words, options, world)
        finally:
            if several:
                Ranks.leave()
    except SimcoreError as err:
        sys.stderr.write(f"error: {err}\n")
        return err.exit_code
    except KeyboardInterrupt:
        return INTERRUPTED
    if answer is not None and words.result is not None:
        words.result.write_text(json.dumps(answer), encoding="utf-8")
    return 0


def _work(
    words: argparse.Namespace, options: CalibrationOptions, world: World
) -> dict[str, Any] | None:
    progress = bar(quiet=words.quiet or world.rank != 0)
    if words.selftest:
        from simcore.calibrate.selftest import selftest_rank

        return selftest_rank(options, words.calibration, world, progress)
    made = calibrate_rank(options, world, progress)
    if made is None:
        return None
    answer = summary(made)
    if words.result is None:
        from simcore.calibrate.summaries import render_summary

        sys.stdout.write(render_summary(answer))
    return answer


def summary(made: Calibrated) -> dict[str, Any]:
    """The result of a calibration as plain data: the profile, counts of cases, files written."""
    from simcore.calibrate.summaries import told_of

    o = made.outcome
    return {
        **told_of(made.record, made.found, made.notes, made.files),
        "cases": {"measured": o.done, "kept": o.skipped, "left": o.left, "failed": o.failed},
        "disturbed_frac": o.disturbed_frac,
    }
