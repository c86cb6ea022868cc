"""Models of vision libraries by name: ``timm:convnext_tiny``, ``torchvision:resnet50``.

One entry of ``ZOOS`` a library. Its networks are built without weights, so that nothing is
downloaded, and traced at the size of image that they are trained at unless inputs are given. A name
is one of the library's own list: never a path, never a place on a hub.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from dataclasses import dataclass
from importlib import import_module
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from simcore.base.errors import UnknownName, UsageError
from simcore.workload.models import ZOO_LISTS
from simcore.workload.trace.inputs import InputShape

#: ``written`` spells attention out in products and a softmax, as before PyTorch 2.0 brought
#: scaled_dot_product_attention (release notes of 2.0); ``own``: as the installed library runs it.
AttentionForm = Literal["own", "written"]
#: Of torchvision, declared when it is imported: ``torchvision/_meta_registrations.py`` gives both
#: a shape function.
_DECLARED = ("nms", "qnms")
#: Of images: grey, colour, with alpha.
_CHANNELS = (1, 3, 4)
_NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@dataclass(frozen=True, slots=True)
class Found:
    """A network of a library, the shapes that it is traced with, and how its loss is taken."""

    module: Any
    inputs: tuple[InputShape, ...]
    loss: Any


class Usual(NamedTuple):
    """What a library's training script does unless told: SGD with momentum, in fp32."""

    script: str
    micro_batch: int


class Zoo(ABC):
    """A library whose models have names."""

    name: ClassVar[str]
    #: Distributions that it is made of: their versions are part of what a trace is kept under.
    packages: ClassVar[tuple[str, ...]]
    #: Defaults of its own training script.
    usual: ClassVar[Usual]

    @abstractmethod
    def find(self, model: str, inputs: tuple[InputShape, ...], attention: AttentionForm) -> Found:
        """Build the network that the library calls ``model``. Raises UsageError."""

    def versions(self) -> tuple[str, ...]:
        """What its traces depend on. Raises UsageError where a package is not installed."""
        found = []
        for package in ("torch", *self.packages):
            try:
                found.append(f"{package} {version(package)}")
            except PackageNotFoundError:
                raise UsageError(
                    f"models of {self.name} need {package}, which is not installed: "
                    "pip install 'simcore[vision]'"
                ) from None
        return tuple(found)


class Timm(Zoo):
    """PyTorch image models (github.com/huggingface/pytorch-image-models)."""

    name = "timm"
    packages = ("timm", "torchvision")
    usual = Usual("timm's train.py", 128)  # its options --batch-size, --opt, --momentum, --amp

    def versions(self) -> tuple[str, ...]:
        """With timm's own switch of fused attention."""
        return (*super().versions(), f"TIMM_FUSED_ATTN={os.environ.get('TIMM_FUSED_ATTN', '')}")

    def find(self, model: str, inputs: tuple[InputShape, ...], attention: AttentionForm) -> Found:
        """With a tag (``resnet50.a1_in1k``) or without."""
        timm, layers = _imported("timm"), _imported("timm.layers")
        architecture, _, tag = model.partition(".")
        if not timm.is_model(architecture):
            raise UnknownName("model of timm", model, timm.list_models(), _listed(self.name))
        tags = [n.partition(".")[2] for n in timm.list_pretrained(f"{architecture}.*")]
        if tag and tag not in tags:
            raise UnknownName(f"tag of timm's {architecture}", tag, tags)
        fused = layers.use_fused_attn()
        layers.set_fused_attn(fused and attention == "own")
        try:
            module = _create(timm.create_model, model, pretrained=False)
            config = module.default_cfg
            size = tuple(config.get("input_size") or (3, 224, 224))
            if inputs:
                if (wanted := _image(inputs)) != size:
                    fixed = {"img_size": wanted[1:]} if config.get("fixed_input_size") else {}
                    module = _create(
                        timm.create_model, model, pretrained=False, in_chans=wanted[0], **fixed
                    )
            else:
                inputs = (InputShape("float32", (None, *size)),)
        finally:
            layers.set_fused_attn(fused)
        # As timm's train.py and benchmark.py: of several outputs the first alone has a loss.
        return Found(module, inputs, _loss_of_first if module.num_classes else None)


