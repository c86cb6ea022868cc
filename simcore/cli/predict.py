"""``simcore predict``: predicts one training job."""

# No "from __future__ import annotations" here: typer would evaluate the text of each of the fifty
# annotations three times per start.

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simcore.cli import names
from simcore.cli.config import with_defaults
from simcore.cli.emit import emit_problems, warn_unknown, write_launch
from simcore.cli.job import job_options, takes_job
from simcore.cli.memory_files import path_problems, write_files
from simcore.cli.options import ALLOW_CODE, option
from simcore.cli.output import colour_wanted, complain, write
from simcore.cli.trace_files import trace_problems, write_traces
from simcore.cli.values import count, number
from simcore.cli.views import view_problems, write_plot, write_scaling

if TYPE_CHECKING:
    from simcore.api import Prediction


@takes_job()
def predict(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        option("--model", "NAME", "Model to train (needed): `simcore list models`, a YAML or "
                "config.json file, timm:NAME, torchvision:NAME, pkg.mod:callable.", names.models),
    ] = None,
    gpus: Annotated[
        str | None,
        option(
            "--gpus", "CLUSTER",
            "Cluster as NODESxGPUSxTYPE (needed): 4x8xA6000ada, 8xH100, 1x2xA100+1x3xT4; "
            "`simcore list gpus`.", names.cluster,
        ),
    ] = None,
    steps: Annotated[
        str | None, option("--steps", "N", "Also predict the time of a run of N steps.")
    ] = None,
    epochs: Annotated[
        str | None,
        option("--epochs", "N",
               "Also predict the time of a run of N epochs of the model's data set."),
    ] = None,
    emit: Annotated[
        str | None,
        option("--emit", "DIALECT", "Print the job's launch file instead of the answer: "
                "deepspeed, megatron ...: `simcore list dialects`.", names.dialects),
    ] = None,
    as_json: Annotated[
        bool,
        typer.Option("--json", help="Print JSON, described by docs/prediction.schema.json."),
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE|DIR",
                     help="Write a trace of the step for ui.perfetto.dev (.json or .json.gz). A "
                     "name without an ending is a folder with one file per rank, for Holistic "
                     "Trace Analysis."),
    ] = None,
    chakra: Annotated[
        Path | None,
        typer.Option("--chakra", metavar="PREFIX",
                     help="Write Chakra traces for ASTRA-sim as PREFIX.RANK.et."),
    ] = None,
    memory_snapshot: Annotated[
        Path | None,
        typer.Option("--memory-snapshot", metavar="FILE",
                     help="Write the memory over the step for pytorch.org/memory_viz (.pickle)."),
    ] = None,
    memory_plot: Annotated[
        Path | None,
        typer.Option("--memory-plot", metavar="FILE",
                     help="Plot the memory over the step (.svg or .png)."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Plot the answer (.svg or .png)."),
    ] = None,
    plot_kind: Annotated[
        str | None,
        option("--plot-kind", "KIND", "Kind of --plot: overview (default), time, memory, "
                "memory-over-step, scaling, roofline, timeline, sensitivity.", names.plots),
    ] = None,
    scaling: Annotated[
        bool,
        typer.Option("--scaling",
                     help="Print the scaling from one GPU to all, instead of the answer."),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Predict again whenever a file that it reads changes."),
    ] = False,
    explain: Annotated[
        str | None,
        option("--explain", "TERM", "Print formula, inputs and source of a term, instead of the "
                "answer: step_time, memory, comm, mfu.", names.terms),
    ] = None,
    allow_code: ALLOW_CODE = False,
    **job: Any,
) -> None:  # fmt: skip
    """Predict whether a job fits in memory, its speed, its bottleneck and the uncertainty.

    Options that are not given take the model's defaults, which are marked (default). Exit code 0:
    it fits, 1: it does not, 2: the command is wrong.
    """
    words, from_files = with_defaults({"model": model, "gpus": gpus, **job}, allow_code=allow_code)
    model, gpus, launch = words["model"], words["gpus"], words["launch"]
    problems: list[str] = path_problems(memory_snapshot, memory_plot)
    problems += trace_problems(trace, chakra)
    problems += view_problems(plot, plot_kind, scaling, explain, emit)
    if model is None:
        hint = " (a launch file does not name it)" if launch else ""
        problems.append(f"--model is missing: name one of `simcore list models`{hint}")
    if gpus is None:
        hint = ", or only the type where the launch file has the numbers" if launch else ""
        problems.append(f"--gpus is missing: write NODESxGPUSxTYPE, such as 4x8xA6000ada{hint}")
    if from_files:
        complain(f"note: {from_files}")  # before an error that a default causes
    del watch  # handled in cli.main
    length = {
        "steps": count("steps", steps, problems),
        "epochs": number("epochs", epochs, problems),
    }
    if steps is not None and epochs is not None:
        length = {"steps": 1.0, "epochs": 1.0}  # report that both are given, even if invalid
    options = job_options(words, problems)
    problems += emit_problems(emit, as_json, explain)
    answer = _answer(model, gpus, options, length, trace is not None, explain, problems)
    warn_unknown(launch)
    if from_files:
        answer = replace(answer, assumptions=(from_files, *answer.assumptions))
    if model is not None and gpus is not None:
        write_traces(answer, model, gpus, options, trace, chakra)
        write_files(model, gpus, options, memory_snapshot, memory_plot)
    if plot is not None:
        write_plot(answer, plot, plot_kind)
    if scaling:
        assert model is not None and gpus is not None
        write_scaling(model, gpus, options, as_json)
    elif explain is not None:
        assert model is not None and gpus is not None
        _explain(model, gpus, explain, options, as_json)
    elif emit is not None:
        assert model is not None and gpus is not None
        write_launch(emit, model, gpus, options)
    elif as_json:
        from simcore.report.jsonout import dumps, to_dict

        write(dumps(to_dict(answer)))
    else:
        from simcore.report.text import render

        write(render(answer, colour=colour_wanted()))
    if not answer.fits:
        raise typer.Exit(1)


def _answer(
    model: str | None,
    gpus: str | None,
    options: dict[str, Any],
    length: dict[str, float | None],
    traced: bool,
    explain: str | None,
    problems: list[str],
) -> "Prediction":
    """The prediction. Raises InvalidConfig that lists everything that is wrong with the command."""
    from simcore import api
    from simcore.base.errors import InvalidConfig, SimcoreError

    def attempt(check: Any) -> None:
        try:
            check()
        except InvalidConfig as err:
            problems.extend(err.violations)
        except SimcoreError as err:
            problems.append(str(err))

    problems += api.run_violations(length["steps"], length["epochs"])
    if explain is not None:
        attempt(lambda: api.find_terms(explain))
    if problems:
        if model is not None and gpus is not None:
            attempt(lambda: api.make_request(model, gpus, **options))
        raise InvalidConfig(list(dict.fromkeys(problems)))
    assert model is not None and gpus is not None
    return api.predict(
        model,
        gpus,
        steps=length["steps"],
        epochs=length["epochs"],
        keep_timeline=traced,
        **options,
    )


def _explain(model: str, gpus: str, term: str, options: dict[str, Any], as_json: bool) -> None:
    from simcore import api

    explanation = api.explain(model, gpus, term, **options)
    if as_json:
        from simcore.report.jsonout import dumps, explanation_to_dict

        write(dumps(explanation_to_dict(explanation)))
        return
    from simcore.report.text import render_explanation

    write(render_explanation(explanation, api.find_terms(term)[1:]))
