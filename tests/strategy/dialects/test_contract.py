"""What every dialect keeps: reading undoes writing, and what cannot be said is said clearly."""

from __future__ import annotations

import itertools
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from simcore.base.errors import InvalidConfig, SimcoreError, UnknownName, UsageError
from simcore.strategy.dialects import (
    DIALECTS,
    LINE_MODULES,
    MODULES,
    SHIPPED,
    Job,
    Launch,
    emit,
    find_dialect,
    read_launch,
    read_source,
)
from simcore.strategy.dialects.line_record import LINES
from simcore.strategy.dialects.reading import NO_OPTIONS
from simcore.strategy.dialects.record import RECORDS, DialectRecord
from simcore.strategy.dialects.runnable import folder_of, writes_for
from simcore.strategy.optimizers import OPTIMIZERS
from simcore.strategy.options import OPTIONS
from simcore.strategy.precision import PRECISIONS
from simcore.strategy.strategy import Strategy, parse_offload

SAMPLES = Path(__file__).parent / "samples"
SUFFIX = {"deepspeed": ".json", "megatron": ".txt", "torchtitan": ".py", "accelerate": ".yaml",
          "torchrun": ".sh", "slurm": ".sbatch"}  # fmt: skip
PARALLELISMS = ("dp", "manual", "ddp", "zero1", "zero2", "zero3")
OFFLOADS = (
    "none", "optimizer:cpu", "optimizer:nvme", "optimizer:cpu-far", "params:cpu", "params:nvme",
    "optimizer:cpu,params:cpu", "optimizer:nvme,params:nvme", "optimizer:nvme,params:cpu",
)  # fmt: skip
PLAIN = Job(
    model="gpt2-xl", strategy="ddp", micro_batch=4, grad_accum=2, precision="fp32",
    recompute="none", optimizer="adamw", offload="none", nnodes=2, nproc_per_node=8, seq_len=1024,
    grad_clip=True,
)  # fmt: skip

#: What each format can say, by hand: strategy to precisions, without offload and recompute.
#: torchrun and slurm say nothing but the counts, so anything but DataParallel passes.
_HALF, _AMP, _LOW = {"fp16", "bf16"}, {"amp-fp16", "amp-bf16"}, {"fp8", "mxfp8", "nvfp4"}
_ZERO = ("zero1", "zero2", "zero3")
SAYS = {
    "deepspeed": {s: {"fp32", *_HALF, *_AMP} for s in ("ddp", *_ZERO)},
    "megatron": {s: {"fp32", *_HALF, *_LOW} for s in ("ddp", *_ZERO)},
    "torchtitan": {
        "ddp": {"fp32", "amp-bf16", "bf16-true"},
        **{s: {"fp32", "bf16", "bf16-true", "fp8-rowwise", "mxfp8", "nvfp4"}
           for s in ("zero2", "zero3")},
    },
    "accelerate": {"ddp": {"fp32", *_AMP}} | {s: {"fp32", "fp8", *_HALF} for s in _ZERO},
    "torchrun": {s: set(PRECISIONS) for s in PARALLELISMS[1:]},
    "slurm": {s: set(PRECISIONS) for s in PARALLELISMS[1:]},
}  # fmt: skip


def job(**changes: object) -> Job:
    return replace(PLAIN, **changes)  # type: ignore[arg-type]


def read_back(dialect: str, text: str, folder: Path) -> Launch:
    path = folder / f"launch{SUFFIX[dialect]}"
    path.write_text(text, encoding="utf-8")
    assert find_dialect(read_source(str(path))).name == dialect
    return read_launch(str(path))


