"""The names in a request looked up: model, cluster, training library and every named option."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.base.lookup import once_a_question
from simcore.base.record import dataclass, replace
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.hardware.profile import load_profile
from simcore.physics.collectives import names_in_nccl_algo
from simcore.physics.collectives.nccl import PROTOCOLS
from simcore.request.model_settings import (
    SWITCHED,
    compiled_of,
    layout_of,
    overrides_of,
    routing_of,
    routing_settings,
    usual_length,
    usual_strategy,
)
from simcore.request.training_library import Library, library_of
from simcore.strategy.layout import BALANCED, FREE, Allowed, Layout, parse_allowed, parse_overlap
from simcore.strategy.optimizers import optimizer_named, step_impl_named
from simcore.strategy.options import Options, inputs_of, on_or_off
from simcore.strategy.precision import (
    AMP_BF16,
    PRECISIONS,
    precision_named,
    with_main_grads,
)
from simcore.strategy.programs.mechanisms import PLAIN
from simcore.strategy.strategy import (
    Recompute,
    hybrid,
    issuer_named,
    node_shard_ranks,
    parallelism_named,
    parse_offload,
)
from simcore.workload.models import Training
from simcore.workload.resolve import ModelSource, model_of
from simcore.workload.settings import settings_given, with_settings

if TYPE_CHECKING:
    from simcore.hardware.fabrics.record import FabricRecord
    from simcore.request.launch import Launched


#: The model whose sizes a launch file may describe.
DESCRIBED = "arch:transformer"


@dataclass(frozen=True)
class Inputs:
    """Model, cluster, launch file, layout and training library that a request names.

    ``options``: the options with what the launch file and the training library add. ``record`` and
    ``cluster`` are None where the name is not known. ``unknown``: one sentence for each name in the
    layout's options that is not known.
    """

    options: Options
    record: ModelSource | None
    cluster: ClusterSpec | None
    launched: Launched | None
    layout: Layout
    unknown: tuple[str, ...]
    library: Library

    @property
    def training(self) -> Training | None:
        """Defaults of the model's own training script."""
        return self.record.training if self.record else None

    @property
    def usual_strategy(self) -> str:
        """The data-parallel strategy that is used where the request names none."""
        own = self.training.strategy if self.training else "ddp"
        if self.shards_nothing:
            return "ddp"
        return usual_strategy(own, self.layout, self.library.program.fsdp.beside_tensor_ranks)

    @property
    def shards_nothing(self) -> bool:
        """Whether one GPU trains alone, in no named program and without offload, which ZeRO does:
        the model's own strategy, which may shard, is that of many GPUs.
        """
        if self.cluster is None or self.cluster.n_gpus > 1 or self.launched is not None:
            return False
        return not any(self.options.get(word) for word in ("software", "offload"))

    def recomputing(self, words: Options) -> Inputs:
        """The same with these options of recompute, which the training library may read its way."""
        options = self.library.recompute_words({**self.options, **words})
        return replace(self, options=options)

    @property
    def recompute_layers(self) -> int:
        """Number of layers that are recomputed; 0 stands for all layers."""
        return self.options.get("recompute_layers") or 0


def inputs_from(
    tries: Attempts, model: str | Path | ModelSource, gpus: str | ClusterSpec, options: Options
) -> Inputs:
    """Look up model, cluster and training library; fill in what a launch file says.

    Problems are collected in ``tries``.
    """
    if options.get("launch") is not None:
        tries.make("launched", lambda: _launched(str(gpus), options))
    launched: Launched | None = tries.get("launched")
    if launched is not None:
        tries.problems.extend(launched.problems)
        options = launched.options
    inputs, settings = inputs_of(options), options.get("settings")
    described = launched is not None and model == DESCRIBED
    if launched is not None and described:
        settings = _described(launched, options)
    zoo = _written_out(model, options)
    if zoo:
        options = {**options, "attention": None}
    tries.make("record", lambda: _model(model, zoo, inputs, settings, launched))
    tries.make("cluster", lambda: _cluster(gpus, options))
    record: ModelSource | None = tries.get("record")
    options = _with_captured(record, options)
    if launched is not None:
        options = launched.heeded(record, settings_given(settings))
        options |= {"settings": settings, "seq_len": None} if described else {}
    unknown: list[str] = []
    layout = layout_of(options, unknown)
    dialect = launched.launch.dialect if launched is not None and launched.launch.fills else ""
    cluster: ClusterSpec | None = tries.get("cluster")
    released = max((g.gpu.released or 0 for g in cluster.groups), default=0) if cluster else 0
    device = cluster.groups[0].gpu.architecture if cluster else ""
    tries.make("library", lambda: library_of(options, record, layout, dialect, released, device))
    library: Library = _checkpointing(tries.get("library", Library(PLAIN)), options)
    by_program = library.on(record, options)
    options = library.words(
        options, record, layout.widest_expert_tp(cluster.n_gpus) if cluster else layout.tp
    )
    length = usual_length(record, options)
    if length is not None:
        options = {**options, "seq_len": tries.chosen("seq-len", None, length)}
    return Inputs(
        options=options,
        record=by_program,
        cluster=cluster,
        launched=launched,
        layout=layout_of(options, []),  # again: the program may set how ranks divide a layer
        unknown=tuple(unknown),
        library=library,
    )


