"""A launch file in a request: fills in options the user did not give, the batch, and notes."""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping
from typing import Any

from simcore.base.errors import SimcoreError
from simcore.base.names import Changed
from simcore.base.record import dataclass
from simcore.hardware.cluster import ClusterSpec, parse_cluster
from simcore.request.model_settings import compiles
from simcore.strategy.dialects import Launch, read_launch, title_of
from simcore.strategy.options import shown
from simcore.strategy.strategy import SINGLE
from simcore.workload.archs.lm_attention import ATTENTIONS
from simcore.workload.models import ModelRecord
from simcore.workload.settings import record_kinds

#: Options that detail the recompute mode: not read from the file where the user gives a mode.
_OF_RECOMPUTE = ("recompute_modules", "recompute_layers")
#: Architecture in which the names of attention kernels mean other kernels than elsewhere.
_OTHER_KERNELS = "bert"
#: Modules that PEFT adapts where nothing says which, of models with separate queries and values
#: (peft/utils/constants.py, TRANSFORMERS_MODELS_TO_LORA_TARGET_MODULES_MAPPING); of others the
#: product that has both.
PEFT_TARGETS = "q_proj,v_proj"
#: Options that say how many GPUs there are.
COUNTS = ("nnodes", "nproc_per_node")
#: Sides of images are a multiple of this many pixels: patches of 2 by 2 latents of 8 pixels each.
_PATCH = 16
_COUNTED = re.compile(r"(?:^|\+)\s*\d+\s*[x×*]")


@dataclass(frozen=True)
class Launched:
    """A launch file, the options with those of the file filled in, notes for the user, problems."""

    launch: Launch
    options: dict[str, Any]
    notes: tuple[str, ...]
    problems: tuple[str, ...]

    def told(self, record: object) -> tuple[str, ...]:
        """The notes, and one for each word of the file that this model does not follow."""
        config: Mapping[str, Any] = getattr(record, "config", {})
        wrong = (
            f"{self.launch.where} has {key} {value}, the model has {config[key]}: --model decides"
            for key, value in self.launch.shape.items()
            if config.get(key) not in (None, 0, value)
        )
        side = _side_of(self.launch.settings, config)
        sides = f"{self.launch.where}: images are predicted as squares of their area, {side} pixels"
        eager = Changed(
            f"{self.launch.keys.get('compile')} of {self.launch.where} is not followed: what "
            "torch.compile fuses is known for language models only, kernels are predicted as eager "
            "ones"
        )
        asked = self.launch.words().get("compile") and self.options.get("compile")
        dropped = record is not None and asked and not compiles(record)
        last = self.launch.words().get("layout") == "nhwc" and not has_layout(record)
        turned = f"{self.launch.where}: channels last is not followed: the model has one layout"
        return (*self.notes, *wrong, *([sides] if side else []), *([eager] if dropped else []),
                *([turned] if last else []))  # fmt: skip

    def settings(self, record: object, given: Collection[str] = ()) -> dict[str, Any]:
        """The file's settings of the model, without those that it lacks or the job sets itself."""
        known = getattr(record, "settings", None)
        has: Collection[str] = known({}) if known is not None else ()
        found = {k: v for k, v in self.launch.settings.items() if k in has and k not in given}
        side = _side_of(self.launch.settings, has)
        return {"image": side, **found} if side and "image" not in given else found

    def of_encoders(self, record: object, given: Collection[str] = ()) -> dict[str, Any]:
        """The file's settings of the record's frozen networks: what of an encoder is trained."""
        has: Collection[str] = record_kinds(record) if isinstance(record, ModelRecord) else ()
        return {k: v for k, v in self.launch.settings.items() if k in has and k not in given}

    def heeded(self, record: object, settings: Collection[str] = ()) -> dict[str, Any]:
        """The options without those of the file that do not apply to the model.

        Dropped are: an attention kernel where the model names none, expert capacity where it has no
        experts, torch.compile where it is not known what it fuses, a layout of images where it has
        only one, and options that ``settings`` of the job replace.
        """
        void = [] if names_kernel(record) else ["attention"]
        void += [] if has_experts(record) else ["expert_capacity", "expert_padding"]
        void += [] if compiles(record) else ["compile"]
        void += [] if has_layout(record) else ["layout"]
        void += settings
        of_file = self.launch.words()
        fused = of_file.get("lora_targets") == PEFT_TARGETS and joins_qkv(record)
        changed = {"lora_targets": "qkv_proj"} if fused else {}
        return {
            k: None if k in void and v == of_file.get(k) else v for k, v in self.options.items()
        } | changed


def _side_of(settings: Mapping[str, Any], has: Collection[str]) -> int | None:
    """The side of squares as large as the file's images, where the model's images are squares."""
    width, height = settings.get("width"), settings.get("height")
    if not (width and height) or "width" in has or "image" not in has:
        return None
    return max(_PATCH, round(math.sqrt(int(width) * int(height)) / _PATCH) * _PATCH)


