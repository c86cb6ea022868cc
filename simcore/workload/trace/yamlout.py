"""The text of a models_db file for a traced model, which simcore reads without torch."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

_HEAD = """\
# Written by {by}. Use it with `simcore predict --model FILE`, or put it into a
# models_db folder. The format of the last section is described in simcore/workload/archs/traced.py.
"""


def _scalar(value: object) -> str:
    return json.dumps(value, ensure_ascii=False)


def _lines(value: Any, indent: str) -> Iterator[str]:
    """The lines of a mapping in YAML block style; texts of several lines become literal blocks."""
    for key, item in value.items():
        if isinstance(item, Mapping) and item:
            yield f"{indent}{key}:"
            yield from _lines(item, indent + "  ")
        elif isinstance(item, str) and "\n" in item:
            yield f"{indent}{key}: |"
            yield from (f"{indent}  {line}" for line in item.splitlines())
        elif isinstance(item, list) and item and isinstance(item[0], Mapping):
            yield f"{indent}{key}:"
            for one in item:
                first, *rest = _lines({k: v for k, v in one.items() if v not in ("", False)},
                                      indent + "    ")  # fmt: skip
                yield f"{indent}  - {first.strip()}"
                yield from rest
        else:
            yield f"{indent}{key}: {_scalar(item)}"


def yaml_text(data: Mapping[str, Any], name: str) -> str:
    """The text of a models_db file; ``name``: the model's name in it."""
    by = "a dry run" if "captured" in data else "`simcore trace-model`"
    return _HEAD.format(by=by) + "\n".join(_lines({**data, "name": name}, "")) + "\n"
