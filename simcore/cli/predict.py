"""``simcore predict``: predicts one training job."""

# No "from __future__ import annotations" here: typer would evaluate the text of each of the fifty
# annotations three times per start.

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simcore.base.errors import Problems
from simcore.cli.config import subject, with_defaults
from simcore.cli.options import (
    ALLOW_CODE,
    option,
    run_options,
    seconds,
    takes_job,
    typed_options,
)
from simcore.cli.output import Files, colour_wanted, complain, write, write_result

if TYPE_CHECKING:
    from simcore.api import Prediction


@takes_job(run=True)
def predict(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        option("--model", "NAME", "Model to train (needed): `simcore list models`, a YAML or "
                "config.json file, timm:NAME, torchvision:NAME, pkg.mod:callable.", "model"),
    ] = None,
    gpus: Annotated[
        str | None,
        option(
            "--gpus", "CLUSTER",
            "Cluster as NODESxGPUSxTYPE (needed): 4x8xA6000ada, 8xH100, 1x2xA100+1x3xT4; "
            "or machines: 2xp5.48xlarge; `simcore list gpus`.", "cluster",
        ),
    ] = None,
    emit: Annotated[
        str | None,
        option("--emit", "DIALECT", "Print the job's launch file instead of the answer: "
                "deepspeed, megatron ...: `simcore list dialects`.", "dialect"),
    ] = None,
    save_dir: Annotated[
        Path | None,
        typer.Option("--save-dir", metavar="DIR",
                     help="Write a folder with everything that starts the job, and its prediction; "
                     "for the program of --emit, or the predicted one."),
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
                     help="Plot the memory over the step (.svg, .pdf or .png)."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Plot the answer (.svg, .pdf or .png)."),
    ] = None,
    plot_kind: Annotated[
        str | None,
        option("--plot-kind", "KIND", "Kind of --plot: overview (default), time, memory, "
                "memory-over-step, scaling, roofline, timeline, sensitivity.", "plot"),
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
        option("--explain", "[TERM]", "Print formula, inputs and source of a term, instead of the "
                "answer: step_time, memory, comm, mfu. Without a term: list them with their "
                "values. assumed: every assumption.", "term"),
    ] = None,
    measured_step: Annotated[
        str | None,
        option("--measured", "TIME", "Print why a measured step differs from the predicted one, "
               "the likeliest causes first, instead of the answer: 0.85, 850ms."),
    ] = None,
    inference: Annotated[
        bool,
        typer.Option("--inference", help="Print memory and rates of a language model that "
                     "generates text on one node, instead of the answer: --micro-batch sequences "
                     "at once, of --seq-len tokens."),
    ] = False,
    strict: Annotated[
        bool,
        typer.Option("--strict", help="Refuse a launch file with keys that are not understood."),
    ] = False,
    allow_code: ALLOW_CODE = False,
    **job: Any,
) -> None:  # fmt: skip
    """Predict whether a job fits in memory, its speed, its bottleneck and the uncertainty.

    \b
      simcore predict --model llama3-8b --gpus 8xH100 --strategy zero3
      simcore predict --model llama3-8b --gpus RTX4090 --qlora
      simcore predict --model gpt2-xl --gpus 8xA100 --tokens 300B --deadline 30d

    Options that are not given take the model's defaults, which are marked (default). Exit code 0:
    it fits, 1: it does not, 2: the command is wrong.
    """
    words, from_files = with_defaults({"model": model, "gpus": gpus, **job}, allow_code=allow_code)
    files = Files(
        trace=trace, chakra=chakra, memory_snapshot=memory_snapshot, memory_plot=memory_plot,
        plot=plot, plot_kind=plot_kind,
    )  # fmt: skip
    problems = Problems(files.problems())
    if scaling and (explain is not None or emit is not None):
        other = "--explain" if explain is not None else "--emit"
        problems.append(f"--scaling and {other} both write standard output: drop one")
    example = "write NODESxGPUSxTYPE, such as 4x8xA6000ada"
    model, gpus = subject(words, problems, example)
    if from_files:
        complain(f"note: {from_files}")  # before an error that a default causes
    del watch  # handled in cli.main
    run = run_options(words)
    options = typed_options(words, problems)
    step_s = seconds("measured", measured_step, problems)
    if emit is not None or save_dir is not None:
        from simcore.cli.launch import emit_problems, folder_problems

        problems += folder_problems(save_dir)
    if emit is not None:
        problems += emit_problems(emit, as_json, explain)
    if inference:
        problems.stop()
        assert model is not None and gpus is not None
        if not write_inference(model, gpus, options, as_json):
            raise typer.Exit(1)
        return
    answer = _answer(model, gpus, options, run, trace is not None, explain, problems)
    if words["launch"] is not None:
        from simcore.cli.launch import warn_unknown

        warn_unknown(words["launch"], strict=strict)
    if from_files:
        answer = replace(answer, assumptions=(from_files, *answer.assumptions))
    files.write(answer, model, gpus, options)
    if save_dir is not None and emit is None:
        from simcore.cli.launch import usual_dialect

        emit = usual_dialect(model, gpus, options)
        complain(f"note: written for {emit}; --emit names another program")
    if emit is not None:
        from simcore.cli.launch import write_launch

        write_launch(emit, model, gpus, options, save_dir, answer)
    elif step_s is not None:
        write_slower(step_s, model, gpus, options, as_json)
    elif scaling or explain is not None:
        _write_instead(explain, answer, model, gpus, options, as_json)
    elif as_json:
        from simcore.report.jsonout import dumps, to_dict

        write(dumps(to_dict(answer)))
    else:
        from simcore.report.text import render

        write(render(answer, colour=colour_wanted()))
    if not answer.fits:
        raise typer.Exit(1)


