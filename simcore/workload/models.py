"""Records of ``models_db`` and how one becomes a Workload."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from types import MappingProxyType
from typing import Any, ClassVar, Literal

from pydantic import Field

from simcore.base.database import Database, fold_name
from simcore.base.errors import InvalidConfig, nearest
from simcore.base.figures import Count, Part, Seconds, Sourced
from simcore.workload.archs import ARCHS, FROZEN_ARCHS, load
from simcore.workload.graph import Frozen, Op, Workload

Scalar = int | float | bool | str

#: Settings that say how large a sample is: a network that encodes it takes them over.
SIZES = ("image", "frames")
#: No figure of an architecture is larger, nor one that says how often something is repeated.
_MOST, _MOST_LAYERS = 2_000_000_000, 10_000
#: Of a batch norm: running mean, running variance, count of batches.
BUFFERS_A_NORM = 3
#: Of a weight that was cast to 16 bit.
_HALF_BYTES = 2.0


class FrozenRecord(Part):
    """A frozen network that the training loop runs each step."""

    name: str
    arch: str
    config: dict[str, Scalar] = Field(default_factory=dict)
    params: Count
    bytes_per_param: float | None = Field(default=None, gt=0)


class Training(Part):
    """What the model's own training script does where the user says nothing.

    ``wraps_one_gpu``: it wraps the model in DistributedDataParallel on one GPU too, whose gradient
    buckets are then held there as well. ``source`` is a sentence here: it says which of the
    choices are the script's own.
    """

    cites: ClassVar[bool] = False

    micro_batch: int = Field(ge=1)
    precision: str
    optimizer: str
    strategy: str = "ddp"
    wraps_one_gpu: bool = False
    recompute: Literal["none", "full"] = "none"
    ema: bool = False
    grad_clip: bool = False
    optimizer_impl: Literal["foreach", "for-loop", "fused"] = "foreach"
    ema_impl: Literal["foreach", "for-loop"] = "for-loop"
    source: str


class Dataset(Part):
    """The data set of the measured runs: matters where an epoch is short or loading is slow.

    ``sample_load`` is the processor time that one worker takes to read and decode one sample;
    ``workers`` loader processes a rank (0: in the training process itself);
    ``persistent_workers`` false means they start anew each epoch.
    """

    name: str
    samples: Count
    sample_load: Seconds | None = None
    workers: int = Field(default=0, ge=0)
    persistent_workers: bool = False


class ModelRecord(Sourced):
    """One model: its architecture, the shape of a sample, its training loop, its sources."""

    full_name: str
    called: dict[str, str] = Field(
        default_factory=dict, description="full names of aliases that are models of their own"
    )
    arch: str
    sample_unit: str
    config: dict[str, Scalar] = Field(default_factory=dict)
    params: Count = Field(description="trained parameters, as published or counted; pinned")
    frozen: tuple[FrozenRecord, ...] = ()
    training: Training
    dataset: Dataset | None = None
    work_sd_frac: Count | None = Field(
        default=None, description="standard deviation of the work of one sample over its mean"
    )
    largest: dict[str, Scalar] = Field(
        default_factory=dict,
        description="settings of the largest batch that training meets, where batches vary: memory "
        "is of it",
    )
    sync_norm_wait: Seconds | None = Field(
        default=None,
        description="batch norms take their statistics over all ranks: what each exchange waits",
    )
    notes: tuple[str, ...] = ()
    #: What `simcore trace-model` writes; archs/traced.py checks it when the model is built.
    traced: dict[str, Any] | None = None

    def under(self, name: str) -> ModelRecord:
        """This record by the full name of the alias that it was asked for by, if that has one."""
        if not self.called:
            return self
        own = {fold_name(k.rpartition("/")[2]): v for k, v in self.called.items()}
        found = own.get(fold_name(name.rpartition("/")[2]))
        return self if found is None else _renamed(self, found)

    def build(self, **overrides: Scalar) -> Workload:
        """The workload, with config keys (``seq_len=…``) overridden. Raises InvalidConfig."""
        return _build(self, tuple(sorted(overrides.items())))

    def settings(self, overrides: Mapping[str, Scalar]) -> dict[str, Scalar]:
        """Every setting of the architecture: its defaults, the record's, then ``overrides``."""
        load(self.arch)
        return {**_defaults(ARCHS[self.arch]), **self.config, **overrides}


@lru_cache(maxsize=256)
def _renamed(record: ModelRecord, full_name: str) -> ModelRecord:
    """One copy a name: caches know records by identity."""
    return record.model_copy(update={"full_name": full_name})