def round_trip(dialect: str, asked: Job, folder: Path) -> bool:
    """Whether the dialect can say the job; if so, what it says must read as the job."""
    try:
        emitted = emit(dialect, asked)
    except InvalidConfig as err:
        for sentence in err.violations:
            assert len(sentence) < 160 and "\n" not in sentence
        return False
    launch = read_back(dialect, emitted.text, folder)
    assert launch.violations() == []
    assert launch.unknown == ()
    assert set(emitted.left) <= {*OPTIONS.in_launch(), "model"}
    for word in ("software", "issuer"):  # of the program that reads it, whatever the job's were
        assert getattr(launch, word) == emitted.program.get(word), word
    for word, value in asked.words().items():
        if word in ("software", "issuer"):
            continue
        if word == "grad_accum" and launch.global_batch is not None:
            continue  # it follows from the global batch
        assert getattr(launch, word) == (None if word in emitted.left else value), word
    if launch.global_batch is not None:
        assert launch.global_batch == asked.global_batch
    assert launch.n_gpus in (None, asked.n_gpus)
    return True


@pytest.mark.parametrize("dialect", SHIPPED)
@pytest.mark.parametrize("optimizer", OPTIMIZERS)
def test_every_optimizer_is_said_left_or_refused(
    dialect: str, optimizer: str, tmp_path: Path
) -> None:
    round_trip(dialect, job(optimizer=optimizer), tmp_path)


def test_every_file_registers_its_dialect() -> None:
    assert set(SHIPPED) == set(DIALECTS) == set(SUFFIX)
    folder = Path(read_source.__code__.co_filename).parent
    shared = {
        "__init__", "base", "keyed", "reading", "record", "shell", "source", "text",
        "arithmetic", "megatron_model", "megatron_stages", "line_choice", "line_record", "lines",
        "calls", "recipes", "runnable", "torchtitan_python", "torchtitan_run",
    }  # fmt: skip
    assert {p.stem for p in folder.glob("*.py")} - shared == {*MODULES, *LINE_MODULES}
    assert {*MODULES, *RECORDS.names()} == set(SHIPPED)
    for name in SHIPPED:
        assert DIALECTS[name].name == name
        assert DIALECTS[name].title and DIALECTS[name].summary


def keys_of(record: DialectRecord) -> list[str]:
    """Every key of a record, as often as it occurs."""
    plain, sections = record.without_effect()
    table = (key for names in record.table() for key in names)
    return [*table, *plain, *(f"{s}.*" for s in sections)]


@pytest.mark.parametrize("record", [*RECORDS.all(), *LINES.all()], ids=lambda r: r.title)
def test_each_key_of_a_record_has_one_meaning(record: DialectRecord) -> None:
    keys = keys_of(record)
    assert len(keys) == len(set(keys))
    assert len(keys) > 5 or record in LINES.all(), "others are inherited or those of a dialect"
    words = " ".join(record.no_effect.values()).split()
    assert len(words) == len(set(words))
    for meanings in record.table().values():
        for meaning in meanings:
            options = {meaning.option, meaning.instead, *meaning.implies} - {None, ""}
            assert {o.partition(".")[0] for o in options} <= {*OPTIONS.in_launch(), *NO_OPTIONS}


@pytest.mark.parametrize(
    "every", [False, pytest.param(True, marks=pytest.mark.long)], ids=["some", "all"]
)
@pytest.mark.parametrize("dialect", SHIPPED)
def test_round_trip_of_every_strategy_precision_and_offload(
    dialect: str, every: bool, tmp_path: Path
) -> None:
    """Together: each strategy and precision, and where one of them is a usual one, each offload."""
    said: dict[str, set[str]] = {}
    for strategy, precision, offload, recompute in itertools.product(
        PARALLELISMS, PRECISIONS, OFFLOADS, ("none", "full")
    ):
        apart = (offload, recompute) != ("none", "none")
        if not every and apart and strategy != "zero3" and precision not in ("fp32", "bf16"):
            continue
        asked = job(strategy=strategy, precision=precision, offload=offload, recompute=recompute)
        impossible = Strategy(
            parallelism=strategy, precision=PRECISIONS[precision], optimizer=OPTIMIZERS["adamw"],
            offload=parse_offload(offload),
        ).violations(2, 16, 1)  # fmt: skip
        if impossible and strategy != "dp":
            continue
        if round_trip(dialect, asked, tmp_path) and not apart:
            said.setdefault(strategy, set()).add(precision)
    assert said == SAYS[dialect]