def _checkpointing(library: Library, options: Options) -> Library:
    """The library with the kind of checkpoints that the job states, if any."""
    if (stated := options.get("reentrant")) is None:
        return library
    recompute = library.program.recompute.made(on_or_off("reentrant", stated))
    return replace(library, program=replace(library.program, recompute=recompute))


def _with_captured(record: ModelSource | None, options: Options) -> Options:
    """The options, with those that a captured script chose where the user gives none."""
    captured = getattr(record, "captured", None)
    if captured is None:
        return options
    chosen = dict(captured.options)
    if options.get("global_batch") is not None:
        chosen.pop("grad_accum", None)
    if options.get("strategy") is not None:
        chosen.pop("shard_ranks", None)
    return {**options, **{k: v for k, v in chosen.items() if options.get(k) is None}}


def _described(launched: Launched, options: Options) -> dict[str, Any]:
    """Settings of the model that a launch file describes; those that the job gives win."""
    length = {k: v for k in ("seq_len",) if (v := options.get(k)) is not None}
    return {**launched.launch.described, **length, **settings_given(options.get("settings"))}


def _model(
    model: str | Path | ModelSource, zoo: str, inputs: tuple[str, ...], settings: object,
    launched: Launched | None,
) -> ModelSource:  # fmt: skip
    """The model by its name, with what a launch file says of its encoders.

    ``zoo``: name of a timm model to trace with its attention written as separate operations (no
    fused kernel); "" uses ``model`` as it is.
    """
    if not zoo:
        record = model_of(model, inputs, settings)
        said = launched.of_encoders(record, settings_given(settings)) if launched else {}
        return with_settings(record, said) if said else record
    from simcore.workload.trace import trace_zoo  # few jobs are of such models

    return with_settings(trace_zoo(zoo, inputs, "written"), settings)


def _written_out(model: str | Path | ModelSource, options: Options) -> str:
    """The timm model to trace with attention as separate operations; "" where none is needed."""
    separate = options.get("attention") in ("math", "eager")
    return model if separate and isinstance(model, str) and model.startswith(SWITCHED) else ""


def look_up_names(tries: Attempts, inputs: Inputs) -> None:
    """Look up every option that is a name but for recompute; results go into ``tries``."""
    options, t = inputs.options, inputs.training
    make, chosen = tries.make, tries.chosen
    make(
        "parallelism",
        lambda: parallelism_named(
            chosen("strategy", options.get("strategy"), inputs.usual_strategy)
        ),
    )
    make("shard_ranks", lambda: _shard_ranks(options, inputs.cluster, inputs.layout))
    make(
        "precision",
        lambda: with_main_grads(
            precision_named(
                chosen("precision", options.get("precision"), _usual_precision(inputs))
            ),
            options.get("main_grads") or "weights",
        ),
    )
    make(
        "optimizer",
        lambda: optimizer_named(
            chosen("optimizer", options.get("optimizer"), t.optimizer if t else "adamw"),
            options.get("optimizer_impl"),
        ),
    )
    make("overlap", lambda: parse_overlap(options.get("overlap"), options.get("vpp")))
    if options.get("grad_clip") is not None:
        make("clip", lambda: on_or_off("grad-clip", options.get("grad_clip")))
    if options.get("ema") is not None:
        make("ema", lambda: on_or_off("ema", options.get("ema")))
    make("impl", lambda: step_impl_named(options.get("optimizer_impl")))
    make("issuer", lambda: issuer_named(options.get("issuer") or "torch"))
    make("nccl_algorithms", lambda: nccl_algorithms(options.get("nccl_algo")))
    make("nccl_protocols", lambda: nccl_protocols(options.get("nccl_proto")))
    make("nccl_release", lambda: nccl_release(options.get("nccl_version")))
    make("offload", lambda: parse_offload(options.get("offload") or "none"))
    make("growing", lambda: on_or_off("growing-segments", options.get("growing_segments")))
    make(
        "early_update",
        lambda: on_or_off("update-in-backward", options.get("update_in_backward")),
    )
    make("fp8_params", lambda: on_or_off("fp8-params", options.get("fp8_params")))
    make("eager", lambda: on_or_off("eager-kernels", options.get("eager_kernels")))
    make("searched", lambda: on_or_off("cudnn-benchmark", options.get("cudnn_benchmark")))
    make("gathered", lambda: on_or_off("gather-tensors", options.get("gather_tensors")))
    make("blocking", lambda: on_or_off("launch-blocking", options.get("launch_blocking")))


