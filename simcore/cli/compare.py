"""``simcore compare``: clusters side by side."""

from __future__ import annotations

from typing import Annotated, Any

import typer

from simcore.cli import names
from simcore.cli.options import fixed_words, option
from simcore.cli.output import write


def compare(
    model: Annotated[
        str | None, option("--model", "NAME", "What to train (needed).", names.models)
    ] = None,
    gpus: Annotated[
        list[str] | None,
        option("--gpus", "GRID", "A cluster or several (needed); give it again for each.",
               names.cluster),
    ] = None,
    strategy: Annotated[
        str | None, option("--strategy", "NAMES", "One, or a list: each is a column.",
                           names.strategies),
    ] = None,
    micro_batch: Annotated[
        str | None, option("--micro-batch", "N|max", "max: the most that fits on each.")
    ] = None,
    grad_accum: Annotated[
        str | None, option("--grad-accum", "N", "Micro-batches a step.")
    ] = None,
    global_batch: Annotated[
        str | None, option("--global-batch", "N", "Samples a step, the same for all.")
    ] = None,
    tp: Annotated[str | None, option("--tp", "LIST", "Tensor parallel ranks.")] = None,
    pp: Annotated[str | None, option("--pp", "LIST", "Pipeline stages.")] = None,
    vpp: Annotated[str | None, option("--vpp", "LIST", "Chunks of layers a stage.")] = None,
    cp: Annotated[str | None, option("--cp", "LIST", "Context parallel ranks.")] = None,
    ep: Annotated[str | None, option("--ep", "LIST", "Expert parallel ranks.")] = None,
    precision: Annotated[
        str | None, option("--precision", "NAMES", "One or a list.", names.precisions)
    ] = None,
    recompute: Annotated[
        str | None, option("--recompute", "NAMES", "One or a list.", names.recomputes)
    ] = None,
    optimizer: Annotated[
        str | None, option("--optimizer", "NAMES", "One or a list.", names.optimizers)
    ] = None,
    offload: Annotated[
        str | None, option("--offload", "LIST", "none, optimizer, ...", names.offloads)
    ] = None,
    with_: Annotated[
        list[str] | None,
        option("--with", "WORD=VALUE", "A word of `predict` for all points: overlap=none, "
               "shard-ranks=8, zero-bubble=yes."),
    ] = None,
    seq_len: Annotated[str | None, option("--seq-len", "LIST", "Sequence lengths.")] = None,
    network: Annotated[
        str | None, option("--network", "LIST", "Links between nodes.", names.networks)
    ] = None,
    node: Annotated[str | None, option("--node", "NAME", "Node preset.", names.nodes)] = None,
    calibration: Annotated[
        str | None,
        option("--calibration", "NAME|FILE", "Fitted hardware figures.", names.calibrations),
    ] = None,
    price: Annotated[
        list[str] | None, option("--price", "GPU=DOLLARS", "Price of a GPU and hour: H100=2.5.")
    ] = None,
    prices: Annotated[
        str | None, option("--prices", "LIST", "One price list only: runpod, lambda, akash.",
                           names.price_lists),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="The answer as JSON.")] = False,
) -> None:  # fmt: skip
    """Put clusters (or strategies, degrees, precisions) side by side.

    Each predicted as `simcore predict` does: fit, step with its interval, throughput, what
    binds, and GPU-hours, cost and energy of a million samples. Exit code 0: one fits, 1: none.
    """
    from simcore import api
    from simcore.base.errors import InvalidConfig, UsageError

    problems: list[str] = []
    if model is None:
        problems.append("--model is missing: name one of `simcore list models`")
    if not gpus:
        problems.append("--gpus is missing: --gpus 2x8xRTX4090 --gpus 1x4xH100")
    words: dict[str, Any] = {
        "strategy": strategy, "precision": precision, "recompute": recompute,
        "optimizer": optimizer, "offload": offload, "seq_len": seq_len,
        "tp": tp, "pp": pp, "vpp": vpp, "cp": cp, "ep": ep, "micro_batch": micro_batch,
        "grad_accum": grad_accum, "global_batch": global_batch,
        "network": network, "node": node, "calibration": calibration,
        **fixed_words(with_ or (), problems),
    }  # fmt: skip
    if problems:
        raise InvalidConfig(problems)
    assert model is not None and gpus is not None
    if "," in model:
        raise UsageError("--model takes one name: compare clusters or strategies for it")
    found = api.compare(model, gpus, price=price or (), prices=prices, **words)
    if as_json:
        from simcore.report.jsonout import dumps, finite

        write(dumps(finite(found.to_dict())))
    else:
        from simcore.report.compare import render_comparison

        write(render_comparison(found))
    if not any(c.fits for c in found.columns):
        raise typer.Exit(1)