#: Offload and recompute that each can say, with a strategy and precision it has.
@pytest.mark.parametrize(
    ("dialect", "changes"),
    [
        ("deepspeed", {"strategy": "zero1", "offload": "optimizer:cpu"}),
        ("deepspeed", {"strategy": "zero3", "offload": "optimizer:nvme,params:cpu"}),
        ("deepspeed", {"strategy": "zero2", "recompute": "full"}),
        ("megatron", {"strategy": "zero1", "offload": "optimizer:cpu"}),
        ("megatron", {"strategy": "zero3", "recompute": "full"}),
        ("torchtitan", {"strategy": "zero3", "offload": "optimizer:cpu,params:cpu"}),
        ("torchtitan", {"strategy": "ddp", "recompute": "full"}),
        ("torchtitan", {"strategy": "zero3", "nnodes": 1, "nproc_per_node": 1}),
        ("accelerate", {"strategy": "zero3", "nnodes": 1, "nproc_per_node": 1}),
        ("accelerate", {"strategy": "zero3", "offload": "optimizer:cpu,params:cpu"}),
        ("accelerate", {"strategy": "zero2", "offload": "optimizer:cpu"}),
        ("accelerate", {"strategy": "zero3", "offload": "optimizer:nvme"}),
        ("accelerate", {"strategy": "zero3", "recompute": "full"}),
        *(("accelerate", {"strategy": s, "precision": "bf16", "shard_ranks": 8})
          for s in ("zero2", "zero3")),
        ("accelerate", {"strategy": "zero3", "precision": "bf16", "shard_ranks": 4, "tp": 2,
                        "sequence_parallel": False}),
        ("accelerate", {"strategy": "zero3", "precision": "bf16", "shard_ranks": 8, "cp": 2}),
        ("megatron", {"recompute": "selective", "recompute_modules": "core_attn"}),
        ("megatron", {"recompute": "selective",
                      "recompute_modules": "layernorm,moe_act,shared_experts"}),
        ("megatron", {"recompute": "full", "recompute_layers": 12}),
        ("megatron", {"pp": 2, "vpp": 2, "vpp_group": 5, "deferred_heads": 2}),
        ("torchtitan", {"recompute": "selective", "recompute_modules": "operators"}),
        ("torchtitan", {"strategy": "zero3", "precision": "bf16", "shard_ranks": 8}),
        ("torchtitan", {"attention": "flash", "software": "fsdp", "strategy": "zero2"}),
        ("deepspeed", {"attention": "flash", "issuer": "megatron", "software": "deepspeed"}),
        ("accelerate", {"strategy": "zero3", "software": "deepspeed", "attention": "cudnn"}),
        *(("megatron", {"strategy": "zero1", "precision": p, "optimizer": o,
                        "software": "megatron@precision-aware"})
          for p in ("bf16", "fp8", "mxfp8", "fp16") for o in ("adamw", "adamw-bf16")),
        *(("megatron", {"cp": 4, "cp_comm": kind}) for kind in ("ring", "all-gather", "ulysses")),
        ("deepspeed", {"cp": 4, "cp_comm": "ulysses", "strategy": "zero3", "precision": "bf16"}),
        *(("megatron", {"attention": kernel}) for kernel in ("flash", "cudnn", "fused_softmax",
                                                             "math", "flash3")),
        *(("megatron", {"issuer": issuer, "ep": 8}) for issuer in ("megatron", "graph",
                                                                   "megatron_graphs",
                                                                   "megatron_routing_graphs")),
        *(("megatron", {"expert_capacity": 1.25, "expert_padding": pad}) for pad in (True, False)),
        *(("megatron", {"tp": 2, "sequence_parallel": True, "ep": 4, "expert_tp": n,
                        "dispatcher": how})
          for n in (1, 2) for how in ("alltoall", "deepep", "hybridep")),
    ],
)  # fmt: skip
def test_what_each_must_be_able_to_say(dialect: str, changes: dict, tmp_path: Path) -> None:
    assert round_trip(dialect, job(**changes), tmp_path)


