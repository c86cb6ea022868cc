"""``simcore config``: shows the files of defaults and their contents."""

from __future__ import annotations

from typing import Annotated

import typer

from simcore.cli.output import write


def config(
    as_json: Annotated[bool, typer.Option("--json", help="Print everything as JSON.")] = False,
) -> None:
    """Show the files that defaults come from, and every default that is set.

    \b
    ./simcore.toml has precedence over the user's config.toml
    ($SIMCORE_CONFIG names another file; off: none). Example:
      [defaults]
      gpus = "4x8xA6000ada"
      network = "ib-hdr"
    Keys are the options of `simcore predict` without their dashes.
    """
    from simcore.cli.config import files, keys, settings

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
                    "keys": list(keys()),
                }
            )
        )
        return
    lines = [f"{f}: {'read' if f.is_file() else 'does not exist'}" for f in files()]
    if found:
        from simcore.report.tables import table

        rows = [[k.replace("_", "-"), str(s.value), str(s.file)] for k, s in found.items()]
        lines += ["", table(["default", "value", "from"], rows)]
    else:
        lines += ["", "no defaults are set: write them into one of these under [defaults]"]
    write("\n".join(lines) + "\n")
