"""Megatron-LM's flags, typed, in a script, a text or YAML: what the record cannot express."""

from __future__ import annotations

import re
from collections.abc import Mapping
from itertools import chain
from typing import Any

from simcore.base.record import dataclass
from simcore.strategy.dialects.base import Job, Launch, Word
from simcore.strategy.dialects.keyed import DIALECTS, TableDialect
from simcore.strategy.dialects.megatron_model import described, flags_of
from simcore.strategy.dialects.megatron_stages import emit_stages, read_stages
from simcore.strategy.dialects.reading import NOT_YET, Reading, Table
from simcore.strategy.dialects.shell import allocator_grows, flags, read_script
from simcore.strategy.dialects.source import Source, yaml_table
from simcore.strategy.dialects.torchrun import find_line, of_a_program, read_counts
from simcore.strategy.programs import program_named
from simcore.strategy.programs.mechanisms import DEFAULT_MODULES
from simcore.workload.recompute import MODULES as RECOMPUTED

#: Flags that only Megatron has.
_OWN = re.compile(
    r"--(?:tensor-model-parallel-size|pipeline-model-parallel-size|use-distributed-optimizer|"
    r"recompute-granularity|use-mcore-models|use-megatron-fsdp)\b"
)
#: Flags that other scripts have too: a script's line is Megatron's if it has most of its flags.
_SHARED = re.compile(r"--(?:micro-batch-size|seq-length|num-attention-heads|train-iters)\b")
_OWN_YAML = re.compile(r"^\s*(?:-*)(?:micro[_-]batch[_-]size|tensor[_-]model[_-]parallel[_-]size|"
                       r"MODEL_ARGS|language_model|model_parallel)\s*:", re.MULTILINE)  # fmt: skip
_SECTIONS = (
    "language_model",
    "model_parallel",
    "training",
    "MODEL_ARGS",
    "model",
    "optimizer_args",
)
#: Keys of the YAML form whose false is no absent flag.
_FALSE_COUNTS = ("overlap_p2p_comm",)
#: Flags of the model that can be compared with models_db: flag to key of ``config``.
_SHAPE = {"num-layers": "layers", "hidden-size": "hidden", "num-attention-heads": "heads",
          "ffn-hidden-size": "ffn", "num-query-groups": "kv_heads"}  # fmt: skip
_CHUNK, _EXPERT_TP = "num-layers-per-virtual-pipeline-stage", "expert-tensor-parallel-size"
_DEFERS, _DEFERRED = "defer-embedding-wgrad-compute", "wgrad-deferral-limit"
#: Micro-batches that wait where no limit is given (arguments.py: 0, all of them).
_ALL = 10**6
#: Recompute modules that it has too (transformer_config.py, recompute_modules).
_RECOMPUTED = tuple(m for m in RECOMPUTED if m not in ("layer", "operators", "all_but_attention"))
_METHOD, _LAYERS, _MODULES = "recompute-method", "recompute-num-layers", "recompute-modules"
_AWARE, _MOMENTS = "use-precision-aware-optimizer", ("exp-avg-dtype", "exp-avg-sq-dtype")


@dataclass(frozen=True)
class Megatron(TableDialect):
    """Arguments of ``pretrain_*.py``."""

    def claims(self, source: Source) -> bool:
        """Whether the text has flags or YAML keys that only Megatron has."""
        if source.suffix in (".yaml", ".yml"):
            return _OWN_YAML.search(source.text) is not None
        if source.suffix in (".json", ".toml"):
            return False
        text = source.text.replace("_", "-")
        if _OWN.search(text) is None and not (_SHARED.search(text) and self._knows_most(source)):
            return False
        return not of_a_program(source)

    def _knows_most(self, source: Source) -> bool:
        """Whether the text is flags alone, or most flags of the script that it runs are known."""
        if find_line(read_script(source)) is None:
            return True
        given = _script(Reading(self.name, source), source)
        known = {*self.record.without_effect()[0], *chain(*self.record.table()), *_SHAPE}
        return 2 * len(given.keys() & known) > len(given)

    def read(self, source: Source) -> Launch:
        """The options that its flags state; a torchrun line adds nodes and processes."""
        reading = Reading(self.name, source)
        yaml = source.suffix in (".yaml", ".yml")
        given = self.data(source) if yaml else _script(reading, source)
        return self.read_table(reading, Table(given, "--"))

    def data(self, source: Source) -> Mapping[str, Any]:
        """The keys and values of a YAML file, without their sections."""
        return _flat(yaml_table(source), deep=False)


