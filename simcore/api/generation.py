"""A language model that generates text on one node."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from simcore.answer.inference import Inference
from simcore.answer.inference import inference as _inference
from simcore.answer.request import make_request
from simcore.api.result import takes_options
from simcore.base.errors import InvalidConfig
from simcore.hardware.cluster import parse_cluster
from simcore.request.resolved import Request
from simcore.strategy.options import OPTIONS, inputs_of, read_options
from simcore.workload.models import ModelRecord
from simcore.workload.resolve import ModelSource, model_of
from simcore.workload.settings import trusts_call


@takes_options()
@trusts_call()
def inference(model: str | Path | ModelSource, gpus: str, **options: Any) -> Inference:
    """Memory and rates of a language model that generates text on one node.

    ``seq_len`` is the number of tokens of a sequence, ``micro_batch`` that of sequences at once
    (1). All GPUs are tensor-parallel. Rates are the roofline of the kernels: upper bounds, whose
    notes say what they leave out. Raises UsageError as ``predict`` does.
    """
    options, problems = read_options(options)
    if problems:
        raise InvalidConfig(problems)
    where = {k: options.get(k) for k in ("network", "node", "nnodes", "nproc_per_node")}
    n = parse_cluster(gpus, **where).n_gpus
    undivided = {o.name: None for o in OPTIONS.options().values() if o.heading == "Parallelism"}
    fixed = {
        **options, **undivided, "strategy": "ddp", "tp": n, "recompute": "none",
        "grad_accum": None, "global_batch": None, "lora_rank": None, "quantised_base": None,
    }  # fmt: skip

    def ask(words: dict[str, Any]) -> Request:
        return make_request(model, gpus, **{**fixed, **words})

    sequences = options.get("micro_batch") or 1
    if sequences == "max":
        raise InvalidConfig(["--inference: --micro-batch is the number of sequences at once"])
    source = model_of(model, inputs_of(options), options.get("settings"))
    settings = source.settings({}) if isinstance(source, ModelRecord) else {}
    return _inference(ask, settings, int(sequences), options.get("quantised_base") or "none")