DEGREES = [
    {"tp": 4, "sequence_parallel": True}, {"tp": 2, "sequence_parallel": False}, {"pp": 2},
    {"tp": 2, "sequence_parallel": True, "pp": 2, "vpp": 3}, {"cp": 4}, {"ep": 8},
    {"pp": 4, "schedule": "zb-2p"}, {"tp": 2, "sequence_parallel": True, "pp": 2, "cp": 2, "ep": 2},
]  # fmt: skip
#: How many of DEGREES each can say, with one of ddp and zero3.
SAYS_DEGREES = {"deepspeed": 1, "megatron": 7, "torchtitan": 6, "accelerate": 2, "torchrun": 8,
                "slurm": 8}  # fmt: skip


@pytest.mark.parametrize("dialect", SHIPPED)
def test_round_trip_of_degrees(dialect: str, tmp_path: Path) -> None:
    said = 0
    for degrees in DEGREES:
        passed = 0
        for strategy, precision in (("ddp", "fp32"), ("zero3", "bf16")):
            asked = job(strategy=strategy, precision=precision, **degrees)
            passed += round_trip(dialect, asked, tmp_path)
        said += passed > 0
    assert said == SAYS_DEGREES[dialect]


@pytest.mark.parametrize("dialect", SHIPPED)
@settings(
    max_examples=25, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    nnodes=st.integers(1, 512), per_node=st.integers(1, 16), micro=st.integers(1, 4096),
    accum=st.integers(1, 64), seq_len=st.none() | st.integers(1, 10**6),
    optimizer=st.sampled_from(sorted(OPTIMIZERS)), clip=st.none() | st.booleans(),
    strategy=st.sampled_from(["ddp", "zero1", "zero2", "zero3"]),
    bucket=st.none() | st.integers(1, 10**10),
)  # fmt: skip
def test_round_trip_of_every_number(
    dialect: str, tmp_path: Path, nnodes: int, per_node: int, micro: int, accum: int,
    seq_len: int | None, optimizer: str, clip: bool | None, strategy: str, bucket: int | None,
) -> None:  # fmt: skip
    round_trip(
        dialect,
        job(nnodes=nnodes, nproc_per_node=per_node, micro_batch=micro, grad_accum=accum,
            seq_len=seq_len, optimizer=optimizer, grad_clip=clip, strategy=strategy,
            bucket_numel=bucket),
        tmp_path,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("dialect", "changes", "words"),
    [
        ("deepspeed", {"strategy": "manual"}, ["manual", "zero1"]),
        ("deepspeed", {"precision": "tf32"}, ["tf32"]),
        ("deepspeed", {"strategy": "zero2", "offload": "optimizer:nvme"}, ["nvme", "stage 3"]),
        ("megatron", {"precision": "amp-bf16"}, ["amp-bf16", "bf16"]),
        ("megatron", {"optimizer": "adam"}, ["adam", "AdamW"]),
        ("torchtitan", {"strategy": "zero1"}, ["zero1", "zero3"]),
        ("torchtitan", {"optimizer": "sgd"}, ["sgd", "adamw"]),
        ("accelerate", {"strategy": "zero3", "precision": "amp-bf16"}, ["amp-bf16", "bf16"]),
        ("accelerate", {"recompute": "full"}, ["recompute full"]),
        (
            "accelerate",
            {"recompute": "selective", "recompute_modules": "mlp"},
            ["recompute-modules mlp"],
        ),
        ("deepspeed", {"recompute": "full", "recompute_layers": 3}, ["recompute-layers 3"]),
        (
            "megatron",
            {"recompute": "selective", "recompute_modules": "operators"},
            ["operators", "core_attn"],
        ),
        ("megatron", {"recompute": "full", "recompute_layers": 3, "pp": 2}, ["pipeline stage"]),
        (
            "torchtitan",
            {"recompute": "selective", "recompute_modules": "core_attn"},
            ["core_attn", "operators"],
        ),
        ("torchrun", {"strategy": "dp"}, ["DataParallel"]),
        ("megatron", {"strategy": "zero1", "shard_ranks": 8}, ["shard-ranks 8"]),
        ("deepspeed", {"strategy": "zero1", "shard_ranks": 8}, ["shard-ranks 8"]),
        ("deepspeed", {"strategy": "zero3", "shard_ranks": 8}, ["ZeRO++", "MiCS"]),
        ("accelerate", {"strategy": "zero1", "shard_ranks": 8}, ["shard-ranks 8", "FSDP"]),
        ("accelerate", {"tp": 2, "sequence_parallel": False}, ["tp 2", "zero3"]),
    ],
)
def test_what_cannot_be_said_names_it(dialect: str, changes: dict, words: list[str]) -> None:
    with pytest.raises(InvalidConfig) as caught:
        emit(dialect, job(**changes))
    assert len(caught.value.violations) == 1
    assert all(w in str(caught.value) for w in words)


