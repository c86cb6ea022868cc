"""Files in which an answer can be downloaded."""

from __future__ import annotations

import json
import re
from dataclasses import field
from typing import Any

from starlette.responses import Response

from simcore import api
from simcore.base.record import dataclass
from simcore.report.jsonout import dumps, to_dict
from simcore.report.schema import build
from simcore.report.trace import to_trace
from simcore.serve.query import predicted

#: JSON schema of ``/api/v1/predict``, the same as docs/prediction.schema.json.
SCHEMA: dict[str, Any] = {k: v for k, v in build().items() if not k.startswith("$")}
_ENDINGS = {"deepspeed": ".json", "accelerate": ".yaml", "torchtitan": ".toml"}


@dataclass(frozen=True)
class Download:
    """A file: its name, its media type (``kind``) and its content."""

    name: str
    kind: str
    text: str
    headers: dict[str, str] = field(default_factory=dict)

    def response(self) -> Response:
        """The response with the file as an attachment, so that browsers save it."""
        disposition = {"Content-Disposition": f'attachment; filename="{self.name}"'}
        return Response(self.text, media_type=self.kind, headers={**disposition, **self.headers})


def _name(p: api.Prediction, ending: str) -> str:
    """File name such as ``simcore-latte-xl-4x8xA6000ada.json``.

    Other characters are replaced, since uploaded models may have any name.
    """
    stem = re.sub(r"[^A-Za-z0-9._+-]+", "-", f"simcore-{p.model}-{p.cluster}").strip("-.")
    return stem[:120] + ending


def as_json(given: dict[str, Any]) -> Download:
    """The file that ``simcore predict --json`` prints."""
    p = predicted(**given)
    return Download(_name(p, ".json"), "application/json", dumps(to_dict(p)))


def as_trace(given: dict[str, Any]) -> Download:
    """The file that ``simcore predict --trace`` writes."""
    p = predicted(**given, keep_timeline=True)
    text = json.dumps(to_trace(p), separators=(",", ":"), allow_nan=False)
    return Download(_name(p, ".trace.json"), "application/json", text)


def as_launch(given: dict[str, Any], dialect: str) -> Download:
    """The file that ``simcore predict --emit`` prints; a header lists what the file leaves out."""
    words = {k: v for k, v in given.items() if k not in ("steps", "epochs")}
    p = predicted(**words)
    made = api.launch_file(dialect, **words)
    ending = f".{dialect}{_ENDINGS.get(dialect, '.sh')}"
    left = {"Simcore-Not-In-File": ", ".join(made.left)} if made.left else {}
    return Download(_name(p, ending), "text/plain", made.text, left)


def as_html(given: dict[str, Any]) -> Download:
    """The file that ``simcore report`` writes."""
    p = predicted(**given)
    words = {k: v for k, v in given.items() if k not in ("steps", "epochs")}
    return Download(_name(p, ".html"), "text/html", api.report(**words))
