"""What a request may say: the command line's words as query parameters, all of them bounded.

Names are looked up in the databases and in the lists of installed vision libraries, nowhere else.
Unlike the command line, a server takes no path, no ``package.module:callable`` and no launch file:
those would read or run local files.
"""

from __future__ import annotations

import math
from typing import Annotated, Any

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

from simcore import api
from simcore.base.database import fold_name
from simcore.base.errors import InvalidConfig, UnknownName, UsageError
from simcore.base.units import TERA
from simcore.serve.uploads import PREFIX, Uploads

#: Words whose values are names: long enough for any, too short to hurt.
Name = Annotated[str, StringConstraints(min_length=1, max_length=100)]
Count = Annotated[int, Field(ge=1, le=1_000_000)]
Degree = Annotated[int, Field(ge=1, le=4096)]
#: A run is at most this long: beyond, a number is a slip of the keyboard.
_LONGEST = 1e11
#: Elements of a buffer: more than a device can hold.
_MOST_ELEMENTS = int(TERA)
#: Of rows of experts over their mean; no model has so many experts a token's choice.
Factor = Annotated[float, Field(ge=1, le=4096, allow_inf_nan=False)]
Length = Annotated[float, Field(gt=0, le=_LONGEST, allow_inf_nan=False)]


def _say(text: str, example: object = None) -> Any:
    return Field(default=None, description=text, examples=None if example is None else [example])


class SetUp(BaseModel):
    """One training job: ``simcore predict``'s options, as it names them.

    What is not given takes the model's own default and is marked (default) in the answer.
    """

    model_config = ConfigDict(extra="forbid", frozen=True)

    model: Name = Field(
        description="A name of models_db, timm:NAME, torchvision:NAME or upload:ID of a config",
        examples=["latte-xl"],
    )
    gpus: Annotated[str, StringConstraints(min_length=1, max_length=200)] = Field(
        description="NODESxGPUSxTYPE, joined by + where types are mixed",
        examples=["4x8xA6000ada"],
    )
    network: Name | None = _say(
        "Link between nodes: a name, 8xNAME or a rate; and switches: 4:1 leaf=16 rails sharp",
        "25 Gbit/s",
    )
    nccl_algo: Name | None = _say("Algorithms that NCCL is held to", "Ring,Tree")
    nccl_proto: Name | None = _say("Protocols that NCCL is held to", "Simple")
    node: Name | None = _say("Node preset", "dgx-a100")
    strategy: Name | None = _say("How the work is spread over GPUs", "zero2")
    micro_batch: Annotated[str, StringConstraints(min_length=1, max_length=8)] | None = _say(
        "Samples a GPU at a time; max: the most that fits", "4"
    )
    grad_accum: Count | None = _say("Micro-batches a step", 2)
    global_batch: Count | None = _say("Samples a step, instead of grad_accum", 256)
    shares: Name | None = _say("On unequal GPUs: samples of each kind, equal or auto", "auto")
    tp: Degree | None = _say("Tensor parallel ranks (transformers)", 8)
    sequence_parallel: Name | None = _say("off: norms stay whole on each tensor rank", "off")
    pp: Degree | None = _say("Pipeline stages", 2)
    vpp: Degree | None = _say("Chunks of layers a pipeline rank", 2)
    stages: Name | None = _say("Layers of each pipeline stage, even or auto", "7,14x8,7")
    cp: Degree | None = _say("Context parallel ranks", 2)
    ep: Degree | None = _say("Expert parallel ranks", 8)
    expert_tp: Degree | None = _say("Tensor ranks of an expert: 1 or tp", 1)
    schedule: Name | None = _say("Of the pipeline: 1f1b, gpipe, zb-1p, zb-2p, dualpipe", "zb-2p")
    dispatcher: Name | None = _say("alltoall; deepep, hybridep: a token to a rank once", "deepep")
    cp_comm: Name | None = _say("What context ranks exchange: ring, all-gather, ulysses", "ulysses")
    expert_imbalance: Factor | None = _say("Tokens of the fullest expert rank over the mean", 1.3)
    expert_capacity: Factor | None = _say("Slots of an expert over its mean rows", 1.25)
    expert_padding: Name | None = _say("off: slots that no token takes are not computed", "off")
    shard_ranks: Degree | None = _say("Neighbouring ranks that ZeRO shards over (HSDP)", 8)
    overlap: Name | None = _say("What communication hides under compute", "grads,tensor")
    precision: Name | None = _say("Width of weights and products", "bf16")
    recompute: Name | None = _say("none, selective or full (activation checkpoints)", "full")
    recompute_modules: Name | None = _say("What selective recompute runs again", "core_attn,mlp")
    recompute_layers: Count | None = _say("Recompute the first layers only", 20)
    main_grads: Name | None = _say("Gradients as wide as weights, or fp32", "fp32")
    optimizer: Name | None = _say("Optimizer", "adamw")
    offload: Name | None = _say("What lives in host memory or on NVMe", "optimizer:cpu")
    settings: Annotated[str, StringConstraints(min_length=1, max_length=4000)] | None = _say(
        "Settings of the model itself, parted by blanks; all dimensions of an arch:NAME",
        "layers=16 hidden=2048",
    )
    seq_len: Count | None = _say("Sequence length, where the model has one", 2048)
    resolution: Name | None = _say("Of images in pixels, where the model has one", "480x832")
    frames: Count | None = _say("Frames of a clip, where the model has them", 16)
    layout: Name | None = _say("Of images in a convolutional net: nchw or nhwc", "nhwc")
    attention: Name | None = _say("Kernel of attention, where the model names one", "cudnn")
    software: Name | None = _say("Training library", "deepspeed")
    prefetch_blocks: Annotated[int, Field(ge=0, le=4096)] | None = _say(
        "Blocks ahead of which ZeRO-3 gathers parameters", 1
    )
    reuse_numel: Annotated[int, Field(ge=0, le=_MOST_ELEMENTS)] | None = _say(
        "ZeRO-3 lets go of tensors not used again within so many elements", 500_000_000
    )
    gather_tensors: Name | None = _say("on: ZeRO-3 gathers each tensor on its own", "on")
    bucket_numel: Annotated[int, Field(ge=1, le=_MOST_ELEMENTS)] | None = _say(
        "Elements of a gradient bucket", 500_000_000
    )
    eager_kernels: Name | None = _say("on: CUDA loads all kernels at start", "on")
    growing_segments: Name | None = _say("on: the allocator's segments grow", "on")
    fp8_params: Name | None = _say("on: layers' weights held in 8 bits", "on")
    offload_layers: Count | None = _say("Layers whose activations go to the host", 8)
    issuer: Name | None = _say("What issues kernels", "megatron")
    compile: Name | None = _say("on: torch.compile fuses what stands between products", "on")
    optimizer_impl: Name | None = _say("Kernels of the update", "for-loop")
    grad_clip: Name | None = _say("on: gradients clipped by their norm", "on")
    launch_blocking: Name | None = _say("on: each launch waits for its kernel", "on")
    lora_rank: Degree | None = _say("Train adapters of this rank, the base frozen", 16)
    lora_targets: Name | None = _say("Products with an adapter", "q_proj,v_proj")
    quantised_base: Name | None = _say("Format of the frozen base", "nf4")
    calibration: Name | None = _say("A calibration's name, or upload:ID of a file", "latte-ddp")
    steps: Length | None = _say("Time of a run of so many steps", 100000)
    epochs: Length | None = _say("Time of a run of so many epochs of its data set", 10)

    def words(self) -> dict[str, Any]:
        """What was said, without ``dialect`` and other words of a single endpoint."""
        return self.model_dump(exclude_none=True, include=set(SetUp.model_fields))