def test_all_that_cannot_be_said_at_once() -> None:
    with pytest.raises(InvalidConfig) as caught:
        emit("torchtitan", job(strategy="zero1", precision="tf32", optimizer="sgd",
                               offload="optimizer:cpu"))  # fmt: skip
    assert len(caught.value.violations) == 4


def test_unknown_dialect_names_the_nearest() -> None:
    with pytest.raises(UnknownName, match="did you mean 'deepspeed'"):
        emit("deepsped", PLAIN)


@pytest.mark.parametrize("path", sorted(SAMPLES.iterdir()), ids=lambda p: p.name)
def test_every_sample_is_recognised(path: Path) -> None:
    expected = path.name.split("_")[0].split(".")[0]
    if path.name == "accelerate_launch.txt":
        expected = "torchrun"
    launch = read_launch(str(path))
    assert launch.dialect == expected
    assert launch.words()
    again = read_launch(f"{expected}:{path}")
    assert again.words() == launch.words()
    for sentence in (*launch.violations(), *launch.approximated, *launch.unknown):
        assert str(path.parent) in sentence, "every sentence names its file"


@pytest.mark.parametrize("suffix", [*SUFFIX.values(), ".yml", ""])
@settings(
    max_examples=60, deadline=None, derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)  # fmt: skip
@given(
    text=st.text(max_size=200)
    | st.lists(
        st.sampled_from(
            ["{", "}", "[", "]", ":", ",", '"', "'", "\n", "  ", "#", "$", "\\", "=", "(", ")", "-",
             "zero_optimization", '"stage"', "torchrun", "--nnodes", "--micro-batch-size", "1e9",
             "distributed_type: FSDP", "[training]", "&a", "*a", "null", "9" * 30, "#SBATCH -N 2",
             "fsdp_config:", "true", "nan", "${A}", "A=", "--", "train.py", "\t"]
        ),
        max_size=20,
    ).map(" ".join)
)  # fmt: skip
def test_no_text_breaks_a_reader(suffix: str, tmp_path: Path, text: str) -> None:
    path = tmp_path / f"launch{suffix}"
    path.write_text(text, encoding="utf-8")
    for name in SHIPPED:
        try:
            DIALECTS[name].read(read_source(str(path))).violations()
        except SimcoreError as err:
            assert str(err)


