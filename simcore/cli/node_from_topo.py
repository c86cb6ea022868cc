"""``simcore node-from-topo``: makes a node record from the matrix of ``nvidia-smi topo -m``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from simcore.base.errors import Problems
from simcore.cli.options import AS_JSON, option, whole
from simcore.cli.output import missing_problems, write_result


def node_from_topo(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Output of `nvidia-smi topo -m`.")],
    gpu: Annotated[
        str | None,
        option("--gpu", "NAME", "GPU type, unless the file has the output of `nvidia-smi -L`.",
               "gpu"),
    ] = None,
    nics: Annotated[
        str | None, option("--nics", "LINK", "Network adapters: 8xib-ndr.", "network")
    ] = None,
    sockets: Annotated[
        str | None, option("--sockets", "N", "Number of CPU sockets.")
    ] = None,
    output: Annotated[
        Path | None,
        option("-o", "FILE", "File to write; default: ./hardware_db/nodes/NAME.yaml, which "
               "simcore finds from here."),
    ] = None,
    name: Annotated[
        str | None, option("--name", "NAME", "Name of the node; default: name of the file.")
    ] = None,
    as_json: AS_JSON = False,
) -> None:  # fmt: skip
    """Make a node description from the output of `nvidia-smi topo -m` (or -mp).

    The matrix states NVLinks, PCIe switches, sockets and network adapters. Bandwidths come from the
    GPU's record and its usual node, and are listed as assumptions. Then: simcore predict ...
    --node NAME
    """
    from simcore import api

    problems = Problems()
    n_sockets = whole("sockets", sockets, problems)
    problems += missing_problems(file)
    if output is not None and output.suffix not in (".yaml", ".yml"):
        problems.append(f"a node is a .yaml file, not {output.name!r}")
    if name is not None and output is not None and output.stem != name:
        problems.append(f"the file of a node has its name: {name}.yaml, not {output.name!r}")
    problems.stop()
    chosen = name or (output.stem if output is not None else file.name.partition(".")[0])
    target = output or Path("hardware_db") / "nodes" / f"{chosen}.yaml"
    found = api.node_from_topo(
        file, gpu=gpu, name=chosen, nics=nics, sockets=n_sockets, output=target
    )
    write_result(as_json, lambda: found, lambda: _text(found))


def _text(found: dict[str, Any]) -> str:
    from simcore.report.formatting import labelled

    lines = [f"{found['node']['full_name']}"]
    for label, sentences in (("STATED", found["told"]), ("ASSUMED", found["assumptions"])):
        for i, sentence in enumerate(sentences):
            lines += labelled("" if i else label, sentence)
    lines += ["", f"written to {found['written']}: simcore predict ... --node {found['name']}"]
    return "\n".join(lines) + "\n"
