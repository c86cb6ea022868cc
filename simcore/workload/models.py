"""Records of ``models_db``, and how a ``Workload`` is built from one."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal, TypeVar

from simcore.base.database import Database, fold_name
from simcore.base.errors import InvalidConfig, did_you_mean
from simcore.base.figures import Bytes, Count, Part, Seconds, Sourced, entry
from simcore.base.record import Same
from simcore.workload.archs import ARCHS, FROZEN_ARCHS, load
from simcore.workload.graph import Block, Frozen, Op, Workload

Scalar = int | float | bool | str

#: Settings for the size of a sample; a frozen network that encodes samples takes the job's values.
SIZES = ("image", "frames")
#: Largest allowed value of a setting, and of one that counts layers or other repeats.
_MOST, _MOST_LAYERS = 2_000_000_000, 10_000
#: Buffers of one batch norm: running mean, running variance, count of batches.
BUFFERS_A_NORM = 3
#: Bytes per weight that was cast to 16 bit.
_HALF_BYTES = 2.0


#: What a record's mapping by alias holds.
_Stated = TypeVar("_Stated")


class FrozenRecord(Part):
    """A frozen network that the training loop runs in each step."""

    name: str
    arch: str
    config: dict[str, Scalar] = entry(default_factory=dict)
    params: Count
    bytes_per_param: float | None = entry(default=None, gt=0)


class Training(Part):
    """What the model's own training script does unless the user states otherwise.

    ``wraps_one_gpu``: the script wraps the model in DistributedDataParallel on a single GPU too, so
    that gradient buckets take memory there as well. ``waits_for_gradients``: its host waits for
    backward to end before it issues the update, for a norm, a scale or a loss. ``source`` is a
    sentence here: it says which of the choices the script itself makes.
    """

    cites: ClassVar[bool] = False

    micro_batch: int = entry(ge=1)
    precision: str
    optimizer: str
    strategy: str = "ddp"
    wraps_one_gpu: bool = False
    waits_for_gradients: bool = True
    recompute: Literal["none", "full"] = "none"
    ema: bool = False
    grad_clip: bool = False
    optimizer_impl: Literal["foreach", "for-loop", "fused"] = "foreach"
    ema_impl: Literal["foreach", "for-loop"] = "for-loop"
    source: str


class Dataset(Part):
    """The data set of the measured runs; it matters where an epoch is short or loading is slow.

    - ``sample_load``: processor time that one loader worker takes to read and decode one sample, on
      a core of Zen 4 or Golden Cove. Those of other processors take longer as their hosts launch
      kernels slower (``issue_over_torch: by_cpu`` of ``runtime.yaml``).
    - ``sample_traffic``: bytes that loading one sample moves between a node's processors and its
      memory: what its operators read and write beyond their caches.
    - ``workers``: loader processes per rank; 0: the training process itself loads.
    - ``persistent_workers``: whether the workers live on from one epoch to the next; if not, they
      are started once per epoch.
    - ``load_sd_frac``: standard deviation of the time to load a sample over its mean.
    """

    name: str
    samples: Count
    sample_load: Seconds | None = None
    sample_traffic: Bytes | None = None
    workers: int = entry(default=0, ge=0)
    persistent_workers: bool = False
    load_sd_frac: Count | None = None


ExchangeOp = Literal["all_reduce", "reduce_scatter", "all_gather", "broadcast", "reduce",
                     "one_to_all", "all_to_one", "all_to_all"]  # fmt: skip


class Exchange(Part):
    """A collective that the training script itself issues, beside those of its strategy.

    ``op``: kind of collective; ``ranks`` of its group are ``stride`` apart; 0 ranks: all
    data-parallel ones. With ``per_sample`` it runs ``times`` a micro-step with ``n_bytes`` a
    sample, else ``times`` a step with ``n_bytes``.
    """

    op: ExchangeOp
    ranks: int = entry(ge=0)
    stride: int = entry(ge=1)
    n_bytes: float = entry(ge=0)
    times: float = entry(ge=0)
    per_sample: bool


class Captured(Part):
    """What a dry run recorded of one rank (``trace.run``).

    - ``options``: options of the job that the script chose; the user's own come first.
    - ``bytes``: bytes of parameters, gradients, optimizer state and buffers at the update, and the
      most that was alive at one time.
    - ``collectives``: of one step, lines of phase, kind, ranks, bytes of a message, times.
    - ``exchanges``: those that are the script's own, not its strategy's.
    - ``stage``: the pipeline stage that the record describes; None: it describes the whole model.
    """

    options: dict[str, Scalar] = entry(default_factory=dict)
    gpus: str = ""
    rank: int = entry(ge=0)
    world_size: int = entry(ge=1)
    bytes: dict[str, int] = entry(default_factory=dict)
    collectives: str = ""
    exchanges: tuple[Exchange, ...] = ()
    stage: int | None = None


class ModelRecord(Sourced):
    """One model: its architecture, the shape of a sample, its training loop and its sources."""

    full_name: str
    called: dict[str, str] = entry(
        default_factory=dict, description="full names of aliases that name a separate model"
    )
    sees: dict[str, dict[str, Any]] = entry(
        default_factory=dict,
        description="vision_config, as of their config.json, of aliases with an encoder of images",
    )
    arch: str
    sample_unit: str
    config: dict[str, Scalar] = entry(default_factory=dict)
    params: Count = entry(description="trained parameters, as published or counted; pinned")
    frozen: tuple[FrozenRecord, ...] = ()
    training: Training
    dataset: Dataset | None = None
    work_sd_frac: Count | None = entry(
        default=None, description="standard deviation of the work of one sample over its mean"
    )
    largest: dict[str, Scalar] = entry(
        default_factory=dict,
        description="settings of the largest batch of training, where batches vary in size; "
        "memory is predicted for it",
    )
    sync_norm_wait: Seconds | None = entry(
        default=None,
        description="time that each exchange of batch-norm statistics over all ranks waits",
    )
    modules_of: str = entry(
        default="", description="kind of source whose library's modules a plain training loop runs"
    )
    notes: tuple[str, ...] = ()
    length_note: str = entry(default="", description="a note where no sequence length is given")
    #: The network that `simcore trace-model` wrote; archs/traced.py checks it when the model is
    #: built.
    traced: dict[str, Any] | None = None
    captured: Captured | None = None

    def under(self, name: str) -> ModelRecord:
        """This record, under the full name of the alias ``name`` if that alias has one."""
        if not self.called:
            return self
        full_name = of_alias(self.called, name)
        return self if full_name is None else _renamed(self, full_name)

    def build(self, **overrides: Scalar) -> Workload:
        """The workload with some config keys (``seq_len=…``) overridden. Raises InvalidConfig."""
        return _build(self, tuple(sorted(overrides.items())))

    def settings(self, overrides: Mapping[str, Scalar]) -> Mapping[str, Scalar]:
        """All settings of the architecture: its defaults, then the record's, then ``overrides``."""
        own = _own_settings(self)
        return {**own, **overrides} if overrides else own


