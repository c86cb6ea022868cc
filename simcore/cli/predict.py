"""``simcore predict``: one training job, answered."""

# Annotations are values here: typer would evaluate the text of each of fifty three times a start.

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from simcore.cli import names
from simcore.cli.config import with_defaults
from simcore.cli.emit import emit_problems, warn_unknown, write_launch
from simcore.cli.job import job_options, job_words
from simcore.cli.memory_files import path_problems, write_files
from simcore.cli.options import option
from simcore.cli.output import colour_wanted, complain, write
from simcore.cli.trace_files import trace_problems, write_traces
from simcore.cli.values import count, number
from simcore.cli.views import view_problems, write_plot, write_scaling

if TYPE_CHECKING:
    from simcore.api import Prediction


def predict(
    ctx: typer.Context,
    model: Annotated[
        str | None,
        option("--model", "NAME", "What to train (needed): `simcore list models`, a YAML or "
                "config.json file, timm:NAME, torchvision:NAME, pkg.mod:callable.", names.models),
    ] = None,
    inputs: Annotated[
        list[str] | None,
        option("--input", "DTYPE[SHAPE]", "Of a callable or of timm's: float32[B,3,224,224]; "
               "channels_last may follow; once an input."),
    ] = None,
    gpus: Annotated[
        str | None,
        option(
            "--gpus", "CLUSTER",
            "NODESxGPUSxTYPE (needed): 4x8xA6000ada, 8xH100, 1x2xA100+1x3xT4; "
            "`simcore list gpus`.", names.cluster,
        ),
    ] = None,
    strategy: Annotated[
        str | None,
        option("--strategy", "NAME", "dp, manual, ddp, zero1 to zero3 (fsdp), hsdp.",
               names.strategies),
    ] = None,
    micro_batch: Annotated[
        str | None,
        option("--micro-batch", "N|max", "Samples a GPU at a time; max: the most that fits."),
    ] = None,
    grad_accum: Annotated[
        str | None, option("--grad-accum", "N", "Micro-batches a step.")
    ] = None,
    global_batch: Annotated[
        str | None, option("--global-batch", "N", "Samples a step, instead of --grad-accum.")
    ] = None,
    shares: Annotated[
        str | None,
        option("--shares", "RATIO", "On unequal GPUs: samples of each as 3:1 in the order of "
                "--gpus, equal (default), or auto: fastest."),
    ] = None,
    tp: Annotated[str | None, option("--tp", "N", "Tensor parallel ranks (transformers).")] = None,
    pp: Annotated[str | None, option("--pp", "N", "Pipeline stages.")] = None,
    vpp: Annotated[str | None, option("--vpp", "N", "Chunks of layers a pipeline rank.")] = None,
    stages: Annotated[
        str | None,
        option("--stages", "LAYERS",
               "Of each stage: 19,21,21,19 or 7,14x8,7 or 7,rest,7; even (default); auto: best."),
    ] = None,
    cp: Annotated[str | None, option("--cp", "N", "Context parallel ranks.")] = None,
    ep: Annotated[str | None, option("--ep", "N", "Expert parallel ranks.")] = None,
    expert_tp: Annotated[
        str | None, option("--expert-tp", "N", "Tensor ranks of an expert: 1 (default) or tp.")
    ] = None,
    schedule: Annotated[
        str | None,
        option("--schedule", "NAME", "Of the pipeline: 1f1b (with --vpp interleaved), gpipe, "
                "zb-1p, zb-2p, dualpipe.", names.schedules),
    ] = None,
    dispatcher: Annotated[
        str | None,
        option("--dispatcher", "NAME", "alltoall, or deepep: a token goes to a rank once.",
                names.dispatchers),
    ] = None,
    cp_comm: Annotated[
        str | None,
        option("--cp-comm", "NAME", "What context ranks exchange: ring (default), all-gather or "
                "ulysses (all-to-all of heads).", names.cp_comms),
    ] = None,
    expert_imbalance: Annotated[
        str | None,
        option("--expert-imbalance", "FACTOR",
               "Tokens of the fullest expert rank over the mean: 1.3; default 1."),
    ] = None,
    expert_capacity: Annotated[
        str | None,
        option("--expert-capacity", "FACTOR",
               "Slots of an expert over its mean rows: 1.25; tokens beyond are dropped."),
    ] = None,
    expert_padding: Annotated[
        str | None,
        option("--expert-padding", "on|off", "Slots that no token takes are computed (default)."),
    ] = None,
    zero: Annotated[
        str | None, option("--zero", "N", "ZeRO stage 1 to 3, as --strategy zeroN.")
    ] = None,
    shard_ranks: Annotated[
        str | None,
        option("--shard-ranks", "N", "ZeRO shards over N ranks, replicas between (HSDP)."),
    ] = None,
    overlap: Annotated[
        str | None,
        option("--overlap", "LIST", "Hidden traffic: grads (default), params, tensor, dgrad, "
                "experts, pipeline (default with --vpp); or none.", names.overlaps),
    ] = None,
    precision: Annotated[
        str | None,
        option(
            "--precision", "NAME",
            "fp32, fp32-ieee, tf32, amp-fp16, amp-bf16, fp16, bf16, bf16-true, fp8, mxfp8, nvfp4.",
            names.precisions,
        ),
    ] = None,
    recompute: Annotated[
        str | None,
        option("--recompute", "MODE", "none, selective or full.", names.recomputes),
    ] = None,
    recompute_modules: Annotated[
        str | None,
        option("--recompute-modules", "LIST", "Of selective: core_attn (default), layernorm, mlp, "
                "moe_act, moe, shared_experts, mla_up_proj, operators.", names.recompute_modules),
    ] = None,
    recompute_layers: Annotated[
        str | None,
        option("--recompute-layers", "N", "Recompute the first N layers only."),
    ] = None,
    main_grads: Annotated[
        str | None,
        option("--main-grads", "WIDTH", "Gradients as wide as weights (default), fused, fp32.",
                names.main_grads),
    ] = None,
    software: Annotated[
        str | None,
        option("--software", "NAME",
                "Training library: megatron (default with tp, pp, cp, ep, fp8), trainer ...",
                names.software),
    ] = None,
    growing_segments: Annotated[
        str | None,
        option("--growing-segments", "on|off", "Allocator with expandable_segments: no holes."),
    ] = None,
    fp8_params: Annotated[
        str | None,
        option("--fp8-params", "on|off", "Layers' weights held and gathered in 8 bits."),
    ] = None,
    offload_layers: Annotated[
        str | None,
        option("--offload-layers", "N", "Activations of the first N layers go to the host."),
    ] = None,
    optimizer: Annotated[
        str | None,
        option("--optimizer", "NAME", "adamw, adam, sgd or sgd-plain.", names.optimizers),
    ] = None,
    offload: Annotated[
        str | None,
        option(
            "--offload", "WHAT[:WHERE]",
            "none, optimizer, optimizer:nvme, optimizer+params; cpu, cpu-far or nvme.",
            names.offloads,
        ),
    ] = None,
    network: Annotated[
        str | None,
        option("--network", "LINK", 'Between nodes: ib-hdr, 8xib-ndr, "25 Gbit/s"; "8xib-ndr 4:1 '
                'leaf=16": uplinks 4:1, 16 nodes a leaf; rails, sharp.', names.networks),
    ] = None,
    nccl_algo: Annotated[
        str | None,
        option("--nccl-algo", "LIST", "As NCCL_ALGO: Ring,Tree, ^NVLS (all but it) or "
                "allreduce:tree;allgather:ring; --explain collectives shows the choice.",
                names.nccl_algorithms),
    ] = None,
    nccl_proto: Annotated[
        str | None,
        option("--nccl-proto", "LIST", "As NCCL_PROTO: LL, LL128, Simple.", names.nccl_protocols),
    ] = None,
    node: Annotated[
        str | None,
        option("--node", "NAME", "Node preset; `simcore list nodes`; with :no-p2p (or that alone) "
                "GPUs exchange through host memory.", names.nodes),
    ] = None,
    nnodes: Annotated[
        str | None, option("--nnodes", "N", "As torchrun, where --gpus has no counts.")
    ] = None,
    nproc_per_node: Annotated[
        str | None, option("--nproc-per-node", "N", "As torchrun: GPUs a node.")
    ] = None,
    steps: Annotated[str | None, option("--steps", "N", "Time of a run of N steps.")] = None,
    epochs: Annotated[
        str | None, option("--epochs", "N", "Time of a run of N epochs of its data set.")
    ] = None,
    seq_len: Annotated[
        str | None, option("--seq-len", "N", "Sequence length, where the model has one.")
    ] = None,
    resolution: Annotated[
        str | None,
        option("--resolution", "N|HxW", "Of images in pixels: 512, or 480x832 (height first), "
                "where the model has one."),
    ] = None,
    frames: Annotated[
        str | None, option("--frames", "N", "Frames of a clip, where the model has them.")
    ] = None,
    attention: Annotated[
        str | None,
        option("--attention", "NAME", "Kernel of attention: flash (2, torch's choice), flash3, "
                "cudnn, flash1, flash_triton, masked (padded batches), fused_softmax, xla, math.",
                names.attentions),
    ] = None,
    issuer: Annotated[
        str | None,
        option("--issuer", "NAME", "What issues kernels: torch, megatron (3 times the host's "
                "time), megatron_graphs, graph.", names.issuers),
    ] = None,
    launch_blocking: Annotated[
        str | None,
        option("--launch-blocking", "on|off", "Each launch waits for its kernel, as under "
                "CUDA_LAUNCH_BLOCKING=1."),
    ] = None,
    lora_rank: Annotated[
        str | None,
        option("--lora-rank", "N", "Train adapters of rank N, the base frozen (transformers)."),
    ] = None,
    lora_targets: Annotated[
        str | None,
        option("--lora-targets", "LIST", "Products with an adapter: q_proj,v_proj or all-linear."),
    ] = None,
    quantised_base: Annotated[
        str | None, option("--quantised-base", "FORMAT", "Frozen base in none, nf4, int8 or fp8.")
    ] = None,
    calibration: Annotated[
        str | None,
        option("--calibration", "NAME|FILE", "Fitted hardware figures.", names.calibrations),
    ] = None,
    launch: Annotated[
        str | None,
        option("--launch", "FILE|FLAGS", "A launch file or quoted line: DeepSpeed JSON, Megatron "
                "flags, torchtitan TOML, Accelerate YAML, torchrun; options above win."),
    ] = None,
    emit: Annotated[
        str | None,
        option("--emit", "DIALECT", "Write the job's launch file instead of the answer: "
                "deepspeed, megatron, torchtitan, accelerate, torchrun, slurm.", names.dialects),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="JSON as in docs/prediction.schema.json.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option("--trace", metavar="FILE|DIR",
                     help="Write the step for ui.perfetto.dev (.json or .json.gz); without an "
                     "ending a folder: a file a rank, for Holistic Trace Analysis."),
    ] = None,
    chakra: Annotated[
        Path | None,
        typer.Option("--chakra", metavar="PREFIX",
                     help="Write PREFIX.RANK.et, Chakra traces for ASTRA-sim."),
    ] = None,
    memory_snapshot: Annotated[
        Path | None,
        typer.Option("--memory-snapshot", metavar="FILE",
                     help="Write memory over the step for pytorch.org/memory_viz (.pickle)."),
    ] = None,
    memory_plot: Annotated[
        Path | None,
        typer.Option("--memory-plot", metavar="FILE",
                     help="Plot memory over the step (.svg or .png)."),
    ] = None,
    plot: Annotated[
        Path | None,
        typer.Option("--plot", metavar="FILE", help="Draw the answer (.svg or .png)."),
    ] = None,
    plot_kind: Annotated[
        str | None,
        option("--plot-kind", "KIND", "overview (default), time, memory, memory-over-step, "
                "scaling, roofline, timeline, sensitivity.", names.plots),
    ] = None,
    scaling: Annotated[
        bool,
        typer.Option("--scaling", help="One GPU to all of them, instead of the answer."),
    ] = False,
    watch: Annotated[
        bool,
        typer.Option("--watch", help="Again whenever a file that it reads changes."),
    ] = False,
    explain: Annotated[
        str | None,
        option("--explain", "TERM", "Formula, inputs and source: step_time, memory, comm, mfu.",
                names.terms),
    ] = None,
) -> None:  # fmt: skip
    """Will it fit, how fast will it go, what limits it, and how sure is that.

    What is not given takes the model's own default and is marked (default). Exit code 0: it
    fits, 1: it does not, 2: the command is wrong.
    """
    given = {k: v for k, v in ctx.params.items() if k in ("model", "gpus", *job_words())}
    words, told = with_defaults(given)
    model, gpus, launch = words["model"], words["gpus"], words["launch"]
    problems: list[str] = path_problems(memory_snapshot, memory_plot)
    problems += trace_problems(trace, chakra)
    problems += view_problems(plot, plot_kind, scaling, explain, emit)
    if model is None:
        beside = ", which a launch file does not" if launch else ""
        problems.append(f"--model is missing: name one of `simcore list models`{beside}")
    if gpus is None:
        alone = ", or the type alone where the launch file has its counts" if launch else ""
        problems.append(f"--gpus is missing: write NODESxGPUSxTYPE, such as 4x8xA6000ada{alone}")
    del watch  # the command line has seen to it
    length = {
        "steps": count("steps", steps, problems),
        "epochs": number("epochs", epochs, problems),
    }
    if steps is not None and epochs is not None:
        length = {"steps": 1.0, "epochs": 1.0}  # both given, whatever they are
    options = job_options(words, problems)
    problems += emit_problems(emit, as_json, explain)
    answer = _answer(model, gpus, options, length, trace is not None, explain, problems)
    warn_unknown(launch)
    if told:
        complain(f"note: {told}")
        answer = replace(answer, assumptions=(told, *answer.assumptions))
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
    """Predict, or raise with everything that is wrong with the command."""
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

    told = api.explain(model, gpus, term, **options)
    if as_json:
        from simcore.report.jsonout import dumps, explanation_to_dict

        write(dumps(explanation_to_dict(told)))
        return
    from simcore.report.text import render_explanation

    write(render_explanation(told, api.find_terms(term)[1:]))