@settings(max_examples=150, deadline=None, derandomize=True)
@given(
    st.recursive(
        st.none() | st.booleans() | st.integers(-5, 10**12) | st.floats() | st.text(max_size=6)
        | st.just("auto"),
        lambda inner: st.lists(inner, max_size=3),
        max_leaves=4,
    ),
    st.data(),
)  # fmt: skip
def test_no_value_of_a_known_key_breaks_deepspeed(value: object, data: st.DataObject) -> None:
    import json

    from simcore.strategy.dialects.source import Source

    nested: dict = {}
    for key in data.draw(
        st.lists(st.sampled_from(sorted(keys_of(RECORDS["deepspeed"]))), max_size=4)
    ):
        place = nested
        *above, last = key.split(".")
        for part in above:
            inner = place.setdefault(part, {})
            if not isinstance(inner, dict):
                inner = place[part] = {}
            place = inner
        place[last] = value
    text = json.dumps(nested)
    if "NaN" in text or "Infinity" in text or nested == {}:
        return
    try:
        launch = DIALECTS["deepspeed"].read(Source(text, "ds.json"))
    except SimcoreError:
        return
    assert launch.dialect == "deepspeed"


def test_a_text_that_is_nothing_is_refused() -> None:
    with pytest.raises(UsageError, match="neither a launcher nor a program"):
        read_launch("hello world")


# -- scripts ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("nodes", "batch", "starts"),
    [
        (1, False, 'accelerate launch --config_file accelerate.yaml train.py "$@"'),
        (1, True, 'srun accelerate launch --config_file accelerate.yaml train.py "$@"'),
        (2, True, "srun bash -c 'accelerate launch --config_file accelerate.yaml --machine_rank "
                  "$SLURM_NODEID --main_process_ip $HEAD_NODE --main_process_port 29500 train.py "
                  '"$@"\' launch "$@"'),
    ],
)  # fmt: skip
def test_accelerate_is_started_on_every_node(nodes: int, batch: bool, starts: str) -> None:
    """Each node has its own rank, and the address of the first one where there are several."""
    asked = job(strategy="zero3", precision="bf16", nnodes=nodes, software="accelerate")
    files = folder_of("slurm" if batch else "accelerate", asked)
    assert set(files) == {"launch.sh", "accelerate.yaml"}
    script = files["launch.sh"]
    assert script.splitlines()[-1] == starts
    assert ("HEAD_NODE=$(" in script) == (nodes > 1)
    assert (f"#SBATCH --nodes={nodes}" in script) == batch
    assert "PYTORCH_ALLOC_CONF" not in script
    grows = folder_of("accelerate", replace(asked, growing_segments=True))["launch.sh"]
    assert "expandable_segments:True" in grows


def test_scripts_of_other_programs_have_their_own_start() -> None:
    plain = job(strategy="ddp", precision="bf16", nnodes=1, software="fsdp")
    (script,) = folder_of("slurm", plain).values()
    assert script.splitlines()[-1].startswith("srun torchrun ")
    megatron = job(strategy="zero1", precision="bf16", software="megatron", nnodes=1)
    alone = folder_of("megatron", megatron)["launch.sh"]
    assert alone.splitlines()[-1].startswith("torchrun ") and '"${ARGS[@]}"' in alone
    assert "ARGS=(" in alone and "#SBATCH" not in alone
    assert "#SBATCH" in folder_of("megatron", replace(megatron, nnodes=2))["launch.sh"]


@pytest.mark.parametrize(
    ("dialect", "software", "served"),
    [
        # a program with a trainer of its own starts its own jobs alone
        ("megatron", None, True), ("megatron", "megatron@core-0.9", True),
        ("megatron", "megatron-lm", True), ("megatron", "deepspeed", False),
        ("torchtitan", "torchtitan", True), ("torchtitan", "megatron", False),
        # a user's own script may run under any launcher, and other formats are no launchers
        ("torchrun", "megatron", True), ("accelerate", "deepspeed", True),
        ("deepspeed", "torchtitan", True), ("slurm", "megatron", True),
    ],
)  # fmt: skip
def test_which_dialects_serve_a_program(dialect: str, software: str | None, served: bool) -> None:
    assert writes_for(dialect, software) is served
