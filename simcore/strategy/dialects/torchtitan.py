"""torchtitan's TOML job files: what its record cannot express. An absent key has a default."""

from __future__ import annotations

import math
from typing import Any

from simcore.strategy.dialects.base import Job
from simcore.strategy.dialects.keyed import DIALECTS, TableDialect
from simcore.strategy.dialects.reading import NOT_YET, Reading, Table

_MODEL_DEGREES = ("tp", "pp", "cp")
_LOCAL, _STEPS = "training.local_batch_size", "training.gradient_accumulation_steps"
_PIECE = "pipeline_parallel_microbatch_size"
_REPLICATE, _SHARD = "data_parallel_replicate_degree", "data_parallel_shard_degree"
#: torchao's recipes of float8 products (torchao/float8/config.py, Float8LinearRecipeName).
_RECIPES = {"tensorwise": "fp8-dynamic", "rowwise": "fp8-rowwise"}


def _data_ranks(reading: Reading, table: Table) -> None:
    """Read the data-parallel degrees: how many ranks shard, and how many copies of them there are.

    A shard degree of -1 is all ranks that are left.
    """
    sections = ("parallelism", "training", "experimental")
    r_key, copies = table.first(*(f"{s}.{_REPLICATE}" for s in sections), otherwise=1)
    s_key, shards = table.first(
        *(f"{s}.{_SHARD}" for s in sections), "training.data_parallel_degree", otherwise=-1
    )
    copies, shards = reading.whole(r_key, copies), reading.whole(s_key, shards, least=-1)
    if copies is None or shards is None:
        return
    replicas_alone = shards == 1 or (copies > 1 and shards < 1)
    if replicas_alone:
        reading.say("strategy", "ddp", r_key)
    else:
        reading.say("software", "fsdp", s_key)
    if shards != 1 and replicas_alone:  # the remaining ranks shard; plain DDP where none remain
        reading.more["whole_world"] = (
            f"{reading.where}: {r_key} = {copies} on more GPUs than that (HSDP) {NOT_YET}"
        )
    if copies > 1 and shards > 1:
        reading.say("shard_ranks", shards, s_key)
    if replicas_alone or shards > 1:
        reading.say("n_gpus", copies * max(shards, 1), s_key)


def _rest(reading: Reading, table: Table) -> None:
    ranks = [n for w in _MODEL_DEGREES if isinstance(n := reading.said(w), int)]
    if isinstance(data_ranks := reading.said("n_gpus"), int):
        reading.say("n_gpus", data_ranks * math.prod(ranks), _REPLICATE)
    _batch(reading, table)
    _low_precision(reading, table)


def _batch(reading: Reading, table: Table) -> None:
    """With a pipeline the local batch passes it in pieces, of 1 sample by default."""
    key, value = table.first(_LOCAL, "training.batch_size", otherwise=8)
    local, parts = reading.whole(key, value), 1
    piece, value = table.first(f"parallelism.{_PIECE}", f"experimental.{_PIECE}", otherwise=1)
    size = reading.whole(piece, value)
    if reading.said("pp") is not None and local and size:
        if local % size:
            reading.refuse(f"{key} = {local}", f"is no multiple of {piece} = {size}")
        parts, local, key = max(local // size, 1), size, piece
    reading.say("micro_batch", local, key)
    steps = reading.whole(_STEPS, table.take(_STEPS))
    if steps is not None or reading.said("global_batch") is None:
        reading.say("grad_accum", (steps or 1) * parts, _STEPS)


def _low_precision(reading: Reading, table: Table) -> None:
    """float8 products with bfloat16 weights, which FSDP gathers; not with autocast."""
    converters = table.take("model.converters")
    listed = converters if isinstance(converters, list) else []
    low = [str(c) for c in listed if "float8" in str(c) or "mx" in str(c)]
    key, recipe = table.first("quantize.linear.float8.recipe_name", "float8.recipe_name")
    if recipe is not None and recipe not in _RECIPES:
        reading.approximate(f"{key} = {recipe}", "is predicted with a scale for each tensor")
    wanted = _RECIPES.get(str(recipe), "fp8-dynamic")
    found: dict[str, str] = {}
    if low:
        of_blocks = not any("float8" in name for name in low)
        found[f"model.converters = {low}"] = "mxfp8" if of_blocks else wanted
    elif converters:
        reading.approximate("model.converters", "is not followed")
    for section in ("float8", "mx", "quantize"):
        switches = [f"{section}.enable_{kind}_linear" for kind in ("float8", "fp8")]
        if True in [table.take(switch) for switch in switches]:
            found[switches[0]] = wanted
        if table.drop(section):
            reading.ignore(section)
    for key, precision in found.items():
        if reading.said("precision") in ("bf16", *found.values()):
            reading.say("precision", precision, key)
        else:
            reading.refuse(key, f"over {reading.said('precision')} {NOT_YET}", "precision")


def _write(job: Job, data: dict[str, Any], _problems: list[str]) -> None:
    """Batch and data-parallel degrees."""
    data[_LOCAL] = job.micro_batch * (job.grad_accum if job.pp else 1)
    if job.pp:
        data[f"parallelism.{_PIECE}"] = job.micro_batch
    sharded = job.strategy in ("zero2", "zero3")
    group = job.shard_ranks or job.data_ranks
    data[f"parallelism.{_REPLICATE}"] = job.data_ranks // (group if sharded else 1)
    data[f"parallelism.{_SHARD}"] = (job.shard_ranks or -1) if sharded else 1


DIALECTS.register("torchtitan")(
    TableDialect("torchtitan", first=_data_ranks, odd=_rest, odd_writing=_write)
)