def of_alias(stated: Mapping[str, _Stated], name: str) -> _Stated | None:
    """What a record's mapping by alias has for the alias ``name``; None where it has nothing."""
    by_alias = {fold_name(k.rpartition("/")[2]): v for k, v in stated.items()}
    return by_alias.get(fold_name(name.rpartition("/")[2]))


@lru_cache(maxsize=1000)
def _own_settings(record: ModelRecord) -> Mapping[str, Scalar]:
    """The settings of a record's architecture, with the record's own values."""
    load(record.arch)
    return MappingProxyType({**_defaults(ARCHS[record.arch]), **record.config})


@lru_cache(maxsize=256)
def _renamed(record: ModelRecord, full_name: str) -> ModelRecord:
    """A copy with another full name, one object per name: caches compare records by identity."""
    return record.model_copy(update={"full_name": full_name})


@lru_cache(maxsize=64)
def setting_kinds(arch: str) -> Mapping[str, str]:
    """The type of each setting of an architecture, as its builder is annotated."""
    load(arch)
    return MappingProxyType({
        p.name: str(p.annotation)
        for p in _parameters(ARCHS[arch])
        if p.name not in ("name", "sample_unit", "traced")
    })  # fmt: skip


def setting_defaults(arch: str) -> Mapping[str, Any]:
    """The values of an architecture's settings that neither the record nor the job states."""
    load(arch)
    return _defaults(ARCHS[arch])