def _usual_precision(inputs: Inputs) -> str:
    """That of the model's published training, or bf16 where a device has no units for it."""
    usual = inputs.training.precision if inputs.training else "fp32"
    of = PRECISIONS[usual]
    gpus = (g.gpu for g in inputs.cluster.groups) if inputs.cluster else ()
    lacking = (all(gpu.peak(p) is None for p in (of.peak, *of.fallbacks)) for gpu in gpus)
    return AMP_BF16 if any(lacking) else usual


def nccl_algorithms(text: str | None) -> Allowed:
    """Algorithms that NCCL may use, from a text like that of NCCL_ALGO. Raises UsageError."""
    return parse_allowed("nccl-algo", text, names_in_nccl_algo()) if text else FREE


def nccl_release(text: str | None) -> tuple[int, ...]:
    """The numbers of a release of NCCL such as 2.32.3; () for None. Raises InvalidConfig."""
    parts = (text or "").strip().split(".")
    if text is None or (len(parts) > 1 and all(p.isdecimal() and len(p) < 4 for p in parts)):
        return tuple(map(int, filter(None, parts)))
    raise InvalidConfig([f"nccl-version {text!r:.40} is no release such as 2.32 or 2.32.3"])


def nccl_protocols(text: str | None) -> Allowed:
    """Protocols that NCCL may use, from a text like that of NCCL_PROTO. Raises UsageError."""
    return parse_allowed("nccl-proto", text, PROTOCOLS) if text else FREE


def recompute_of(tries: Attempts, inputs: Inputs) -> str:
    """The recompute mode; the recomputed modules are stored in ``tries`` as ``modules``."""
    options, t, first = inputs.options, inputs.training, inputs.recompute_layers
    usual = inputs.library.recompute(t.recompute if t else "none")
    mode = str(tries.chosen("recompute", options.get("recompute"), usual))
    modules = options.get("recompute_modules")
    if mode not in get_args(Recompute):
        tries.problems.append(str(UnknownName("recompute", mode, list(get_args(Recompute)))))
    if first and mode == "none":
        tries.problems.append(f"recompute-layers {first} needs recompute full or selective")
    if first and mode == "full":  # full means all layers; some whole layers are a selective mode
        mode, modules = "selective", "layer"
    tries.make("modules", lambda: _modules(mode, modules, inputs.library.selective))
    return mode


def batches_of(tries: Attempts, inputs: Inputs) -> tuple[int, int | str]:
    """(micro-steps per optimizer step, samples per micro-batch).

    The first is 1 where a global batch is given, since it is derived from that later. The second is
    ``max`` where the largest micro-batch that fits is to be found.
    """
    options, t = inputs.options, inputs.training
    stated = options.get("grad_accum")
    if stated is None and options.get("global_batch") is not None:
        stated = 1  # derived from the global batch later
    accum = tries.chosen("grad-accum", stated, 1)
    if accum < 1:
        tries.problems.append(f"grad-accum must be at least 1, not {accum}")
    own = t.micro_batch if t else 1
    batch = tries.chosen("micro-batch", options.get("micro_batch"), own)
    return accum, _batch(batch, tries.problems)


def changed_settings(tries: Attempts, inputs: Inputs) -> dict[str, Any]:
    """Model settings that the options change; profile and routing are stored in ``tries``."""
    options, record = inputs.options, inputs.record
    tries.make(
        "profile", lambda: options.get("profile") or load_profile(options.get("calibration"))
    )
    tries.make("routing", lambda: routing_of(record, options))
    tries.make("overrides", lambda: overrides_of(record, options))
    routed = routing_settings(record, tries.get("routing", BALANCED), inputs.layout)
    own = inputs.library.settings(record, options)
    given = settings_given(options.get("settings"))
    tries.make("compiled", lambda: compiled_of(record, options, own, inputs.library.compiled()))
    by_program = {**own, **tries.get("compiled", {})}
    unset = {k: v for k, v in by_program.items() if k not in given}
    if inputs.launched is not None:
        unset |= inputs.launched.settings(record, given)
    return {**unset, **tries.get("overrides", {}), **routed}