class LaunchQuery(SetUp):
    """A set-up and the launch file that is wanted of it."""

    dialect: Name = Field(description="Whose launch file", examples=["deepspeed"])


def arguments(asked: SetUp, uploads: Uploads) -> dict[str, Any]:
    """Keyword arguments of ``api.predict``: names checked, uploads put in their place.

    Raises InvalidConfig with every name that no database and no upload has.
    """
    words = asked.words()
    problems: list[str] = []
    try:
        words["model"] = _model(words["model"], uploads)
    except UsageError as err:
        problems.append(str(err))
    if (name := words.pop("calibration", None)) is not None:
        try:
            if name.startswith(PREFIX):
                words["profile"] = uploads.calibration(name)
            else:
                words["calibration"] = _calibration(name)
        except UnknownName as err:
            problems.append(str(err))
    if problems:
        raise InvalidConfig([*problems, *_others(words)])
    return words


def predicted(**given: Any) -> api.Prediction:
    """``api.predict``; what overflows is an error of the request. Raises SimcoreError."""
    try:
        found = api.predict(**given)
    except (ArithmeticError, MemoryError):
        raise InvalidConfig([_TOO_LARGE]) from None
    figures = (found.step_time_s.value, found.step_time_s.high, found.memory.device_bytes)
    if not all(map(math.isfinite, figures)):
        raise InvalidConfig([_TOO_LARGE])
    return found


_TOO_LARGE = "these figures are too large to predict with"


def _model(name: str, uploads: Uploads) -> Any:
    """A record, never a string that could be taken for a path or a callable."""
    return uploads.model(name) if name.startswith(PREFIX) else api.model_named(name)


def _calibration(name: str) -> str:
    known = api.choices()["calibration"]
    found = {fold_name(n): n for n in (*known, "blind")}.get(fold_name(name))
    if found is None:
        raise UnknownName("calibration", name, known)
    return found


def _others(words: dict[str, Any]) -> list[str]:
    """What else is wrong, once the model or the calibration is: all of it at once."""
    rest = {k: v for k, v in words.items() if k not in ("steps", "epochs", "calibration")}
    if isinstance(rest.get("model"), str):
        rest["model"] = api.model_named(_STAND_IN)
        rest = {k: rest[k] for k in ("model", "gpus", "network", "node") if k in rest}
    try:
        api.make_request(**rest)
    except InvalidConfig as err:
        return list(err.violations)
    return []


#: Judges the cluster where the model is wrong: the smallest there is.
_STAND_IN = "mnist-cnn"