@lru_cache(maxsize=256)
def _parameters(builder: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(builder).parameters.values())


@lru_cache(maxsize=256)
def _defaults(builder: Callable[..., Any]) -> Mapping[str, Any]:
    defaults = {p.name: p.default for p in _parameters(builder) if p.default is not p.empty}
    return MappingProxyType(defaults)


@lru_cache(maxsize=256)
def _allowed(builder: Callable[..., Any]) -> Mapping[str, inspect.Parameter]:
    """The settings of an architecture by name."""
    return {p.name: p for p in _parameters(builder) if p.name not in ("name", "sample_unit")}


def _call(
    builder: Callable[..., Any],
    described: str,
    name: str,
    config: dict[str, Any],
    sample_unit: str | None = None,
) -> Any:
    allowed = _allowed(builder)
    bad = [key for key in config if key not in allowed]
    if bad:
        raise InvalidConfig(
            [
                f"{name}: {described} has no setting {key!r}{did_you_mean(key, allowed)}"
                for key in bad
            ]
        )
    wrong = [text for key, value in config.items() for text in _wrong(allowed[key], value)]
    if wrong:
        raise InvalidConfig([f"{name}: {described}: {text}" for text in wrong])
    try:
        if sample_unit is not None:
            config = {**config, "sample_unit": sample_unit}
        return builder(name=name, **config)
    except (TypeError, ValueError, ZeroDivisionError) as err:
        raise InvalidConfig([f"{name}: {described}: {err}"]) from None


def _wrong(setting: inspect.Parameter, value: object) -> list[str]:
    """What is wrong with the type or range of a setting's value; empty if nothing is.

    The least whole number allowed is 1, or 0 where the default is 0.
    """
    kind = str(setting.annotation)
    if kind == "bool" and not isinstance(value, bool):
        return [f"{setting.name} {value!r} is neither true nor false"]
    if kind not in ("int", "float"):
        return []
    whole = kind == "int"
    least = 1 if whole and setting.default != 0 else 0
    most = _MOST_LAYERS if setting.name.split("_")[-1] in ("layers", "depth") else _MOST
    fits_type = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if fits_type and least <= value <= most:  # type: ignore[operator]
        return []
    return [f"{setting.name} {value!r} is no {'whole ' * whole}number from {least} to {most:,}"]


def _reads_encodings(builder: Callable[..., Workload], config: Mapping[str, Any]) -> bool:
    """Whether samples are encoded beforehand, so that no encoder runs in the step."""
    setting = inspect.signature(builder).parameters.get("encoded")
    return setting is not None and bool(config.get("encoded", setting.default))


def _encoders(
    record: ModelRecord, builder: Callable[..., Workload], config: Mapping[str, Any],
    overrides: Mapping[str, Scalar],
) -> Iterator[Frozen]:  # fmt: skip
    """The frozen networks on the device: those that run in the step, and those that only stay."""
    read, captions = _reads_encodings(builder, config), bool(config.get("captions_encoded"))
    for one in record.frozen:
        runs = not (read or (captions and not any(size in one.config for size in SIZES)))
        if runs or config.get("encoders_held"):
            net = _build_frozen(one, overrides)
            yield net if runs else replace(net, ops=(_HELD,), transient_low=0.0)