def _shard_ranks(options: Options, cluster: ClusterSpec | None, layout: Layout) -> int:
    """Number of ranks over which ZeRO shards; 0 stands for all ranks."""
    strategy = options.get("strategy")
    stated = options.get("shard_ranks")
    if stated or strategy is None or cluster is None or not hybrid(strategy):
        return stated or 0
    return node_shard_ranks({g.gpus_per_node for g in cluster.groups}, cluster.n_nodes, layout.tp)


def fabric_of(name: str | None) -> FabricRecord | None:
    """The fabric of a name or file; None where none is named. Raises UnknownName or DataError."""
    if name is None:
        return None
    from simcore.hardware.fabrics.record import fabric_named  # most requests have no fabric

    return fabric_named(name)


def _cluster(gpus: str | ClusterSpec, options: Options) -> ClusterSpec:
    if isinstance(gpus, ClusterSpec):
        return gpus
    words = ("network", "node", "nnodes", "nproc_per_node", "fabric")
    return _parsed(gpus, *map(options.get, words))


@once_a_question
def _parsed(
    gpus: str, network: str | None, node: str | None, nnodes: int | None,
    nproc_per_node: int | None, fabric: str | None,
) -> ClusterSpec:  # fmt: skip
    return parse_cluster(
        gpus, network=network, node=node, nnodes=nnodes, nproc_per_node=nproc_per_node,
        fabric=fabric_of(fabric),
    )  # fmt: skip


def _launched(gpus: str, options: Options) -> Launched:
    from simcore.request.launch import with_launch  # most requests have no launch file

    others = {k: v for k, v in options.items() if k != "launch"}
    return with_launch(str(options["launch"]), gpus, others)


def _modules(mode: str, text: str | None, usual: str) -> tuple[str, ...]:
    if mode == "selective":
        from simcore.workload.recompute import modules_named

        return modules_named(text or usual)
    if text:
        raise InvalidConfig([f"recompute modules {text!r} need recompute selective, not {mode}"])
    return ()


def _batch(value: int | str, problems: list[str]) -> int | str:
    if isinstance(value, str):
        if value.strip().lower() == "max":
            return "max"
        try:
            value = int(value)
        except ValueError:
            problems.append(f"micro-batch {value!r} is neither a whole number nor 'max'")
            return 1
    if not 1 <= value <= 10**6:
        problems.append(f"micro-batch must be 1 to 1,000,000, not {value}")
        return 1
    return value


class Attempts:
    """The values computed so far, and a sentence for each that could not be computed.

    ``defaults``: options that the user did not set, as "option value", in the order of look-up.
    """

    def __init__(self, problems: Sequence[str] = ()) -> None:
        self.problems = list(problems)
        self.defaults: list[str] = []
        self._made: dict[str, Any] = {}

    def copy(self) -> Attempts:
        """The same values and problems, to which others can be added."""
        copied = Attempts(self.problems)
        copied.defaults, copied._made = [*self.defaults], {**self._made}
        return copied

    def make(self, key: str, how: Callable[[], object]) -> None:
        """Store what ``how`` returns; for a UsageError or InvalidConfig, store its sentences."""
        try:
            self._made[key] = how()
        except InvalidConfig as err:
            self.problems.extend(err.violations)
        except UsageError as err:
            self.problems.append(str(err))

    def chosen(self, flag: str, value: Any, fallback: Any) -> Any:
        """``value``, or ``fallback`` where it is None; the fallback is recorded in ``defaults``."""
        if value is not None:
            return value
        self.defaults.append(f"{flag} {fallback}")
        return fallback

    def stop(self) -> None:
        """Raises InvalidConfig with every problem, each once, if there are any."""
        if self.problems:
            raise InvalidConfig(list(dict.fromkeys(self.problems)))

    def __contains__(self, key: str) -> bool:
        return key in self._made

    def __getitem__(self, key: str) -> Any:
        return self._made[key]

    def get(self, key: str, fallback: Any = None) -> Any:
        """The value stored under ``key``, or ``fallback``."""
        return self._made.get(key, fallback)
