"""The JSON Schema of a prediction: the contract of ``simcore predict --json``.

python -m simcore.report.schema > docs/prediction.schema.json
"""

from __future__ import annotations

from typing import Any

from simcore.engine.result import SCHEMA_VERSION
from simcore.report.terms import BUBBLE, MEMORY, TIME
from simcore.strategy.options import OPTIONS, Number, Pairs, Switch, Texts, Whole

Schema = dict[str, Any]


def _of(kind: str, description: str, **more: Any) -> Schema:
    return {"type": kind, "description": description, **more}


def _positive(description: str) -> Schema:
    return _of("number", description, minimum=0)


def _maybe(description: str) -> Schema:
    return {"type": ["number", "null"], "description": description}


def _text(description: str) -> Schema:
    return _of("string", description)


def _count(description: str) -> Schema:
    return _of("integer", description, minimum=1)


def _texts(description: str) -> Schema:
    return _of("array", description, items={"type": "string"})


def _object(
    description: str, properties: dict[str, Schema], required: list[str] | None = None
) -> Schema:
    return _of(
        "object",
        description,
        properties=properties,
        required=list(properties) if required is None else required,
        additionalProperties=False,
    )


def _list(description: str, properties: dict[str, Schema]) -> Schema:
    return _of("array", description, items=_object("One entry.", properties))


def _inputs() -> Schema:
    return _object(
        "What was predicted, defaults filled in.",
        {
            "model": _text("Name in models_db."),
            "model_full_name": _text("Name as its authors write it."),
            "n_params": _of("integer", "Trained parameters, ties counted once.", minimum=0),
            "n_frozen_params": _of("integer", "Parameters of adapters' frozen base.", minimum=0),
            "cluster": _text("NODESxGPUSxTYPE, joined with + for mixed clusters."),
            "n_gpus": _count("All GPUs."),
            "n_nodes": _count("All nodes."),
            "strategy": _text("dp, manual, ddp, zero1, zero2 or zero3."),
            "shard_ranks": _of(
                "integer", "Ranks that ZeRO shards over, replicas between; 0: all.", minimum=0
            ),
            "precision": _text(
                "fp32, fp32-ieee, tf32, amp-fp16, amp-bf16, fp16, bf16, fp16-true, bf16-true, fp8, "
                "mxfp8 or nvfp4."
            ),
            "optimizer": _text("adamw, adam, sgd or sgd-plain."),
            "recompute": _text("none, selective or full."),
            "offload": _text("none, or what goes where: optimizer:cpu,params:nvme."),
            "layout": _text("Model parallel degrees above one: tp4 pp2 vpp3; empty without any."),
            "data_ranks": _count("Replicas that read different samples."),
            "micro_batch": _count("Samples a replica in one forward and backward."),
            "grad_accum": _count("Micro-steps a step."),
            "global_batch": _count("Samples a step: micro_batch x grad_accum x data_ranks."),
            "sample_unit": _text("What one sample is: image, sequence, video…"),
            "tokens_per_sample": _positive("Tokens (patches, frames) of one sample; 0: has none."),
        },
    )


def _options() -> Schema:
    """Every option of the table with its type; null where it has no value."""
    found: dict[str, Schema] = {}
    for option in OPTIONS.options().values():
        if option.on_command_line:
            kind = next((name for kinds, name in _JSON if isinstance(option.kind, kinds)), "string")
            unit = f" [{option.unit}]" if option.unit else ""
            found[option.name] = {
                "type": [kind, "null"], "description": f"{option.help}{unit}",
            }  # fmt: skip
    said = "Every option with the value that was predicted with, whoever chose it."
    return _object(said, found, required=[])


#: JSON types of the kinds of options; else text.
_JSON: tuple[tuple[Any, str], ...] = (
    (Whole, "integer"), (Number, "number"), (Switch, "boolean"), (Texts, "array"),
    (Pairs, "object"),
)  # fmt: skip


def _memory() -> Schema:
    terms = {key: _positive(f"{term.meaning[:1].upper()}{term.meaning[1:]} [bytes].")
             for key, term in MEMORY.items()}  # fmt: skip
    return _object(
        "Memory of the fullest GPU at its peak [bytes].",
        {
            "allocated": _positive("Tensors: torch.cuda.max_memory_allocated."),
            "reserved": _positive("Held by the allocator: torch.cuda.max_memory_reserved."),
            "device": _positive("All that the process holds, without fragmentation."),
            "needed": _positive("device and the allocator's fragmentation; decides fits."),
            "capacity": _positive("What the driver offers on the smallest GPU."),
            "low": _positive("Lower end of the 80 % interval of device."),
            "high": _positive("Upper end of the 80 % interval of device."),
            "host": _positive("Pinned host memory a GPU, with offload."),
            "host_lack": _positive("What a node's GPUs keep beyond its host memory; not in fits."),
            "host_capacity": _positive("Host memory of a node."),
            "nvme": _positive("NVMe a GPU, with offload."),
            "moment": _text("When the peak is: frozen forward, forward, backward, optimizer step."),
            "terms": _object("Terms above zero; they add up to device.", terms, required=[]),
        },
    )