def _script(reading: Reading, source: Source) -> dict[str, Any]:
    script = read_script(source)
    if allocator_grows(script):
        reading.say("growing_segments", True, "PYTORCH_ALLOC_CONF")
    line = find_line(script)
    words = [w for c in script.commands for w in c] if line is None else list(line.rest)
    if line is not None:
        read_counts(reading, line)
    found: dict[str, Any] = {}
    for flag, values in flags(words):
        if flag.startswith("--"):
            found[flag[2:].replace("_", "-")] = values[0] if len(values) == 1 else values or True
    return found


def _flat(data: Mapping[str, Any], *, deep: bool) -> dict[str, Any]:
    """Keys without their sections, with dashes for underscores.

    null, and false for most keys, count as absent flags.
    """
    found: dict[str, Any] = {}
    for key, value in data.items():
        if isinstance(value, dict) and (deep or key in _SECTIONS):
            found |= _flat(value, deep=True)
        elif value not in (None, {}, []) and (value is not False or key in _FALSE_COUNTS):
            found[key.lstrip("-").replace("_", "-")] = value
    return found


def _rest(reading: Reading, table: Table) -> None:
    shape = {key: reading.whole(f"--{name}", table.take(name)) for name, key in _SHAPE.items()}
    reading.more["described"] = described(table.given)
    reading.more["shape"] = {key: n for key, n in shape.items() if n is not None}
    _chunks(reading, table, shape["layers"])
    _expert_ranks(reading, table)
    most = reading.whole(f"--{_DEFERRED}", table.take(_DEFERRED), least=0)
    if reading.flag(f"--{_DEFERS}", table.take(_DEFERS)):
        reading.say("deferred_heads", most or _ALL, f"--{_DEFERS}")
    read_stages(reading, table)
    _recompute(reading, table, shape["layers"])
    _graphs(reading, table)
    moments = {table.given.get(name, "fp32") for name in _MOMENTS}
    narrow = moments <= {"bf16", "fp16"} and reading.said("offload") == "none"
    followed = moments == {"fp32"} or (narrow and reading.said("optimizer") == "adamw")
    if table.given.get(_AWARE) and not followed:
        reading.approximate(f"--{_MOMENTS[0]}", "is not followed: moments are predicted in fp32")


