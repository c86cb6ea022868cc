"""torchtitan: Python configurations and the lines that name one, and TOML files of 2025 and before.

Since February 2026 a run is started with ``--module`` and ``--config``, a Python function that
returns its configuration, and options ``--section.key`` that override it
(torchtitan/config/manager.py). What the record cannot express is here.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from simcore.base.record import dataclass
from simcore.strategy.dialects.base import Job, Launch
from simcore.strategy.dialects.keyed import DIALECTS, TableDialect
from simcore.strategy.dialects.reading import NOT_YET, Reading, Table, flat
from simcore.strategy.dialects.recipes import TABLES, Keys, Unread
from simcore.strategy.dialects.source import Source, toml_table
from simcore.strategy.dialects.torchtitan_python import (
    CONVERTERS,
    LENGTH,
    LOCAL,
    TOKENS,
    in_record,
    python_text,
    shipped,
)
from simcore.strategy.dialects.torchtitan_run import is_line, keys_of_file, keys_of_line, model_of

_MODEL_DEGREES = ("tp", "pp", "cp")
_STEPS = "training.gradient_accumulation_steps"
_STEP_TOKENS, _PARTS = "training.num_tokens_per_train_step", "parallelism.num_pp_microbatches"
_PIECE = "pipeline_parallel_microbatch_size"
_REPLICATE, _SHARD = "data_parallel_replicate_degree", "data_parallel_shard_degree"
_NO_GRAPHS = "training.disable_cuda_graphs"
#: torchao's recipes of float8 products (torchao/float8/config.py, Float8LinearRecipeName).
_RECIPES = {"tensorwise": "fp8-dynamic", "rowwise": "fp8-rowwise"}
#: Converters of a Python configuration (torchtitan/components/quantization) to their precision.
_PRECISIONS = {"MXFP8LinearConverter": "mxfp8", "NVFP4LinearConverter": "nvfp4"}
#: Names of weights in torchtitan (models/common) and in the option of adapters.
_TARGETS = {
    "wq": "q_proj", "wkv": "k_proj,v_proj", "wk": "k_proj", "wv": "v_proj", "wqkv": "qkv_proj",
    "wo": "o_proj", "w1": "gate_proj", "w3": "up_proj", "w2": "down_proj",
}  # fmt: skip


@dataclass(frozen=True)
class Torchtitan(TableDialect):
    """A line, a Python file with a configuration, or a TOML job file."""

    def claims(self, source: Source) -> bool:
        """Whether it is TOML, Python that returns a configuration, or a line of torchtitan."""
        if source.suffix == ".py":
            return "Trainer.Config" in source.text
        others = (".json", ".yaml", ".yml", ".toml")
        return super().claims(source) or (source.suffix not in others and is_line(source.text))

    def read(self, source: Source) -> Launch:
        """The options that a configuration states. Raises DataError for a file of another form."""
        reading = Reading(self.name, source)
        reading.more["fills"] = False  # the program's record has its defaults
        keys: Keys | None
        if is_line(source.text) and source.suffix not in (".toml", ".py"):
            keys, toml = keys_of_line(reading, source)
        else:  # run_train.sh starts it
            reading.say("growing_segments", True, "run_train.sh")
            toml = source.suffix != ".py"
            keys = toml_table(source) if toml else keys_of_file(reading, source)
        if keys is None:
            return reading.finish()
        reading.say("model", model_of(dict(flat(keys))), "the configuration")
        if toml:  # its releases 0.1 to 0.2.2
            reading.say("software", f"{self.name}@2025", "the job file")
            return self.read_table(reading, Table(keys))
        reading.say("software", self.name, "the configuration")
        return self.read_table(reading, Table(self._literal(reading, in_record(keys))))

    def _literal(self, reading: Reading, keys: Keys) -> Keys:
        """The keys whose values are literals; others that matter are recorded."""
        plain, sections = self.record.without_effect()
        for key, value in keys.items():
            of_none = key in plain or any(key.startswith(f"{s}.") for s in sections)
            if isinstance(value, Unread) and not of_none:
                reading.not_understood(f"{key} = {value.text}")
        return {k: v for k, v in keys.items() if not isinstance(v, Unread)}

    @property
    def suffix(self) -> str:
        """Ending of the Python file that is written."""
        return ".py"

    def text(self, job: Job, data: Mapping[str, Any]) -> str:
        """A Python function that returns the configuration."""
        return python_text(job, data)


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
    if table.has(TOKENS):
        _tokens(reading, table)
    else:
        _samples(reading, table)
    _compiled(reading, table)
    _low_precision(reading, table)
    _converters(reading, table)


def _tokens(reading: Reading, table: Table) -> None:
    """The batch of releases that state it in tokens, of a forward pass and of a step."""
    tokens, length = reading.whole(TOKENS, table.take(TOKENS)), reading.said("seq_len")
    step = reading.whole(_STEP_TOKENS, table.take(_STEP_TOKENS), least=-1)
    parts = reading.whole(_PARTS, table.take(_PARTS)) or 1
    if tokens is None or not isinstance(length, int):
        return
    size = max(tokens // length, 1)
    if tokens != size * length:
        how = f"is no multiple of {LENGTH} = {length}: predicted as {size} sequences of that length"
        reading.approximate(f"{TOKENS} = {tokens}", how)
    reading.say("micro_batch", size, TOKENS)
    if step is not None and step > 0:
        reading.say("global_batch", max(step // length, 1), _STEP_TOKENS)
    else:
        reading.say("grad_accum", parts if reading.said("pp") else 1, _PARTS)


def _samples(reading: Reading, table: Table) -> None:
    """With a pipeline the local batch passes it in pieces, of 1 sample by default."""
    key, value = table.first(LOCAL, "training.batch_size", otherwise=8)
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


def _compiled(reading: Reading, table: Table) -> None:
    """``compile.components``: what runs under torch.compile, the model or its loss alone."""
    key = "compile.components"
    parts = table.take(key)
    listed = parts.split(",") if isinstance(parts, str) else parts
    if isinstance(listed, list | tuple) and "model" not in listed and reading.said("compile"):
        del reading.facts["compile"]
        if "loss" in listed and reading.said("set.loss") is None:
            reading.say("set.loss", "compiled", key)
        else:
            reading.ignore(f"{key} = {listed}")


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
        _products(reading, key, precision)


def _products(reading: Reading, key: str, precision: str) -> None:
    """State the precision of products; the weights must be in bf16."""
    if reading.said("precision") in ("bf16", precision):
        reading.say("precision", precision, key)
    else:
        reading.refuse(key, f"over {reading.said('precision')} {NOT_YET}", "precision")


def _converters(reading: Reading, table: Table) -> None:
    """What a Python configuration changes in the model: low precision, adapters."""
    listed = table.take(CONVERTERS)
    for i, name in enumerate(listed if isinstance(listed, list | tuple) else ()):
        own = {k.rpartition(".")[2]: v for k, v in table.drop(f"{CONVERTERS}.{i}").items()}
        key = f"{CONVERTERS}: {name}"
        if name == "Float8LinearConverter":
            recipe = str(own.get("recipe_name", "rowwise"))
            if recipe not in _RECIPES:
                reading.approximate(f"{key} {recipe}", "is predicted as rowwise")
            _products(reading, key, _RECIPES.get(recipe, "fp8-rowwise"))
        elif name in _PRECISIONS:
            _products(reading, key, _PRECISIONS[name])
            if own.get("fqns"):
                reading.approximate(f"{key} {own['fqns']}", "is predicted for all layers")
        elif name == "LoRAConverter":
            reading.say("lora_rank", reading.whole(f"{key} rank", own.get("rank", 8)), key)
            targets = own.get("target_modules")
            named = (
                [_TARGETS.get(t, str(t)) for t in targets]
                if isinstance(targets, list | tuple)
                else []
            )
            reading.say("lora_targets", ",".join(named) or "all-linear", key)
        else:
            reading.approximate(key, "is not followed")


def _write(job: Job, data: dict[str, Any], problems: list[str]) -> None:
    """Batch, data-parallel degrees, CUDA graphs, precision, and what else the base sets."""
    length = job.seq_len or 2048
    data[LENGTH] = length
    data[TOKENS] = job.micro_batch * length
    data[_STEP_TOKENS] = job.global_batch * length
    if job.pp:
        data[_PARTS] = job.grad_accum
    # beside a pipeline weights stay gathered by default, which is zero1
    sharded = job.strategy in ("zero2", "zero3") or (job.strategy == "zero1" and bool(job.pp))
    group = job.shard_ranks or job.data_ranks
    data[f"parallelism.{_REPLICATE}"] = job.data_ranks // (group if sharded else 1)
    data[f"parallelism.{_SHARD}"] = (job.shard_ranks or -1) if sharded else 1
    data[_NO_GRAPHS] = job.issuer != "graph"
    if not data[_NO_GRAPHS] and job.pp:
        problems.append("torchtitan has no CUDA graphs with a pipeline: --issuer torch")
    if "tensor" in (job.overlap or "") and not job.compile:  # configs.py, CompileConfig
        problems.append("torchtitan overlaps what tensor ranks exchange with --compile alone")
    for key, value in _reset(job).items():
        data.setdefault(key, value)


def _reset(job: Job) -> Keys:
    """Defaults of keys that the shipped configuration sets and the job may not."""
    base = TABLES["torchtitan"].keys(shipped(job.model) or "") or {}
    degrees = {"tensor": job.tp, "pipeline": job.pp, "context": job.cp, "expert": job.ep}
    found: Keys = {
        f"parallelism.{name}_parallel_degree": 1
        for name, degree in degrees.items()
        if not degree and f"parallelism.{name}_parallel_degree" in base
    }
    if "compile.enable" in base and not job.compile:
        found["compile.enable"] = False
    return found


DIALECTS.register("torchtitan")(
    Torchtitan("torchtitan", first=_data_ranks, odd=_rest, odd_writing=_write)
)
