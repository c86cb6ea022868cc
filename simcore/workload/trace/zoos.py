"""Models of vision libraries by name: ``timm:convnext_tiny``, ``torchvision:resnet50``.

``ZOOS`` has one entry per library. Networks are built without pretrained weights, so nothing is
downloaded. Unless inputs are given, they are traced at the image size of their training. A name
must be in the library's own list; a path or a model on a hub is refused.
"""

from __future__ import annotations

import os
import warnings
from abc import ABC, abstractmethod
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import Any, ClassVar, Literal, NamedTuple

from simcore.base.errors import UnknownName, UsageError
from simcore.base.record import dataclass
from simcore.workload.models import ZOO_LISTS
from simcore.workload.trace.inputs import InputShape

#: How attention is computed. ``written``: as explicit matrix products and a softmax, as before
#: PyTorch 2.0 introduced scaled_dot_product_attention (release notes of 2.0); ``own``: as the
#: installed library computes it.
AttentionForm = Literal["own", "written"]
#: Operators of torchvision to which ``torchvision/_meta_registrations.py`` adds a shape function
#: when torchvision is imported, so that they must exist.
_DECLARED = ("nms", "qnms")
#: Numbers of channels of images: grey, colour, colour with alpha.
_CHANNELS = (1, 3, 4)
_NMS = "(Tensor dets, Tensor scores, float iou_threshold) -> Tensor"


@dataclass(frozen=True)
class ZooNetwork:
    """A library's network, the shapes of its inputs and its loss function (None: the default)."""

    module: Any
    inputs: tuple[InputShape, ...]
    loss: Any


class TrainingDefaults(NamedTuple):
    """Defaults of a library's training script, which is SGD with momentum in fp32."""

    script: str
    micro_batch: int


class Zoo(ABC):
    """A library of models that are named."""

    name: ClassVar[str]
    #: Python packages on which its networks depend; their versions are part of a trace's cache key.
    packages: ClassVar[tuple[str, ...]]
    #: Defaults of the library's training script.
    usual: ClassVar[TrainingDefaults]

    @abstractmethod
    def find(
        self, model: str, inputs: tuple[InputShape, ...], attention: AttentionForm
    ) -> ZooNetwork:
        """The network that the library calls ``model``. Raises UsageError."""

    def versions(self) -> tuple[str, ...]:
        """Names and versions of the packages on which traces depend.

        Raises UsageError if a package is not installed.
        """
        from importlib.metadata import PackageNotFoundError, version  # takes long to import

        installed = []
        for package in ("torch", *self.packages):
            try:
                installed.append(f"{package} {version(package)}")
            except PackageNotFoundError:
                raise UsageError(
                    f"models of {self.name} need {package}, which is not installed: "
                    "pip install '.[vision]'"
                ) from None
        return tuple(installed)


class Timm(Zoo):
    """PyTorch image models (github.com/huggingface/pytorch-image-models)."""

    name = "timm"
    packages = ("timm", "torchvision")
    # The defaults of its options --batch-size, --opt, --momentum, --amp.
    usual = TrainingDefaults("timm's train.py", 128)

    def versions(self) -> tuple[str, ...]:
        """The versions, and timm's environment variable for fused attention."""
        return (*super().versions(), f"TIMM_FUSED_ATTN={os.environ.get('TIMM_FUSED_ATTN', '')}")

    def find(
        self, model: str, inputs: tuple[InputShape, ...], attention: AttentionForm
    ) -> ZooNetwork:
        """The network of that name, with a tag (``resnet50.a1_in1k``) or without."""
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
        # As in timm's train.py and benchmark.py, only the first of several outputs has a loss.
        return ZooNetwork(module, inputs, _loss_of_first if module.num_classes else None)