class Torchvision(Zoo):
    """The image classifiers of torchvision.models."""

    name = "torchvision"
    packages = ("torchvision",)
    # references/classification/train.py: the same options
    usual = Usual("torchvision's train.py", 32)

    def find(self, model: str, inputs: tuple[InputShape, ...], attention: AttentionForm) -> Found:
        """At the size of its first weights' images, to which its published FLOP belong."""
        models = _imported("torchvision").models
        every = models.list_models()
        if model not in every:
            known = models.list_models(module=models)
            raise UnknownName("model of torchvision", model, known, _listed(self.name))
        if model not in models.list_models(module=models):
            kind = models.get_model_builder(model).__module__.split(".")[2]
            raise UsageError(
                f"torchvision:{model} is of torchvision.models.{kind}, and of torchvision the "
                "image classifiers can be named: let a function of yours return it with sample "
                "inputs, --model package.module:callable"
            )
        module = _create(models.get_model, model, weights=None)
        fixed = getattr(module, "image_size", None)
        if inputs:
            if fixed and (wanted := _image(inputs))[1] != fixed:
                module = _create(models.get_model, model, weights=None, image_size=wanted[1])
        else:
            size = fixed or self._trained_size(models, model)
            inputs = (InputShape("float32", (None, 3, size, size)),)
        return Found(module, inputs, _loss_of_all)

    @staticmethod
    def _trained_size(models: Any, model: str) -> int:
        first = next(iter(models.get_model_weights(model)))
        return int(first.transforms.keywords["crop_size"])


ZOOS: dict[str, Zoo] = {zoo.name: zoo for zoo in (Timm(), Torchvision())}


def zoo_of(text: str) -> tuple[Zoo, str] | None:
    """The library of ``timm:NAME`` and the name; None for other texts. Raises UsageError."""
    name, colon, model = text.partition(":")
    if not colon or name not in ZOOS:
        return None
    if not model:
        raise UsageError(f"{text!r} names no model of {name}, as timm:convnext_tiny does")
    return ZOOS[name], model


def _listed(library: str) -> str:
    return f"({ZOO_LISTS[library]} has them all)"


def _image(inputs: tuple[InputShape, ...]) -> tuple[int, int, int]:
    """Channels, height and width. Raises UsageError."""
    dims = inputs[0].dims
    if len(inputs) != 1 or len(dims) != 4 or None in dims[1:]:
        raise UsageError(
            f"--input {', '.join(map(str, inputs))}: a model of a vision library takes one batch "
            "of images, such as float32[B,3,224,224]"
        )
    if dims[1] not in _CHANNELS and dims[3] in _CHANNELS:
        raise UsageError(
            f"--input {inputs[0]}: channels come first, as in {inputs[0].dtype}"
            f"[B,{dims[3]},{dims[1]},{dims[2]}] (channels_last behind it says how they lie)"
        )
    return tuple(d or 0 for d in dims[1:])  # type: ignore[return-value]


def _create(make: Any, model: str, **how: Any) -> Any:
    from simcore.workload.trace.light import light

    def run() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of names that the library has changed
            return make(model, **how)

    return light(run, model)


def _imported(library: str) -> Any:
    """The library. Raises UsageError with its own exception."""
    from simcore.workload.trace.guard import own_error

    ready_torchvision()
    try:
        return import_module(library)
    except Exception as err:
        raise own_error(f"{library} cannot be imported", err) from err


def _labels(logits: Any) -> Any:
    import torch

    return torch.empty(logits.shape[0], dtype=torch.int64)


def _loss_of_first(output: Any) -> Any:
    """Cross entropy of the classifier, or of the first of several."""
    from torch.nn.functional import cross_entropy

    logits = output[0] if isinstance(output, (tuple, list)) else output
    return cross_entropy(logits, _labels(logits))


def _loss_of_all(output: Any) -> Any:
    """Cross entropy of the classifier and of those beside it (GoogLeNet, Inception)."""
    from torch.nn.functional import cross_entropy

    every = output if isinstance(output, tuple) else (output,)
    logits, *others = (t for t in every if t is not None)
    loss = cross_entropy(logits, _labels(logits))
    for other in others:
        loss = loss + cross_entropy(other, _labels(other))
    return loss


def ready_torchvision() -> None:
    """Let torchvision be imported where its compiled operators do not load.

    Its package on PyPI is built for CUDA and fails beside torch's CPU build as soon as it is
    imported, though no classifier calls an operator of its own. What it misses is declared.
    """
    import torch

    spec = find_spec("torchvision")
    if spec is None or spec.origin is None:
        return
    for library in Path(spec.origin).parent.glob("_C*.*"):
        try:
            torch.ops.load_library(str(library))
        except OSError:
            for name in _DECLARED:
                if not hasattr(torch.ops.torchvision, name):
                    torch.library.define(f"torchvision::{name}", _NMS)
