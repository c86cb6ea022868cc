"""``simcore predict --measured TIME``: why a step was slower than predicted."""

from __future__ import annotations

from typing import Any

from simcore.cli.output import write_result


def write_slower(
    measured_s: float, model: str, gpus: str, options: dict[str, Any], as_json: bool
) -> None:
    """Print what alone would explain a measured step time [s]."""
    from dataclasses import asdict

    from simcore import api
    from simcore.report.slower import render_slower

    found = api.slower(model, gpus, measured_s, **options)
    write_result(as_json, lambda: asdict(found), lambda: render_slower(found))