def names_kernel(record: object) -> bool:
    """Whether a model says which attention kernel it uses, so that a file may name another one."""
    settings = getattr(record, "settings", None)
    if settings is None or getattr(record, "arch", "") == _OTHER_KERNELS:
        return False
    return settings({}).get("attention") in ATTENTIONS


def joins_qkv(record: object) -> bool:
    """Whether queries, keys and values are one matrix product of a model."""
    settings = getattr(record, "settings", None)
    return settings is not None and bool(settings({}).get("fused_qkv"))


def has_layout(record: object) -> bool:
    """Whether a model's images may have their channels first or last; True where it is unknown."""
    settings = getattr(record, "settings", None)
    return settings is None or "layout" in settings({})


def has_experts(record: object) -> bool:
    """Whether a model routes tokens to experts."""
    settings = getattr(record, "settings", None)
    return settings is not None and bool(settings({}).get("experts"))


def filled(
    launch: Launch, options: Mapping[str, Any], without: Collection[str] = ()
) -> tuple[dict[str, Any], list[str]]:
    """The options, with the file's where none is given, and notes on those that override the file.

    ``without``: options of the file that are not filled in.
    """
    given = {k for k, v in options.items() if v is not None}
    merged = dict(options)
    notes: list[str] = []
    for word, value in launch.words().items():
        if word in without or (word in _OF_RECOMPUTE and "recompute" in given):
            continue
        if word not in given:
            merged[word] = value
        elif str(options[word]) != str(value):
            flag = "--" + word.replace("_", "-")
            notes.append(f"{flag} {options[word]} wins over {launch.keys[word]} of "
                         f"{launch.where} ({value})")  # fmt: skip
    return merged, notes


def _wrapping(launch: Launch) -> set[str]:
    """Names the strategy where its DDP wraps a model even on one GPU.

    Accelerate and scripts do so where LOCAL_RANK is set (accelerate/state.py, PartialState), which
    torchrun does, and ``accelerate launch`` of one process does not (commands/launch.py,
    simple_launcher).
    """
    by = launch.keys.get("nproc_per_node", "").replace("_", "-").lower()
    return {"strategy"} if by.endswith("nproc-per-node") else set()


def with_launch(text: str, gpus: str, options: Mapping[str, Any]) -> Launched:
    """The launch file (or quoted flags) read, and the options that were not given filled in.

    Options that were given override the file, with a note. Where one of the three in ``global batch
    = micro-batch x accumulation x GPUs`` is missing, it is derived; a contradiction is a problem.
    Raises DataError or UsageError for a file that cannot be read.
    """
    launch = read_launch(text)
    given = {k for k, v in options.items() if v is not None}
    problems = launch.violations(given)
    counted = _COUNTED.search(gpus) is not None
    merged, notes = filled(launch, options, COUNTS if counted else ())
    cluster = _cluster(gpus, merged)
    if cluster and "precision" not in given:
        _of_gpu(launch, merged, cluster)
    world = cluster.n_gpus if cluster else None
    if (
        world == 1
        and merged.get("strategy") == "ddp"
        and "strategy" not in given | _wrapping(launch)
    ):
        merged["strategy"] = SINGLE
    if cluster and (devices := cluster.groups[0].gpu.program_devices) > 1:
        notes += _of_chips(merged, given, devices, cluster.groups[0].gpu.name)
    _compare_worlds(launch, gpus, counted, world, given, notes, problems)
    if "global_batch" in given:  # the request decides: accumulation is derived from it
        merged["grad_accum"] = options.get("grad_accum")
        if launch.global_batch not in (None, options["global_batch"]):
            notes.append(f"--global-batch {options['global_batch']} wins over "
                         f"{launch.global_batch} of {launch.where}")  # fmt: skip
    else:
        _derive_batch(launch, merged, given, _replicas(world, merged), notes, problems)
    lines = [summary(launch), *notes, *launch.approximated, *launch.unknown]
    if launch.ignored:
        lines.append(f"{launch.where}: without effect on the prediction: "
                     f"{', '.join(launch.ignored)}")  # fmt: skip
    return Launched(launch, merged, tuple(lines), tuple(problems))


def summary(launch: Launch) -> str:
    """One line with everything that the file says."""
    words = {**({"model": launch.model} if launch.model else {}), **launch.words()}
    if launch.global_batch is not None:
        words["global_batch"] = launch.global_batch
    words |= launch.settings
    values = ", ".join(f"{w.replace('_', '-')} {shown(v)}" for w, v in words.items())
    said = values or "nothing that changes the prediction"
    return f"settings of {launch.where} ({title_of(launch)}): {said}"


