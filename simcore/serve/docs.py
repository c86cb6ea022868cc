"""Renders the description of the API as an HTML page without scripts, from the OpenAPI schema."""

from __future__ import annotations

from html import escape
from typing import Any
from urllib.parse import urlencode

_HEAD = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}: API</title>
<link rel="stylesheet" href="/static/style.css">
<link rel="icon" href="/static/icon.svg" type="image/svg+xml">
</head>
<body class="docs">
<header class="top"><a class="name" href="/">simcore</a><span>API</span></header>
<main>
"""


def docs_page(schema: dict[str, Any]) -> str:
    """The HTML page with every operation: its parameters, an example and its responses."""
    info = schema["info"]
    parts = [
        _HEAD.format(title=escape(info["title"])),
        f"<h1>API, version {escape(info['version'])}</h1>",
        f"<p>{_text(info['description'])}</p>",
        '<p>For programs: <a href="/openapi.json">openapi.json</a>. Links to the page have the '
        "same parameters: append the query of a link to any of these paths.</p>",
    ]
    described: set[str] = set()
    for path, methods in schema["paths"].items():
        for method, operation in methods.items():
            parts.append(_operation(method, path, operation, schema, described))
    parts.append("</main></body></html>\n")
    return "".join(parts)


def _text(text: str) -> str:
    """Escaped text in which `words` between backquotes become code."""
    pieces = escape(text).split("`")
    return "".join(f"<code>{p}</code>" if i % 2 else p for i, p in enumerate(pieces))


def _operation(
    method: str, path: str, operation: dict[str, Any], schema: dict[str, Any], described: set[str]
) -> str:
    """HTML of one operation, without the parameters in ``described``; adds its own to these."""
    parameters = operation.get("parameters", [])
    new = [p for p in parameters if p["name"] not in described]
    described |= {p["name"] for p in parameters}
    table = (
        '<div class="scroll" tabindex="0" role="region" aria-label="Parameters of '
        f'{escape(path)}"><table><thead><tr><th>parameter</th><th>type</th><th>meaning</th>'
        f"<th>example</th></tr></thead><tbody>{''.join(map(_parameter, new))}</tbody></table></div>"
        if new
        else ""
    )
    if len(new) < len(parameters):
        table = f"<p>The parameters above{', and:' if new else '.'}</p>{table}"
    if not parameters:
        table = "<p>None.</p>"
    answers = "".join(
        f"<li><code>{escape(code)}</code> {_text(found.get('description', ''))}"
        f"{_kinds(found, schema)}</li>"
        for code, found in operation["responses"].items()
    )
    return (
        f"<section><h2><code>{method.upper()} {escape(path)}</code></h2>"
        f"<p>{_text(operation.get('summary', ''))}</p>{_example(method, path, parameters)}"
        f"<h3>Parameters</h3>{table}<h3>Answers</h3><ul>{answers}</ul></section>"
    )


def _parameter(p: dict[str, Any]) -> str:
    found = p["schema"]
    needed = " (needed)" if p.get("required") else ""
    examples = found.get("examples") or []
    shown = escape(str(examples[0])) if examples else ""
    return (
        f"<tr><th scope='row'><code>{escape(p['name'])}</code>{needed}</th><td>{_type(found)}</td>"
        f"<td>{_text(found.get('description', p.get('description', '')))}</td>"
        f"<td><code>{shown}</code></td></tr>"
    )


def _type(found: dict[str, Any]) -> str:
    if "enum" in found:
        return escape(" or ".join(map(str, found["enum"])))
    options = [o for o in found.get("anyOf", [found]) if o.get("type") != "null"]
    first = options[0] if options else {}
    low, high = first.get("minimum"), first.get("maximum")
    limits = f", {low:,} to {high:,}" if low is not None and high is not None else ""
    return escape({"string": "text"}.get(str(first.get("type")), str(first.get("type"))) + limits)


def _kinds(found: dict[str, Any], schema: dict[str, Any]) -> str:
    names = []
    for kind, content in found.get("content", {}).items():
        reference = content.get("schema", {}).get("$ref", "").rpartition("/")[2]
        fields = schema.get("components", {}).get("schemas", {}).get(reference, {})
        keys = ", ".join(fields.get("properties", {}))
        names.append(f"{escape(kind)}{': ' + escape(keys) if keys else ''}")
    return f" ({'; '.join(names)})" if names else ""


def _example(method: str, path: str, parameters: list[dict[str, Any]]) -> str:
    needed = {
        p["name"]: (p["schema"].get("examples") or p["schema"].get("enum") or ["…"])[0]
        for p in parameters
        if p.get("required")
    }
    query = f"?{urlencode(needed)}" if needed else ""
    if method != "get":
        return f"<pre>curl --data-binary @FILE 'http://127.0.0.1:8765{escape(path + query)}'</pre>"
    return f'<p><a href="{escape(path + query)}"><code>{escape(path + query)}</code></a></p>'