@lru_cache(maxsize=64)
def setting_kinds(arch: str) -> Mapping[str, str]:
    """The settings of an architecture and the kind of each, as its builder is annotated."""
    load(arch)
    return MappingProxyType({
        p.name: str(p.annotation)
        for p in _parameters(ARCHS[arch])
        if p.name not in ("name", "sample_unit", "traced")
    })  # fmt: skip


def setting_defaults(arch: str) -> Mapping[str, Any]:
    """What settings of an architecture are where neither record nor job says them."""
    load(arch)
    return _defaults(ARCHS[arch])


@lru_cache(maxsize=256)
def _parameters(builder: Callable[..., Any]) -> tuple[inspect.Parameter, ...]:
    return tuple(inspect.signature(builder).parameters.values())


@lru_cache(maxsize=256)
def _defaults(builder: Callable[..., Any]) -> Mapping[str, Any]:
    found = {p.name: p.default for p in _parameters(builder) if p.default is not p.empty}
    return MappingProxyType(found)


def _call(
    builder: Callable[..., Any],
    what: str,
    name: str,
    config: dict[str, Any],
    sample_unit: str | None = None,
) -> Any:
    allowed = [p.name for p in _parameters(builder) if p.name not in ("name", "sample_unit")]
    bad = [key for key in config if key not in allowed]
    if bad:
        raise InvalidConfig(
            [
                f"{name}: {what} has no setting {key!r}"
                + (f": did you mean {near[0]!r}?" if (near := nearest(key, allowed)) else "")
                for key in bad
            ]
        )
    wrong = [text for p in _parameters(builder) if p.name in config
             for text in _wrong(p, config[p.name])]  # fmt: skip
    if wrong:
        raise InvalidConfig([f"{name}: {what}: {text}" for text in wrong])
    try:
        if sample_unit is not None:
            config = {**config, "sample_unit": sample_unit}
        return builder(name=name, **config)
    except (TypeError, ValueError, ZeroDivisionError) as err:
        raise InvalidConfig([f"{name}: {what}: {err}"]) from None


def _wrong(setting: inspect.Parameter, value: object) -> list[str]:
    """What is wrong with a setting's value by its type; a count whose default is 0 may be none."""
    kind = str(setting.annotation)
    if kind == "bool" and not isinstance(value, bool):
        return [f"{setting.name} {value!r} is neither true nor false"]
    if kind not in ("int", "float"):
        return []
    whole = kind == "int"
    least = 1 if whole and setting.default != 0 else 0
    most = _MOST_LAYERS if setting.name.split("_")[-1] in ("layers", "depth") else _MOST
    known = isinstance(value, int if whole else int | float) and not isinstance(value, bool)
    if known and least <= value <= most:  # type: ignore[operator]
        return []
    return [f"{setting.name} {value!r} is no {'whole ' * whole}number from {least} to {most:,}"]


def _build_frozen(record: FrozenRecord, overrides: Mapping[str, Scalar]) -> Frozen:
    """A network of the step, of samples as large as the model's."""
    load(record.arch)
    what = f"frozen architecture {record.arch!r}"
    sizes = {k: v for k, v in overrides.items() if k in SIZES and k in record.config}
    config = {**record.config, **sizes}
    part: Frozen = _call(FROZEN_ARCHS[record.arch], what, record.name, config)
    narrow = record.bytes_per_param == _HALF_BYTES
    steps = tuple(map(_narrow, part.ops)) if narrow else part.ops
    return replace(part, ops=steps, bytes_per_param=record.bytes_per_param)


def _narrow(op: Op) -> Op:
    """An operator of a network that was cast to 16 bit and runs outside of autocast.

    It has norms and softmax in 16 bit too (diffusers, examples/text_to_image/
    train_text_to_image.py: vae.to(weight_dtype), beside a U-Net whose forward alone is wrapped).
    """
    return replace(op, fwd=tuple(replace(k, low=k.low + k.high, high=0.0) for k in op.fwd))


#: Workloads kept: a long-running process must not keep every sequence length it was asked for.
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
    frozen = tuple(_build_frozen(f, dict(overrides)) for f in record.frozen)
    spread, wait = record.work_sd_frac, record.sync_norm_wait
    return workload.replace(
        frozen=workload.frozen + frozen,
        notes=workload.notes + record.notes,
        work_sd_frac=spread.value if spread else workload.work_sd_frac,
        sync_norms=workload.n_buffers // BUFFERS_A_NORM if wait else 0,
        sync_norm_wait_s=wait.value if wait else 0.0,
    )


MODELS: Database[ModelRecord] = Database("model", "models_db", ModelRecord)
#: Vision libraries whose models have names (``trace.zoos``) -> what lists them.
ZOO_LISTS = {
    "timm": "timm.list_models()",
    "torchvision": "torchvision.models.list_models()",
}
