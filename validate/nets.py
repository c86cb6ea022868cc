"""Writes the recorded traces of ``validate/corpora/nets`` again: ``python -m validate.nets``.

    --check    write nothing; say which traces differ from what the tracer makes now

Run it after a change of the tracer. Modules of a table's own script must be importable, and the
libraries installed: ``PYTHONPATH=$SIMCORE_TABLES/gpu/harness:.``. Exit code 1: with ``--check`` a
trace differs; a model cannot be traced here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from simcore.base.database import read_yaml
from simcore.base.errors import SimcoreError
from simcore.validate.formats.row_rules import corpora_folder


def nets() -> list[dict[str, Any]]:
    """The entries of ``nets.yaml``: model, inputs and file."""
    return read_yaml(corpora_folder() / "nets.yaml")["nets"]


def traced(net: dict[str, Any]) -> str:
    """The text of an entry's file as the tracer makes it now. Raises SimcoreError."""
    from simcore.workload.settings import TrustedName
    from simcore.workload.trace import trace_data
    from simcore.workload.trace.yamlout import yaml_text

    data = trace_data(TrustedName(net["model"]), tuple(net.get("inputs", ())))
    return yaml_text(data, Path(net["file"]).stem)


def differs(text: str, other: str) -> bool:
    """Whether two traces differ in more than the release of torch."""
    return _network(text) != _network(other)


def _network(text: str) -> str:
    return text[text.index("\ntraced:") :]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; returns its exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--check", action="store_true")
    check = parser.parse_args(arguments).check
    code = 0
    for net in nets():
        file = corpora_folder() / "nets" / net["file"]
        try:
            text = traced(net)
        except SimcoreError as err:
            sys.stdout.write(f"{net['file']}: {err}\n")
            code = 1
            continue
        if not file.is_file() or differs(text, file.read_text(encoding="utf-8")):
            sys.stdout.write(f"{net['file']}: {'differs' if check else 'written'}\n")
            if check:
                code = 1
            else:
                file.write_text(text, encoding="utf-8")
    return code


if __name__ == "__main__":
    sys.exit(main())