class Torchvision(Zoo):
    """The image classifiers of torchvision.models."""

    name = "torchvision"
    packages = ("torchvision",)
    # The defaults of the same options in references/classification/train.py.
    usual = TrainingDefaults("torchvision's train.py", 32)

    def find(
        self, model: str, inputs: tuple[InputShape, ...], attention: AttentionForm
    ) -> ZooNetwork:
        """The network of that name; default image size: that of its first published weights.

        Its published FLOP refer to that size.
        """
        models = _imported("torchvision").models
        every = models.list_models()
        if model not in every:
            known = models.list_models(module=models)
            raise UnknownName("model of torchvision", model, known, _listed(self.name))
        if model not in models.list_models(module=models):
            kind = models.get_model_builder(model).__module__.split(".")[2]
            raise UsageError(
                f"torchvision:{model} belongs to torchvision.models.{kind}, and only image "
                "classifiers can be named: return it with sample inputs from a function of yours, "
                "--model package.module:callable"
            )
        module = _create(models.get_model, model, weights=None)
        fixed = getattr(module, "image_size", None)
        if inputs:
            if fixed and (wanted := _image(inputs))[1] != fixed:
                module = _create(models.get_model, model, weights=None, image_size=wanted[1])
        else:
            size = fixed or self._trained_size(models, model)
            inputs = (InputShape("float32", (None, 3, size, size)),)
        return ZooNetwork(module, inputs, _loss_of_all)

    @staticmethod
    def _trained_size(models: Any, model: str) -> int:
        first = next(iter(models.get_model_weights(model)))
        return int(first.transforms.keywords["crop_size"])


ZOOS: dict[str, Zoo] = {zoo.name: zoo for zoo in (Timm(), Torchvision())}


def zoo_of(text: str) -> tuple[Zoo, str] | None:
    """The library and the model's name in ``timm:NAME``; None for other texts.

    Raises UsageError if the name is empty.
    """
    name, colon, model = text.partition(":")
    if not colon or name not in ZOOS:
        return None
    if not model:
        raise UsageError(f"{text!r} names no model of {name}, as timm:convnext_tiny does")
    return ZOOS[name], model


def _listed(library: str) -> str:
    """Where the user finds all names of a library's models."""
    return f"({ZOO_LISTS[library]} has them all)"


def _image(inputs: tuple[InputShape, ...]) -> tuple[int, int, int]:
    """Channels, height and width of a batch of images. Raises UsageError for other inputs."""
    dims = inputs[0].dims
    if len(inputs) != 1 or len(dims) != 4 or None in dims[1:]:
        raise UsageError(
            f"--input {', '.join(map(str, inputs))}: a model of a vision library takes one batch "
            "of images, such as float32[B,3,224,224]"
        )
    if dims[1] not in _CHANNELS and dims[3] in _CHANNELS:
        raise UsageError(
            f"--input {inputs[0]}: channels come first, as in {inputs[0].dtype}"
            f"[B,{dims[3]},{dims[1]},{dims[2]}] (add channels_last if they are last in memory)"
        )
    return tuple(d or 0 for d in dims[1:])  # type: ignore[return-value]


def _create(make: Any, model: str, **how: Any) -> Any:
    from simcore.workload.trace.light import light

    def run() -> Any:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # warnings about renamed models
            return make(model, **how)

    return light(run, model)


def _imported(library: str) -> Any:
    """The imported library. Raises UsageError with the text of the library's exception."""
    from simcore.workload.trace.guard import own_error

    ready_torchvision()
    try:
        return import_module(library)
    except Exception as err:
        raise own_error(f"{library} cannot be imported", err) from err


def _loss_of_first(output: Any) -> Any:
    """Cross entropy of the first output."""
    return _cross_entropy(output[0] if isinstance(output, (tuple, list)) else output)


def _loss_of_all(output: Any) -> Any:
    """The sum of cross entropies of all outputs (auxiliary classifiers of GoogLeNet, Inception)."""
    every = output if isinstance(output, tuple) else (output,)
    logits, *others = (t for t in every if t is not None)
    loss = _cross_entropy(logits)
    for other in others:
        loss = loss + _cross_entropy(other)
    return loss


def _cross_entropy(logits: Any) -> Any:
    import torch

    labels = torch.empty(logits.shape[0], dtype=torch.int64)
    return torch.nn.functional.cross_entropy(logits, labels)


def ready_torchvision() -> None:
    """Make sure that torchvision can be imported even if its compiled operators do not load.

    Its package on PyPI is built for CUDA, so its import fails with torch's CPU build, although no
    classifier uses torchvision's operators. The operators that the import needs are declared here.
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