def _answer(
    model: str | None, gpus: str | None, options: dict[str, Any], run: dict[str, Any],
    traced: bool, explain: str | None, problems: Problems,
) -> "Prediction":  # fmt: skip
    """The prediction. Raises InvalidConfig that lists everything that is wrong with the command."""
    from simcore import api

    if run:
        from simcore.api.run import run_violations

        problems += run_violations(run)
    if explain not in (None, *_LISTS):
        problems.attempt(api.find_terms, explain)
    if problems and model is not None and gpus is not None:
        problems.attempt(api.make_request, model, gpus, **options)
    problems.stop()
    assert model is not None and gpus is not None
    return api.predict(model, gpus, keep_timeline=traced, **run, **options)


#: What --explain lists besides the terms that it explains.
_LISTS = ("terms", "assumed")


def _write_instead(
    explain: str | None, answer: "Prediction", model: str, gpus: str, options: dict[str, Any],
    as_json: bool,
) -> None:  # fmt: skip
    """Print the explanation of a term, or the scaling up to the cluster, instead of the answer."""
    from simcore import api
    from simcore.report.jsonout import explanation_to_dict, scaling_to_dict
    from simcore.report.text import render_assumed, render_explanation, render_terms

    if explain is None:
        curve = api.scaling(model, gpus, **options)
        write_result(as_json, lambda: scaling_to_dict(curve), lambda: str(curve))
        return
    if explain == "terms":
        terms = api.terms(model, gpus, **options)
        write_result(as_json, lambda: terms, lambda: render_terms(terms))
        return
    if explain == "assumed":
        assumed = answer.assumptions
        write_result(as_json, lambda: assumed, lambda: render_assumed(answer))
        return
    found = api.explain(model, gpus, explain, **options)
    related = api.find_terms(explain)[1:]
    write_result(
        as_json, lambda: explanation_to_dict(found), lambda: render_explanation(found, related)
    )


def write_slower(
    measured_s: float, model: str, gpus: str, options: dict[str, Any], as_json: bool
) -> None:
    """Print what alone would explain a measured step time [s]."""
    from dataclasses import asdict

    from simcore import api
    from simcore.report.explain_trace import render_slower

    found = api.slower(model, gpus, measured_s, **options)
    write_result(as_json, lambda: asdict(found), lambda: render_slower(found))


def write_inference(model: str, gpus: str, options: dict[str, Any], as_json: bool) -> bool:
    """Print memory and rates; returns whether it fits."""
    from dataclasses import asdict

    from simcore import api
    from simcore.report.inference import render_inference

    found = api.inference(model, gpus, **options)
    data = {**asdict(found), "fits": found.fits, "needed_bytes": found.needed_bytes}
    write_result(as_json, lambda: data, lambda: render_inference(found))
    return found.fits
