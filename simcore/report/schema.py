"""The JSON Schema of a prediction: the contract of ``simcore predict --json``.

python -m simcore.report.schema > docs/prediction.schema.json
"""

from __future__ import annotations

from typing import Any

from simcore.answer.result import SCHEMA_VERSION
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


def _or_null(description: str, properties: dict[str, Schema]) -> Schema:
    either = [_object(description, properties), {"type": "null"}]
    return {"description": description, "oneOf": either}


def _list(description: str, properties: dict[str, Schema]) -> Schema:
    return _of("array", description, items=_object("One entry.", properties))


def _inputs() -> Schema:
    return _object(
        "The job that was predicted, with defaults filled in.",
        {
            "model": _text("Name in models_db."),
            "model_full_name": _text("Name as its authors write it."),
            "n_params": _of("integer", "Trained parameters; tied ones count once.", minimum=0),
            "n_frozen_params": _of("integer", "Frozen parameters under adapters.", minimum=0),
            "cluster": _text("NODESxGPUSxTYPE, joined with + for mixed clusters."),
            "n_gpus": _count("All GPUs."),
            "n_nodes": _count("All nodes."),
            "strategy": _text("dp, manual, ddp, zero1, zero2 or zero3."),
            "shard_ranks": _of(
                "integer", "Ranks of a ZeRO group; groups are replicas. 0: all ranks.", minimum=0
            ),
            "precision": _text(
                "fp32, fp32-ieee, tf32, amp-fp16, amp-bf16, fp16, bf16, fp16-true, bf16-true, fp8, "
                "mxfp8 or nvfp4."
            ),
            "optimizer": _text("adamw, adam, sgd or sgd-plain."),
            "recompute": _text("none, selective or full."),
            "offload": _text("none, or a list such as optimizer:cpu,params:nvme."),
            "layout": _text("Model-parallel degrees above one: tp4 pp2 vpp3; empty without any."),
            "data_ranks": _count("Replicas that read different samples."),
            "micro_batch": _count("Samples per replica in one forward and backward pass."),
            "grad_accum": _count("Micro-steps per step."),
            "global_batch": _count("Samples per step: micro_batch x grad_accum x data_ranks."),
            "sample_unit": _text("What one sample is: image, sequence, video…"),
            "tokens_per_sample": _positive("Tokens (patches, frames) of one sample; 0: no tokens."),
        },
    )


def _options() -> Schema:
    """Every option of the table with its type; null where it has no value."""
    properties: dict[str, Schema] = {}
    for option in OPTIONS.options().values():
        if option.on_command_line:
            kind = next((name for kinds, name in _JSON if isinstance(option.kind, kinds)), "string")
            unit = f" [{option.unit}]" if option.unit else ""
            properties[option.name] = {
                "type": [kind, "null"], "description": f"{option.help_text}{unit}",
            }  # fmt: skip
    meaning = "Every option with the value that was predicted with, whoever chose it."
    return _object(meaning, properties, required=[])


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
            "device": _positive("Device memory of the process, as nvidia-smi shows it."),
            "needed": _positive(
                "The least that the job runs with, with holes that cannot be freed; decides fits."
            ),
            "capacity": _positive("Memory that the driver offers on the smallest GPU."),
            "low": _positive("Lower end of the 80 % interval of device."),
            "high": _positive("Upper end of the 80 % interval of device."),
            "host": _positive("Pinned host memory per GPU, with offload."),
            "host_lack": _positive("Host memory that a node is short of; fits ignores it."),
            "host_capacity": _positive("Host memory of a node."),
            "nvme": _positive("NVMe space per GPU, with offload."),
            "moment": _text(
                "Phase of the peak: frozen forward, forward, backward, optimizer step, set-up."
            ),
            "terms": _object("Terms above zero; they add up to device.", terms, required=[]),
        },
    )


