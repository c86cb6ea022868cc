"""The answer as one HTML file that needs nothing else: no link, no script."""

from __future__ import annotations

from html import escape

from simcore.api import Prediction
from simcore.report.text import render

_PAGE = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><title>{title}</title>
<style>body{{font:16px/1.5 system-ui;max-width:60rem;margin:2rem auto;padding:0 1rem}}
pre{{overflow:auto}}</style></head>
<body><h1>{title}</h1><pre>{text}</pre><h2>Assumptions</h2><ul>{assumptions}</ul></body></html>
"""


def report_html(p: Prediction) -> str:
    """A page of one answer."""
    title = escape(f"{p.model_full_name} on {p.cluster}")
    items = "".join(f"<li>{escape(a)}</li>" for a in p.assumptions)
    return _PAGE.format(title=title, text=escape(render(p)), assumptions=items)
