"""``simcore config``: where defaults may stand, and what they are."""

from __future__ import annotations

from typing import Annotated

import typer

from simcore.cli.output import write


def config(
    as_json: Annotated[bool, typer.Option("--json", help="Everything as JSON.")] = False,
) -> None:
    """Show the files that defaults come from, and every default that is set.

    \b
    Files, the first wins: ./simcore.toml, then the user's config.toml
    ($SIMCORE_CONFIG names another file; off: none). They read:
      [defaults]
      gpus = "4x8xA6000ada"
      network = "ib-hdr"
    Keys are the options of `simcore predict` without their dashes.
    """
    from simcore.cli.config import KEYS, files, settings

    found = settings()
    if as_json:
        from simcore.report.jsonout import dumps

        write(
            dumps(
                {
                    "files": [{"path": str(f), "exists": f.is_file()} for f in files()],
                    "defaults": {
                        k: {"value": s.value, "file": str(s.file)} for k, s in found.items()
                    },
                    "keys": list(KEYS),
                }
            )
        )
        return
    lines = [f"{f}: {'read' if f.is_file() else 'not there'}" for f in files()]
    if found:
        from simcore.report.tables import table

        rows = [[k.replace("_", "-"), str(s.value), str(s.file)] for k, s in found.items()]
        lines += ["", table(["default", "value", "from"], rows)]
    else:
        lines += ["", "no defaults are set: write them there under [defaults]"]
    write("\n".join(lines) + "\n")