def build() -> Schema:
    """The JSON Schema (draft 2020-12) of a prediction."""
    times = {key: _positive(f"{term.meaning[:1].upper()}{term.meaning[1:]} [s].")
             for key, term in TIME.items()}  # fmt: skip
    properties = {
        "schema_version": {"const": SCHEMA_VERSION, "description": "Version of this contract."},
        "fits": _of("boolean", "Whether memory_bytes.needed is within capacity."),
        "inputs": _inputs(),
        "options": _options(),
        "defaults": _texts("Settings that the user did not choose, as 'flag value'."),
        "step_time_s": _object(
            "Time of one optimizer step, mean over an epoch [s].",
            {
                "value": _positive("Central estimate."),
                "low": _positive("10th percentile."),
                "high": _positive("90th percentile."),
                "origin": _text("Where the estimate and its interval come from."),
            },
        ),
        "samples_per_s": _positive("Samples per second of the whole job."),
        "tokens_per_s": _maybe("Tokens per second of the whole job; null if samples are not text."),
        "iter_per_s": _positive("Steps per second."),
        "speedup_vs_1gpu": _positive("samples_per_s over that of a job on one single_gpu."),
        "single_gpu": _text("The GPU type of the speed-up's reference: the job's fastest."),
        "scaling_efficiency_frac": _positive(
            "samples_per_s over the sum of the rates of all GPUs, each as a job of one GPU; for a "
            "sharded job the share of the step without exposed communication and pipeline bubble."
        ),
        "mfu_frac": _positive("Model FLOP per second over the dense peak of the precision."),
        "time_s": _object(
            "Terms of the step time [s]. All but compute (a sum) and communication_hidden add up "
            "to step_time_s.value.",
            times,
            [key for key in TIME if key != BUBBLE],
        ),
        "memory_bytes": _memory(),
        "margin_frac": _of("number", "Share of the capacity left; negative: does not fit."),
        "fixes": _texts("Changes that make it fit, each computed; empty where it fits."),
        "instead": _texts(
            "Changes with which the job would train adapters on frozen weights, which is another "
            "kind of training, and fit on these GPUs; empty if the job itself fits."
        ),
        "why_none": _text(
            "Why no number of these GPUs makes it fit; empty if one was found or is not needed."
        ),
        "bound_by": _text(
            "The resource whose doubling gains most, or two that limit the step together, or "
            "'fixed costs', or 'pipeline bubble' if that is the longest term."
        ),
        "what_if": _list(
            "The step with twice as much of one resource, best first.",
            {
                "resource": _text("The resource that is doubled."),
                "step_time_s": _positive("Step time then [s]."),
                "gain_frac": _of("number", "Share of the step time saved."),
            },
        ),
        "rank_classes": _list(
            "Kinds of GPU in the job.",
            {
                "gpu": _text("Name in hardware_db."),
                "n_gpus": _count("Number of GPUs of this kind."),
                "micro_batch": _count("Samples per GPU in one forward and backward pass."),
                "compute_s": _positive("Forward, backward and frozen networks of a step [s]."),
            },
        ),
        "uneven": _list(
            "Steps with the batch split unevenly over unequal GPUs, where that is faster.",
            {
                "resource": _text("The split."),
                "step_time_s": _positive("Step time then [s]."),
                "gain_frac": _of("number", "Share of the step time saved."),
            },
        ),
        "faster": _list(
            "Other strategies and batches that fit and have a higher throughput, best first; "
            "empty if the job does not fit.",
            {
                "change": _text("What to change."),
                "samples_per_s": _positive("Samples per second of the whole job then."),
                "gain_frac": _of("number", "Share of samples_per_s gained."),
            },
        ),
        "stages": _list(
            "Groups of consecutive equal pipeline stages, from the input on; empty without them.",
            {
                "first": _of("integer", "Number of the first stage of the group, from 0."),
                "count": _count("Stages of the group."),
                "layers": _of("integer", "Layers per stage."),
                "micro_step_s": _positive("Forward and backward of a micro-batch [s]."),
                "memory_bytes": _positive("Peak of the group's first stage, its fullest [B]."),
            },
        ),
        "uneven_split_gain_frac": _positive(
            "Share of the step that a batch split by speed would save; 0 with one kind of GPU."
        ),
        "run_steps": _maybe("Steps of the run, if its length was given."),
        "run_time_s": _maybe("Time of the run [s], if its length was given."),
        "run": _or_null(
            "The run, if its length was given (--steps, --epochs, --tokens); without failures.",
            {
                "steps": _positive("Optimizer steps."),
                "tokens": _maybe("Tokens; null where samples are not text."),
                "time_s": _object(
                    "Time [s] with the 80 % interval of the step time.",
                    {
                        "value": _positive("Central value."),
                        "low": _positive("Lower end."),
                        "high": _positive("Upper end."),
                        "origin": _text("What the interval rests on."),
                    },
                ),
                "cost_usd": _maybe("Cost [dollars]; null where a price is unknown."),
                "energy_kwh": _maybe("Energy of the GPUs [kWh]; null without rated power."),
                "deadline_s": _maybe("Time until --deadline [s]."),
                "deadline_prob": _maybe("Probability that the run ends before the deadline."),
            },
        ),
        "cost": _or_null(
            "What the job costs, if --cost or a price was given.",
            {
                "unit": _text("What a million of is counted: token, or what a sample is."),
                "usd_per_h": _maybe("Dollars an hour of all GPUs."),
                "usd_per_million": _maybe("Dollars for a million units."),
                "kwh_per_million": _maybe("Energy for a million units [kWh]."),
                "sources": _texts("Sources of the prices."),
            },
        ),
        "measured": _list(
            "Measurements of the same set-up.",
            {
                "source": _text("Where it was published."),
                "quantity": _text("What was measured; its unit is the suffix."),
                "measured": _of("number", "The published value, in SI units."),
                "predicted": _of("number", "The value of this prediction, in SI units."),
                "error_frac": _maybe("(predicted - measured) / measured."),
                "note": _text("A remark on the measurement."),
            },
        ),
        "warnings": _texts("The assumptions that change what was given."),
        "assumptions": _texts("What the job does not state and the prediction assumes."),
    }
    schema = _object("The output of `simcore predict --json`, in SI units.", properties)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "simcore prediction",
        **schema,
    }


if __name__ == "__main__":
    import sys

    from simcore.report.jsonout import dumps

    sys.stdout.write(dumps(build()))
