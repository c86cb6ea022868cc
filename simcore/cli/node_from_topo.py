"""``simcore node-from-topo``: makes a node record from the matrix of ``nvidia-smi topo -m``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simcore.cli import names
from simcore.cli.files import missing_problems
from simcore.cli.options import AS_JSON, option
from simcore.cli.output import write
from simcore.cli.values import whole


def node_from_topo(
    file: Annotated[Path, typer.Argument(metavar="FILE", help="Output of `nvidia-smi topo -m`.")],
    gpu: Annotated[
        str | None,
        option("--gpu", "NAME", "GPU type, unless the file has the output of `nvidia-smi -L`.",
               names.gpus),
    ] = None,
    nics: Annotated[
        str | None, option("--nics", "LINK", "Network adapters: 8xib-ndr.", names.networks)
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
    from simcore.base.errors import InvalidConfig

    problems: list[str] = []
    n_sockets = whole("sockets", sockets, problems)
    problems += missing_problems(file)
    if output is not None and output.suffix not in (".yaml", ".yml"):
        problems.append(f"a node is a .yaml file, not {output.name!r}")
    if name is not None and output is not None and output.stem != name:
        problems.append(f"the file of a node has its name: {name}.yaml, not {output.name!r}")
    if problems:
        raise InvalidConfig(problems)
    chosen = name or (output.stem if output is not None else file.name.partition(".")[0])
    target = output or Path("hardware_db") / "nodes" / f"{chosen}.yaml"
    found = api.node_from_topo(
        file, gpu=gpu, name=chosen, nics=nics, sockets=n_sockets, output=target
    )
    if as_json:
        from simcore.report.jsonout import dumps, finite

        write(dumps(finite(found)))
        return
    from simcore.report.formatting import labelled

    lines = [f"{found['node']['full_name']}"]
    for label, words in (("STATED", found["told"]), ("ASSUMED", found["assumptions"])):
        for i, word in enumerate(words):
            lines += labelled("" if i else label, word)
    lines += ["", f"written to {target}: simcore predict ... --node {chosen}"]
    write("\n".join(lines) + "\n")
