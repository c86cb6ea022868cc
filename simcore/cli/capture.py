"""``simcore capture``: runs a training script dry and writes or predicts its job."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from simcore.base.errors import Problems, UsageError
from simcore.cli.options import option
from simcore.cli.output import complain, ending_problems, write, writing


def capture(
    script: Annotated[
        str,
        typer.Argument(metavar="SCRIPT", show_default=False,
                       help="A training script, which runs as it is; every word after it is its "
                            "own. With --module the name of a module."),
    ],
    gpus: Annotated[
        str, option("--gpus", "CLUSTER", "Cluster whose rank the script plays: 8x8xH100.",
                    "cluster"),
    ],
    words: Annotated[
        list[str] | None,
        typer.Argument(metavar="[ARGUMENTS]...", show_default=False, help="Arguments of SCRIPT."),
    ] = None,
    output: Annotated[
        Path | None,
        typer.Option("--output", "-o", metavar="FILE", show_default=False,
                     help="File of the job to write (.yaml); default: print its prediction."),
    ] = None,
    module: Annotated[
        bool, typer.Option("--module", help="SCRIPT is a module, as python -m takes it.")
    ] = False,
    world_size: Annotated[
        int | None,
        typer.Option("--world-size", metavar="N", show_default=False,
                     help="Number of ranks; default: all GPUs."),
    ] = None,
    rank: Annotated[int, typer.Option("--rank", metavar="N", help="The rank to play.")] = 0,
    steps: Annotated[
        int, typer.Option("--steps", metavar="N", min=1,
                          help="Updates of the optimizer after which the script is ended."),
    ] = 2,
    time_limit: Annotated[
        str, typer.Option("--time-limit", metavar="TIME", help="Time that the script may take."),
    ] = "300 s",
    memory_limit: Annotated[
        str, typer.Option("--memory-limit", metavar="BYTES", help="Memory that it may take."),
    ] = "8 GB",
    show_output: Annotated[
        bool, typer.Option("--show-output", help="Show what the script prints.")
    ] = False,
) -> None:  # fmt: skip
    """Run a training script without GPUs, as one rank of a cluster, and make it a job.

    The script runs in a process of its own, without network, and writes no files.
    """
    from simcore.api.capture import capture as captured
    from simcore.base.units import parse_quantity

    problems = Problems(ending_problems("--output", output, ".yaml", ".yml"))
    time_s = problems.attempt(_quantity, "--time-limit", time_limit, parse_quantity, "seconds")
    most = problems.attempt(_quantity, "--memory-limit", memory_limit, parse_quantity, "bytes")
    problems.stop()
    job = captured(
        gpus, script, words or (), is_module=module, world_size=world_size, rank=rank, steps=steps,
        time_s=max(1, round(time_s or 0)), memory_bytes=int(most or 0), shows_output=show_output,
    )  # fmt: skip
    if output is not None:
        with writing("", output):
            job.save(output)
        known = " ".join(f"{k}={v}" for k, v in job.options.items())
        complain(f"{known}: simcore predict --model {output} --gpus {gpus}")
        return
    write(f"{job.predict()}\n")


def _quantity(flag: str, text: str, parse: object, dimension: str) -> float:
    try:
        return float(parse(text, dimension))  # type: ignore[operator]
    except UsageError as err:
        raise UsageError(f"{flag}: {err}") from None
