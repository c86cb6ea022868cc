"""``simcore trace-model``: writes an nn.Module as a file of models_db."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simcore.base.errors import UsageError
from simcore.cli.output import complain, write, writing


def trace_model(
    model: Annotated[
        str,
        typer.Argument(metavar="PKG.MOD:CALLABLE", show_default=False,
                       help="A function without arguments that returns an nn.Module; it is run. "
                            "Or timm:NAME, torchvision:NAME."),
    ],
    inputs: Annotated[
        list[str] | None,
        typer.Option("--input", metavar="DTYPE[SHAPE]", show_default=False,
                     help="Shape of an input: float32[B,3,224,224], int64[B,128]; B is the batch. "
                          "Repeat for each input."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", show_default=False,
                     help="models_db file to write; default: print it."),
    ] = None,
) -> None:  # fmt: skip
    """Trace a module, without a GPU or memory for its weights, to a file that needs no torch."""
    from simcore.workload.settings import TrustedName
    from simcore.workload.trace import trace_data
    from simcore.workload.trace.yamlout import yaml_text

    if output is not None and output.suffix not in (".yaml", ".yml"):
        raise UsageError(f"--output {str(output)!r} must end in .yaml")
    data = trace_data(TrustedName(model), tuple(inputs or ()))
    name = output.stem if output is not None else model.rpartition(":")[2]
    text = yaml_text(data, name)
    if output is None:
        write(text)
        return
    with writing("", output):
        output.write_text(text, encoding="utf-8")
    complain(f"{int(data['params']['value']):,} parameters: simcore predict --model {output}")