def _build_frozen(record: FrozenRecord, overrides: Mapping[str, Scalar]) -> Frozen:
    """A frozen network that a step runs, on samples of the model's size."""
    load(record.arch)
    described = f"frozen architecture {record.arch!r}"
    sizes = {k: v for k, v in overrides.items() if k in SIZES and k in record.config}
    config = {**record.config, **sizes}
    part: Frozen = _call(FROZEN_ARCHS[record.arch], described, record.name, config)
    is_16_bit = record.bytes_per_param == _HALF_BYTES
    ops = tuple(map(_narrow, part.ops)) if is_16_bit else part.ops
    return replace(part, ops=ops, bytes_per_param=record.bytes_per_param)


def _narrow(op: Op) -> Op:
    """An operator of a network that was cast to 16 bit and runs outside autocast.

    Its norms and softmax are 16 bit too (diffusers, examples/text_to_image/train_text_to_image.py:
    vae.to(weight_dtype), while autocast wraps the forward of the U-Net alone).
    """
    return replace(op, fwd=tuple(replace(k, low=k.low + k.high, high=0.0) for k in op.fwd))


def _behind(workload: Workload, blocks: Sequence[Block]) -> Workload:
    """The workload with other blocks before its own, in this order."""
    if not blocks:
        return workload
    kinds = list(dict.fromkeys(map(Same, blocks)))
    order = (*(kinds.index(Same(b)) for b in blocks), *(len(kinds) + i for i in workload.order))
    every = (*(kind.it for kind in kinds), *workload.blocks)
    return workload.replace(blocks=every, order=order, encoder_blocks=len(blocks))


#: What a network does in a step that ran before the first one and stays on the device: nothing.
_HELD = Op(name="held", fwd=())


#: At most 256 workloads are cached: a long-running process must not store one for every sequence
#: length that was ever requested.
@lru_cache(maxsize=256)
def _build(record: ModelRecord, overrides: tuple[tuple[str, Scalar], ...]) -> Workload:
    load(record.arch)
    builder = ARCHS[record.arch]
    config: dict[str, Any] = {**record.config, **dict(overrides)}
    if record.traced is not None:
        config["traced"] = record.traced
    workload: Workload = _call(
        builder, f"architecture {record.arch!r}", record.name, config, record.sample_unit
    )
    frozen = tuple(_encoders(record, builder, config, dict(overrides)))
    sd_frac, wait = record.work_sd_frac, record.sync_norm_wait
    workload = _behind(workload, [block for net in frozen for block in net.trained])
    frozen = tuple(replace(f, trained=()) for f in frozen if f.ops or f.resident_numel)
    if config.get("frozen_model") and not workload.trainable_numel:
        raise InvalidConfig(
            [f"{record.name}: nothing is trained: frozen_model needs an encoder of images, with "
             "--set trained=projector or trained=all"]
        )  # fmt: skip
    length_assumed = "seq_len" not in dict(overrides) and record.length_note
    return workload.replace(
        frozen=workload.frozen + frozen,
        modules_of=record.modules_of,
        notes=workload.notes + record.notes + ((record.length_note,) if length_assumed else ()),
        work_sd_frac=sd_frac.value if sd_frac else workload.work_sd_frac,
        sync_norms=workload.n_buffers // BUFFERS_A_NORM if wait else 0,
        sync_norm_wait_s=wait.value if wait else 0.0,
        exchanges=record.captured.exchanges if record.captured else (),
    )


MODELS: Database[ModelRecord] = Database("model", "models_db", ModelRecord)
#: Vision libraries whose models are known by name (``trace.zoos``), and the call that lists them.
ZOO_LISTS = {
    "timm": "timm.list_models()",
    "torchvision": "torchvision.models.list_models()",
}
