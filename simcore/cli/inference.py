"""``simcore predict --inference``: a language model that generates text on one node."""

from __future__ import annotations

from typing import Any

from simcore.cli.output import write_result


def write_inference(model: str, gpus: str, options: dict[str, Any], as_json: bool) -> bool:
    """Print memory and rates; returns whether it fits."""
    from dataclasses import asdict

    from simcore import api
    from simcore.report.inference import render_inference

    found = api.inference(model, gpus, **options)
    data = {**asdict(found), "fits": found.fits, "needed_bytes": found.needed_bytes}
    write_result(as_json, lambda: data, lambda: render_inference(found))
    return found.fits