def _of_gpu(launch: Launch, options: dict[str, Any], cluster: ClusterSpec) -> None:
    """fp16 for bf16 where the program takes the GPU's 16-bit format and one of them has no bf16."""
    precision = str(options.get("precision") or "")
    lacking = any(g.gpu.peak("bf16") is None for g in cluster.groups)
    if launch.other.get("dtype") == "native" and lacking:
        options["precision"] = precision.replace("bf16", "fp16")


def _of_chips(options: dict[str, Any], given: Collection[str], devices: int, gpu: str) -> list[str]:
    """Turns a file's counts of devices into counts of chips of several devices, with a note.

    The devices of a chip are neighbours: they share a sample where ranks do, else each has its own.
    """
    for word in ("tp", "cp"):
        count = _count(options.get(word)) or 1
        if count % devices == 0 and word not in given:
            options[word] = count // devices
            return [f"programs see {devices} devices in a {gpu}: {word} {count} is "
                    f"{count // devices} chips"]  # fmt: skip
    micro = _count(options.get("micro_batch"))
    if not micro or "micro_batch" in given:
        return []
    options["micro_batch"] = micro * devices
    return [f"programs see {devices} devices in a {gpu}: micro-batch {micro} of each is "
            f"{micro * devices} of the chip"]  # fmt: skip


def _cluster(gpus: str, options: Mapping[str, Any]) -> ClusterSpec | None:
    """The cluster; None where its text is wrong, which is reported elsewhere."""
    try:
        return parse_cluster(
            gpus, network=options.get("network"), node=options.get("node"),
            nnodes=options.get("nnodes"), nproc_per_node=options.get("nproc_per_node"),
        )  # fmt: skip
    except SimcoreError:
        return None


def _replicas(world: int | None, options: Mapping[str, Any]) -> int | None:
    """Replicas that read different samples; None where degrees do not fit, reported elsewhere."""
    if world is None:
        return None
    ranks = math.prod(_count(options.get(w)) or 1 for w in ("tp", "pp", "cp"))
    return world // ranks if world % ranks == 0 else None


def _compare_worlds(
    launch: Launch, gpus: str, counted: bool, world: int | None, given: set[str],
    notes: list[str], problems: list[str],
) -> None:  # fmt: skip
    stated = launch.n_gpus
    if stated is None and launch.nnodes is not None and launch.nproc_per_node is not None:
        stated = launch.nnodes * launch.nproc_per_node
    if stated is None or world is None or stated == world:
        return
    if launch.whole_world and "strategy" not in given:
        problems.append(f"{launch.whole_world}, and --gpus {gpus} is {world} GPUs")
    elif not counted and launch.n_gpus is not None and not given & {"nnodes", "nproc_per_node"}:
        problems.append(f"{launch.where} is for {stated} GPUs and does not say on how many nodes: "
                        f"write --gpus NODESxGPUSx{gpus}")  # fmt: skip
    else:
        notes.append(
            Changed(f"{launch.where} is for {stated} GPUs; --gpus {gpus} ({world}) is predicted")
        )


def _derive_batch(
    launch: Launch, options: dict[str, Any], given: set[str], replicas: int | None,
    notes: list[str], problems: list[str],
) -> None:  # fmt: skip
    total = launch.global_batch
    if total is None or replicas is None:
        return
    cut = any((_count(options.get(w)) or 1) > 1 for w in ("tp", "pp", "cp"))
    ranks = "replicas" if cut else "GPUs"
    key = f"{launch.where}: {launch.keys.get('global_batch', 'global batch')} = {total}"
    micro, accum = _count(options.get("micro_batch")), _count(options.get("grad_accum"))
    if micro == 0 or accum == 0:  # "max", or a number that is reported elsewhere
        if options.get("micro_batch") is not None and accum is None:
            notes.append(f"{key} does not hold: the micro-batch is not a number")
        return
    if micro is not None and accum is not None:
        product = micro * accum * replicas
        if product == total:
            return
        text = f"{key} is not {micro} x {accum} x {replicas} {ranks} = {product}"
        if given & {"micro_batch", "grad_accum"}:
            notes.append(Changed(f"{text}: the latter is predicted"))
        else:
            problems.append(f"{text}: give --grad-accum, --micro-batch or other --gpus")
        return
    known = (micro or accum or 1) * replicas
    if total % known:
        what = f"{micro or accum} x {replicas} {ranks}" if micro or accum else f"{replicas} {ranks}"
        problems.append(f"{key} is no multiple of {what}: give --micro-batch and --grad-accum")
        return
    word = "micro_batch" if micro is None else "grad_accum"
    options[word] = total // known
    if given & {"micro_batch", "grad_accum"}:
        notes.append(f"{word.replace('_', '-')} {total // known} keeps the batch of {total} "
                     f"that {launch.where} has")  # fmt: skip


def _count(value: object) -> int | None:
    """``value`` as a count; 0 where it is not a number, None where it is None."""
    if value is None:
        return None
    try:
        return max(int(str(value)), 0)
    except ValueError:
        return 0