def _chunks(reading: Reading, table: Table, total: int | None) -> None:
    """Read the layers of a chunk, which give the number of chunks."""
    key = f"--{_CHUNK}"
    each, stages = reading.whole(key, table.take(_CHUNK)), reading.said("pp")
    if each is None or not isinstance(stages, int):
        return
    if total is None:
        reading.refuse(f"{key} {each}", "needs --num-layers beside it", "vpp")
    elif total % (stages * each):
        reading.refuse(f"{key} {each}", f"does not cut {total} layers evenly", "vpp")
    elif (chunks := total // (stages * each)) > 1:
        reading.say("vpp", chunks, key)


def _expert_ranks(reading: Reading, table: Table) -> None:
    """Read the tensor ranks of an expert: by default all of them (arguments.py)."""
    tp, key = int(reading.said("tp") or 1), f"--{_EXPERT_TP}"
    stated = reading.whole(key, table.take(_EXPERT_TP))
    if stated is not None and tp % stated and stated % tp:
        why = f"tensor parallelism of experts {NOT_YET} but for divisors and multiples of tp"
        reading.refuse(f"{key} = {stated}:", why, "expert_tp")
    elif reading.said("ep") is not None and reading.said("tp") is not None:
        reading.say("expert_tp", stated or tp, key)


def _recompute(reading: Reading, table: Table, total: int | None) -> None:
    """Read which layers and which modules run again."""
    layers = reading.whole(f"--{_LAYERS}", table.take(_LAYERS))
    method, modules = table.take(_METHOD), table.take(_MODULES)
    mode = reading.said("recompute")
    if mode == "full" and method == "block" and not (layers and total and layers >= total):
        # The number counts layers of each pipeline stage; simcore counts from the first layer on.
        block = f"--{_METHOD} block with {layers or 0} layers"
        if not layers or reading.said("pp") is not None:
            del reading.facts["recompute"]
            reading.refuse(f"{block} a stage" if layers else block, NOT_YET, "recompute")
        reading.say("recompute_layers", None if reading.refuses("recompute") else layers, _LAYERS)
    if mode == "full" and method == "uniform" and layers is not None and layers > 1:
        reading.approximate(f"--{_LAYERS}", "is not followed: all inputs are kept")
    if mode == "selective":
        key = f"--{_MODULES}"
        listed = modules if isinstance(modules, list) else [modules or DEFAULT_MODULES]
        words = " ".join(DEFAULT_MODULES if w is True else str(w) for w in listed)
        known: dict[str, Word | None] = {m: m for m in _RECOMPUTED}
        found = [
            reading.choose(key, w, known, "recompute")
            for w in words.strip("[]").replace(",", " ").split()
        ]
        if all(found):
            reading.say("recompute_modules", ",".join(dict.fromkeys(map(str, found))), key)


def _graphs(reading: Reading, table: Table) -> None:
    """Read what CUDA graphs hold: a whole iteration, or parts of layers (none listed: layers)."""
    old = [reading.flag(f"--{n}", table.take(n)) for n in ("enable-cuda-graph",
                                                           "external-cuda-graph")]  # fmt: skip
    _, how = table.first("cuda-graph-impl", otherwise="none")
    key, scope = table.first("cuda-graph-modules", "cuda-graph-scope", otherwise=())
    parts = scope if isinstance(scope, list) else str(scope or "").replace(",", " ").split()
    if how not in ("none", "local", "transformer_engine", "full_iteration"):
        reading.approximate(f"--cuda-graph-impl {how}", "is unknown: kernels are issued one by one")
    elif how == "full_iteration" or ("full_iteration" in parts and how == "local"):
        reading.say("issuer", "graph", "--cuda-graph-impl")
    elif {"attn", "moe_router"} & set(parts) and how != "none":
        graphs = "megatron_graphs" if "attn" in parts else "megatron_routing_graphs"
        reading.say("issuer", graphs, f"--{key}")
    elif any(old) or how != "none":
        reading.approximate("--cuda-graph-impl", "is not followed: kernels are predicted as eager")


def _write(job: Job, data: dict[str, Any], problems: list[str]) -> None:
    """The model, stages, recompute, ranks of an expert, and lower halves of master weights."""
    data |= flags_of(job.shape, job.seq_len or 0)
    halves = bool(job.software) and program_named(job.software).optimizer_state.master_lower_halves
    if halves and job.strategy == "zero1" and job.offload == "none":
        data[_AWARE] = True
    data |= emit_stages(job)
    if job.expert_tp:
        data[_EXPERT_TP] = job.expert_tp
    if job.deferred_heads:
        data |= {_DEFERS: True, _DEFERRED: job.deferred_heads % _ALL}
    if job.recompute == "full":
        data[_METHOD] = "block" if job.recompute_layers else "uniform"
        data[_LAYERS] = job.recompute_layers or 1
    elif job.recompute == "selective":
        names = (job.recompute_modules or DEFAULT_MODULES).split(",")
        data[_MODULES] = " ".join(names)
        if odd := [n for n in names if n not in _RECOMPUTED]:
            problems.append(f"Megatron cannot recompute {', '.join(odd)}: its modules are "
                            f"{', '.join(_RECOMPUTED)}")  # fmt: skip


DIALECTS.register("megatron")(Megatron("megatron", odd=_rest, odd_writing=_write, of_models=True))