def build() -> Schema:
    """The schema, draft 2020-12."""
    times = {key: _positive(f"{term.meaning[:1].upper()}{term.meaning[1:]} [s].")
             for key, term in TIME.items()}  # fmt: skip
    properties = {
        "schema_version": {"const": SCHEMA_VERSION, "description": "Version of this contract."},
        "fits": _of("boolean", "Whether memory_bytes.needed is within capacity."),
        "inputs": _inputs(),
        "options": _options(),
        "defaults": _texts("Settings that nobody gave, as 'flag value'."),
        "step_time_s": _object(
            "Time of one optimizer step, mean over an epoch [s].",
            {
                "value": _positive("Central estimate."),
                "low": _positive("10th percentile."),
                "high": _positive("90th percentile."),
                "origin": _text("Where the estimate and its interval come from."),
            },
        ),
        "samples_per_s": _positive("Samples of the whole job a second."),
        "tokens_per_s": _maybe("Tokens of the whole job a second; null where a sample is no text."),
        "iter_per_s": _positive("Steps a second."),
        "speedup_vs_1gpu": _positive("samples_per_s over that of one single_gpu alone."),
        "single_gpu": _text("The GPU that speed-up is measured against: the fastest type."),
        "scaling_efficiency_frac": _positive("samples_per_s over the sum of all GPUs alone."),
        "mfu_frac": _positive("Model FLOP a second over the dense peak of the precision."),
        "time_s": _object(
            "Where the step goes [s]. All but compute (a sum) and communication_hidden add up "
            "to step_time_s.value.",
            times,
            [key for key in TIME if key != BUBBLE],
        ),
        "memory_bytes": _memory(),
        "margin_frac": _of("number", "Share of the capacity left; negative: does not fit."),
        "fixes": _texts("Changes that make it fit, each computed; empty where it fits."),
        "instead": _texts("Changes that make another kind of training of it, adapters, that fits."),
        "why_none": _text("Why no number of these GPUs holds it; empty where one was found."),
        "bound_by": _text(
            "The resource whose doubling gains most, two that bind together, 'fixed costs', or "
            "'pipeline bubble' where that is the longest term."
        ),
        "what_if": _list(
            "Twice as much of one resource, best first.",
            {
                "resource": _text("What is doubled."),
                "step_time_s": _positive("Step time then [s]."),
                "gain_frac": _of("number", "Share of the step time saved."),
            },
        ),
        "rank_classes": _list(
            "Kinds of GPU in the job.",
            {
                "gpu": _text("Name in hardware_db."),
                "n_gpus": _count("How many."),
                "micro_batch": _count("Samples that each takes at a time."),
                "compute_s": _positive("Forward, backward and frozen networks of a step [s]."),
            },
        ),
        "uneven": _list(
            "What an uneven deal of the batch over unequal GPUs would give, where it is faster.",
            {
                "resource": _text("What to do."),
                "step_time_s": _positive("Step time then [s]."),
                "gain_frac": _of("number", "Share of the step time saved."),
            },
        ),
        "faster": _list(
            "Other strategies and batches that fit and bring more samples a second, best first; "
            "empty where the job does not fit.",
            {
                "change": _text("What to change."),
                "samples_per_s": _positive("Samples of the whole job a second then."),
                "gain_frac": _of("number", "Share of samples_per_s gained."),
            },
        ),
        "stages": _list(
            "Runs of equal pipeline stages, from the input on; empty without a pipeline.",
            {
                "first": _of("integer", "Number of the first of them, from 0."),
                "count": _count("How many."),
                "layers": _of("integer", "Layers of each."),
                "micro_step_s": _positive("Forward and backward of a micro-batch [s]."),
                "memory_bytes": _positive("Peak of the first, the fullest of them [B]."),
            },
        ),
        "uneven_split_gain_frac": _positive(
            "Share of the step that a batch split by speed would save; 0 with one kind of GPU."
        ),
        "run_steps": _maybe("Steps of the run, where --steps or --epochs was given."),
        "run_time_s": _maybe("Time of the run [s], likewise."),
        "measured": _list(
            "Measurements of the same set-up.",
            {
                "source": _text("Where it was published."),
                "quantity": _text("What was measured; its unit is the suffix."),
                "measured": _of("number", "As published, in SI."),
                "predicted": _of("number", "Of this prediction, in SI."),
                "error_frac": _maybe("(predicted - measured) / measured."),
                "note": _text("What else is known of it."),
            },
        ),
        "assumptions": _texts("What nobody stated and the prediction took for granted."),
    }
    schema = _object("What `simcore predict --json` prints. SI units.", properties)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "simcore prediction",
        **schema,
    }


if __name__ == "__main__":
    import sys

    from simcore.report.jsonout import dumps

    sys.stdout.write(dumps(build()))
